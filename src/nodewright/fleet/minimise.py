"""Searches the smallest number of nodes that holds a workload; each candidate is simulated."""

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.fleet.workload import FleetNode

HoldsWorkload = Callable[[Sequence[FleetNode]], int]
"""Returns how many pods of the workload these nodes cannot place at once; 0: they hold it."""


class SearchInterruptedError(Exception):
    """The search was interrupted."""


class MinimumNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest set of nodes that was found to hold a workload."""

    counts: tuple[int, ...]
    """Number of nodes of each kind; empty: no number up to the maximum holds it."""
    bound: int
    """Lower bound for the number of nodes."""
    runs: int
    """Number of simulations."""
    is_complete: bool = True
    """False: the search was interrupted, and this is the best result until then."""

    @property
    def nodes(self) -> int:
        """Total number of nodes."""
        return sum(self.counts)

    @property
    def is_proved_minimal(self) -> bool:
        """Whether the lower bound proves that no smaller set holds it."""
        return bool(self.counts) and self.nodes <= self.bound


def node_copies(kinds: Sequence[FleetNode], counts: Sequence[int]) -> list[FleetNode]:
    """Copies of nodes of each kind, with unique names and host names."""
    return [
        replace(kind, name=name, labels={**kind.labels, "kubernetes.io/hostname": name})
        for kind, count in zip(kinds, counts, strict=True)
        for name in (f"{kind.name}-{number}" for number in range(count))
    ]


def minimum_nodes(
    kinds: Sequence[FleetNode], holds: HoldsWorkload, *, bound: int, maximum: int
) -> MinimumNodes:
    """The smallest number of nodes of the kinds that holds the workload, as far as the search finds it.

    Tries each kind alone first, or, where none suffices, equal numbers of all kinds; then removes nodes one by one
    as long as the rest holds the workload. ``maximum`` is the largest number of nodes of a kind. When ``holds`` raises
    SearchInterruptedError, the result is the best one until then.
    """
    search = _NodeCountSearch(kinds, holds)
    try:
        best, is_complete = _best(search, len(kinds), bound, maximum), True
    except SearchInterruptedError:
        best, is_complete = search.smallest_known(), False
    return MinimumNodes(counts=best, bound=bound, runs=search.runs, is_complete=is_complete)


def _best(search: "_NodeCountSearch", kinds: int, bound: int, maximum: int) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for at in range(kinds):
        if best and sum(best) <= bound:
            break
        only = tuple(int(at == kind) for kind in range(kinds))
        smallest = search.smallest_multiple(
            only, minimum=max(bound, 1), maximum=sum(best) - 1 if best else maximum
        )
        best = smallest or best
    if not best and kinds > 1:
        best = search.smallest_multiple((1,) * kinds, minimum=1, maximum=maximum)
        best = search.reduced(best, bound) if best else best
    return best


class _NodeCountSearch:
    def __init__(self, kinds: Sequence[FleetNode], holds: HoldsWorkload) -> None:
        self.kinds, self._holds = kinds, holds
        self.runs = 0
        self._results: dict[tuple[int, ...], bool] = {}

    def holds(self, counts: tuple[int, ...]) -> bool:
        if counts not in self._results:
            self.runs += 1
            self._results[counts] = not self._holds(node_copies(self.kinds, counts))
        return self._results[counts]

    def smallest_known(self) -> tuple[int, ...]:
        """The smallest counts that hold it so far; empty: none."""
        holding = [counts for counts, holds_it in self._results.items() if holds_it]
        return min(holding, key=lambda counts: (sum(counts), counts), default=())

    def smallest_multiple(self, direction: tuple[int, ...], *, minimum: int, maximum: int) -> tuple[int, ...]:
        """The smallest multiple that holds it, assuming that more nodes hold no less; empty: none up to the maximum."""
        low, high = minimum, minimum
        while high <= maximum and not self.holds(_multiple(direction, high)):
            low, high = high + 1, 2 * high
        if high > maximum:
            high = maximum
            if high < low or not self.holds(_multiple(direction, high)):
                return ()
        while low < high:
            middle = (low + high) // 2
            if self.holds(_multiple(direction, middle)):
                high = middle
            else:
                low = middle + 1
        return _multiple(direction, high)

    def reduced(self, counts: tuple[int, ...], bound: int) -> tuple[int, ...]:
        """Removes nodes of each kind, one by one, as long as the rest holds the workload."""
        at = 0
        while at < len(counts) and sum(counts) > bound:
            fewer = tuple(count - (index == at) for index, count in enumerate(counts))
            if fewer[at] >= 0 and self.holds(fewer):
                counts = fewer
            else:
                at += 1
        return counts


def _multiple(direction: tuple[int, ...], factor: int) -> tuple[int, ...]:
    return tuple(count * factor for count in direction)
