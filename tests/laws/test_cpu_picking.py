"""The quick pickers against the slow ones, and what holds of every pick."""

from hypothesis import given
from hypothesis import strategies as st
from tests.laws.slow_cpus import CPUs, Machine, Refusal, slow_distributed, slow_packed

from nodewright.engine.core.cpu.cpu_assignment import PackingOptions
from nodewright.engine.core.cpu.cpu_policy import AssignmentStrategy, take_cpus
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.model.reasons.cpu import CPUAccountingWrong, KubeletCrashes, KubeletHangs, NotEnoughCPUs
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet
from nodewright.testing.strategies import topologies


@st.composite
def questions(draw: st.DrawFn, machines: st.SearchStrategy[CPUTopology]) -> tuple[CPUTopology, CPUSet, int]:
    """A machine, the CPUs that are free on it, and how many are wanted."""
    topology = draw(machines)
    free = CPUSet(draw(st.integers(0, 2 ** len(topology.cpu_info) - 1)))
    by_place = CPUSet.from_ids(topology.cpu_info[index].cpu for index in free)
    cpu_set = topology.cpus if draw(st.integers(0, 3)) == 0 else by_place
    return topology, cpu_set, draw(st.integers(0, len(cpu_set) + 1))


def outcome(topology: CPUTopology, free: CPUSet, count: int, picking: AssignmentStrategy) -> CPUs | str:
    match take_cpus(topology, free, count, picking):
        case Granted(value=taken):
            return frozenset(taken)
        case Refused(because=(NotEnoughCPUs(), *_)):
            return "not enough"
        case Refused(because=(KubeletHangs(), *_)):
            return "hang"
        case Refused(because=(KubeletCrashes(), *_)):
            return "crash"
        case Refused(because=(CPUAccountingWrong(remaining=remaining), *_)):
            return f"accounting {remaining}"
        case other:
            raise AssertionError(other)


@given(question=questions(topologies()), spread=st.booleans(), caches=st.booleans())
def test_the_packed_pick_is_the_slow_one(
    question: tuple[CPUTopology, CPUSet, int], *, spread: bool, caches: bool
) -> None:
    topology, free, count = question
    expected: CPUs | str
    try:
        expected = slow_packed(Machine(topology), frozenset(free), count, spread=spread, caches=caches)
    except Refusal as refusal:
        expected = str(refusal)
    manner = PackingOptions(spread=spread, prefer_uncore_cache=caches)
    assert outcome(topology, free, count, AssignmentStrategy(packing=manner)) == expected


@given(question=questions(topologies()), group=st.integers(0, 4), spread=st.booleans())
def test_the_distributed_pick_is_the_slow_one(
    question: tuple[CPUTopology, CPUSet, int], group: int, *, spread: bool
) -> None:
    topology, free, count = question
    expected: CPUs | str
    try:
        expected = slow_distributed(Machine(topology), frozenset(free), count, group, spread=spread)
    except Refusal as refusal:
        expected = str(refusal)
    picking = AssignmentStrategy(packing=PackingOptions(spread=spread), cpu_group_size=group)
    assert outcome(topology, free, count, picking) == expected
