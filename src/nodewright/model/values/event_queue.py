"""Virtual time: events in the order in which they are due."""

from heapq import heappop, heappush
from typing import Generic, TypeVar

TimeT = TypeVar("TimeT", int, float)
EventT = TypeVar("EventT")


class EventQueue(Generic[TimeT, EventT]):
    """Events by time; those due at the same time by priority, then in the order in which they were scheduled.

    Units: any unit of time, the same for all events of a queue.

    >>> queue = EventQueue[float, str]()
    >>> for due, event, priority in ((2, "last", 0), (1, "second", 5), (1, "first", 0)):
    ...     queue.schedule(due, event, priority)
    >>> queue.next_due, queue.pop(1), queue.pop_due(2), queue.pop_due(9)
    (1, (1, 'first'), ['second', 'last'], [])
    """

    def __init__(self) -> None:
        self.entries: list[tuple[TimeT, int, int, EventT]] = []
        """A heap of time, priority, sequence number and event."""
        self.scheduled_count = 0

    def schedule(self, due: TimeT, event: EventT, priority: int = 0) -> None:
        """Adds an event; at the same time, the lowest priority is first."""
        heappush(self.entries, (due, priority, self.scheduled_count, event))
        self.scheduled_count += 1

    @property
    def next_due(self) -> TimeT | None:
        """When the first event is due; None if there is none."""
        return self.entries[0][0] if self.entries else None

    def pop(self, until: TimeT) -> tuple[TimeT, EventT] | None:
        """Removes the first event; its time and the event, or None if none is due by then."""
        if not self.entries or self.entries[0][0] > until:
            return None
        due, _, _, event = heappop(self.entries)
        return due, event

    def pop_due(self, until: TimeT) -> list[EventT]:
        """Removes and returns all events that are due by then."""
        events = []
        while self.entries and self.entries[0][0] <= until:
            events.append(heappop(self.entries)[3])
        return events
