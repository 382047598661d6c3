"""The fewest nodes of given kinds that hold a workload: a search with the fleet itself as its judge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from nodewright.model.fleet import FleetNode

Holds = Callable[[Sequence[FleetNode]], int]
"""How many pods of the workload these nodes fail to take at once; 0: they hold it."""


class BrokenOffError(Exception):
    """Whoever tries nodes has been told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fewest:
    """The fewest nodes that were found to hold a workload."""

    counts: tuple[int, ...]
    """How many of each kind; empty: no number up to the most that was tried holds it."""
    bound: int
    """Fewer cannot hold it."""
    runs: int
    """How often the fleet was run."""
    is_complete: bool = True
    """False: the search was broken off, and these are the fewest that were found until then."""

    @property
    def nodes(self) -> int:
        """All of them together."""
        return sum(self.counts)

    @property
    def is_proved(self) -> bool:
        """Whether no fewer can do."""
        return bool(self.counts) and self.nodes <= self.bound


def copies(kinds: Sequence[FleetNode], counts: Sequence[int]) -> list[FleetNode]:
    """So many nodes of each kind, with names and host names of their own."""
    return [
        replace(kind, name=name, labels={**kind.labels, "kubernetes.io/hostname": name})
        for kind, count in zip(kinds, counts, strict=True)
        for name in (f"{kind.name}-{number}" for number in range(count))
    ]


def fewest(kinds: Sequence[FleetNode], holds: Holds, *, bound: int, most: int) -> Fewest:
    """The fewest nodes of the kinds that hold the workload, as far as the search finds them.

    First as many as are needed of each kind alone, or, where none does, of all kinds alike; then kinds are
    taken away one by one as long as the rest still holds it. ``most`` is how many of a kind are tried. ``holds`` may
    raise BrokenOffError: then what was found until then is told.
    """
    search = _Search(kinds, holds)
    try:
        best, is_complete = _best(search, len(kinds), bound, most), True
    except BrokenOffError:
        best, is_complete = search.least_known(), False
    return Fewest(counts=best, bound=bound, runs=search.runs, is_complete=is_complete)


def _best(search: "_Search", kinds: int, bound: int, most: int) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for at in range(kinds):
        if best and sum(best) <= bound:
            break
        only = tuple(int(at == one) for one in range(kinds))
        found = search.along(only, least=max(bound, 1), most=sum(best) - 1 if best else most)
        best = found or best
    if not best and kinds > 1:
        best = search.along((1,) * kinds, least=1, most=most)
        best = search.lessened(best, bound) if best else best
    return best


class _Search:
    def __init__(self, kinds: Sequence[FleetNode], holds: Holds) -> None:
        self.kinds, self._holds = kinds, holds
        self.runs = 0
        self._known: dict[tuple[int, ...], bool] = {}

    def holds(self, counts: tuple[int, ...]) -> bool:
        if counts not in self._known:
            self.runs += 1
            self._known[counts] = not self._holds(copies(self.kinds, counts))
        return self._known[counts]

    def least_known(self) -> tuple[int, ...]:
        """The fewest that were found to hold it so far; empty: none were."""
        holding = [counts for counts, does in self._known.items() if does]
        return min(holding, key=lambda counts: (sum(counts), counts), default=())

    def along(self, direction: tuple[int, ...], *, least: int, most: int) -> tuple[int, ...]:
        """The smallest multiple that holds it, as far as more nodes hold no less; empty: none up to the most."""
        low, high = least, least
        while high <= most and not self.holds(_times(direction, high)):
            low, high = high + 1, 2 * high
        if high > most:
            high = most
            if high < low or not self.holds(_times(direction, high)):
                return ()
        while low < high:
            middle = (low + high) // 2
            if self.holds(_times(direction, middle)):
                high = middle
            else:
                low = middle + 1
        return _times(direction, high)

    def lessened(self, counts: tuple[int, ...], bound: int) -> tuple[int, ...]:
        """These with one node less of some kind, again and again, as long as it holds."""
        at = 0
        while at < len(counts) and sum(counts) > bound:
            fewer = tuple(count - (place == at) for place, count in enumerate(counts))
            if fewer[at] >= 0 and self.holds(fewer):
                counts = fewer
            else:
                at += 1
        return counts


def _times(direction: tuple[int, ...], factor: int) -> tuple[int, ...]:
    return tuple(one * factor for one in direction)
