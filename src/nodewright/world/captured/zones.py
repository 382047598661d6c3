"""The machine behind a NodeResourceTopology object, and who holds what of which of its NUMA nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from nodewright.core.allocatable import node_resources
from nodewright.core.cpu.options import DEFAULT_CPU_GATES
from nodewright.core.cpu.policy import CPUSettings, StaticPolicy, create_policy
from nodewright.core.cpu.topology import discover
from nodewright.core.cpu.wants import PodWants
from nodewright.core.memory.wants import MemoryWants
from nodewright.core.requests import with_defaults
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.machine import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.objects import Container, Pod
from nodewright.model.profile import ContainerAllocation, Device, MemoryBlock
from nodewright.model.resource_names import CPU, HUGE_PAGES_PREFIX, MEMORY, is_extended, is_huge_page
from nodewright.model.verdict import Granted, Refused
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.values.quantity import Quantity
from nodewright.world.captured.cluster import NodeObject, ResourceTopology, Zone

T = TypeVar("T")

_KIB = 1024
_MOST_STEPS = 100_000
_REMOTE, _LOCAL = 20, 10


def assumed_machine(
    topology: ResourceTopology | None, node: NodeObject | None, kubelet: KubeletConfiguration
) -> MachineInfo:
    """A machine with the NUMA nodes that are told, or those that `reservedMemory` names; at least one.

    CPUs are cores of their own, numbered in order; reserved ones are put where the object says that some
    cannot be had.
    """
    last = max((one.numa_node for one in kubelet.reserved_memory), default=0)
    zones = topology.zones if topology else tuple(Zone(numa=numa) for numa in range(last + 1))
    try:
        reserved = CPUSet.parse(kubelet.reserved_system_cpus)
    except IdSetError:
        reserved = CPUSet()
    counts = _shares(zones, CPU, _amount(node, CPU))
    memory = _shares(zones, MEMORY, _amount(node, MEMORY))
    numbers = _numbers(zones, counts, reserved)
    nodes = tuple(
        NUMANode(
            node_id=zone.numa,
            memory=memory[index],
            hugepages=_pages(zone, node if len(zones) == 1 else None),
            distances=tuple(_distance(zone, other) for other in zones),
            cores=tuple(
                Core(core_id=place, socket_id=index, thread_ids=(cpu,))
                for place, cpu in enumerate(numbers[index])
            ),
        )
        for index, zone in enumerate(zones)
    )
    return MachineInfo(
        num_cores=sum(counts),
        num_physical_cores=sum(counts),
        num_sockets=len(zones),
        memory_capacity=_amount(node, MEMORY) or sum(memory),
        hugepages=_together(nodes),
        topology=nodes,
    )


def _amount(node: NodeObject | None, name: str) -> int:
    return node.capacity[name].value() if node and name in node.capacity else 0


def _shares(zones: Sequence[Zone], name: str, total: int) -> list[int]:
    """How much of a resource each zone has; where the object is silent, equal shares of the node's."""
    if all(name in zone.resources for zone in zones):
        return [zone.resources[name].capacity for zone in zones]
    share, rest = divmod(total, len(zones))
    return [share + (index < rest) for index in range(len(zones))]


def _numbers(zones: Sequence[Zone], counts: Sequence[int], reserved: CPUSet) -> list[list[int]]:
    """The numbers of each zone's CPUs."""
    kept = [
        zone.resources[CPU].capacity - zone.resources[CPU].allocatable if CPU in zone.resources else 0
        for zone in zones
    ]
    ids = list(range(sum(counts)))
    first = [cpu for cpu in ids if cpu in reserved] if sum(kept) == len(reserved) else []
    others = [cpu for cpu in ids if cpu not in first]
    found = []
    for count, held_back in zip(counts, kept, strict=True):
        mine, first = (first[:held_back], first[held_back:]) if first else ([], first)
        rest = count - len(mine)
        found.append(sorted(mine + others[:rest]))
        others = others[rest:]
    return found


def _pages(zone: Zone, node: NodeObject | None) -> tuple[HugePages, ...]:
    amounts = {name: one.capacity for name, one in zone.resources.items() if is_huge_page(name)}
    if node is not None and not zone.resources:
        amounts = {name: one.value() for name, one in node.capacity.items() if is_huge_page(name)}
    found = []
    for name, size in sorted(amounts.items()):
        page = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
        found.append(HugePages(page_size=page // _KIB, num_pages=size // page))
    return tuple(found)


def _together(nodes: Iterable[NUMANode]) -> tuple[HugePages, ...]:
    total: dict[int, int] = {}
    for node in nodes:
        for pages in node.hugepages:
            total[pages.page_size] = total.get(pages.page_size, 0) + pages.num_pages
    return tuple(HugePages(page_size=size, num_pages=count) for size, count in sorted(total.items()))


def _distance(zone: Zone, other: Zone) -> int:
    return zone.costs.get(other.numa, _LOCAL if zone is other else _REMOTE)


def zone_devices(
    topology: ResourceTopology | None, node: NodeObject | None
) -> tuple[dict[str, tuple[Device, ...]], dict[str, Quantity], tuple[str, ...]]:
    """Devices of the zones under names of ours; amounts that no zone has; the resources whose places are open."""
    advertised = {
        name: amount for name, amount in (node.capacity if node else {}).items() if is_extended(name)
    }
    zones = topology.zones if topology else ()
    devices: dict[str, tuple[Device, ...]] = {}
    open_places = []
    for name in sorted({name for zone in zones for name in zone.resources if is_extended(name)}):
        placed = [
            Device(id=f"node-{zone.numa}/{index}", numa_nodes=(zone.numa,))
            for zone in zones
            for index in range(zone.resources[name].capacity if name in zone.resources else 0)
        ]
        total = advertised.pop(name).value() if name in advertised else len(placed)
        if total < len(placed):  # devices of several NUMA nodes count at each
            open_places.append(name)
            placed = []
        placed += [Device(id=f"anywhere/{index}") for index in range(total - len(placed))]
        devices[name] = tuple(placed)
    return devices, advertised, (*open_places, *sorted(advertised))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Containers that have to be in one zone, and what they hold together."""

    members: tuple[tuple[Pod, Container], ...]
    amounts: Mapping[str, int]


def placed(
    pods: Sequence[Pod],
    topology: ResourceTopology,
    kubelet: KubeletConfiguration,
    machine: MachineInfo,
    devices: Mapping[str, tuple[Device, ...]],
) -> tuple[ContainerAllocation, ...] | None:
    """Allocations under which each zone has as much left as the object says; None: none was found.

    Pods that hold something of several NUMA nodes at once are not looked for, nor are init containers that
    have ended.
    """
    if [zone.numa for zone in topology.zones] != [node.node_id for node in machine.topology]:
        return None
    tracked = {name for zone in topology.zones for name in zone.resources}
    groups = [
        group
        for pod in map(with_defaults, pods)
        for group in _groups(pod, kubelet, tracked)
        if any(group.amounts.values())
    ]
    left = [{name: one.used for name, one in zone.resources.items()} for zone in topology.zones]
    search = _Search(groups, left)
    if not search.solved():
        return None
    return _Filling(machine, topology, kubelet, devices).allocations(groups, search.chosen)


def _groups(pod: Pod, kubelet: KubeletConfiguration, tracked: set[str]) -> Iterable[_Group]:
    last = [*(one for one in pod.spec.init_containers if one.is_sidecar), *pod.spec.containers]
    each = [_Group(members=((pod, one),), amounts=_wanted(pod, one, kubelet, tracked)) for one in last]
    if kubelet.topology_manager_scope != "pod":
        return each
    total: dict[str, int] = {}
    for group in each:
        for name, count in group.amounts.items():
            total[name] = total.get(name, 0) + count
    return [_Group(members=tuple((pod, one) for one in last), amounts=total)]


def _wanted(
    pod: Pod, container: Container, kubelet: KubeletConfiguration, tracked: set[str]
) -> dict[str, int]:
    """What the container holds for itself of what zones tell of.

    Units: CPUs, bytes, pieces.
    """
    found: dict[str, int] = {}
    if kubelet.cpu_manager_policy == "static":
        found[CPU] = PodWants.of(pod, DEFAULT_CPU_GATES).container(container)
    if kubelet.memory_manager_policy == "Static":
        wants = MemoryWants.of(pod)
        amounts = wants.container(container) if wants.is_guaranteed else {}
        found |= dict(amounts) if isinstance(amounts, Mapping) else {}
    for name, count in container.resources.requests.items():
        if is_extended(name):
            found[name] = count.value()
    return {name: count for name, count in found.items() if name in tracked and count}


@dataclass(slots=True)
class _Search:
    """Groups are put into zones until nothing is left in any; a bounded search."""

    groups: Sequence[_Group]
    left: list[dict[str, int]]
    chosen: list[int] = field(default_factory=list)
    """The zone of each group."""
    steps: int = 0

    def solved(self) -> bool:
        """Whether all groups found their zones; `chosen` has them."""
        if len(self.chosen) == len(self.groups):
            return not any(count for zone in self.left for count in zone.values())
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return False
        amounts = self.groups[len(self.chosen)].amounts
        for index, zone in enumerate(self.left):
            if any(zone.get(name, 0) < count for name, count in amounts.items()):
                continue
            for name, count in amounts.items():
                zone[name] -= count
            self.chosen.append(index)
            if self.solved():
                return True
            self.chosen.pop()
            for name, count in amounts.items():
                zone[name] += count
        return False


class _Filling:
    """Takes CPUs and devices of a zone, one after the other, cores as a whole where that can be."""

    def __init__(
        self,
        machine: MachineInfo,
        topology: ResourceTopology,
        kubelet: KubeletConfiguration,
        devices: Mapping[str, tuple[Device, ...]],
    ) -> None:
        reserved = _reserved(kubelet, machine)
        self._cpus = [
            [cpu for core in node.cores for cpu in core.thread_ids if cpu not in reserved]
            for node in machine.topology
        ]
        self._numa = [zone.numa for zone in topology.zones]
        self._devices = {
            (name, zone): [one.id for one in listed if one.numa_nodes == (numa,)]
            for name, listed in devices.items()
            for zone, numa in enumerate(self._numa)
        }
        self._kubelet = kubelet
        self._tracked = {name for zone in topology.zones for name in zone.resources}

    def allocations(self, groups: Sequence[_Group], chosen: Sequence[int]) -> tuple[ContainerAllocation, ...]:
        """What each container holds."""
        return tuple(
            self._of(pod, container, zone)
            for group, zone in zip(groups, chosen, strict=True)
            for pod, container in group.members
        )

    def _of(self, pod: Pod, container: Container, zone: int) -> ContainerAllocation:
        amounts = _wanted(pod, container, self._kubelet, self._tracked)
        cpus, self._cpus[zone] = _taken(self._cpus[zone], amounts.get(CPU, 0))
        devices = {}
        for name, count in amounts.items():
            if is_extended(name):
                ids, self._devices[name, zone] = _taken(self._devices[name, zone], count)
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


def _reserved(kubelet: KubeletConfiguration, machine: MachineInfo) -> CPUSet:
    """The CPUs that the static policy keeps for the system; where it would not start, none."""
    resources = node_resources(machine, 0, kubelet)
    topology = discover(machine)
    if isinstance(topology, Refused):
        return CPUSet()
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        reservation=resources.reservation.get(CPU),
        reserved_cpus=resources.reservations.cpus,
    )
    policy = create_policy(topology.value, settings)
    return (
        policy.value.reserved
        if isinstance(policy, Granted) and isinstance(policy.value, StaticPolicy)
        else CPUSet()
    )


def _taken(items: list[T], count: int) -> tuple[list[T], list[T]]:
    return items[:count], items[count:]
