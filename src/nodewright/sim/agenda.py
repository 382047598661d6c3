"""Virtual time: what is to happen, in the order of its moments."""

from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class Agenda(Generic[T]):
    """Things that are to happen; at one moment in the order in which they were noted.

    Units: seconds since the beginning.

    >>> agenda = Agenda[str]()
    >>> agenda.note(2, "later")
    >>> agenda.note(1, "sooner")
    >>> agenda.next_s, agenda.due(1), agenda.due(1)
    (1, ['sooner'], [])
    """

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, T]] = []
        """A heap; the second number orders what is due at the same time."""
        self.noted = 0

    def note(self, at_s: float, what: T) -> None:
        """It is to happen then."""
        heappush(self.entries, (at_s, self.noted, what))
        self.noted += 1

    @property
    def next_s(self) -> float | None:
        """When something happens next; None: never."""
        return self.entries[0][0] if self.entries else None

    def due(self, now_s: float) -> list[T]:
        """All that is to happen until now, which is then forgotten."""
        found = []
        while self.entries and self.entries[0][0] <= now_s:
            found.append(heappop(self.entries)[2])
        return found
