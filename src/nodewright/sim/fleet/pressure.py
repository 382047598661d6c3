"""What the eviction manager of a node reads, where it is told what pods use.

Departs: the node uses what its pods are told to use, and nothing else; of pods of which it is not told, nothing.
    It looks when that changes, and every ten seconds while a threshold is met; there it looks all the time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from nodewright.model.fleet import Used
from nodewright.model.usage import ContainerUse, MemoryUse, NodeUse, PodReference, PodUse, Usage
from nodewright.node.events import UsageObserved
from nodewright.node.pressure import capacities_of
from nodewright.node.state import NodeState
from nodewright.values.instant import Instant

_PODS = "pods"
_PATIENCE = 60
"""How often it looks again while nothing changes: longer than a condition outlasts its cause."""


class Look(NamedTuple):
    """The eviction manager of a node is to look.

    Units: used_bytes is what it saw when it looked last; -1: it looks because that changes.
    """

    node: int
    used_bytes: int = -1
    left: int = _PATIENCE


class Stay(NamedTuple):
    """What a pod on the node is told to use, and since when it is there."""

    usage: tuple[Used, ...]
    since_s: float


def reading(state: NodeState, stays: Mapping[str, Stay], now_s: float) -> tuple[UsageObserved, int]:
    """What is read at this moment, and how much memory is used.

    Units: now_s in seconds since the beginning, the answer in bytes.
    """
    at = Instant(int(now_s * 10**9))
    used = {uid: _used_bytes(stay, now_s) for uid, stay in stays.items()}
    total = sum(used.values())
    capacities = capacities_of(state.config)
    node = NodeUse(
        memory=_use(total, capacities.memory, at),
        system_containers=(ContainerUse(name=_PODS, memory=_use(total, capacities.pods_memory, at)),),
    )
    pods = tuple(
        PodUse(
            pod_ref=PodReference(name=uid, namespace=state.pods[uid].metadata.namespace, uid=uid),
            containers=(
                ContainerUse(
                    name=state.pods[uid].spec.containers[0].name,
                    memory=MemoryUse(time=at, working_set_bytes=size),
                ),
            ),
            memory=MemoryUse(time=at, working_set_bytes=size),
        )
        for uid, size in used.items()
    )
    return UsageObserved(usage=Usage(node=node, pods=pods), now_s=now_s), total


def next_look(look: Look, state: NodeState, used_bytes: int, *, evicted: bool) -> Look | None:
    """The look after this one, ten seconds later; None: nothing is short any more, or nothing will change."""
    if not state.conditions and not evicted:
        return None
    if used_bytes != look.used_bytes or evicted:
        return Look(look.node, used_bytes)
    return Look(look.node, used_bytes, look.left - 1) if look.left else None


def _used_bytes(stay: Stay, now_s: float) -> int:
    begun = [one.memory_bytes for one in stay.usage if stay.since_s + one.at_s <= now_s]
    return begun[-1] if begun else 0


def _use(used: int, capacity: int, at: Instant) -> MemoryUse:
    return MemoryUse(time=at, available_bytes=max(capacity - used, 0), working_set_bytes=used)
