"""The smallest possible choice of victims; docs/decisions defines "smallest".

It is the smallest set of items that covers every need, by branch and bound over plain integers. Items have a tier; one more of
tier 0 is worse than any number of tier 1, and so on. Among sets with equally many items of each tier, the one with the smallest
sizes is best, the first size before the second.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations
from operator import mul, sub
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nodewright.engine.core.preemption.greedy import MissingAmount, PreemptionCandidate, PreemptionVictims
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, PODS

BUDGET = 50_000
"""The number of partial sets after which the search ends without a proof; about half a second."""

_TIERS = {QOSClass.GUARANTEED: 0, QOSClass.BURSTABLE: 1, QOSClass.BEST_EFFORT: 2}

Row: TypeAlias = tuple[int, ...]
TIERS = 3


class CoverItem(NamedTuple):
    """An item: its tier, its contribution to each need, and its sizes."""

    tier: int
    contribution: Row
    sizes: Row


class CoverCost(NamedTuple):
    """The cost of a set; the smaller tuple is better."""

    per_tier: Row
    sizes: Row


class Cover(msgspec.Struct, frozen=True, dict=True):
    """Needs, all above zero, and the items that can cover them."""

    needs: Row
    items: tuple[CoverItem, ...]
    needs_of_sizes: tuple[int | None, ...]
    """For each size, the index of the need of the same resource, if any."""

    @cached_property
    def indices(self) -> range:
        """The indices of all items."""
        return range(len(self.items))

    def covers(self, picked: Iterable[int]) -> bool:
        """Whether these items cover all needs."""
        rows = [self.items[index].contribution for index in picked]
        return all(sum(row[at] for row in rows) >= need for at, need in enumerate(self.needs))

    def cost(self, picked: Iterable[int]) -> CoverCost:
        """The cost of these items together."""
        items = [self.items[index] for index in picked]
        return CoverCost(
            tuple(sum(item.tier == tier for item in items) for tier in range(TIERS)),
            tuple(sum(item.sizes[at] for item in items) for at in range(len(self.needs_of_sizes))),
        )

    def without_redundant(self, picked: Iterable[int]) -> Row:
        """The items without superfluous ones; those of the lowest tier and the largest size are dropped first."""
        kept = sorted(picked)
        for index in sorted(
            kept, key=lambda item: (self.items[item].tier, *(-size for size in self.items[item].sizes))
        ):
            fewer = [item for item in kept if item != index]
            if self.covers(fewer):
                kept = fewer
        return tuple(kept)


ExactSolver: TypeAlias = Callable[[Cover], tuple[int, ...] | None]
"""Another solver for the cheapest set of items, in their order; None if it cannot prove one."""


class PreemptionCost(NamedTuple):
    """The cost of a choice of victims; the smaller tuple is better.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    guaranteed: int
    burstable: int
    best_effort: int
    requests: tuple[int, ...]
    """The sum of their requests for each of `SmallestPreemption.resources`."""


class SmallestPreemption(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest choice of victims that was found, and the cost of the kubelet's choice for comparison."""

    victims: tuple[PreemptionCandidate, ...]
    """In the order in which the kubelet would kill them: best effort, burstable, guaranteed."""
    cost: PreemptionCost
    greedy_cost: PreemptionCost
    resources: tuple[str, ...]
    """The resources compared among choices of equally many pods: memory, cpu, then other missing resources."""
    proved: bool
    """Whether it is proved that there is no smaller choice."""
    steps: int
    """The number of partial choices examined."""


def smallest_preemption(
    greedy: PreemptionVictims, *, budget: int = BUDGET, exact: ExactSolver | None = None
) -> SmallestPreemption:
    """The smallest choice of victims: fewest guaranteed, burstable, best-effort pods, then smallest requests.

    It is never worse than the kubelet's choice and contains no superfluous pod. ``exact`` is called where the
    search ends without a proof.

    Departs: the kubelet makes one pass and never revises a choice.
    """
    resources = _compared_resources(greedy.missing)
    cover = _cover(greedy, resources)
    chosen = frozenset(map(id, greedy.victims))
    start = [index for index, candidate in enumerate(greedy.candidates) if id(candidate) in chosen]
    result = smallest_cover(cover, start, budget=budget)
    picked, proved = result.picked, result.proved
    if not proved and exact is not None:
        alternative = exact(cover)
        # The other solver's answer is only used as far as it can be checked here.
        if (
            alternative is not None
            and cover.covers(alternative)
            and cover.cost(alternative) <= cover.cost(picked)
        ):
            picked, proved = alternative, True
    victims = [greedy.candidates[index] for index in picked]
    victims.sort(
        key=lambda victim: -_TIERS[victim.qos_class]
    )  # stable: the kubelet's order within a class stays
    return SmallestPreemption(
        victims=tuple(victims),
        cost=_cost(victims, resources),
        greedy_cost=_cost(greedy.victims, resources),
        resources=resources,
        proved=proved,
        steps=result.steps,
    )


class CoverResult(msgspec.Struct, frozen=True):
    """The best set that was found, and whether it is proved that there is none better."""

    picked: Row
    proved: bool
    steps: int
    """The number of partial sets examined."""


def smallest_cover(cover: Cover, start: Iterable[int], *, budget: int) -> CoverResult:
    """The cheapest set of items that covers all needs, or the best one found within the budget.

    ``start`` is a set that covers them; the result is never worse. The search is depth first, items with the
    largest contribution first; a partial set is pruned if its lower bound is no less than the best known cost.
    """
    best = cover.without_redundant(start)
    lowest = cover.cost(best)
    search = _CoverSearch(cover)
    stack = [search.empty_set()]
    steps = 0
    while stack and steps < budget:
        steps += 1
        partial = stack.pop()
        if max(partial.needs, default=0) > 0:
            if search.can_beat(partial, lowest):
                stack.extend(search.children(partial))
        elif (cost := CoverCost(partial.per_tier, partial.sizes)) < lowest:
            best, lowest = search.picked(partial), cost
    return CoverResult(cover.without_redundant(best), proved=not stack, steps=steps)


def _compared_resources(missing: Iterable[MissingAmount]) -> tuple[str, ...]:
    """The resources with sums that decide between equally many victims, each once."""
    others = (amount.resource for amount in missing if amount.resource != PODS)
    return tuple(dict.fromkeys((MEMORY, CPU, *others)))


def _cover(greedy: PreemptionVictims, resources: tuple[str, ...]) -> Cover:
    needs = [need for need in greedy.missing if need.amount > 0]
    names = [need.resource for need in needs]
    return Cover(
        needs=tuple(need.amount for need in needs),
        items=tuple(
            CoverItem(
                _TIERS[candidate.qos_class],
                tuple(min(candidate.frees(need.resource), need.amount) for need in needs),
                tuple(map(candidate.frees, resources)),
            )
            for candidate in greedy.candidates
        ),
        needs_of_sizes=tuple(names.index(name) if name in names else None for name in resources),
    )


def _cost(victims: Iterable[PreemptionCandidate], resources: tuple[str, ...]) -> PreemptionCost:
    victims = tuple(victims)
    return PreemptionCost(
        guaranteed=sum(victim.qos_class is QOSClass.GUARANTEED for victim in victims),
        burstable=sum(victim.qos_class is QOSClass.BURSTABLE for victim in victims),
        best_effort=sum(victim.qos_class is QOSClass.BEST_EFFORT for victim in victims),
        requests=tuple(sum(victim.frees(name) for victim in victims) for name in resources),
    )


class _Partial(NamedTuple):
    """A choice among the items before index ``at``."""

    at: int
    needs: Row
    per_tier: Row
    sizes: Row
    chain: Any
    """The picked items as a linked list, last one first; None: the end."""


class _Table(NamedTuple):
    """For each k, the largest contribution of k items to each need, and the smallest sum of each size."""

    most: tuple[list[int], ...]
    least: tuple[list[int], ...]


class _CoverSearch:
    """The items in the order of the search, and bounds on the remaining items."""

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
        self.gives = [self._with_combinations(item.contribution) for item in self.items]
        self.reserves = [
            [sum(row[at] for row in self.gives[end:]) for at in range(len(cover.needs) + len(self.weights))]
            for end in self.starts[1:]
        ]
        self.tables: dict[tuple[int, int], _Table] = {}

    def empty_set(self) -> _Partial:
        """The start of the search."""
        cover = self.cover
        return _Partial(0, cover.needs, (0,) * TIERS, (0,) * len(cover.needs_of_sizes), None)

    def picked(self, partial: _Partial) -> Row:
        """The items of a partial set by their index in the cover."""
        picked, chain = [], partial.chain
        while chain is not None:
            picked.append(self.order[chain[0]])
            chain = chain[1]
        return tuple(sorted(picked))

    def children(self, partial: _Partial) -> list[_Partial]:
        """The two branches: without the next item and all equal ones, and with it, which is examined first."""
        at, needs = partial.at, partial.needs
        item = self.items[at]
        without_item = partial._replace(at=self.next_other[at])
        if not any(
            need > 0 < contribution for need, contribution in zip(needs, item.contribution, strict=True)
        ):
            return [without_item]
        per_tier = list(partial.per_tier)
        per_tier[item.tier] += 1
        with_item = _Partial(
            at + 1,
            tuple([need - contribution for need, contribution in zip(needs, item.contribution, strict=True)]),
            tuple(per_tier),
            tuple([total + size for total, size in zip(partial.sizes, item.sizes, strict=True)]),
            (at, partial.chain),
        )
        return [without_item, with_item]

    def can_beat(self, partial: _Partial, lowest: CoverCost) -> bool:
        """Whether the partial set may lead to a cheaper one; only False is certain."""
        missing = self._with_combinations([max(need, 0) for need in partial.needs])
        picks = []
        for tier in range(TIERS):
            table = self._table(tier, max(partial.at, self.starts[tier]))
            # A lower bound: the largest contributions of this tier, together with all items of the later tiers.
            count = max(map(bisect_left, table.most, map(sub, missing, self.reserves[tier])))
            if count >= len(table.most[0]):
                return False
            total = partial.per_tier[tier] + count
            if total != lowest.per_tier[tier]:
                return total < lowest.per_tier[tier]
            picks.append((table, count))
            missing = [need - most[count] for need, most in zip(missing, table.most, strict=True)]
        return self._can_be_smaller(partial, picks, lowest)

    def _can_be_smaller(
        self, partial: _Partial, picks: list[tuple["_Table", int]], lowest: CoverCost
    ) -> bool:
        """The same for the sizes, where the numbers of items can be equalled but not be lower."""
        for at, need in enumerate(self.cover.needs_of_sizes):
            remaining = sum(table.least[at][count] for table, count in picks)
            if need is not None:
                remaining = max(remaining, partial.needs[need])
            total = partial.sizes[at] + remaining
            if total != lowest.sizes[at]:
                return total < lowest.sizes[at]
        return False

    def _table(self, tier: int, start: int) -> _Table:
        """The table of the items of a tier from this index on."""
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

    def _with_combinations(self, row: Sequence[int]) -> list[int]:
        """The amounts and their weighted sums, which bound the needs together instead of one at a time."""
        return [*row, *(sum(map(mul, row, weights)) for weights in self.weights)]


def _rank(cover: Cover, index: int) -> tuple[Any, ...]:
    """By tier, then the largest relative contribution first; equal items are adjacent."""
    tier, gives, sizes = cover.items[index]
    share = sum(Fraction(give, need) for give, need in zip(gives, cover.needs, strict=True))
    return tier, -share, gives, sizes, index


def _weights(needs: Row) -> list[Row]:
    """Weights that make needs comparable, for each pair of needs and for all of them."""
    common = 64 * max(needs, default=1)
    even = [common // need for need in needs]
    groups: list[Row] = [*combinations(range(len(needs)), 2)] if len(needs) > 2 else []
    if len(needs) > 1:
        groups.append(tuple(range(len(needs))))
    return [tuple(weight if at in group else 0 for at, weight in enumerate(even)) for group in groups]
