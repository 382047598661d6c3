"""Looking for the best choice of places (NUMA nodes) where there are too many choices to write down.

The best choice of a given size is the closest one (where distances count), then the numerically
smallest. Choices are made from the highest node down, so that they come up in numerical order and
the first that will do is the answer. Every search has a budget of steps; what ran out of it says so.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from nodewright.values.subsets import Demand, bits, fewest

Distances = Mapping[int, Sequence[int]]
"""Distance from a NUMA node to each other one, by node id and indexed by node id."""

BUDGET = 20_000


@dataclass(slots=True)
class Budget:
    """Steps that a search may still take."""

    left: int = BUDGET

    @property
    def spent(self) -> bool:
        """Whether the search was cut short."""
        return self.left <= 0


class Rule(Protocol):
    """What makes a choice among some nodes a good one. `picked` are indices of nodes, descending."""

    def hopeful(self, picked: Sequence[int], left: int) -> bool:
        """Whether `left` nodes below the last picked one could complete the choice."""
        ...

    def able(self, picked: Sequence[int], limit: int) -> int:
        """Those of the first `limit` nodes (bit i is index i) that could be the last one."""
        ...

    def accepts(self, mask: int) -> bool:
        """Whether the complete choice will do."""
        ...


class Colex:
    """A walk over the choices among some nodes in numerical order."""

    def __init__(self, mask: int, rule: Rule, budget: Budget, distances: Distances | None = None) -> None:
        self.nodes, self.rule, self.budget = bits(mask), rule, budget
        self.rows: list[list[int]] = []
        if distances is not None:
            ids = [node.bit_length() - 1 for node in self.nodes]
            self.rows = [[distances[a][b] + (distances[b][a] if a != b else 0) for b in ids] for a in ids]
        # near[i][k]: the least that k other nodes can add to the sum for being beside node i.
        others = [sorted(row[:at] + row[at + 1 :]) for at, row in enumerate(self.rows)]
        self.near = [list(accumulate(row, initial=0)) for row in others]
        self.self_least = min((row[at] for at, row in enumerate(self.rows)), default=0)
        self.pair_least = min((row[0] for row in others if row), default=0)
        self.best, self.best_sum = 0, 0

    def find(self, size: int) -> int:
        """The best choice of that size; 0 if there is none, or none was found within the budget."""
        self.best, self.best_sum = 0, 0
        self._descend([], size, 0, 0)
        return self.best

    def _descend(self, picked: list[int], left: int, chosen: int, so_far: int) -> None:
        limit = picked[-1] if picked else len(self.nodes)
        if left == 1:
            self._complete(picked, limit, chosen, so_far)
            return
        for index in range(left - 1, limit):
            self.budget.left -= 1
            picked.append(index)
            total = so_far + self._added(picked)
            if not self._beaten(total + self._to_come(picked, left - 1)) and self.rule.hopeful(
                picked, left - 1
            ):
                self._descend(picked, left - 1, chosen | self.nodes[index], total)
            picked.pop()
            if self.budget.spent or (self.best and not self.rows):
                return

    def _complete(self, picked: list[int], limit: int, chosen: int, so_far: int) -> None:
        able = self.rule.able(picked, limit)
        while able and not self.budget.spent:
            lowest = able & -able
            able ^= lowest
            self.budget.left -= 1
            picked.append(lowest.bit_length() - 1)
            total = so_far + self._added(picked)
            whole = chosen | self.nodes[picked.pop()]
            if not self._beaten(total) and self.rule.accepts(whole):
                self.best, self.best_sum = whole, total
                if not self.rows:
                    return

    def _beaten(self, total: int) -> bool:
        """What comes later is numerically larger: it must be strictly closer to win."""
        return bool(self.best) and total >= self.best_sum

    def _to_come(self, picked: Sequence[int], left: int) -> int:
        """What the nodes still to be picked add at least."""
        if not self.rows:
            return 0
        beside = sum([self.near[index][left] for index in picked])
        return beside + left * self.self_least + left * (left - 1) // 2 * self.pair_least

    def _added(self, picked: Sequence[int]) -> int:
        if not self.rows:
            return 0
        row = self.rows[picked[-1]]
        return sum([row[other] for other in picked])


class Meeting:
    """The rule that all demands are met at once."""

    def __init__(self, mask: int, demands: Sequence[Demand]) -> None:
        nodes = bits(mask)
        self.demands = demands
        self.needed = [demand.needed for demand in demands]
        # A share of several nodes is counted for each of them here: too much, never too little.
        self.worth = [[_worth(node, demand) for node in nodes] for demand in demands]
        self.tops = [_tops(worth) for worth in self.worth]
        self.having = [_having(worth) for worth in self.worth]

    def hopeful(self, picked: Sequence[int], left: int) -> bool:
        """Whether the best nodes below could bring what is missing, demand by demand."""
        last = picked[-1]
        for needed, worth, top in zip(self.needed, self.worth, self.tops, strict=True):
            if sum([worth[index] for index in picked]) + top[last][left] < needed:
                return False
        return True

    def able(self, picked: Sequence[int], limit: int) -> int:
        """The nodes that have all that is missing."""
        able = (1 << limit) - 1
        for needed, worth, (amounts, nodes) in zip(self.needed, self.worth, self.having, strict=True):
            able &= nodes[bisect_left(amounts, needed - sum([worth[index] for index in picked]))]
        return able

    def accepts(self, mask: int) -> bool:
        """Whether every demand is met."""
        return all(demand.met_by(mask) for demand in self.demands)


def narrowest_meeting(places: int, demands: Sequence[Demand], at_least: int = 1) -> int:
    """The set of fewest places, but so many at least, that meets all demands; 0: there is none.

    Among equally many places the numerically smallest set.

    >>> bin(narrowest_meeting(0b111, [Demand(3, ((1, 1), (2, 2), (4, 2)))]))
    '0b11'
    """
    if not all(demand.met_by(places) for demand in demands):
        return 0
    size = max(fewest(places, demands).size, at_least)
    walk = Colex(places, Meeting(places, demands), Budget())
    while size < places.bit_count():
        found = walk.find(size)
        if found or walk.budget.spent:
            return found or places
        size += 1
    return places if size == places.bit_count() else 0


def _worth(node: int, demand: Demand) -> int:
    return sum([amount for where, amount in demand.shares if where & node])


def _tops(worth: list[int]) -> list[list[int]]:
    """tops[i][r]: the most that r of the first i nodes can have."""
    return [
        list(accumulate(sorted(worth[:count], reverse=True), initial=0)) for count in range(len(worth) + 1)
    ]


def _having(worth: list[int]) -> tuple[list[int], list[int]]:
    """Amounts ascending, and for each the nodes (by index) that have it or more; last: none."""
    order = sorted(range(len(worth)), key=worth.__getitem__)
    nodes = [0] * (len(order) + 1)
    for at in range(len(order) - 1, -1, -1):
        nodes[at] = nodes[at + 1] | 1 << order[at]
    return [worth[index] for index in order], nodes
