"""The memory manager's books: what each NUMA node has, and who holds how much of it.

Units: all sizes are bytes, unsigned 64-bit numbers as the kubelet keeps them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.memory_reasons import NUMAMemoryLeft
from nodewright.values.idset import NUMASet

EMPTY: Mapping[str, "tuple[Block, ...]"] = MappingProxyType({})


class Block(msgspec.Struct, frozen=True):
    """Memory of one kind that a container or pod holds on NUMA nodes together.

    Units: size in bytes.
    """

    numa: tuple[int, ...]
    resource: str
    size: int

    @property
    def mask(self) -> int:
        """The nodes as a set, bit i is node i."""
        return NUMASet.from_ids(self.numa).mask


class MemoryTable(msgspec.Struct, frozen=True):
    """One kind of memory on one NUMA node.

    Units: bytes.
    """

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int

    def taken(self, size: int) -> "MemoryTable":
        """The table with so much more of it in use."""
        return replace(self, reserved=self.reserved + size, free=self.free - size)


class NUMAMemory(msgspec.Struct, frozen=True):
    """The memory of one NUMA node."""

    assignments: int
    """Blocks that name the node, also if they have no byte on it."""
    cells: NUMASet
    """The nodes with which it is used together, itself included."""
    tables: Mapping[str, MemoryTable]
    """By kind: `memory` and each size of huge pages."""


Machine: TypeAlias = Mapping[int, NUMAMemory]
"""The memory of each NUMA node."""


class Reusable(msgspec.Struct, frozen=True):
    """What the init containers of the pod placed last leave to its later containers.

    Units: bytes.
    """

    pod: str = ""
    sizes: Mapping[tuple[int, str], int] = {}
    """By exact set of NUMA nodes (bit i is node i) and kind of memory."""

    def of(self, pod: str) -> Mapping[tuple[int, str], int]:
        """What that pod can use again."""
        return self.sizes if pod == self.pod else {}


NOTHING_REUSABLE = Reusable()


class MemoryState(msgspec.Struct, frozen=True):
    """Everything that the memory manager remembers; `reusable` alone does not outlive a restart."""

    machine: Machine = {}
    assignments: Mapping[str, Mapping[str, tuple[Block, ...]]] = {}
    """Blocks by pod uid and container."""
    pods: Mapping[str, tuple[Block, ...]] = {}
    """Blocks of pods that hold memory as a whole."""
    reusable: Reusable = NOTHING_REUSABLE

    def blocks(self, pod: str, container: str) -> tuple[Block, ...] | None:
        """What the container holds; None: there is no entry (an entry may be without blocks)."""
        return self.assignments.get(pod, EMPTY).get(container)

    def with_blocks(self, pod: str, container: str, blocks: tuple[Block, ...]) -> "MemoryState":
        """The state in which the container holds these blocks; the machine is not touched."""
        held = {**self.assignments.get(pod, EMPTY), container: blocks}
        return replace(self, assignments={**self.assignments, pod: held})

    def without(self, pod: str, container: str) -> "MemoryState":
        """The state without the container's entry; the machine is not touched."""
        left = {
            name: blocks for name, blocks in self.assignments.get(pod, EMPTY).items() if name != container
        }
        others = {uid: held for uid, held in self.assignments.items() if uid != pod}
        return replace(self, assignments={**others, pod: left} if left else others)


def with_block(machine: Machine, block: Block) -> Machine:
    """The machine with a block taken: the nodes are filled one after another, all are in its group.

    What no node has free is not taken from anywhere.

    Follows: v1.36, memorymanager/policy_static.go, updateMachineState.
    """
    changed, missing, cells = dict(machine), block.size, NUMASet.from_ids(block.numa)
    for numa in block.numa:
        node = changed[numa]
        tables = node.tables
        if missing:
            table = tables[block.resource]
            taken = min(table.free, missing)
            missing -= taken
            tables = {**tables, block.resource: table.taken(taken)}
        changed[numa] = NUMAMemory(node.assignments + 1, cells, tables)
    return changed


def without_block(machine: Machine, block: Block) -> Machine:
    """The machine with a block given back, to the nodes in order as far as something is reserved there.

    Follows: v1.36, memorymanager/policy_static.go, releaseMemory.
    """
    changed, returned = dict(machine), block.size
    for numa in block.numa:
        node = changed[numa]
        count, tables = node.assignments - 1, node.tables
        if returned:
            table = tables[block.resource]
            given = min(table.reserved, returned)
            returned -= given
            tables = {**tables, block.resource: table.taken(-given)}
        changed[numa] = NUMAMemory(count, NUMASet.of(numa) if count == 0 else node.cells, tables)
    return changed


def left_over(machine: Machine, resources: Mapping[str, int]) -> tuple[NUMAMemoryLeft, ...]:
    """What every NUMA node has left of these kinds of memory."""
    return tuple(
        NUMAMemoryLeft(
            numa=numa,
            resource=resource,
            free=node.tables[resource].free,
            allocatable=node.tables[resource].allocatable,
            group=node.cells,
            is_used=node.assignments > 0,
        )
        for numa, node in sorted(machine.items())
        for resource in sorted(resources)
        if resource in node.tables
    )
