from collections.abc import Sequence

import pytest

from nodewright.engine.core.cpu import cpu_assignment
from nodewright.engine.core.cpu.cpu_assignment import PackingOptions
from nodewright.engine.core.cpu.cpu_policy import AssignmentStrategy, take_cpus
from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
from nodewright.model.reasons.cpu import (
    CPUAccountingWrong,
    DistributionOverwritten,
    KubeletCrashes,
    KubeletHangs,
    NotEnoughCPUs,
)
from nodewright.model.reasons.reason import NotJudged
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.testing.strategies import topology

TWO_NODES = topology(sockets=2, cores=4, smt=1)
"""0-3 and 4-7."""
TWO_NODES_SMT = topology(sockets=2, cores=2)
"""0-1,4-5 and 2-3,6-7."""
FIVE_NODES = topology(numa_per_socket=5, cores=2)
"""0-1,10-11 and 2-3,12-13 and so on to 8-9,18-19."""
AVOIDING = PackingOptions(follow_defects=False)

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
    verdict = take_cpus(
        machine, CPUSet.parse(free), int(count), AssignmentStrategy(cpu_group_size=int(group))
    )
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
    followed = take_cpus(FIVE_NODES, idle, 14, AssignmentStrategy(cpu_group_size=2))
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
    best = take_cpus(FIVE_NODES, idle, 14, AssignmentStrategy(packing=AVOIDING, cpu_group_size=2))
    assert best == Granted(CPUSet.parse("0-6,10-16"))


def test_a_group_that_no_node_has_makes_the_kubelet_hang() -> None:
    """Nodes 0 and 2 have 5 free CPUs each: enough for the rest of 2, but after a share of 4 not in pairs."""
    machine = topology(numa_per_socket=4, cores=3)
    free = CPUSet.parse("0-2,4-7,9-13,15,17-22")
    hanging = take_cpus(machine, free, 14, AssignmentStrategy(cpu_group_size=2))
    assert hanging == Refused((KubeletHangs(requested=14, group=2, numa=NUMASet.of(0, 2)),))
    sane = take_cpus(machine, free, 14, AssignmentStrategy(packing=AVOIDING, cpu_group_size=2))
    assert isinstance(sane, Granted)
    assert len(sane.value) == 14
    assert sane.value <= free


def test_nodes_that_were_overwritten_may_have_too_few_cpus() -> None:
    machine = topology(sockets=4, numa_per_socket=2, cores=4)
    free = CPUSet.parse("0,3-7,9-11,13-19,23,25,27,29-32,34-35,37-38,41-43,45-46,48-51,53-55,57-61")
    wrong = take_cpus(machine, free, 39, AssignmentStrategy(cpu_group_size=1))
    assert wrong == Refused((CPUAccountingWrong(remaining=5),))
    sane = take_cpus(machine, free, 39, AssignmentStrategy(packing=AVOIDING, cpu_group_size=1))
    assert isinstance(sane, Granted)
    assert len(sane.value) == 39


def test_nodes_for_the_rest_that_have_nothing_left_make_the_kubelet_hang() -> None:
    """What overwritten nodes could lead to; no machine is known on which they do."""
    search = cpu_assignment._DistributionSearch([0, 1], {0: 2, 1: 4}, 5, 1, follow=True)
    numa_selection = cpu_assignment._NUMASelection((0, 1), (0,))
    hanging = cpu_assignment._take(
        TWO_NODES, CPUSet.parse("0-1,4-7").mask, numa_selection, search, PackingOptions()
    )
    assert hanging == KubeletHangs(requested=5, group=1, numa=NUMASet.of(0))


def test_more_than_is_free_is_refused() -> None:
    verdict = take_cpus(TWO_NODES, CPUSet.parse("0-2"), 4, AssignmentStrategy(cpu_group_size=1))
    assert verdict == Refused((NotEnoughCPUs(requested=4, available=3),))
    verdict = take_cpus(TWO_NODES, CPUSet.parse("0-2"), 5, AssignmentStrategy(cpu_group_size=2))
    assert verdict == Refused((NotEnoughCPUs(requested=5, available=3),))


def test_groups_of_none_make_the_kubelet_divide_by_zero() -> None:
    places = tuple(CPUInfo(cpu, 0, 0, cpu, 0) for cpu in range(4))
    odd = CPUTopology(3, 4, 1, 1, 1, places)
    crash = take_cpus(odd, odd.cpus, 2, AssignmentStrategy(cpu_group_size=odd.cpus_per_core))
    assert crash == Refused((KubeletCrashes(divisor="CPUs per core"),))
    sane = take_cpus(odd, odd.cpus, 2, AssignmentStrategy(packing=AVOIDING, cpu_group_size=odd.cpus_per_core))
    assert sane == Granted(CPUSet.parse("0-1"))


def of_sizes(sizes: Sequence[int]) -> CPUTopology:
    """One socket with NUMA nodes of so many cores, a CPU each."""
    places: list[CPUInfo] = []
    for numa, size in enumerate(sizes):
        places += [CPUInfo(cpu, numa, 0, cpu, 0) for cpu in range(len(places), len(places) + size)]
    return CPUTopology(len(places), len(places), 1, len(sizes), 1, tuple(places))


@pytest.mark.parametrize(
    ("sizes", "count", "group"),
    [
        (range(1, 61), 200, 1),  # sixty nodes of sixty sizes: C(60, 7) sets of them
        (range(101, 121, 2), 1010, 2),  # ten nodes, all needed: 2**9 ways to give the rest
    ],
)
def test_a_search_without_end_in_sight_is_left_open(
    sizes: Sequence[int], count: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_assignment, "MAX_COMBINATIONS", 200)
    machine = of_sizes(sizes)
    verdict = take_cpus(machine, machine.cpus, count, AssignmentStrategy(cpu_group_size=group))
    assert isinstance(verdict, Refused)
    (reason,) = verdict.because
    assert isinstance(reason, NotJudged)
    assert "200 combinations" in reason.because


def test_nodes_that_are_alike_are_looked_at_once() -> None:
    """Sixty-four equal nodes have 10**18 halves; the answer does not depend on which."""
    machine = topology(numa_per_socket=64, cores=4)
    verdict = take_cpus(machine, machine.cpus, 32 * 8, AssignmentStrategy(cpu_group_size=2))
    assert isinstance(verdict, Granted)
    assert len(verdict.value) == 32 * 8
