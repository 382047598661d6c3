"""The machine and the allocations that are inferred from a NodeResourceTopology object."""

from typing import Any

import pytest

from nodewright.documents.profiles.capture.from_cluster import (
    NUMAZone,
    ReportedNode,
    ResourceTopology,
    ZoneResource,
)
from nodewright.documents.profiles.capture.from_topology_object import (
    assumed_machine,
    zone_allocations,
    zone_devices,
)
from nodewright.model.hardware import HugePages
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, MemoryReservation
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, MemoryBlock
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import container, pod, sidecar

GIB = 1 << 30
STATIC = KubeletConfiguration(
    cpu_manager_policy="static", reserved_system_cpus="0,4", system_reserved={"cpu": "2"}
)
BOTH = KubeletConfiguration(
    cpu_manager_policy="static", memory_manager_policy="Static", system_reserved={"cpu": "1", "memory": "1Gi"}
)
TWO = pod(container("app", "2/1Gi", "2/1Gi"), name="two", uid="two")
ONE = pod(container("app", "1/1Gi", "1/1Gi"), name="one", uid="one")


def zone(numa: int, **amounts: tuple[int, int, int]) -> NUMAZone:
    return NUMAZone(
        numa_node=numa,
        costs={numa: 10, 1 - numa: 21},
        resources={
            name.replace("_", "-"): ZoneResource(capacity=capacity, allocatable=allocatable, available=left)
            for name, (capacity, allocatable, left) in amounts.items()
        },
    )


def topology(*zones: NUMAZone) -> ResourceTopology:
    return ResourceTopology(name="n", zones=zones)


def a_node(**capacity: str) -> ReportedNode:
    amounts = {
        name.replace("__", "/").replace("_", "-"): Quantity.parse(each) for name, each in capacity.items()
    }
    return ReportedNode(name="n", capacity=amounts)


def test_each_zone_is_a_numa_node_with_its_amounts() -> None:
    zones = [
        zone(n, cpu=(4, 3, 3), memory=(8 * GIB, 7 * GIB, 7 * GIB), hugepages_1Gi=(2 * GIB, 2 * GIB, 0))
        for n in (0, 1)
    ]
    machine = assumed_machine(topology(*zones), None, STATIC)
    assert (machine.num_cores, machine.num_sockets, machine.memory_capacity) == (8, 2, 16 * GIB)
    assert machine.hugepages == (HugePages(page_size=1 << 20, num_pages=4),)
    assert [node.distances for node in machine.topology] == [(10, 21), (21, 10)]
    # Where one CPU of each zone cannot be had, the reserved ones are there.
    cpus = [[core.thread_ids[0] for core in node.cores] for node in machine.topology]
    assert cpus == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_reserved_cpus_are_in_zones_with_fewer_allocatable_cpus() -> None:
    machine = assumed_machine(topology(zone(0, cpu=(4, 4, 4)), zone(1, cpu=(4, 2, 2))), None, STATIC)
    cpus = [[core.thread_ids[0] for core in node.cores] for node in machine.topology]
    assert cpus == [[1, 2, 3, 5], [0, 4, 6, 7]]


def test_amounts_that_zones_do_not_report_are_divided_evenly() -> None:
    machine = assumed_machine(
        topology(zone(0), zone(1)), a_node(cpu="5", memory="8Gi"), KubeletConfiguration()
    )
    assert [len(node.cores) for node in machine.topology] == [3, 2]
    assert [node.memory for node in machine.topology] == [4 * GIB, 4 * GIB]


def test_without_zones_reserved_memory_implies_the_number_of_numa_nodes() -> None:
    kubelet = KubeletConfiguration(
        reserved_memory=(MemoryReservation(numa_node=1),), reserved_system_cpus="what"
    )
    machine = assumed_machine(None, a_node(cpu="4", memory="8Gi"), kubelet)
    assert [node.node_id for node in machine.topology] == [0, 1]
    alone = assumed_machine(None, a_node(cpu="4", memory="8Gi", hugepages_2Mi="4Mi"), KubeletConfiguration())
    assert alone.topology[0].hugepages == (HugePages(page_size=2048, num_pages=2),)
    assert alone.topology[0].distances == (10,)


def test_devices_have_the_place_of_their_zone_or_none() -> None:
    resource_topology = topology(
        NUMAZone(numa_node=0, resources={"a.b/gpu": ZoneResource(capacity=1, allocatable=1, available=1)})
    )
    devices, advertised, open_places = zone_devices(resource_topology, a_node(cpu="4", a_b__gpu="2"))
    assert (list(advertised), open_places) == (["a-b/gpu"], ("a-b/gpu",))
    assert devices == {"a.b/gpu": (Device(id="node-0/0", numa_nodes=(0,)),)}
    node = ReportedNode(name="n", capacity={"a.b/gpu": Quantity.parse("2")})
    devices, advertised, open_places = zone_devices(resource_topology, node)
    assert devices["a.b/gpu"][1] == Device(id="anywhere/0")
    assert (advertised, open_places) == ({}, ())


def test_devices_of_several_numa_nodes_count_twice_and_may_be_anywhere() -> None:
    both = {"a.b/gpu": ZoneResource(capacity=1, allocatable=1, available=1)}
    resource_topology = topology(NUMAZone(numa_node=0, resources=both), NUMAZone(numa_node=1, resources=both))
    devices, _, open_places = zone_devices(
        resource_topology, ReportedNode(name="n", capacity={"a.b/gpu": Quantity.parse("1")})
    )
    assert (devices["a.b/gpu"], open_places) == ((Device(id="anywhere/0"),), ("a.b/gpu",))


def place(zones: tuple[NUMAZone, ...], *pods: Any, kubelet: KubeletConfiguration = STATIC) -> Any:
    resource_topology = topology(*zones)
    devices, _, _ = zone_devices(resource_topology, None)
    return zone_allocations(
        pods, resource_topology, kubelet, assumed_machine(resource_topology, None, kubelet), devices
    )


def test_pods_are_assigned_to_the_zones_whose_usage_they_account_for() -> None:
    zones = (zone(0, cpu=(4, 3, 2)), zone(1, cpu=(4, 3, 1)))
    assert place(zones, ONE, TWO) == (
        ContainerAllocation(pod="default/one", container="app", cpus="1"),
        ContainerAllocation(pod="default/two", container="app", cpus="5-6"),
    )
    # The other way round the first choice has to be taken back.
    assert place((zone(0, cpu=(4, 3, 1)), zone(1, cpu=(4, 3, 2))), ONE, TWO) == (
        ContainerAllocation(pod="default/one", container="app", cpus="5"),
        ContainerAllocation(pod="default/two", container="app", cpus="1-2"),
    )


def test_memory_and_devices_are_placed_too_and_init_containers_are_not() -> None:
    amounts = ZoneResource(capacity=1, allocatable=1, available=0)
    zones = (
        zone(0, cpu=(4, 3, 3), memory=(8 * GIB, 7 * GIB, 7 * GIB)),
        NUMAZone(
            numa_node=1,
            resources={
                **zone(1, cpu=(4, 4, 1), memory=(8 * GIB, 8 * GIB, 6 * GIB)).resources,
                "a.b/gpu": amounts,
            },
        ),
    )
    document = {"cpu": "2", "memory": "1Gi", "a.b/gpu": "1"}
    full = pod(
        container("app", document, document),
        init=(container("init", "3/1Gi", "3/1Gi"), sidecar("side", "1/1Gi", "1/1Gi")),
        name="full",
        uid="full",
    )
    result = place(zones, full, kubelet=BOTH)
    memory = (MemoryBlock(numa_nodes=(1,), type="memory", size=GIB),)
    assert [(each.container, each.cpus, each.memory, each.devices) for each in result] == [
        ("side", "4", memory, {}),
        ("app", "5-6", memory, {"a.b/gpu": ("node-1/0",)}),
    ]


def test_in_the_scope_of_pods_all_containers_are_in_one_zone() -> None:
    pair = pod(container("a", "1/1Gi", "1/1Gi"), container("b", "1/1Gi", "1/1Gi"), name="pair", uid="pair")
    zones = (zone(0, cpu=(4, 3, 2)), zone(1, cpu=(4, 3, 2)))
    assert place(zones, pair) is not None
    scoped = KubeletConfiguration(
        cpu_manager_policy="static", reserved_system_cpus="0,4", topology_manager_scope="pod"
    )
    assert place(zones, pair, kubelet=scoped) is None


def test_usage_that_pods_do_not_account_for_has_no_allocation() -> None:
    assert place((zone(0, cpu=(4, 3, 1)), zone(1, cpu=(4, 3, 3))), ONE) is None
    assert place((zone(0, cpu=(4, 3, 3)), zone(1, cpu=(4, 3, 3))), ONE) is None
    assert place((zone(0, cpu=(4, 3, 3)), zone(1, cpu=(4, 3, 3)))) == ()


@pytest.mark.slow
def test_a_search_stops_after_its_limit() -> None:
    many = [pod(container("app", "2/1Gi", "2/1Gi"), name=f"p{n}", uid=f"p{n}") for n in range(40)]
    zones = tuple(zone(n, cpu=(64, 63, 42)) for n in range(4))
    assert place(zones, *many) is None


def test_a_machine_with_other_numa_nodes_than_the_zones_has_no_allocations() -> None:
    resource_topology = topology(zone(0, cpu=(4, 3, 3)))
    other = assumed_machine(topology(zone(1, cpu=(4, 3, 3))), None, STATIC)
    assert zone_allocations((), resource_topology, STATIC, other, {}) is None


TWO_NUMA_NODES = KubeletConfiguration(
    reserved_memory=(MemoryReservation(numa_node=0), MemoryReservation(numa_node=1))
)


def test_huge_pages_of_the_node_object_are_shared_between_assumed_numa_nodes() -> None:
    node = a_node(cpu="4", memory="16Gi", hugepages_1Gi="3Gi", hugepages_2Mi="8Mi")
    machine = assumed_machine(None, node, TWO_NUMA_NODES)
    assert machine.hugepages == (
        HugePages(page_size=2048, num_pages=4),
        HugePages(page_size=1 << 20, num_pages=3),
    )
    assert [[pages.num_pages for pages in numa.hugepages] for numa in machine.topology] == [[2, 2], [1, 2]]


def test_huge_pages_of_one_zone_leave_the_rest_of_the_node_to_the_others() -> None:
    zones = zone(0, hugepages_1Gi=(2 * GIB, 2 * GIB, 0)), zone(1, cpu=(1, 1, 1))
    machine = assumed_machine(topology(*zones), a_node(hugepages_1Gi="3Gi"), BOTH)
    assert [[pages.num_pages for pages in numa.hugepages] for numa in machine.topology] == [[2], [1]]
