"""Choosing among at most a few dozen places (NUMA nodes): the smallest and the best sets that meet demands.

A set of places is an int, bit i is place i. What the places have is a list of shares
`(places, amount)`: the amount counts once if any of its places is chosen, so a share of one
place is a plain amount, and a share of several places belongs to each of them.

The search does not enumerate all sets.

A family of sets over at most 16 places is one int: bit m is set if set m belongs to it. An operation on all 2**n sets is then a
few operations on long integers instead of a loop.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations, compress
from operator import mul
from typing import Protocol

import msgspec

Share = tuple[int, int]
"""Places, and the amount if any of them is chosen."""

MAX_PLACES = 16
"""With more places the integers are too long to be fast."""

_LANE = 4  # bytes per set while sets are counted: two families have at most (2**16 - 1)**2 pairs
_FLAGS = bytes.maketrans(bytes(range(256)), bytes([48] * 128 + [49] * 128))  # is the top bit set?
_DIGITS = bytes.maketrans(b"01", b"\x00\x01")
_ODD = bytes.maketrans(bytes(range(256)), bytes([48, 49] * 128))  # is the lowest bit set?


class Demand(msgspec.Struct, frozen=True):
    """An amount that the chosen places must have together.

    >>> half = Demand(4, ((0b001, 2), (0b010, 2), (0b110, 1)))
    >>> half.met_by(0b011), half.met_by(0b101), half.total(0b101)
    (True, False, 3)
    """

    needed: int
    shares: tuple[Share, ...]

    def total(self, chosen: int) -> int:
        """What the chosen places have."""
        return sum([amount for places, amount in self.shares if places & chosen])

    def met_by(self, chosen: int) -> bool:
        """Whether the chosen places have enough."""
        return sum([amount for places, amount in self.shares if places & chosen]) >= self.needed

    def single_places(self, among: int) -> int:
        """Those of the places that meet the demand alone.

        >>> bin(Demand(2, ((0b001, 2), (0b010, 1), (0b110, 1))).single_places(0b111))
        '0b11'
        """
        if self.needed <= 0:
            return among
        enough = seen = 0
        for places, amount in self.shares:
            if places & seen or places & (places - 1):
                return sum([place for place in singletons(among) if self.met_by(place)])
            seen |= places
            if amount >= self.needed:
                enough |= places
        return enough & among


class MinimumSize(msgspec.Struct, frozen=True):
    """The smallest number of places that have enough; `proved` is False if the search was cut short."""

    size: int
    proved: bool = True


def minimum_size(places: int, demands: Sequence[Demand], budget: int = 50_000) -> MinimumSize:
    """The smallest number of places that meet every demand; all places if none do.

    Departs: where the kubelet tries every combination, amounts of single places are added
        up from the largest; only what remains undecided is searched, within the budget.

    >>> minimum_size(0b1111, [Demand(5, ((1, 2), (2, 2), (4, 3), (8, 1)))])
    MinimumSize(size=2, proved=True)
    """
    all_places = places.bit_count()
    if not all(demand.met_by(places) for demand in demands):
        return MinimumSize(all_places)
    if len(demands) == 1 and not any(group & (group - 1) for group, _ in demands[0].shares):
        return MinimumSize(_at_least(places, demands[0]))
    least = max((_at_least(places, demand) for demand in demands), default=1)
    if _simply_met(places, demands, least):
        return MinimumSize(least)
    most = _at_most(places, demands)
    steps = 0
    for size in range(least, most):
        for chosen in _reaching(places, demands, size):
            steps += 1
            if steps > budget:
                return MinimumSize(most, proved=False)
            if chosen:
                return MinimumSize(size)
    return MinimumSize(most)


def nonempty_subsets(places: int) -> Iterator[int]:
    """Every set but the empty one, smallest first, and within a size by ascending places.

    >>> [format(chosen, "03b") for chosen in nonempty_subsets(0b111)]
    ['001', '010', '100', '011', '101', '110', '111']
    """
    single = singletons(places)
    for size in range(1, len(single) + 1):
        yield from map(sum, combinations(single, size))


def singletons(places: int) -> list[int]:
    """Each place as a set of one, ascending."""
    single = []
    while places:
        lowest = places & -places
        single.append(lowest)
        places ^= lowest
    return single


NUMADistances = Mapping[int, Sequence[int]]
"""Distances from each NUMA node, by node id, to every other, indexed by node id."""

DEFAULT_STEP_BUDGET = 20_000


class StepBudget:
    """The remaining steps of a search."""

    __slots__ = ("remaining_steps",)

    def __init__(self, remaining_steps: int = DEFAULT_STEP_BUDGET) -> None:
        self.remaining_steps = remaining_steps

    @property
    def is_exhausted(self) -> bool:
        """Whether the search was cut short."""
        return self.remaining_steps <= 0


class SelectionRule(Protocol):
    """A rule that sets of nodes must satisfy. `picked` are indices of nodes, descending."""

    def can_complete(self, picked: Sequence[int], left: int) -> bool:
        """Whether `left` nodes below the last picked one could complete the set."""
        ...

    def completing_nodes(self, picked: Sequence[int], limit: int) -> int:
        """The nodes among the first `limit` (bit i is index i) that could complete the set."""
        ...

    def accepts(self, mask: int) -> bool:
        """Whether the complete set satisfies the rule."""
        ...


class ColexSearch:
    """A search through the sets of some nodes in numerical order."""

    def __init__(
        self, mask: int, rule: SelectionRule, budget: StepBudget, distances: NUMADistances | None = None
    ) -> None:
        self.nodes, self.rule, self.budget = singletons(mask), rule, budget
        self.rows: list[list[int]] = []
        if distances is not None:
            ids = [node.bit_length() - 1 for node in self.nodes]
            self.rows = [[distances[a][b] + (distances[b][a] if a != b else 0) for b in ids] for a in ids]
        # near[i][k]: the least that k other nodes add to the sum of distances to node i.
        others = [sorted(row[:at] + row[at + 1 :]) for at, row in enumerate(self.rows)]
        self.near = [list(accumulate(row, initial=0)) for row in others]
        self.self_least = min((row[at] for at, row in enumerate(self.rows)), default=0)
        self.pair_least = min((row[0] for row in others if row), default=0)
        self.best, self.best_sum = 0, 0

    def find(self, size: int) -> int:
        """The best set of this size; 0 if there is none, or none within the budget."""
        self.best, self.best_sum = 0, 0
        self._descend([], size, 0, 0)
        return self.best

    def _descend(self, picked: list[int], left: int, chosen: int, so_far: int) -> None:
        limit = picked[-1] if picked else len(self.nodes)
        if left == 1:
            self._complete(picked, limit, chosen, so_far)
            return
        for index in range(left - 1, limit):
            self.budget.remaining_steps -= 1
            picked.append(index)
            total = so_far + self._added(picked)
            if not self._beaten(total + self._to_come(picked, left - 1)) and self.rule.can_complete(
                picked, left - 1
            ):
                self._descend(picked, left - 1, chosen | self.nodes[index], total)
            picked.pop()
            if self.budget.is_exhausted or (self.best and not self.rows):
                return

    def _complete(self, picked: list[int], limit: int, chosen: int, so_far: int) -> None:
        candidates = self.rule.completing_nodes(picked, limit)
        while candidates and not self.budget.is_exhausted:
            lowest = candidates & -candidates
            candidates ^= lowest
            self.budget.remaining_steps -= 1
            picked.append(lowest.bit_length() - 1)
            total = so_far + self._added(picked)
            whole = chosen | self.nodes[picked.pop()]
            if not self._beaten(total) and self.rule.accepts(whole):
                self.best, self.best_sum = whole, total
                if not self.rows:
                    return

    def _beaten(self, total: int) -> bool:
        """Whether the best set so far wins: later sets are numerically larger, so they must be strictly closer."""
        return bool(self.best) and total >= self.best_sum

    def _to_come(self, picked: Sequence[int], left: int) -> int:
        """The least that the nodes still to be picked add."""
        if not self.rows:
            return 0
        beside = sum([self.near[index][left] for index in picked])
        return beside + left * self.self_least + left * (left - 1) // 2 * self.pair_least

    def _added(self, picked: Sequence[int]) -> int:
        if not self.rows:
            return 0
        row = self.rows[picked[-1]]
        return sum([row[other] for other in picked])


class DemandRule:
    """The rule that all demands are met at once."""

    def __init__(self, mask: int, demands: Sequence[Demand]) -> None:
        nodes = singletons(mask)
        self.demands = demands
        self.needed = [demand.needed for demand in demands]
        # A share of several nodes counts for each of them: an upper bound.
        self.worth = [[_node_amount(node, demand) for node in nodes] for demand in demands]
        self.tops = [_largest_sums(worth) for worth in self.worth]
        self.having = [_nodes_by_amount(worth) for worth in self.worth]

    def can_complete(self, picked: Sequence[int], left: int) -> bool:
        """Whether the best nodes below could cover what is missing, demand by demand."""
        last = picked[-1]
        for needed, worth, top in zip(self.needed, self.worth, self.tops, strict=True):
            if sum([worth[index] for index in picked]) + top[last][left] < needed:
                return False
        return True

    def completing_nodes(self, picked: Sequence[int], limit: int) -> int:
        """The nodes that cover all that is missing."""
        able = (1 << limit) - 1
        for needed, worth, (amounts, nodes) in zip(self.needed, self.worth, self.having, strict=True):
            able &= nodes[bisect_left(amounts, needed - sum([worth[index] for index in picked]))]
        return able

    def accepts(self, mask: int) -> bool:
        """Whether every demand is met."""
        return all(demand.met_by(mask) for demand in self.demands)


def narrowest_set_meeting(places: int, demands: Sequence[Demand], at_least: int = 1) -> int:
    """The smallest set of at least so many places that meets all demands; 0: there is none.

    Among sets of equal size the numerically smallest.

    >>> bin(narrowest_set_meeting(0b111, [Demand(3, ((1, 1), (2, 2), (4, 2)))]))
    '0b11'
    """
    if not all(demand.met_by(places) for demand in demands):
        return 0
    size = max(minimum_size(places, demands).size, at_least)
    search = ColexSearch(places, DemandRule(places, demands), StepBudget())
    while size < places.bit_count():
        match = search.find(size)
        if match or search.budget.is_exhausted:
            return match or places
        size += 1
    return places if size == places.bit_count() else 0


def family(sets: Iterable[int]) -> int:
    """The family of these sets.

    >>> bin(family([0b00, 0b10]))
    '0b101'
    """
    bits = 0
    for set_ in sets:
        bits |= 1 << set_
    return bits


def members(family_: int) -> list[int]:
    """The sets of a family, ascending.

    >>> members(0b101)
    [0, 2]
    """
    digits = format(family_, "b").encode()[::-1].translate(_DIGITS)
    return list(compress(range(len(digits)), digits))


def smallest_member(family_: int) -> int:
    """The numerically smallest set of a family that is not empty."""
    return (family_ & -family_).bit_length() - 1


@lru_cache(maxsize=64)
def sets_of_size(places: int, size: int) -> int:
    """The family of all sets of this size."""
    if size < 0 or size > places:
        return 0
    if places == 0:
        return 1
    return sets_of_size(places - 1, size) | sets_of_size(places - 1, size - 1) << (1 << (places - 1))


@lru_cache(maxsize=64)
def sets_of_min_size(places: int, size: int) -> int:
    """The family of all sets of this size or more."""
    bits = 0
    for sufficient in range(max(size, 0), places + 1):
        bits |= sets_of_size(places, sufficient)
    return bits


def sets_meeting(places: int, demand: Demand) -> int:
    """The family of all sets that meet the demand.

    >>> members(sets_meeting(2, Demand(3, ((0b01, 2), (0b10, 1)))))
    [3]
    """
    if demand.needed <= 0:
        return (1 << (1 << places)) - 1
    most = max(sum(amount for _, amount in demand.shares), demand.needed)
    width = most.bit_length() // 8 + 1
    bits = width * 8
    single, several = [0] * places, []
    for group, amount in demand.shares:
        if group & (group - 1):
            several.append((group, amount))
        elif group:
            single[group.bit_length() - 1] += amount
    sums = 0
    for place, amount in enumerate(single):
        sums |= (sums + amount * _ones(1 << place, bits)) << (bits << place)
    for group, amount in several:
        sums += amount * _touching_lanes(places, group, bits)
    sums += ((1 << (bits - 1)) - demand.needed) * _ones(1 << places, bits)
    flags = sums.to_bytes(width << places, "little")[width - 1 :: width]
    return int(flags.translate(_FLAGS)[::-1], 2)


def pair_sums(matrix: Sequence[Sequence[int]]) -> Sequence[int]:
    """For every set the sum over all ordered pairs of its places, including each place with itself.

    >>> list(pair_sums([[10, 20], [21, 10]]))
    [0, 10, 10, 61]
    """
    sums, places = 0, len(matrix)
    for place in range(places):
        added = matrix[place][place] * _ones(1 << place, 64)
        for other in range(place):
            both = matrix[place][other] + matrix[other][place]
            added += both * _touching_lanes(place, 1 << other, 64)
        sums |= (sums + added) << (64 << place)
    return array("Q", sums.to_bytes(8 << places, "little"))


def intersections(families: Sequence[int], places: int) -> int:
    """The family of all sets that are the intersection of one member of each family.

    Counts, for every set, how many choices contain it (supersets summed place by place), then subtracts
    those that contain more: the rest are the choices that intersect in exactly that set.

    >>> members(intersections([family([0b011]), family([0b110, 0b101])], 3))
    [1, 2]
    """
    merged, *others = families
    for other in others:
        merged = _pair_intersections(merged, other, places)
    return merged


def _worth(places: int, demand: Demand) -> dict[int, int]:
    """The amount of each place alone: an upper bound, as shares of several places count for each of them."""
    worth = dict.fromkeys(singletons(places), 0)
    for group, amount in demand.shares:
        inside = group & places
        if inside & (inside - 1):
            for place in singletons(inside):
                worth[place] += amount
        elif inside:
            worth[inside] += amount
    return worth


def _at_least(places: int, demand: Demand) -> int:
    missing, size = demand.needed, 0
    for amount in sorted(_worth(places, demand).values(), reverse=True):
        if missing <= 0:
            break
        missing, size = missing - amount, size + 1
    return max(size, 1)


def _simply_met(places: int, demands: Sequence[Demand], size: int) -> bool:
    """Whether the places with the largest amounts, relative to the demands, meet all demands."""
    parts = dict.fromkeys(singletons(places), 0.0)
    for demand in demands:
        for place, amount in _worth(places, demand).items():
            parts[place] += amount / max(demand.needed, 1)
    chosen = sum(sorted(parts, key=lambda place: (-parts[place], place))[:size])
    return all(demand.met_by(chosen) for demand in demands)


def _at_most(places: int, demands: Sequence[Demand]) -> int:
    """A sufficient size: greedily adds the place that reduces the missing amounts most."""
    chosen, left = 0, singletons(places)
    while left:
        missing = [max(demand.needed - demand.total(chosen), 0) for demand in demands]
        if chosen and not any(missing):
            break
        best = max(left, key=lambda place: (_relief(chosen | place, demands, missing), -place))
        left.remove(best)
        chosen |= best
    return chosen.bit_count()


def _relief(chosen: int, demands: Sequence[Demand], missing: Sequence[int]) -> float:
    """How much of the missing amounts the set covers, relative to each demand."""
    relief = 0.0
    for demand, short in zip(demands, missing, strict=True):
        if short:
            relief += min(demand.total(chosen) - demand.needed + short, short) / short
    return relief


def _reaching(places: int, demands: Sequence[Demand], size: int) -> Iterator[int]:
    """A set of this size that meets the demands, if there is one; each 0 before it is one step of the search."""
    worths = [_worth(places, demand) for demand in demands]
    order = sorted(singletons(places), key=lambda place: (-sum(worth[place] for worth in worths), place))
    # tops[d][i][r]: the largest amount that r places from i onwards add to demand d.
    tops = [
        [_prefix_sums([worth[place] for place in order[i:]]) for i in range(len(order) + 1)]
        for worth in worths
    ]
    stack = [(0, 0, size)]
    while stack:
        start, chosen, left = stack.pop()
        yield 0
        if left == 0:
            if all(demand.met_by(chosen) for demand in demands):
                yield chosen
                return
            continue
        if len(order) - start < left:
            continue
        totals = [demand.total(chosen) for demand in demands]
        if any(
            total + top[start][left] < demand.needed
            for total, top, demand in zip(totals, tops, demands, strict=True)
        ):
            continue
        stack.append((start + 1, chosen, left))
        stack.append((start + 1, chosen | order[start], left - 1))


def _prefix_sums(amounts: list[int]) -> list[int]:
    sums = [0]
    for amount in sorted(amounts, reverse=True):
        sums.append(sums[-1] + amount)
    return sums


def _node_amount(node: int, demand: Demand) -> int:
    return sum([amount for group, amount in demand.shares if group & node])


def _largest_sums(worth: list[int]) -> list[list[int]]:
    """tops[i][r]: the largest amount that r of the first i nodes have."""
    return [
        list(accumulate(sorted(worth[:count], reverse=True), initial=0)) for count in range(len(worth) + 1)
    ]


def _nodes_by_amount(worth: list[int]) -> tuple[list[int], list[int]]:
    """Amounts ascending, and for each the nodes (by index) that have it or more; last: none."""
    order = sorted(range(len(worth)), key=worth.__getitem__)
    nodes = [0] * (len(order) + 1)
    for at in range(len(order) - 1, -1, -1):
        nodes[at] = nodes[at + 1] | 1 << order[at]
    return [worth[index] for index in order], nodes


def _pair_intersections(left: int, right: int, places: int) -> int:
    everything = 1 << (1 << places) - 1
    if left == everything:
        return right
    if right == everything:
        return left
    size = _LANE << places
    counts = [
        array("I", _supersets_summed(_lanes(family_, places), places).to_bytes(size, "little"))
        for family_ in (left, right)
    ]
    exact = int.from_bytes(array("I", list(map(mul, *counts))).tobytes(), "little")
    for place in range(places):
        exact -= (exact >> (8 * _LANE << place)) & _without(places, place)
    for shift in (16, 8, 4, 2, 1):
        exact |= exact >> shift
    return int(exact.to_bytes(size, "little")[::_LANE].translate(_ODD)[::-1], 2)


def _supersets_summed(lanes: int, places: int) -> int:
    for place in range(places):
        lanes += (lanes >> (8 * _LANE << place)) & _without(places, place)
    return lanes


def _lanes(family_: int, places: int) -> int:
    """One lane per set: 1 if the family has it."""
    spread = bytearray(_LANE << places)
    spread[::_LANE] = format(family_, f"0{1 << places}b").encode()[::-1].translate(_DIGITS)
    return int.from_bytes(spread, "little")


@lru_cache(maxsize=MAX_PLACES * (MAX_PLACES + 1))
def _without(places: int, place: int) -> int:
    """Lanes full of ones for the sets without the place."""
    lane = 8 * _LANE
    return _repeated((1 << (lane << place)) - 1, lane << (place + 1), 1 << (places - place - 1))


@lru_cache(maxsize=256)
def _ones(count: int, bits: int) -> int:
    return _repeated(1, bits, count)


@lru_cache(maxsize=256)
def _touching_lanes(places: int, group: int, bits: int) -> int:
    """Lanes of 1 for the sets with any of these places."""
    lanes = 0
    for place in range(places):
        upper = _ones(1 << place, bits) if group >> place & 1 else lanes
        lanes |= upper << (bits << place)
    return lanes


def _repeated(pattern: int, period: int, times: int) -> int:
    """The pattern repeated `times` times (a power of two), every `period` bits."""
    count = 1
    while count < times:
        pattern |= pattern << (period * count)
        count *= 2
    return pattern
