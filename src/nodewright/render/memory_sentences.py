"""What the memory manager finds, in plain sentences with readable amounts."""

from collections.abc import Iterable

from nodewright.model import memory_reasons as memory
from nodewright.render.amounts import readable
from nodewright.render.memory_messages import memory_message
from nodewright.values.idset import NUMASet


def memory_sentence(reason: memory.MemoryReason) -> str:
    """The reason in words, without a full stop; the kubelet's own text where that says it all."""
    match reason:
        case memory.MemoryPlaced():
            return _placed(reason)
        case memory.NoNUMAFits(requested=requested, left=left):
            return f"no NUMA nodes that may be used together have {_amounts(requested)} free: {_left(left)}"
        case memory.AffinityCannotGrow(affinity=affinity, requested=requested, left=left):
            return (
                f"agreed on: {_nodes(affinity)}, with less than {_amounts(requested)} free, "
                f"and no larger set of NUMA nodes with them may be used: {_left(left)}"
            )
        case memory.GroupViolated(affinity=affinity, left=left):
            return (
                f"{_nodes(affinity)} cannot be used together: a NUMA node is used alone or in one group "
                f"({_left(left)})"
            )
        case memory.DefaultNotPreferred(found=found):
            return f"a preferred place was promised, but the best left is {_nodes(found)}, not preferred"
        case memory.ExtensionNotPreferred(affinity=affinity, found=found):
            return f"too little memory on {_nodes(affinity)}, and the larger {_nodes(found)} not preferred"
        case memory.MemoryRequestInexact(resource=resource, amount=amount):
            return (
                f"{resource} {amount}: the memory manager takes only amounts that Kubernetes keeps as whole "
                "numbers; write it in a smaller unit"
            )
        case memory.MachineMemoryChanged(numa=numa, what=what, stored=stored, expected=expected):
            return f"NUMA node {numa} differs in {what}: stored {stored}, expected {expected}"
        case _:
            return memory_message(reason)


def _placed(reason: memory.MemoryPlaced) -> str:
    again = f", {_amounts(reason.reused)} of it taken over from init containers" if reason.reused else ""
    if reason.affinity is None:
        why = "chosen by the memory manager"
    elif reason.affinity == reason.numa:
        why = "as agreed"
    else:
        why = f"more than the agreed {reason.affinity}, which have too little"
    return f"{_amounts(reason.requested)} on {_nodes(reason.numa)}, {why}{again}"


def _left(left: Iterable[memory.NUMAMemoryLeft]) -> str:
    return ", ".join(
        f"{one.numa} has {readable(one.resource, one.free)} of {readable(one.resource, one.allocatable)} "
        f"{one.resource} left{_use(one)}"
        for one in left
    )


def _use(one: memory.NUMAMemoryLeft) -> str:
    if not one.is_used:
        return ""
    return " (used alone)" if len(one.group) == 1 else f" (used together as {one.group})"


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    return " and ".join(f"{readable(kind, size)} {kind}" for kind, size in amounts) or "nothing"


def _nodes(numa: NUMASet) -> str:
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"
