"""The smallest set of items that covers every need: a branch and bound over plain integers.

Items have a tier; taking one more of tier 0 is worse than taking any number of tier 1, and so on. Among sets
that take equally many of each tier, the one with the smallest sizes is best, the first size before the second.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations
from operator import mul, sub
from typing import Any, NamedTuple, TypeAlias

TIERS = 3
Row: TypeAlias = tuple[int, ...]


class Item(NamedTuple):
    """Something that may be taken: its tier, what it gives for each need, and its sizes."""

    tier: int
    gives: Row
    sizes: Row


class Cost(NamedTuple):
    """What a set costs; the smaller tuple is the better one."""

    per_tier: Row
    sizes: Row


@dataclass(frozen=True)
class Cover:
    """Needs, all above zero, and the items that may be taken to cover them."""

    needs: Row
    items: tuple[Item, ...]
    needs_of_sizes: tuple[int | None, ...]
    """For each size, which need it is also given for, if any."""

    @cached_property
    def indices(self) -> range:
        """All items."""
        return range(len(self.items))

    def covers(self, taken: Iterable[int]) -> bool:
        """Whether these items cover all needs."""
        rows = [self.items[index].gives for index in taken]
        return all(sum(row[at] for row in rows) >= need for at, need in enumerate(self.needs))

    def cost(self, taken: Iterable[int]) -> Cost:
        """What these items cost together."""
        items = [self.items[index] for index in taken]
        return Cost(
            tuple(sum(item.tier == tier for item in items) for tier in range(TIERS)),
            tuple(sum(item.sizes[at] for item in items) for at in range(len(self.needs_of_sizes))),
        )

    def without_spares(self, taken: Iterable[int]) -> Row:
        """These items but those that the others make superfluous, the most precious and largest first."""
        kept = sorted(taken)
        for index in sorted(
            kept, key=lambda one: (self.items[one].tier, *(-s for s in self.items[one].sizes))
        ):
            fewer = [one for one in kept if one != index]
            if self.covers(fewer):
                kept = fewer
        return tuple(kept)


@dataclass(frozen=True, slots=True)
class Found:
    """The best set that was found, and whether it is certain that there is none better."""

    taken: Row
    proved: bool
    steps: int
    """How many partial sets were looked at."""


def smallest_cover(cover: Cover, start: Iterable[int], *, budget: int) -> Found:
    """The cheapest set of items that covers all needs, or the best that was found within the budget.

    ``start`` is a set that covers them; the answer is never worse. Depth first, items that give most first;
    a partial set is left when the best that could become of it costs no less than the best set known.
    """
    best = cover.without_spares(start)
    lowest = cover.cost(best)
    search = _Search(cover)
    stack = [search.nothing_taken()]
    steps = 0
    while stack and steps < budget:
        steps += 1
        partial = stack.pop()
        if max(partial.needs, default=0) > 0:
            if search.can_beat(partial, lowest):
                stack.extend(search.children(partial))
        elif (cost := Cost(partial.per_tier, partial.sizes)) < lowest:
            best, lowest = search.taken(partial), cost
    return Found(cover.without_spares(best), proved=not stack, steps=steps)


class _Partial(NamedTuple):
    """A choice among the items before ``at``."""

    at: int
    needs: Row
    per_tier: Row
    sizes: Row
    chain: Any
    """The items taken, each linked to the one before it; None: no more."""


class _Table(NamedTuple):
    """For each k, the most that k items give for each need, and the least that they have of each size."""

    most: tuple[list[int], ...]
    least: tuple[list[int], ...]


class _Search:
    """The items in the order of the search, and bounds on what those ahead can do."""

    def __init__(self, cover: Cover) -> None:
        self.cover = cover
        self.order = sorted(cover.indices, key=lambda index: _rank(cover, index))
        self.items = [cover.items[index] for index in self.order]
        count = len(self.items)
        tiers = [item.tier for item in self.items]
        self.starts = [bisect_left(tiers, tier) for tier in range(TIERS + 1)]
        self.next_other = list(range(1, count + 1))
        for at in range(count - 2, -1, -1):
            if self.items[at] == self.items[at + 1]:
                self.next_other[at] = self.next_other[at + 1]
        self.weights = _weights(cover.needs)
        self.gives = [self._with_mixtures(item.gives) for item in self.items]
        self.reserves = [
            [sum(row[at] for row in self.gives[end:]) for at in range(len(cover.needs) + len(self.weights))]
            for end in self.starts[1:]
        ]
        self.tables: dict[tuple[int, int], _Table] = {}

    def nothing_taken(self) -> _Partial:
        """Where the search begins."""
        cover = self.cover
        return _Partial(0, cover.needs, (0,) * TIERS, (0,) * len(cover.needs_of_sizes), None)

    def taken(self, partial: _Partial) -> Row:
        """The items of a partial set by their place in the cover."""
        found, chain = [], partial.chain
        while chain is not None:
            found.append(self.order[chain[0]])
            chain = chain[1]
        return tuple(sorted(found))

    def children(self, partial: _Partial) -> list[_Partial]:
        """The next item left out, and with it all that equal it; and taken, which is looked at first."""
        at, needs = partial.at, partial.needs
        item = self.items[at]
        left_out = partial._replace(at=self.next_other[at])
        if not any(need > 0 < give for need, give in zip(needs, item.gives, strict=True)):
            return [left_out]
        per_tier = list(partial.per_tier)
        per_tier[item.tier] += 1
        taken = _Partial(
            at + 1,
            tuple([need - give for need, give in zip(needs, item.gives, strict=True)]),
            tuple(per_tier),
            tuple([total + size for total, size in zip(partial.sizes, item.sizes, strict=True)]),
            (at, partial.chain),
        )
        return [left_out, taken]

    def can_beat(self, partial: _Partial, lowest: Cost) -> bool:
        """Whether something cheaper may become of the partial set; only a no is certain."""
        lacking = self._with_mixtures([max(need, 0) for need in partial.needs])
        picks = []
        for tier in range(TIERS):
            table = self._table(tier, max(partial.at, self.starts[tier]))
            # So many are needed even if those that give most were to be had and all the lesser tiers were taken.
            count = max(map(bisect_left, table.most, map(sub, lacking, self.reserves[tier])))
            if count >= len(table.most[0]):
                return False
            total = partial.per_tier[tier] + count
            if total != lowest.per_tier[tier]:
                return total < lowest.per_tier[tier]
            picks.append((table, count))
            lacking = [lack - most[count] for lack, most in zip(lacking, table.most, strict=True)]
        return self._can_be_smaller(partial, picks, lowest)

    def _can_be_smaller(self, partial: _Partial, picks: list[tuple["_Table", int]], lowest: Cost) -> bool:
        """The same for the sizes, where the numbers of items cannot be beaten but equalled."""
        for at, need in enumerate(self.cover.needs_of_sizes):
            ahead = sum(table.least[at][count] for table, count in picks)
            if need is not None:
                ahead = max(ahead, partial.needs[need])
            total = partial.sizes[at] + ahead
            if total != lowest.sizes[at]:
                return total < lowest.sizes[at]
        return False

    def _table(self, tier: int, start: int) -> _Table:
        """The table of the items of a tier from there on."""
        table = self.tables.get((tier, start))
        if table is None:
            end = self.starts[tier + 1]
            columns = (
                zip(*self.gives[start:end], strict=True) if start < end else [()] * len(self.reserves[0])
            )
            sizes = range(len(self.cover.needs_of_sizes))
            table = self.tables[tier, start] = _Table(
                tuple(list(accumulate(sorted(column, reverse=True), initial=0)) for column in columns),
                tuple(
                    list(accumulate(sorted(item.sizes[at] for item in self.items[start:end]), initial=0))
                    for at in sizes
                ),
            )
        return table

    def _with_mixtures(self, row: Sequence[int]) -> list[int]:
        """The amounts and their mixtures, in which no need can be met by what is good for another alone."""
        return [*row, *(sum(map(mul, row, weights)) for weights in self.weights)]


def _rank(cover: Cover, index: int) -> tuple[Any, ...]:
    """Tier by tier, those first that give the largest share of what is needed; equal ones side by side."""
    tier, gives, sizes = cover.items[index]
    share = sum(Fraction(give, need) for give, need in zip(gives, cover.needs, strict=True))
    return tier, -share, gives, sizes, index


def _weights(needs: Row) -> list[Row]:
    """Ways to mix needs so that each of some counts as much as the others: pairs, and all of them."""
    common = 64 * max(needs, default=1)
    even = [common // need for need in needs]
    groups: list[Row] = [*combinations(range(len(needs)), 2)] if len(needs) > 2 else []
    if len(needs) > 1:
        groups.append(tuple(range(len(needs))))
    return [tuple(weight if at in group else 0 for at, weight in enumerate(even)) for group in groups]
