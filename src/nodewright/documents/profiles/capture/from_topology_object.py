"""Infers a machine and the pods' allocations from a NodeResourceTopology object."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from nodewright.documents.profiles.capture.from_cluster import NUMAZone, ReportedNode, ResourceTopology
from nodewright.engine.core.allocatable import node_resources
from nodewright.engine.core.cpu.cpu_policy import CPUSettings, StaticCPUPolicy, create_policy
from nodewright.engine.core.cpu.cpu_state import PodCPURequests
from nodewright.engine.core.cpu.cpu_topology import discover
from nodewright.engine.core.cpu.policy_options import DEFAULT_CPU_GATES
from nodewright.engine.core.memory.memory_state import PodMemoryDemand
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, parse_reservations
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, MemoryBlock
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, huge_page_bytes, is_extended, is_huge_page
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, IdSetError
from nodewright.model.values.quantity import Quantity

T = TypeVar("T")

MAX_NUMA_NODES = 1024
"""Each has a distance to each."""
MAX_DEVICES = 65_536
"""A small object can name any number, and each device becomes an object."""
_KIB = 1024
_MAX_STEPS = 100_000
_REMOTE, _LOCAL = 20, 10


def assumed_machine(
    topology: ResourceTopology | None, node: ReportedNode | None, kubelet: KubeletConfiguration
) -> MachineInfo:
    """A machine with the reported NUMA nodes, or those that `reservedMemory` names; at least one.

    Each CPU is a core; CPUs are numbered in order, and reserved ones belong to the zones in which fewer CPUs are
    allocatable than exist.
    """
    last = max((reservation.numa_node for reservation in kubelet.reserved_memory), default=0)
    if max(last, len(topology.zones) - 1 if topology else 0) >= MAX_NUMA_NODES:
        rule = f"Linux has at most {MAX_NUMA_NODES} NUMA nodes"
        raise InputError([Fault(path="reservedMemory, zones", value=last, rule=rule)])
    zones = topology.zones if topology else tuple(NUMAZone(numa_node=numa) for numa in range(last + 1))
    try:
        reserved = CPUSet.parse(kubelet.reserved_system_cpus)
    except IdSetError:
        reserved = CPUSet()
    counts = _shares(zones, CPU, _amount(node, CPU))
    memory = _shares(zones, MEMORY, _amount(node, MEMORY))
    cpu_ids = _cpu_ids(zones, counts, reserved)
    huge_pages = _huge_pages(zones, node)
    nodes = tuple(
        NUMANode(
            node_id=zone.numa_node,
            memory=memory[index],
            hugepages=huge_pages[index],
            distances=tuple(_distance(zone, other) for other in zones),
            cores=tuple(
                Core(core_id=core_id, socket_id=index, thread_ids=(cpu,))
                for core_id, cpu in enumerate(cpu_ids[index])
            ),
        )
        for index, zone in enumerate(zones)
    )
    return MachineInfo(
        num_cores=sum(counts),
        num_physical_cores=sum(counts),
        num_sockets=len(zones),
        memory_capacity=_amount(node, MEMORY) or sum(memory),
        hugepages=_total_huge_pages(nodes),
        topology=nodes,
    )


def _amount(node: ReportedNode | None, name: str) -> int:
    return node.capacity[name].value() if node and name in node.capacity else 0


def _shares(zones: Sequence[NUMAZone], name: str, total: int) -> list[int]:
    """The amount of a resource in each zone; equal shares of the node's if the object does not report it."""
    if all(name in zone.resources for zone in zones):
        return [zone.resources[name].capacity for zone in zones]
    share, rest = divmod(total, len(zones))
    return [share + (index < rest) for index in range(len(zones))]


def _cpu_ids(zones: Sequence[NUMAZone], counts: Sequence[int], reserved: CPUSet) -> list[list[int]]:
    """The CPU ids of each zone."""
    reserved_counts = [
        zone.resources[CPU].capacity - zone.resources[CPU].allocatable if CPU in zone.resources else 0
        for zone in zones
    ]
    ids = list(range(sum(counts)))
    reserved_ids = [cpu for cpu in ids if cpu in reserved] if sum(reserved_counts) == len(reserved) else []
    other_ids = [cpu for cpu in ids if cpu not in reserved_ids]
    ids_of_zones = []
    for count, reserved_count in zip(counts, reserved_counts, strict=True):
        zone_reserved, reserved_ids = reserved_ids[:reserved_count], reserved_ids[reserved_count:]
        other_count = count - len(zone_reserved)
        ids_of_zones.append(sorted(zone_reserved + other_ids[:other_count]))
        other_ids = other_ids[other_count:]
    return ids_of_zones


def _huge_pages(zones: Sequence[NUMAZone], node: ReportedNode | None) -> list[tuple[HugePages, ...]]:
    """The huge pages of each zone; zones for which none are reported have equal shares of the node's other pages."""
    reported = {name for zone in zones for name in zone.resources if is_huge_page(name)}
    on_node = {name for name in (node.capacity if node else {}) if is_huge_page(name)}
    pages: list[list[HugePages]] = [[] for _ in zones]
    for name in sorted(reported | on_node):
        page_bytes = huge_page_bytes(name)
        assert page_bytes is not None, "names are checked when they are read"
        counts = [
            zone.resources[name].capacity // page_bytes if name in zone.resources else 0 for zone in zones
        ]
        unreported = [index for index, zone in enumerate(zones) if name not in zone.resources]
        rest = max(0, _amount(node, name) // page_bytes - sum(counts))
        for position, index in enumerate(unreported):
            counts[index] = rest // len(unreported) + (position < rest % len(unreported))
        for zone_pages, count in zip(pages, counts, strict=True):
            zone_pages.append(HugePages(page_size=page_bytes // _KIB, num_pages=count))
    return list(map(tuple, pages))


def _total_huge_pages(nodes: Iterable[NUMANode]) -> tuple[HugePages, ...]:
    total: dict[int, int] = {}
    for node in nodes:
        for pages in node.hugepages:
            total[pages.page_size] = total.get(pages.page_size, 0) + pages.num_pages
    return tuple(HugePages(page_size=size, num_pages=count) for size, count in sorted(total.items()))


def _distance(zone: NUMAZone, other: NUMAZone) -> int:
    return zone.costs.get(other.numa_node, _LOCAL if zone is other else _REMOTE)


def zone_devices(
    topology: ResourceTopology | None, node: ReportedNode | None
) -> tuple[dict[str, tuple[Device, ...]], dict[str, Quantity], tuple[str, ...]]:
    """Devices of the zones with generated ids; amounts without a zone; resources with unknown NUMA nodes."""
    advertised = {
        name: amount for name, amount in (node.capacity if node else {}).items() if is_extended(name)
    }
    zones = topology.zones if topology else ()
    devices: dict[str, tuple[Device, ...]] = {}
    unplaced = []
    for name in sorted({name for zone in zones for name in zone.resources if is_extended(name)}):
        placed = [
            Device(id=f"node-{zone.numa_node}/{index}", numa_nodes=(zone.numa_node,))
            for zone in zones
            for index in range(zone.resources[name].capacity if name in zone.resources else 0)
        ]
        total = advertised.pop(name).value() if name in advertised else len(placed)
        if max(total, len(placed)) > MAX_DEVICES:
            rule = f"a node has at most {MAX_DEVICES} devices of a resource"
            raise InputError([Fault(path=f"status.capacity[{name}]", value=total, rule=rule)])
        if total < len(placed):  # a device of several NUMA nodes counts in each zone
            unplaced.append(name)
            placed = []
        placed += [Device(id=f"anywhere/{index}") for index in range(total - len(placed))]
        devices[name] = tuple(placed)
    return devices, advertised, (*unplaced, *sorted(advertised))


class _ZoneGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Containers that must be in the same zone, and their total resources."""

    members: tuple[tuple[Pod, Container], ...]
    amounts: Mapping[str, int]


def zone_allocations(
    pods: Sequence[Pod],
    topology: ResourceTopology,
    kubelet: KubeletConfiguration,
    machine: MachineInfo,
    devices: Mapping[str, tuple[Device, ...]],
) -> tuple[ContainerAllocation, ...] | None:
    """Allocations that leave as much in each zone as the object reports; None if none were found.

    Does not consider pods with resources of several NUMA nodes, nor terminated init containers.
    """
    if [zone.numa_node for zone in topology.zones] != [node.node_id for node in machine.topology]:
        return None
    tracked = {name for zone in topology.zones for name in zone.resources}
    groups = [
        group
        for pod in map(with_defaults, pods)
        for group in _groups(pod, kubelet, tracked)
        if any(group.amounts.values())
    ]
    unassigned = [
        {name: resource.used for name, resource in zone.resources.items()} for zone in topology.zones
    ]
    search = _ZoneSearch(groups, unassigned)
    if not search.solve():
        return None
    return _ZoneAllocator(machine, topology, kubelet, devices).allocations(groups, search.zones)


def _groups(pod: Pod, kubelet: KubeletConfiguration, tracked: set[str]) -> Iterable[_ZoneGroup]:
    running_containers = [
        *(container for container in pod.spec.init_containers if container.is_sidecar),
        *pod.spec.containers,
    ]
    groups = [
        _ZoneGroup(members=((pod, container),), amounts=_exclusive_amounts(pod, container, kubelet, tracked))
        for container in running_containers
    ]
    if kubelet.topology_manager_scope != "pod":
        return groups
    total: dict[str, int] = {}
    for group in groups:
        for name, count in group.amounts.items():
            total[name] = total.get(name, 0) + count
    return [_ZoneGroup(members=tuple((pod, container) for container in running_containers), amounts=total)]


def _exclusive_amounts(
    pod: Pod, container: Container, kubelet: KubeletConfiguration, tracked: set[str]
) -> dict[str, int]:
    """The exclusive resources of the container that zones report.

    Units: CPUs, bytes, counts.
    """
    amounts: dict[str, int] = {}
    if kubelet.cpu_manager_policy == "static":
        amounts[CPU] = PodCPURequests.of(pod, DEFAULT_CPU_GATES).container_cpus(container)
    if kubelet.memory_manager_policy == "Static":
        demand = PodMemoryDemand.of(pod)
        memory = demand.container(container) if demand.is_guaranteed else {}
        amounts |= dict(memory) if isinstance(memory, Mapping) else {}
    for name, count in container.resources.requests.items():
        if is_extended(name):
            amounts[name] = count.value()
    return {name: count for name, count in amounts.items() if name in tracked and count}


@dataclass(slots=True)
class _ZoneSearch:
    """Assigns groups to zones so that they account for all used resources; a bounded search."""

    groups: Sequence[_ZoneGroup]
    unassigned: list[dict[str, int]]
    """The used resources of each zone that no group accounts for yet."""
    zones: list[int] = field(default_factory=list)
    """The zone of each group."""
    steps: int = 0

    def solve(self) -> bool:
        """Searches zones for all groups; `zones` has them if the search succeeds."""
        if len(self.zones) == len(self.groups):
            return not any(count for zone in self.unassigned for count in zone.values())
        self.steps += 1
        if self.steps > _MAX_STEPS:
            return False
        amounts = self.groups[len(self.zones)].amounts
        for index, zone in enumerate(self.unassigned):
            if any(zone.get(name, 0) < count for name, count in amounts.items()):
                continue
            for name, count in amounts.items():
                zone[name] -= count
            self.zones.append(index)
            if self.solve():
                return True
            self.zones.pop()
            for name, count in amounts.items():
                zone[name] += count
        return False


class _ZoneAllocator:
    """Allocates CPUs and devices of a zone in order, so that containers get whole cores where possible."""

    def __init__(
        self,
        machine: MachineInfo,
        topology: ResourceTopology,
        kubelet: KubeletConfiguration,
        devices: Mapping[str, tuple[Device, ...]],
    ) -> None:
        reserved = _reserved_cpus(kubelet, machine)
        self._cpus = [
            [cpu for core in node.cores for cpu in core.thread_ids if cpu not in reserved]
            for node in machine.topology
        ]
        self._numa = [zone.numa_node for zone in topology.zones]
        self._devices = {
            (name, zone): [device.id for device in listed if device.numa_nodes == (numa,)]
            for name, listed in devices.items()
            for zone, numa in enumerate(self._numa)
        }
        self._kubelet = kubelet
        self._tracked = {name for zone in topology.zones for name in zone.resources}

    def allocations(
        self, groups: Sequence[_ZoneGroup], zones: Sequence[int]
    ) -> tuple[ContainerAllocation, ...]:
        """The allocation of each container."""
        return tuple(
            self._allocate(pod, container, zone)
            for group, zone in zip(groups, zones, strict=True)
            for pod, container in group.members
        )

    def _allocate(self, pod: Pod, container: Container, zone: int) -> ContainerAllocation:
        amounts = _exclusive_amounts(pod, container, self._kubelet, self._tracked)
        cpus, self._cpus[zone] = _split_at(self._cpus[zone], amounts.get(CPU, 0))
        devices = {}
        for name, count in amounts.items():
            if is_extended(name):
                ids, self._devices[name, zone] = _split_at(self._devices[name, zone], count)
                devices[name] = tuple(ids)
        return ContainerAllocation(
            pod=pod.full_name,
            container=container.name,
            cpus=str(CPUSet.from_ids(cpus)) if cpus else None,
            memory=tuple(
                MemoryBlock(numa_nodes=(self._numa[zone],), type=name, size=size)
                for name, size in sorted(amounts.items())
                if name == MEMORY or is_huge_page(name)
            ),
            devices=devices,
        )


def _reserved_cpus(kubelet: KubeletConfiguration, machine: MachineInfo) -> CPUSet:
    """The reserved CPUs of the static policy; none if it would not start."""
    topology = discover(machine)
    if isinstance(topology, Refused) or parse_reservations(kubelet, machine).faults:
        return CPUSet()
    resources = node_resources(machine, 0, kubelet)
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        reservation=resources.total_reserved.get(CPU),
        reserved_cpus=resources.reservations.cpus,
    )
    policy = create_policy(topology.value, settings)
    return (
        policy.value.reserved
        if isinstance(policy, Granted) and isinstance(policy.value, StaticCPUPolicy)
        else CPUSet()
    )


def _split_at(items: list[T], count: int) -> tuple[list[T], list[T]]:
    return items[:count], items[count:]
