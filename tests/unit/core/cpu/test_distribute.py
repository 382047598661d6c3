import pytest

from nodewright.core.cpu.assign import Picking, take_cpus
from nodewright.core.cpu.distribute import BUDGET
from nodewright.core.cpu.packed import Manner
from nodewright.core.cpu.topology import CPUPlace, CPUTopology
from nodewright.model.cpu_reasons import (
    CPUAccountingWrong,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
    NotEnoughCPUs,
)
from nodewright.model.reasons import NotJudged
from nodewright.model.verdict import Granted, Refused
from nodewright.testing.topologies import topology
from nodewright.values.idset import CPUSet, NUMASet

TWO_NODES = topology(sockets=2, cores=4, smt=1)
"""0-3 and 4-7."""
TWO_NODES_SMT = topology(sockets=2, cores=2)
"""0-1,4-5 and 2-3,6-7."""
FIVE_NODES = topology(numa_per_socket=5, cores=2)
"""0-1,10-11 and 2-3,12-13 and so on to 8-9,18-19."""
AVOIDING = Manner(follow_defects=False)

SHARES = """
    free 0-7        take 0  by 1  ->
    free 0-7        take 4  by 1  ->  0-3
    free 0-7        take 5  by 1  ->  0-2,4-5
    free 0-7        take 6  by 1  ->  0-2,4-6
    free 1-7        take 4  by 1  ->  4-7
    free 1-7        take 5  by 1  ->  1-2,4-6
    free 0-1,4-7    take 5  by 1  ->  0-1,4-6
    free 0,4-7      take 5  by 1  ->  0,4-7
    free 0-7        take 3  by 2  ->  0-2
"""
GROUPS = """
    free 0-7        take 4  by 2  ->  0-1,4-5
    free 0-7        take 6  by 2  ->  0-2,4-6
    free 1-7        take 6  by 2  ->  1-2,5-7,3
"""


def check(machine: CPUTopology, line: str) -> None:
    asked, _, expected = line.partition("->")
    _, free, _, count, _, group = asked.split()
    verdict = take_cpus(machine, CPUSet.parse(free), int(count), Picking(group=int(group)))
    assert verdict == Granted(CPUSet.parse(expected.strip())), verdict


@pytest.mark.parametrize("line", SHARES.strip().splitlines())
def test_cpus_come_in_equal_shares_from_as_few_nodes_as_will_do(line: str) -> None:
    check(TWO_NODES, line)


@pytest.mark.parametrize("line", GROUPS.strip().splitlines())
def test_groups_stay_together(line: str) -> None:
    check(TWO_NODES_SMT, line)


def test_the_kubelet_uses_other_nodes_than_the_best_it_found() -> None:
    """The worked case: an idle machine of five nodes, 14 CPUs in pairs; the best choice is overwritten."""
    idle = FIVE_NODES.cpus
    followed = take_cpus(FIVE_NODES, idle, 14, Picking(group=2))
    assert followed == Granted(
        CPUSet.parse("0-5,8,10-15,18"),
        (
            DistributionOverwritten(
                best=NUMASet.parse("0-3"),
                used=NUMASet.parse("0-2,4"),
                best_for_rest=NUMASet.parse("0-3"),
                used_for_rest=NUMASet.parse("0-3"),
            ),
        ),
    )
    best = take_cpus(FIVE_NODES, idle, 14, Picking(manner=AVOIDING, group=2))
    assert best == Granted(CPUSet.parse("0-6,10-16"))


def test_a_group_that_no_node_has_makes_the_kubelet_hang() -> None:
    """Nodes 0 and 2 have 5 free CPUs each: enough for the rest of 2, but after a share of 4 not in pairs."""
    machine = topology(numa_per_socket=4, cores=3)
    free = CPUSet.parse("0-2,4-7,9-13,15,17-22")
    hanging = take_cpus(machine, free, 14, Picking(group=2))
    assert hanging == Refused((KubeletHangs(requested=14, group=2, numa=NUMASet.of(0, 2)),))
    sane = take_cpus(machine, free, 14, Picking(manner=AVOIDING, group=2))
    assert isinstance(sane, Granted)
    assert len(sane.value) == 14
    assert sane.value <= free


def test_nodes_that_were_overwritten_may_have_too_few_cpus() -> None:
    machine = topology(sockets=4, numa_per_socket=2, cores=4)
    free = CPUSet.parse("0,3-7,9-11,13-19,23,25,27,29-32,34-35,37-38,41-43,45-46,48-51,53-55,57-61")
    wrong = take_cpus(machine, free, 39, Picking(group=1))
    assert wrong == Refused((CPUAccountingWrong(remaining=5),))
    sane = take_cpus(machine, free, 39, Picking(manner=AVOIDING, group=1))
    assert isinstance(sane, Granted)
    assert len(sane.value) == 39


def test_more_than_is_free_is_refused() -> None:
    verdict = take_cpus(TWO_NODES, CPUSet.parse("0-2"), 4, Picking(group=1))
    assert verdict == Refused((NotEnoughCPUs(requested=4, available=3),))
    verdict = take_cpus(TWO_NODES, CPUSet.parse("0-2"), 5, Picking(group=2))
    assert verdict == Refused((NotEnoughCPUs(requested=5, available=3),))


def test_groups_of_none_make_the_kubelet_divide_by_zero() -> None:
    places = tuple(CPUPlace(cpu, 0, 0, cpu, 0) for cpu in range(4))
    odd = CPUTopology(3, 4, 1, 1, 1, places)
    crash = take_cpus(odd, odd.cpus, 2, Picking(group=odd.cpus_per_core))
    assert crash == Refused((KubeletCrashes(divisor="CPUs per core"),))
    sane = take_cpus(odd, odd.cpus, 2, Picking(manner=AVOIDING, group=odd.cpus_per_core))
    assert sane == Granted(CPUSet.parse("0-1"))


def test_a_search_without_end_in_sight_is_left_open() -> None:
    """Sixty nodes of sixty sizes: more combinations than anybody waits for."""
    places: list[CPUPlace] = []
    for numa in range(60):
        places += [CPUPlace(len(places) + cpu, numa, 0, len(places) + cpu, 0) for cpu in range(numa + 1)]
    machine = CPUTopology(len(places), len(places), 1, 60, 1, tuple(places))
    verdict = take_cpus(machine, machine.cpus, 200, Picking(group=1))
    assert isinstance(verdict, Refused)
    (reason,) = verdict.because
    assert isinstance(reason, NotJudged)
    assert str(BUDGET) in reason.because


def test_nodes_that_are_alike_are_looked_at_once() -> None:
    """Sixty-four equal nodes have 10**18 halves; the answer does not depend on which."""
    machine = topology(numa_per_socket=64, cores=4)
    verdict = take_cpus(machine, machine.cpus, 32 * 8, Picking(group=2))
    assert isinstance(verdict, Granted)
    assert len(verdict.value) == 32 * 8
