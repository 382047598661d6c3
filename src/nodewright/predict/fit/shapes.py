"""The largest Guaranteed pods of one container that a node admits, by number of devices and NUMA placement."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.topology.manager_config import NONE_POLICY
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.placement_cost import NUMALayout
from nodewright.engine.node.pod_admission import placement_of
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.candidate_changes import ALL_SETS_UP_TO, MIB, memory_limits
from nodewright.engine.node.what_if.changes import amount_of
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_extended
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import nonempty_subsets

SHAPE_BUDGET = 3_000
"""Decisions of the search for the largest shapes of one number of devices."""
_ALL_COUNTS_UP_TO = 16
"""With more devices, the numbers tried are powers of two and all devices."""


class NUMAPlacement(StrEnum):
    """How far the CPUs, memory and devices of a pod are spread; each includes those before it."""

    NUMA_NODE = "one NUMA node"
    SOCKET = "one socket"
    NODE = "whole node"


class Shape(Report, frozen=True, kw_only=True):
    """The largest pod with a number of devices that is placed so: the most CPUs, and with these the most memory.

    Units: memory in bytes.
    """

    placement: NUMAPlacement
    devices: int
    cpus: int
    fewest_cpus: int
    """With fewer CPUs and the same memory it is refused or placed elsewhere, down to the next shape that is not."""
    memory: int
    is_proved: bool
    """Whether no larger one is admitted; False: the search was ended by its budget."""


class Region(msgspec.Struct, frozen=True):
    """The whole node, a socket, or a NUMA node: a set of NUMA nodes."""

    name: str
    numa: NUMASet
    placement: NUMAPlacement


def regions_of(state: NodeState) -> tuple[Region, ...]:
    """The NUMA nodes if there are several, the sockets of several NUMA nodes each, and the node."""
    sockets: dict[int, set[int]] = {}
    topology = state.config.parts.machine.topology
    for node in topology:
        for core in node.cores:
            sockets.setdefault(core.socket_id, set()).add(node.node_id)
    numa_nodes = [
        Region(f"NUMA node {node.node_id}", NUMASet.of(node.node_id), NUMAPlacement.NUMA_NODE)
        for node in topology
    ]
    groups = [
        Region(f"socket {socket}", NUMASet.from_ids(ids), NUMAPlacement.SOCKET)
        for socket, ids in sorted(sockets.items())
        if len(ids) > 1
    ]
    whole = Region("node", NUMASet.from_ids(node.node_id for node in topology), NUMAPlacement.NODE)
    return (*(numa_nodes if len(topology) > 1 else ()), *(groups if len(sockets) > 1 else ()), whole)


def device_resource(state: NodeState) -> str:
    """The extended resource of the table: GPUs, otherwise the one with most devices; empty: there is none."""
    amounts = {name: amount for name, amount in state.config.view.allocatable.items() if is_extended(name)}
    return min(amounts, key=lambda name: ("gpu" not in name, -amounts[name], name), default="")


def largest_shapes(state: NodeState, resource: str) -> tuple[Shape, ...]:
    """The largest shapes for each number of devices and each placement that the node admits.

    Without a topology policy, no placement is sought, so that only the whole node counts.
    """
    regions = regions_of(state)
    if state.config.managers.policy == NONE_POLICY:
        regions = regions[-1:]
    shapes, layout = list[Shape](), NUMALayout.of(state)
    for count in _device_counts(state.config.view.allocatable.get(resource, 0)):
        search = _ShapeSearch(state, layout, {resource: count} if count else {})
        for placement in dict.fromkeys(region.placement for region in regions):
            sets = [region.numa for region in regions if region.placement is placement]
            shape = search.largest(placement, sets)
            if shape is not None:
                shapes.append(shape)
    return tuple(shapes)


def shape_pod(cpus: int, memory: int, devices: Mapping[str, int]) -> Pod:
    """The Guaranteed pod of a shape.

    Units: memory in bytes.
    """
    amounts = {CPU: amount_of(CPU, 1000 * cpus), MEMORY: amount_of(MEMORY, memory)}
    amounts |= {name: amount_of(name, count) for name, count in devices.items()}
    container = Container(name="shape", resources=ResourceRequirements(requests=amounts, limits=amounts))
    return Pod(metadata=ObjectMeta(name="shape", uid="shape"), spec=PodSpec(containers=(container,)))


def _device_counts(most: int) -> Iterable[int]:
    if most <= _ALL_COUNTS_UP_TO:
        return range(most + 1)
    return sorted({0, most, *(1 << power for power in range(most.bit_length()))})


class _ShapeSearch(msgspec.Struct):
    state: NodeState
    layout: NUMALayout
    devices: Mapping[str, int]
    decisions: int = 0

    def largest(self, placement: NUMAPlacement, sets: Sequence[NUMASet]) -> Shape | None:
        """The largest shape within one of the sets of NUMA nodes."""
        self.decisions = 0
        subsets = {mask for numa in sets for mask in _subsets(numa)}
        cpu_counts, sizes = self._cpu_counts(subsets), self._memory_sizes(subsets)
        fitting = (
            (cpus, memory) for cpus in cpu_counts for memory in sizes if self._fits(cpus, memory, sets)
        )
        cpus, memory = next(fitting, (0, 0))
        if not cpus:
            return None
        # The interval between two of the numbers has one answer, so that the next number above a refused one is admitted.
        refused = next(
            (count for count in cpu_counts if count < cpus and not self._fits(count, memory, sets)), 0
        )
        return Shape(
            placement=placement,
            devices=sum(self.devices.values()),
            cpus=cpus,
            fewest_cpus=refused + self._unit,
            memory=memory,
            is_proved=self.decisions < SHAPE_BUDGET,
        )

    def _fits(self, cpus: int, memory: int, sets: Iterable[NUMASet]) -> bool:
        """Whether the shape is admitted, and placed within one of the sets."""
        self.decisions += 1
        if self.decisions > SHAPE_BUDGET:
            return False
        pod = pod_as_stored(shape_pod(cpus, memory, self.devices), self.state.config.gates)
        result = step(self.state, PodAdded(pod))
        if result.decision is not Decision.ADMITTED:
            return False
        # A pod without exclusive resources runs on all NUMA nodes.
        used = self.layout.numa_nodes(result.state, placement_of(result.state, pod)) or NUMASet.from_ids(
            self.layout.cpus
        )
        return any(used <= numa for numa in sets)

    @property
    def _unit(self) -> int:
        static = self.state.config.managers.static_cpu_policy
        return static.topology.cpus_per_core if static and static.options.full_pcpus_only else 1

    def _cpu_counts(self, subsets: Iterable[int]) -> list[int]:
        """The numbers of CPUs at which a comparison can change, largest first: what NUMA nodes have, may give and have free."""
        rest = self.state.config.view.allocatable.get(CPU, 0) - self.state.usage.requests.get(CPU, 0)
        free = self.state.without_stale().held.cpu.default.mask
        limits = {rest // 1000, self._unit}
        for numa in subsets:
            cpus = sum(self.layout.cpus.get(node, 0) for node in NUMASet(numa))
            usable = cpus & ~self.layout.reserved
            limits |= {mask.bit_count() for mask in (cpus, usable, usable & free)}
        return _edges(limits, self._unit, rest // 1000)

    def _memory_sizes(self, subsets: Iterable[int]) -> list[int]:
        """The sizes at which a comparison can change, largest first.

        Units: bytes.
        """
        is_placed = self.state.config.managers.static_memory_policy is not None
        limits = memory_limits(self.state, MEMORY, subsets if is_placed else ())
        rest = self.state.config.view.allocatable.get(MEMORY, 0) - self.state.usage.requests.get(MEMORY, 0)
        return _edges(limits, MIB, rest)


def _edges(limits: Iterable[int], unit: int, most: int) -> list[int]:
    """The largest multiples of the unit up to and below each limit, the largest first."""
    edges = {(limit - below) // unit * unit for limit in limits for below in (0, 1)}
    return sorted((edge for edge in edges if 0 < edge <= most), reverse=True)


def _subsets(numa: NUMASet) -> Iterable[int]:
    """The subsets of a set of NUMA nodes, as masks; of a large one, only each NUMA node and all."""
    small = len(numa) <= ALL_SETS_UP_TO
    return nonempty_subsets(numa.mask) if small else (numa.mask, *(1 << node for node in numa))
