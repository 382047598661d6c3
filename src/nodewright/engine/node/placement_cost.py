"""How good a placement is: the distance between the NUMA nodes of a pod, and how it fragments the node."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import msgspec

from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_of, unallocated_resources
from nodewright.model.values.idset import CPUSet, NUMASet

_TENTHS, _WHOLE = 10, 1000
_LOCAL, _REMOTE = 10, 20


class PlacementCost(NamedTuple):
    """What placing a pod costs; compared field by field, the smallest is best.

    Units: distance in tenths of an ACPI SLIT distance; fragmentation in thousandths of NUMA nodes.
    """

    distance: int
    """The mean distance between all pairs of the pod's NUMA nodes; 0: the pod has no exclusive allocation."""
    fragmentation: int
    """By how much more NUMA nodes are partly used than before; negative: they are less fragmented."""


NO_COST = PlacementCost(0, 0)


class NUMALayout(msgspec.Struct, frozen=True):
    """The parts of a node's NUMA nodes, computed once for all of its states.

    Follows: v1.36, pkg/kubelet/cm/topologymanager/numa_info.go, NUMADistances.CalculateAverageFor, for distances.
    """

    cpus: Mapping[int, int]
    """The CPUs of each NUMA node, as a mask."""
    allocatable: tuple[tuple[int, int], ...]
    """Those of them that can be allocated, as a mask, and their number."""
    reserved: int
    """The CPUs that are never allocated, as a mask."""
    has_exclusive_cpus: bool
    distances: Mapping[tuple[int, int], int]

    @classmethod
    def of(cls, state: NodeState) -> Self:
        """The layout of the node's machine."""
        nodes = state.config.parts.machine.topology
        cpus = {
            node.node_id: CPUSet.from_possible_ids(cpu for core in node.cores for cpu in core.thread_ids).mask
            for node in nodes
        }
        free = unallocated_resources(state)
        distances = {
            (node.node_id, nodes[place].node_id): distance
            for node in nodes
            for place, distance in enumerate(node.distances[: len(nodes)])
        }
        reserved = free.reserved_cpus.mask
        allocatable = tuple((mask & ~reserved, (mask & ~reserved).bit_count()) for mask in cpus.values())
        return cls(cpus, allocatable, reserved, free.shared_cpus is not None, distances)

    def cost(self, after: NodeState, uid: str, *, before: NodeState) -> PlacementCost:
        """The cost of the placement of the pod that is on the node ``after`` and was not ``before``."""
        pod = after.pods.get(uid)
        placement = placement_of(after, pod) if pod is not None else None
        if placement is None or not placement.holds_anything:
            return NO_COST
        numa = self.numa_nodes(after, placement)
        return PlacementCost(self.mean_distance(numa), self.growth(before, after))

    def numa_nodes(self, state: NodeState, placement: Placement) -> NUMASet:
        """The NUMA nodes on which a pod has exclusive CPUs, memory or devices."""
        lists, numa = state.held.devices.device_lists, set[int]()
        cpus = placement.cpus.mask if placement.cpus else 0
        for container in placement.containers:
            cpus |= container.cpus.mask if container.cpus else 0
            for block in container.memory:
                numa.update(block.numa)
            for resource, ids in container.devices.items():
                known = lists[resource].devices if resource in lists else {}
                numa.update(id_ for name in ids if name in known for id_ in known[name].numa_nodes or ())
        for block in placement.memory or ():
            numa.update(block.numa)
        numa.update(id_ for id_, of_numa in self.cpus.items() if of_numa & cpus)
        return NUMASet.from_possible_ids(numa)

    def mean_distance(self, numa: Iterable[int]) -> int:
        """The mean distance between all pairs of these NUMA nodes, each with itself included.

        Units: tenths.
        """
        ids = tuple(numa)
        if len(ids) == 1:
            return _TENTHS * self.distances.get((ids[0], ids[0]), _LOCAL)
        total = sum(
            self.distances.get((first, second), _LOCAL if first == second else _REMOTE)
            for first in ids
            for second in ids
        )
        return _TENTHS * total // len(ids) ** 2 if ids else 0

    def growth(self, before: NodeState, after: NodeState) -> int:
        """By how much more NUMA nodes are partly used in one state than in another; negative: by how much less.

        A NUMA node that is free or full counts 0, one that is half used most.

        Units: thousandths of NUMA nodes, summed over CPUs and each kind of device.
        """
        total, devices = 0, after.held.devices
        if self.has_exclusive_cpus:
            old, new = before.held.cpu.default.mask, after.held.cpu.default.mask
            changed = (old ^ new) & ~self.reserved
            for cpus, capacity in self.allocatable:
                if changed & cpus:
                    total += _partial_use((new & cpus).bit_count(), capacity)
                    total -= _partial_use((old & cpus).bit_count(), capacity)
        if devices is not before.held.devices:
            total += _partial_device_use(devices) - _partial_device_use(before.held.devices)
        return total


def _partial_device_use(devices: DeviceState) -> int:
    total = 0
    for resource, listed in devices.device_lists.items():
        left, counts = devices.free(resource), dict[int, tuple[int, int]]()
        for name, mask in listed.numa_masks.items():
            free, count = counts.get(mask, (0, 0))
            counts[mask] = (free + (name in left), count + 1)
        total += sum(_partial_use(free, count) for free, count in counts.values())
    return total


def _partial_use(free: int, capacity: int) -> int:
    return 4 * _WHOLE * free * (capacity - free) // capacity**2 if capacity else 0
