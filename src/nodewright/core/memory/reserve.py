"""What of each NUMA node has to be the system's, so that the memory manager starts?"""

from collections.abc import Mapping, Sequence

from nodewright.core.memory.policy import KIB, Reservation, huge_pages_name
from nodewright.model.machine import NUMANode
from nodewright.model.objects import ResourceList
from nodewright.model.resource_names import MEMORY, is_huge_page
from nodewright.values.quantity import ZERO, Format, Quantity


def right_reservations(
    topology: Sequence[NUMANode], node_allocatable: ResourceList, given: Sequence[Reservation] = ()
) -> tuple[Reservation, ...] | None:
    """`reservedMemory` that adds up to what the node reserves as a whole, as near to the given one as can be.

    What is missing goes to the first NUMA nodes that have room, what is too much is taken from the last ones.
    None: nothing is reserved, or amounts that are no whole number of bytes.

    Follows: v1.36, memorymanager/memory_manager.go, validateReservedMemory.
    """
    kinds = [kind for kind in node_allocatable if kind == MEMORY or is_huge_page(kind)]
    wanted = {kind: node_allocatable[kind].as_int64() for kind in sorted(kinds)}
    if not wanted.get(MEMORY):
        return None
    kept: dict[int, dict[str, Quantity]] = {node.node_id: {} for node in topology}
    for kind, amount in wanted.items():
        if amount is None:
            return None
        room = {node.node_id: _room(node, kind) for node in topology}
        for numa, share in _shares(amount, room, _given(given, kind)).items():
            kept[numa][kind] = Quantity.of(share, Format.BINARY_SI)
    return tuple(Reservation(numa, limits) for numa, limits in sorted(kept.items()) if limits)


def _given(given: Sequence[Reservation], kind: str) -> Mapping[int, int]:
    """What was meant to be reserved on each NUMA node, in bytes."""
    return {entry.numa: entry.limits.get(kind, ZERO).value() for entry in given}


def _room(node: NUMANode, kind: str) -> int:
    pages = {huge_pages_name(one): one.num_pages * one.page_size * KIB for one in node.hugepages}
    return max(node.memory - sum(pages.values()), 0) if kind == MEMORY else pages.get(kind, 0)


def _shares(amount: int, room: Mapping[int, int], given: Mapping[int, int]) -> dict[int, int]:
    """So much by NUMA node, none of them zero; what fits nowhere is the first node's."""
    shares = {numa: min(max(given.get(numa, 0), 0), has) for numa, has in sorted(room.items())}
    missing = amount - sum(shares.values())
    for numa in shares if missing > 0 else reversed(shares):
        moved = min(missing, room[numa] - shares[numa]) if missing > 0 else max(missing, -shares[numa])
        shares[numa] += moved
        missing -= moved
    if missing and shares:
        shares[min(shares)] += missing
    return {numa: share for numa, share in shares.items() if share}
