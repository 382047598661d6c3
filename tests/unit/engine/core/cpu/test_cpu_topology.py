from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology, discover
from nodewright.model.hardware import Core, MachineInfo, NUMANode, UncoreCache
from nodewright.model.reasons.cpu import CoreThreadsRepeated, CoreWithoutThreads, CPUCountUnknown
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.testing.strategies import topology


def machine(*nodes: NUMANode, cpus: int = 8, sockets: int = 1) -> MachineInfo:
    return MachineInfo(num_cores=cpus, num_sockets=sockets, topology=nodes)


def topology_of(info: MachineInfo) -> CPUTopology:
    verdict = discover(info)
    assert isinstance(verdict, Granted)
    return verdict.value


def test_a_core_is_named_by_its_lowest_cpu_and_a_cache_by_the_first_listed() -> None:
    caches = (UncoreCache(id=7), UncoreCache(id=8))
    topology = topology_of(machine(NUMANode(node_id=3, cores=(Core(9, 1, (5, 2), caches),))))
    assert topology.cpu_info == (CPUInfo(2, 3, 1, 2, 7), CPUInfo(5, 3, 1, 2, 7))


def test_without_caches_the_socket_stands_for_one() -> None:
    topology = topology_of(machine(NUMANode(cores=(Core(0, 4, (0, 1)),))))
    assert topology.cpu_info[0].uncore_cache == 4


def test_a_cpu_in_two_cores_belongs_to_the_later_one() -> None:
    topology = topology_of(machine(NUMANode(cores=(Core(0, 0, (0, 1)), Core(1, 1, (1, 2))))))
    assert topology.cpu_info == (CPUInfo(0, 0, 0, 0, 0), CPUInfo(1, 0, 1, 1, 1), CPUInfo(2, 0, 1, 1, 1))


def test_the_counts_are_those_that_the_machine_claims() -> None:
    topology = topology_of(machine(NUMANode(cores=(Core(0, 0, (0,)), Core(1, 0, (1,)))), cpus=7, sockets=2))
    assert (topology.num_cpus, topology.num_cores, topology.num_sockets) == (7, 2, 2)
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.cpus_per_uncore_cache) == (3, 3, 7)


def test_a_machine_without_topology_has_cpus_all_the_same() -> None:
    topology = topology_of(machine(cpus=4, sockets=0))
    assert (topology.num_cpus, topology.cpus, topology.num_numa_nodes) == (4, CPUSet(), 0)
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.cpus_per_uncore_cache) == (0, 0, 0)


def test_no_cpus_at_all_are_a_fault() -> None:
    assert discover(machine(cpus=0)) == Refused((CPUCountUnknown(),))


def test_the_first_faulty_core_is_named() -> None:
    empty = NUMANode(node_id=1, cores=(Core(0, 0, (0,)), Core(5, 0, ())))
    twice = NUMANode(node_id=2, cores=(Core(6, 0, (3, 3)),))
    assert discover(machine(empty, twice)) == Refused((CoreWithoutThreads(numa=1, core=5),))
    assert discover(machine(twice, empty)) == Refused((CoreThreadsRepeated(numa=2, core=6, threads=(3, 3)),))


def test_numa_nodes_without_cpus_do_not_count() -> None:
    topology = topology_of(machine(NUMANode(node_id=0), NUMANode(node_id=8, cores=(Core(0, 0, (0, 1)),))))
    assert topology.numa_ids == NUMASet.of(8)
    assert topology.num_numa_nodes == 1


def test_siblings_are_found_by_core() -> None:
    two_nodes = topology(sockets=2, cores=2)
    assert two_nodes.whole_cores(CPUSet.of(1, 6)) == CPUSet.of(1, 5, 2, 6)
