"""Events of a timeline, and amounts that change linearly: the exact time at which they reach a limit."""

from bisect import bisect_right
from enum import IntEnum
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.eviction_thresholds import Threshold
from nodewright.model.values.event_queue import EventQueue
from nodewright.predict.timeline.timeline_model import Growth, LimitScope

NANO = 10**9


class LinearAmount:
    """Bytes over time, piecewise linear.

    Units: nanoseconds; rates in bytes per second, so that integers (billionths of a byte) are exact.
    """

    __slots__ = ("_nanobytes", "_times", "_values", "at_ns", "rate", "version")

    def __init__(self, start_bytes: int = 0) -> None:
        self.at_ns = 0
        self._nanobytes = start_bytes * NANO
        self.rate = 0
        self.version = 0
        """Increases with each change, so that an event scheduled before the change is recognised as outdated."""
        self._times = [0]
        self._values = [(self._nanobytes, 0)]

    def bytes_at(self, now_ns: int) -> int:
        """The amount then, rounded down; also for times before the last change."""
        if now_ns >= self.at_ns:
            return (self._nanobytes + self.rate * (now_ns - self.at_ns)) // NANO
        index = max(bisect_right(self._times, now_ns) - 1, 0)
        value, rate = self._values[index]
        return (value + rate * (now_ns - self._times[index])) // NANO

    def nanobytes_at(self, now_ns: int) -> int:
        """The amount in billionths of a byte; only for times since the last change."""
        return self._nanobytes + self.rate * (now_ns - self.at_ns)

    def change(self, now_ns: int, *, by_nanobytes: int = 0, by_rate: int = 0) -> None:
        """Adds to the amount and to its rate from now on."""
        self._nanobytes = self.nanobytes_at(now_ns) + by_nanobytes
        self.at_ns, self.rate, self.version = now_ns, self.rate + by_rate, self.version + 1
        if self._times[-1] == now_ns:
            self._values[-1] = (self._nanobytes, self.rate)
        else:
            self._times.append(now_ns)
            self._values.append((self._nanobytes, self.rate))

    def reaches_ns(self, limit_bytes: int) -> int | None:
        """The first nanosecond at which the amount is the limit or more; None: never at this rate."""
        missing = limit_bytes * NANO - self._nanobytes
        if missing <= 0:
            return self.at_ns
        return self.at_ns - (-missing // self.rate) if self.rate > 0 else None

    def empties_ns(self) -> int | None:
        """When the amount is 0; None: it does not shrink."""
        return self.at_ns - (self._nanobytes // self.rate) if self.rate < 0 else None

    def breakpoints(self, until_ns: int) -> list[tuple[int, int]]:
        """The corners of the curve up to a time, as time and bytes; a jump is two corners."""
        corners: list[tuple[int, int]] = []
        for index, at_ns in enumerate(self._times):
            if at_ns > until_ns:
                break
            value, _ = self._values[index]
            if index:
                start_value, rate = self._values[index - 1]
                end_value = start_value + rate * (at_ns - self._times[index - 1])
                if end_value != value:
                    corners.append((at_ns, end_value // NANO))
            corners.append((at_ns, value // NANO))
        if corners[-1][0] < until_ns:
            corners.append((until_ns, self.bytes_at(until_ns)))
        return corners


class EventOrder(IntEnum):
    """Priority of events in the same nanosecond: changes first, then the check that observes them."""

    GROWTH = 0
    EMPTY = 1
    ENDED = 2
    LIMIT = 3
    RESTART = 4
    CHECK = 5


ContainerKey: TypeAlias = tuple[str, str]
"""A container: pod uid and container name; both are empty for processes outside pods."""


class LimitWatch(msgspec.Struct, eq=False):
    """A memory limit, or an eviction threshold, on an amount."""

    amount: LinearAmount
    base_bytes: int
    scope: LimitScope
    subject: str
    key: ContainerKey | None = None
    """The container that is limited, or the pod uid with an empty name."""
    threshold: Threshold | None = None
    """None for a memory limit, where the kernel's OOM killer acts."""
    counts_swap: bool = False
    """Whether the swap that pods may use adds to the limit."""
    swap_bytes: int = 0
    capacity_bytes: int = 0
    """Total capacity, for a threshold."""
    is_above: bool = False

    @property
    def limit_bytes(self) -> int:
        """The amount at which the event is due."""
        return self.base_bytes + self.swap_bytes


class LimitReached(msgspec.Struct, frozen=True):
    """An amount reaches a limit."""

    watch: LimitWatch
    version: int


class MemoryEmptied(msgspec.Struct, frozen=True):
    """A shrinking container uses no memory any more."""

    key: ContainerKey
    version: int


class PolicyCheck(msgspec.Struct, frozen=True):
    """A check by the eviction policy; ``notified``: by the kernel's memory notifier, outside the policy's loop."""

    notified: bool = False


class PodTerminated(msgspec.Struct, frozen=True):
    """The termination of an evicted pod ends; ``next_check_ns``: when the eviction loop continues."""

    uid: str
    next_check_ns: int | None


class ContainerRestart(msgspec.Struct, frozen=True):
    """The kubelet restarts a container."""

    key: ContainerKey


TimelineEvent: TypeAlias = (
    Growth | LimitReached | MemoryEmptied | PolicyCheck | PodTerminated | ContainerRestart
)
TimelineQueue: TypeAlias = EventQueue[int, TimelineEvent]
