"""What is to happen, in the order in which it does: virtual time."""

import heapq
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from nodewright.model.thresholds import Threshold
from nodewright.sim.timeline.lines import Line
from nodewright.sim.timeline.setting import Growth, Scope


class Order(IntEnum):
    """What comes first of several things in the same nanosecond: what happens, before who looks at it."""

    GROWTH = 0
    EMPTY = 1
    ENDED = 2
    LIMIT = 3
    RESTART = 4
    LOOK = 5


Key: TypeAlias = tuple[str, str]
"""A container: the pod's uid and its name; what runs beside the pods has neither."""


@dataclass(slots=True, eq=False)
class Watch:
    """A limit, or a threshold, on a line: what happens when it is reached."""

    line: Line
    base_bytes: int
    scope: Scope
    of: str
    key: Key | None = None
    """The container, or the pod's uid and no name, whose limit it is."""
    threshold: Threshold | None = None
    """None: it is a limit, and the kernel acts."""
    counts_swap: bool = False
    """Whether swap that pods can have comes on top."""
    swap_bytes: int = 0
    capacity_bytes: int = 0
    """How much there is of it, where it stands for a threshold."""
    is_above: bool = False

    @property
    def limit_bytes(self) -> int:
        """What has to be reached."""
        return self.base_bytes + self.swap_bytes


@dataclass(slots=True, frozen=True)
class Reached:
    """A line comes to a limit."""

    watch: Watch
    version: int


@dataclass(slots=True, frozen=True)
class Emptied:
    """Nothing is left to shrink."""

    key: Key
    version: int


@dataclass(slots=True, frozen=True)
class Look:
    """The policy looks; ``notified``: because the kernel told it to, beside its own loop."""

    notified: bool = False


@dataclass(slots=True, frozen=True)
class Ended:
    """A pod has had its time to end; ``next_look_ns``: when the loop that ended it goes on."""

    uid: str
    next_look_ns: int | None


@dataclass(slots=True, frozen=True)
class Restart:
    """A container is started again."""

    key: Key


Event: TypeAlias = Growth | Reached | Emptied | Look | Ended | Restart


class Agenda:
    """Events by time; of several at once by `Order`, then in the order in which they were put down."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Order, int, Event]] = []
        self._count = 0

    def add(self, at_ns: int, order: Order, event: Event) -> None:
        """Put something down."""
        self._count += 1
        heapq.heappush(self._heap, (at_ns, order, self._count, event))

    def next(self, until_ns: int) -> tuple[int, Event] | None:
        """What comes next, and when; None: nothing until then."""
        if not self._heap or self._heap[0][0] > until_ns:
            return None
        at_ns, _, _, event = heapq.heappop(self._heap)
        return at_ns, event
