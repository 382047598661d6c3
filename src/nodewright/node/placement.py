"""What does a pod hold for itself, and what is left of the node?"""

from collections.abc import Mapping
from dataclasses import dataclass

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.devices.allocate import Devices, devices_of, free_devices
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.memory.state import Block
from nodewright.core.topology.policy import NONE
from nodewright.model.hints import Hint
from nodewright.model.objects import Pod
from nodewright.node.providers import CPUs, Memory
from nodewright.node.state import NodeState, container_names
from nodewright.values.idset import CPUSet, NUMASet


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlacement:
    """What one container holds for itself."""

    name: str
    cpus: CPUSet | None
    """None: it runs in the shared pool."""
    memory: tuple[Block, ...]
    """Of init containers, what later ones have not taken over from them."""
    devices: Devices
    hint: Hint | None
    """The NUMA nodes that the topology manager chose; None: it was not asked, or it is not known."""

    @property
    def holds_anything(self) -> bool:
        """Whether anything is its alone."""
        return bool(self.cpus or self.memory or self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a pod holds: its containers in order, init containers first, and what is the pod's as a whole."""

    containers: tuple[ContainerPlacement, ...]
    cpus: CPUSet | None = None
    """CPUs of the pod as a whole, which its containers divide; only with the gate PodLevelResourceManagers."""
    memory: tuple[Block, ...] | None = None
    """The same for memory."""

    @property
    def holds_anything(self) -> bool:
        """Whether anything is the pod's alone."""
        return bool(self.cpus or self.memory) or any(one.holds_anything for one in self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class NUMALeft:
    """The memory that is left on one NUMA node.

    Units: bytes by kind of memory.
    """

    numa: int
    group: NUMASet
    """The nodes with which it is used together, itself included."""
    assignments: int
    """Blocks that name the node."""
    free: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What nobody has for himself."""

    shared_cpus: CPUSet | None
    """Where all run that have no CPUs of their own; None: no CPU is ever anybody's own (policy none)."""
    reserved_cpus: CPUSet
    """Those that nobody can have alone."""
    memory: tuple[NUMALeft, ...]
    """By NUMA node; empty: no memory is ever anybody's own (policy None)."""
    devices: Devices
    """The healthy devices that are not in use."""


def placement_of(state: NodeState, pod: Pod) -> Placement:
    """What the pod holds in this state."""
    held, uid = state.held, pod.uid
    hints = held.hints.get(uid, {}) if state.config.managers.policy != NONE else {}
    return Placement(
        containers=tuple(
            ContainerPlacement(
                name=name,
                cpus=held.cpu.exclusive(uid, name),
                memory=by_kind(held.memory.blocks(uid, name) or ()),
                devices=devices_of(held.devices, uid, name),
                hint=hints.get(name),
            )
            for name in container_names(pod)
        ),
        cpus=held.cpu.pods.get(uid),
        memory=by_kind(held.memory.pods[uid]) if uid in held.memory.pods else None,
    )


def left_of(state: NodeState) -> Left:
    """What is left of the node in this state."""
    held = state.held
    shared, reserved = None, CPUSet()
    memory: tuple[NUMALeft, ...] = ()
    for provider in state.config.managers.providers:
        match provider:
            case CPUs(policy=StaticPolicy(reserved=kept)):
                shared, reserved = held.cpu.default, kept
            case Memory(policy=StaticMemory()):
                memory = _memory_left(state)
            case _:
                pass
    return Left(shared_cpus=shared, reserved_cpus=reserved, memory=memory, devices=free_devices(held.devices))


def by_kind(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks in the order of their kind."""
    return tuple(sorted(blocks, key=lambda block: block.resource))


def _memory_left(state: NodeState) -> tuple[NUMALeft, ...]:
    return tuple(
        NUMALeft(
            numa=numa,
            group=node.cells,
            assignments=node.assignments,
            free={kind: table.free for kind, table in node.tables.items()},
        )
        for numa, node in sorted(state.held.memory.machine.items())
    )
