"""How good a placement is: the distance between the NUMA nodes of a pod, and how it fragments the node."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import msgspec

from nodewright.node.node_state import NodeState
from nodewright.node.pod_placement import Placement, placement_of, unallocated_resources
from nodewright.values.idset import CPUSet, NUMASet

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
        return cls(cpus, free.reserved_cpus.mask, free.shared_cpus is not None, distances)

    def cost(self, after: NodeState, uid: str, *, before: int) -> PlacementCost:
        """The cost of the placement of the pod that is on the node ``after``; ``before`` is its fragmentation without it."""
        pod = after.pods.get(uid)
        placement = placement_of(after, pod) if pod is not None else None
        if placement is None or not placement.holds_anything:
            return NO_COST
        growth = self.fragmentation(after) - before
        return PlacementCost(self.mean_distance(self.numa_nodes(after, placement)), growth)

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
        total = sum(
            self.distances.get((first, second), _LOCAL if first == second else _REMOTE)
            for first in ids
            for second in ids
        )
        return _TENTHS * total // len(ids) ** 2 if ids else 0

    def fragmentation(self, state: NodeState) -> int:
        """How many NUMA nodes are partly used: 0 for each that is free or full, most where half is used.

        Units: thousandths of NUMA nodes, summed over CPUs and each kind of device.
        """
        total, devices = 0, state.held.devices
        if self.has_exclusive_cpus:
            available = state.held.cpu.default.mask & ~self.reserved
            for cpus in self.cpus.values():
                total += _partial_use((available & cpus).bit_count(), (cpus & ~self.reserved).bit_count())
        for resource, listed in devices.device_lists.items():
            left, counts = devices.free(resource), dict[int, tuple[int, int]]()
            for name, mask in listed.numa_masks.items():
                free, count = counts.get(mask, (0, 0))
                counts[mask] = (free + (name in left), count + 1)
            total += sum(_partial_use(free, count) for free, count in counts.values())
        return total


def _partial_use(free: int, capacity: int) -> int:
    return 4 * _WHOLE * free * (capacity - free) // capacity**2 if capacity else 0
