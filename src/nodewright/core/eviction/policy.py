"""How often to look at a node, and at what of it: the kubelet's way and better ones, as values to be compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.policies import Policy, PolicyError, failure, first_line
from nodewright.model.usage import MemoryUse, PodUse, SwapUse, Usage

SECOND_NS = 10**9
MONITORING_INTERVAL_NS = 10 * SECOND_NS
"""How long the kubelet sleeps between two looks.

Follows: v1.36, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""
NEAR_NS = 50_000_000
"""The longest that passes between two looks once a threshold is near."""
SOONEST_NS = 5_000_000
"""The shortest time between two looks, when a threshold is about to be crossed."""
SURGE_PERMILLE = 10
"""What growth is always reckoned with: so many thousandths of the capacity a second."""
MEMORY_SURGE = 1 << 30
"""What growth of memory is always reckoned with: so many bytes a second, however small the machine."""
AHEAD = 2
"""At the growth reckoned with, at most one of so many parts of what is left is gone by the next look."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """How far something is from its threshold, and how fast that shrinks.

    Units: bytes, or pieces; a second.
    """

    left: int
    """What is available beyond the threshold; 0 or less: the threshold is met."""
    capacity: int
    growth: int = 0
    """By how much less there is a second later, as last seen; less than 0: there is more."""
    surge: int = 0
    """What growth is reckoned with at least, whatever was seen: it may begin at any moment."""


def interval_ns(room: Room) -> int:
    """How long the next look can wait: distance by growth, from 50 milliseconds to the kubelet's interval.

    Growth that is less than the surge, or a hundredth of the capacity a second, is reckoned as that much. While the
    real one is no more than what was reckoned with, a threshold is met for at most 50 milliseconds before it is seen;
    for 5, while it grows as it was seen to.

    >>> [interval_ns(Room(left=left, capacity=1000)) // 10**6 for left in (1000, 100, 10, 1, 0)]
    [10000, 5000, 500, 50, 50]
    >>> interval_ns(Room(left=100, capacity=1000, growth=100)) // 10**6
    500
    """
    reckoned = max(room.growth, room.surge, room.capacity * SURGE_PERMILLE // 1000, 1)
    wait_ns = min(max(room.left * SECOND_NS // (AHEAD * reckoned), NEAR_NS), MONITORING_INTERVAL_NS)
    if room.left <= 0 or room.growth <= 0:
        return wait_ns
    # What grows is met at the threshold, where that is sooner.
    return min(wait_ns, max(room.left * SECOND_NS // room.growth, SOONEST_NS))


Interval: TypeAlias = Callable[[Sequence[Room], int | None], int]
"""How long the next look can wait, in nanoseconds: by how far the thresholds are that are not met, and by how long
it is until a grace period is over; None: none is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPolicy(Policy):
    """When to look, and what counts. Whom a pass then ends is the same for all: `synchronize` decides.

    >>> EvictionPolicy(name="lazy", waits=lambda rooms, due_in_ns: 60 * SECOND_NS).interval_ns(())
    60000000000
    """

    waits: Interval
    counts_swap: bool = False
    """Whether free swap counts as available, and what pods have in swap as used."""
    reads_pods_now: bool = True
    """Whether what pods use is read when it is wanted, not remembered from some seconds before."""
    is_notified: bool = False
    """Whether it has the kernel tell it of thresholds, where the kernel can."""
    waits_for_cleanup: bool = False
    """Whether the next look waits until the kubelet has cleaned up behind an evicted pod."""

    kind: ClassVar[str] = "eviction policy"
    field: ClassVar[str] = "eviction"

    def interval_ns(self, rooms: Sequence[Room], due_in_ns: int | None = None) -> int:
        """How long the next look can wait.

        Errors: PolicyError if it fails, or says something that is no time.
        """
        try:
            found = self.waits(rooms, due_in_ns)
        except Exception as error:
            raise PolicyError(self, f"fails: {failure(error)}") from error
        if not isinstance(found, int) or found < 1:
            raise PolicyError(self, f"waits {found!r}, which is no number of nanoseconds above 0")
        return found

    def seen(self, usage: Usage) -> Usage:
        """The reading as this policy understands it."""
        return with_swap(usage) if self.counts_swap else usage


def eviction_policy(
    name: str,
    *,
    counts_swap: bool = False,
    reads_pods_now: bool = True,
    is_notified: bool = False,
    waits_for_cleanup: bool = False,
) -> Callable[[Interval], EvictionPolicy]:
    """A function as an eviction policy; what it does is the first line of its docstring."""

    def made(waits: Interval) -> EvictionPolicy:
        return EvictionPolicy(
            name=name,
            about=first_line(waits.__doc__),
            waits=waits,
            counts_swap=counts_swap,
            reads_pods_now=reads_pods_now,
            is_notified=is_notified,
            waits_for_cleanup=waits_for_cleanup,
        )

    return made


def _every_ten_seconds(rooms: Sequence[Room], due_in_ns: int | None) -> int:
    del rooms, due_in_ns
    return MONITORING_INTERVAL_NS


def _by_distance(rooms: Sequence[Room], due_in_ns: int | None) -> int:
    nearest = min(map(interval_ns, rooms), default=MONITORING_INTERVAL_NS)
    return nearest if due_in_ns is None else max(min(nearest, due_in_ns), NEAR_NS)


KUBELET = EvictionPolicy(
    name="kubelet",
    about="Looks every 10 s, whatever happens; swap does not count.",
    waits=_every_ten_seconds,
    reads_pods_now=False,
    is_notified=True,
    waits_for_cleanup=True,
)
ADAPTIVE = EvictionPolicy(
    name="adaptive",
    about="Looks after distance / growth, every 50 ms near a threshold.",
    waits=_by_distance,
)
SWAP_AWARE = EvictionPolicy(
    name="swap-aware",
    about="As adaptive; free swap counts as available, what pods have there as used.",
    waits=_by_distance,
    counts_swap=True,
)
POLICIES: Mapping[str, EvictionPolicy] = {one.name: one for one in (KUBELET, ADAPTIVE, SWAP_AWARE)}
"""Ours by name, the kubelet's first."""


def with_swap(usage: Usage) -> Usage:
    """The reading with swap counted as memory: what is free there as available, what is used there as used."""
    node = usage.node
    systems = tuple(replace(one, memory=_grown(one.memory, node.swap, 0)) for one in node.system_containers)
    memory = _grown(node.memory, node.swap, (node.swap.swap_usage_bytes or 0) if node.swap else 0)
    return replace(
        usage,
        node=replace(node, memory=memory, system_containers=systems),
        pods=tuple(map(_with_own_swap, usage.pods)),
    )


def _grown(memory: MemoryUse | None, swap: SwapUse | None, used: int) -> MemoryUse | None:
    if memory is None or swap is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return memory
    return replace(
        memory,
        available_bytes=memory.available_bytes + (swap.swap_available_bytes or 0),
        working_set_bytes=memory.working_set_bytes + used,
    )


def _with_own_swap(pod: PodUse) -> PodUse:
    used = pod.swap.swap_usage_bytes if pod.swap is not None else None
    if not used or pod.memory is None or pod.memory.working_set_bytes is None:
        return pod
    return replace(pod, memory=replace(pod.memory, working_set_bytes=pod.memory.working_set_bytes + used))
