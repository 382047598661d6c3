"""The exclusive allocations of a pod, and the unallocated resources of a node."""

from collections.abc import Mapping

import msgspec

from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.devices.device_assignment import (
    DevicesByResource,
    container_device_ids,
    free_devices,
)
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy as StaticMemory
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.core.topology.manager_config import NONE_POLICY
from nodewright.engine.node.managers.hint_providers import CPUProvider, Holdings, MemoryProvider
from nodewright.engine.node.managers.manager_admission import ResourceManagers
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.topology_hints import Hint


class ContainerPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive allocations of one container."""

    name: str
    cpus: CPUSet | None
    """None: the container runs in the shared pool."""
    memory: tuple[Block, ...]
    """For init containers only the blocks that later containers do not reuse."""
    devices: DevicesByResource
    hint: Hint | None
    """The topology manager's hint; None: no hint was merged, or it is unknown."""

    @property
    def holds_anything(self) -> bool:
        """Whether the container has an exclusive allocation."""
        return bool(self.cpus or self.memory or self.devices)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The allocations of a pod: of its containers in order, init containers first, and of the pod level."""

    containers: tuple[ContainerPlacement, ...]
    cpus: CPUSet | None = None
    """The pod-level CPUs, shared by its containers; only with the gate PodLevelResourceManagers."""
    memory: tuple[Block, ...] | None = None
    """The pod-level memory blocks."""

    @property
    def holds_anything(self) -> bool:
        """Whether the pod or one of its containers has an exclusive allocation."""
        return bool(self.cpus or self.memory) or any(
            container.holds_anything for container in self.containers
        )


class NUMAMemoryFree(msgspec.Struct, frozen=True, kw_only=True):
    """The free memory of one NUMA node.

    Units: bytes by kind of memory.
    """

    numa: int
    group: NUMASet
    """The NUMA nodes that share allocations with it, itself included."""
    assignments: int
    """Number of blocks that include the NUMA node."""
    free: Mapping[str, int]


class UnallocatedResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources without an exclusive owner."""

    shared_cpus: CPUSet | None
    """The shared pool; None: there are no exclusive CPUs (policy none)."""
    reserved_cpus: CPUSet
    """The CPUs that are never allocated exclusively."""
    memory: tuple[NUMAMemoryFree, ...]
    """By NUMA node; empty: there are no memory allocations (policy None)."""
    devices: DevicesByResource
    """The healthy unallocated devices."""


def placement_of(state: NodeState, pod: Pod) -> Placement:
    """The allocations of the pod in this state."""
    return placement_by(state.config.managers, state.held, pod)


def placement_by(managers: ResourceManagers, held: Holdings, pod: Pod) -> Placement:
    """The allocations of the pod among these holdings of a node with such managers."""
    uid = pod.uid
    hints = held.hints.get(uid, {}) if managers.policy != NONE_POLICY else {}
    return Placement(
        containers=tuple(
            [
                ContainerPlacement(
                    name=name,
                    cpus=held.cpu.exclusive(uid, name),
                    memory=blocks_by_kind(held.memory.blocks(uid, name) or ()),
                    devices=container_device_ids(held.devices, uid, name),
                    hint=hints.get(name),
                )
                for name in container_names(pod)
            ]
        ),
        cpus=held.cpu.pods.get(uid),
        memory=blocks_by_kind(held.memory.pods[uid]) if uid in held.memory.pods else None,
    )


def unallocated_resources(state: NodeState) -> UnallocatedResources:
    """The unallocated resources of the node in this state."""
    held = state.held
    shared, reserved = None, CPUSet()
    memory: tuple[NUMAMemoryFree, ...] = ()
    for provider in state.config.managers.providers:
        match provider:
            case CPUProvider(policy=StaticCPUPolicy(reserved=policy_reserved)):
                shared, reserved = held.cpu.default, policy_reserved
            case MemoryProvider(policy=StaticMemory()):
                memory = _memory_left(state)
            case _:
                pass
    return UnallocatedResources(
        shared_cpus=shared, reserved_cpus=reserved, memory=memory, devices=free_devices(held.devices)
    )


def blocks_by_kind(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks sorted by resource."""
    return tuple(sorted(blocks, key=lambda block: block.resource)) if len(blocks) > 1 else blocks


def _memory_left(state: NodeState) -> tuple[NUMAMemoryFree, ...]:
    return tuple(
        NUMAMemoryFree(
            numa=numa,
            group=node.cells,
            assignments=node.assignments,
            free={kind: table.free for kind, table in node.tables.items()},
        )
        for numa, node in sorted(state.held.memory.machine.items())
    )
