import pytest

from nodewright.engine.core.cpu.cpu_assignment import PackingOptions, take_packed
from nodewright.engine.core.cpu.cpu_policy import AssignmentStrategy, take_cpus
from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
from nodewright.model.reasons.cpu import CPUsNotFree, KubeletCrashes, NotEnoughCPUs
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet
from nodewright.testing.strategies import topology, topology_of_cpus

FOUR_CORES = topology(cores=4)
TWO_SOCKETS = topology(sockets=2, cores=4)
TWO_NODES_A_SOCKET = topology(sockets=2, numa_per_socket=2, cores=2)
CACHES = topology(cores=8, cores_per_cache=2)
HYBRID = topology_of_cpus([CPUInfo(cpu, 0, 0, cpu // 2 * 2 if cpu < 4 else cpu, 0) for cpu in range(8)])

PACKED = """
    free 0-7        take 0  ->
    free 0-7        take 1  ->  0
    free 0-7        take 2  ->  0,4
    free 0-7        take 3  ->  0-1,4
    free 1-7        take 3  ->  1,4-5
    free 1-7        take 1  ->  4
    free 0-2,5      take 2  ->  1,5
    free 0-2,5      take 1  ->  0
    free 0-7        take 8  ->  0-7
"""
# Siblings are 8 apart: 0-3,8-11 are one socket and node, 4-7,12-15 the other.
SOCKETS = """
    free 0-15           take 8   ->  0-3,8-11
    free 1-15           take 8   ->  4-7,12-15
    free 1-15           take 9   ->  4-8,12-15
    free 1-3,8-15,4-7   take 2   ->  1,9
    free 0-15           take 16  ->  0-15
    free 3-15           take 2   ->  3,11
    free 0-3,8-11,4     take 2   ->  0,8
    free 0-3,8-11,4     take 1   ->  4
"""
# Nodes of two cores: 0-1,8-9; 2-3,10-11; 4-5,12-13; 6-7,14-15. The emptiest socket last.
NODES_IN_SOCKETS = """
    free 0-15       take 4  ->  0-1,8-9
    free 0-12,14-15 take 4  ->  6-7,14-15
    free 0-12,14-15 take 2  ->  4,12
    free 0-12,14-15 take 1  ->  5
    free 0-15       take 12 ->  0-5,8-13
"""
SPREAD = """
    free 0-7        take 2  ->  0-1
    free 0-7        take 5  ->  0-4
    free 1-7        take 2  ->  1-2
    free 0-7        take 8  ->  0-7
"""
# Caches of two cores: 0-1,8-9; 2-3,10-11; 4-5,12-13; 6-7,14-15.
CACHE_PICKS = """
    free 0-15           take 4  ->  0-1,8-9
    free 1-15           take 4  ->  2-3,10-11
    free 1-15           take 2  ->  2,10
    free 1-7,9-15       take 2  ->  1,9
    free 1-7,9-15       take 3  ->  2-3,10
    free 0-15           take 6  ->  0-2,8-10
    free 1-15           take 5  ->  2-3,8,10-11
    free 0,2,4,6        take 2  ->  0,2
"""


def check(machine: CPUTopology, line: str, manner: PackingOptions | None = None) -> None:
    asked, _, expected = line.partition("->")
    _, free, _, count = asked.split()
    picking = AssignmentStrategy(packing=manner or PackingOptions())
    verdict = take_cpus(machine, CPUSet.parse(free), int(count), picking)
    assert verdict == Granted(CPUSet.parse(expected)), verdict


@pytest.mark.parametrize("line", PACKED.strip().splitlines())
def test_whole_cores_go_first_then_broken_ones(line: str) -> None:
    check(FOUR_CORES, line)


@pytest.mark.parametrize("line", SOCKETS.strip().splitlines())
def test_whole_sockets_go_first_then_the_fullest_one(line: str) -> None:
    check(TWO_SOCKETS, line)


@pytest.mark.parametrize("line", NODES_IN_SOCKETS.strip().splitlines())
def test_numa_nodes_inside_sockets_are_taken_whole_after_sockets(line: str) -> None:
    check(TWO_NODES_A_SOCKET, line)


@pytest.mark.parametrize("line", SPREAD.strip().splitlines())
def test_spreading_takes_cpus_by_number(line: str) -> None:
    check(FOUR_CORES, line, PackingOptions(spread=True))


@pytest.mark.parametrize("line", CACHE_PICKS.strip().splitlines())
def test_caches_are_kept_together_where_the_request_comes_out_even(line: str) -> None:
    check(CACHES, line, PackingOptions(prefer_uncore_cache=True))


def test_more_than_is_free_is_refused() -> None:
    verdict = take_cpus(FOUR_CORES, CPUSet.parse("0-2"), 4, AssignmentStrategy())
    assert verdict == Refused((NotEnoughCPUs(requested=4, available=3),))


def test_cpus_that_the_machine_lacks_count_as_available_in_the_message_alone() -> None:
    verdict = take_cpus(FOUR_CORES, CPUSet.parse("7-9"), 2, AssignmentStrategy())
    assert verdict == Refused((NotEnoughCPUs(requested=2, available=3),))


def test_where_cores_differ_the_kubelet_hands_out_cpus_that_are_not_free() -> None:
    """Two cores of two threads and four of one: 8 CPUs by 6 cores make 1, so a half-used core looks free."""
    free = CPUSet.parse("1,4-7")
    verdict = take_cpus(HYBRID, free, 2, AssignmentStrategy())
    assert verdict == Granted(CPUSet.of(0, 1), (CPUsNotFree(cpus=CPUSet.of(0)),))
    sane = take_cpus(HYBRID, free, 2, AssignmentStrategy(packing=PackingOptions(follow_defects=False)))
    assert sane == Granted(CPUSet.of(4, 5))


def test_without_a_whole_cpu_a_core_the_cache_phase_divides_by_zero() -> None:
    places = tuple(CPUInfo(cpu, 0, 0, cpu, cpu // 2) for cpu in range(4))
    odd = CPUTopology(3, 4, 1, 1, 2, places)
    manner = PackingOptions(prefer_uncore_cache=True)
    assert take_packed(odd, 0b0111, 1, manner) == KubeletCrashes(divisor="CPUs per core")
    # A whole cache comes before the division.
    assert take_packed(odd, 0b0011, 2, manner) == 0b0011
    assert (
        take_packed(odd, 0b0111, 1, PackingOptions(prefer_uncore_cache=True, follow_defects=False)) == 0b0001
    )


def test_a_core_that_is_listed_twice_counts_twice() -> None:
    """One socket on two NUMA nodes of a machine that claims two sockets: it is listed under both nodes."""
    places = tuple(CPUInfo(cpu, cpu % 2, 0, cpu % 4, 0) for cpu in range(8))
    odd = CPUTopology(8, 4, 2, 2, 1, places)
    free = CPUSet.parse("0-2,4").mask
    assert take_packed(odd, free, 4, PackingOptions()) == CPUSet.of(0, 4).mask
    assert take_packed(odd, free, 4, PackingOptions(follow_defects=False)) == free
