"""The memory manager's state: the memory of each NUMA node and the blocks of each container.

Units: all sizes are bytes, unsigned 64-bit numbers as in the kubelet.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.reasons.memory import NUMAMemoryLeft
from nodewright.model.values.idset import NUMASet

NO_BLOCKS: Mapping[str, "tuple[Block, ...]"] = MappingProxyType({})


class Block(msgspec.Struct, frozen=True):
    """Memory of one kind that a container or pod holds on a set of NUMA nodes.

    Units: size in bytes.
    """

    numa: tuple[int, ...]
    resource: str
    size: int

    @property
    def mask(self) -> int:
        """The NUMA nodes as a bit mask: bit i is node i."""
        mask = 0
        for node in self.numa:
            mask |= 1 << node
        return mask


class MemoryTable(msgspec.Struct, frozen=True):
    """One kind of memory on one NUMA node.

    Units: bytes.
    """

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int

    def with_reserved(self, size: int) -> "MemoryTable":
        """The table with this amount more in use."""
        return replace(self, reserved=self.reserved + size, free=self.free - size)


class NUMAMemory(msgspec.Struct, frozen=True):
    """The memory of one NUMA node."""

    assignments: int
    """The number of blocks that name the node, also those without a byte on it."""
    cells: NUMASet
    """The group of nodes that are used together, this one included."""
    tables: Mapping[str, MemoryTable]
    """By kind: `memory` and each size of huge pages."""


NUMANodeMap: TypeAlias = Mapping[int, NUMAMemory]
"""The memory of each NUMA node."""


class ReusableMemory(msgspec.Struct, frozen=True):
    """Memory of finished init containers that later containers of the last placed pod can reuse.

    Units: bytes.
    """

    pod: str = ""
    sizes: Mapping[tuple[int, str], int] = {}
    """Bytes by exact set of NUMA nodes (bit i is node i) and kind of memory."""

    def of(self, pod: str) -> Mapping[tuple[int, str], int]:
        """The memory that this pod can reuse."""
        return self.sizes if pod == self.pod else {}


NO_REUSABLE_MEMORY = ReusableMemory()


class MemoryState(msgspec.Struct, frozen=True):
    """The memory manager's state; only `reusable` does not survive a restart."""

    machine: NUMANodeMap = {}
    assignments: Mapping[str, Mapping[str, tuple[Block, ...]]] = {}
    """Blocks by pod uid and container."""
    pods: Mapping[str, tuple[Block, ...]] = {}
    """Blocks of pods that hold memory as a whole."""
    reusable: ReusableMemory = NO_REUSABLE_MEMORY

    def blocks(self, pod: str, container: str) -> tuple[Block, ...] | None:
        """The container's blocks; None: there is no entry (an entry may be empty)."""
        return self.assignments.get(pod, NO_BLOCKS).get(container)

    def with_blocks(
        self, pod: str, container: str, blocks: tuple[Block, ...], machine: NUMANodeMap | None = None
    ) -> "MemoryState":
        """The state with these blocks for the container, and with this machine; None: it is unchanged."""
        held = {**self.assignments.get(pod, NO_BLOCKS), container: blocks}
        return replace(
            self,
            machine=self.machine if machine is None else machine,
            assignments={**self.assignments, pod: held},
        )

    def without(self, pod: str, container: str) -> "MemoryState":
        """The state without the container's entry; `machine` is unchanged."""
        remaining = {
            name: blocks for name, blocks in self.assignments.get(pod, NO_BLOCKS).items() if name != container
        }
        others = {uid: held for uid, held in self.assignments.items() if uid != pod}
        return replace(self, assignments={**others, pod: remaining} if remaining else others)


def with_block(machine: NUMANodeMap, block: Block) -> NUMANodeMap:
    """The machine with a block allocated: the nodes are filled one after another and become its group.

    An amount that exceeds the free memory of all nodes is not subtracted anywhere.

    Follows: v1.36, memorymanager/policy_static.go, updateMachineState.
    """
    changed, missing, cells = dict(machine), block.size, NUMASet(block.mask)
    for numa in block.numa:
        node = changed[numa]
        tables = node.tables
        if missing:
            table = tables[block.resource]
            size = min(table.free, missing)
            missing -= size
            tables = {**tables, block.resource: table.with_reserved(size)}
        changed[numa] = NUMAMemory(node.assignments + 1, cells, tables)
    return changed


def without_block(machine: NUMANodeMap, block: Block) -> NUMANodeMap:
    """The machine with a block released: subtracted from the nodes in order, as far as memory is reserved there.

    Follows: v1.36, memorymanager/policy_static.go, releaseMemory.
    """
    changed, remaining = dict(machine), block.size
    for numa in block.numa:
        node = changed[numa]
        count, tables = node.assignments - 1, node.tables
        if remaining:
            table = tables[block.resource]
            size = min(table.reserved, remaining)
            remaining -= size
            tables = {**tables, block.resource: table.with_reserved(-size)}
        changed[numa] = NUMAMemory(count, NUMASet.of(numa) if count == 0 else node.cells, tables)
    return changed


def free_memory(machine: NUMANodeMap, resources: Mapping[str, int]) -> tuple[NUMAMemoryLeft, ...]:
    """The free memory of every NUMA node for these kinds of memory."""
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
