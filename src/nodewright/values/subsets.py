"""Choosing among at most a few dozen places: how few of them have enough together?

A set of places is an int, bit i is place i. What the places have is a list of shares
`(places, amount)`: the amount counts once as soon as one of its places is chosen, so a share of one
place is a plain amount, and a share of several is something that hangs on all of them.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

Share = tuple[int, int]
"""Places, and what choosing any of them brings."""


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
        return self.total(chosen) >= self.needed


class Fewest(msgspec.Struct, frozen=True):
    """The smallest number of places that have enough; `proved` is False if the search was cut short."""

    size: int
    proved: bool = True


def fewest(places: int, demands: Sequence[Demand], budget: int = 50_000) -> Fewest:
    """How many of the places it takes at least to meet every demand; all of them if nothing does.

    Departs: where the kubelet tries every combination, amounts that hang on one place each are added
        up from the largest; only what is left undecided is searched, within the budget.

    >>> fewest(0b1111, [Demand(5, ((1, 2), (2, 2), (4, 3), (8, 1)))])
    Fewest(size=2, proved=True)
    """
    everything = places.bit_count()
    if not all(demand.met_by(places) for demand in demands):
        return Fewest(everything)
    if len(demands) == 1 and all(where & (where - 1) == 0 for where, _ in demands[0].shares):
        return Fewest(_at_least(places, demands[0]))
    least = max((_at_least(places, demand) for demand in demands), default=1)
    if _simply_met(places, demands, least):
        return Fewest(least)
    most = _at_most(places, demands)
    steps = 0
    for size in range(least, most):
        for chosen in _reaching(places, demands, size):
            steps += 1
            if steps > budget:
                return Fewest(most, proved=False)
            if chosen:
                return Fewest(size)
    return Fewest(most)


def masks(places: int) -> Iterator[int]:
    """Every choice but none, fewest first, and within a size by ascending places.

    >>> [format(chosen, "03b") for chosen in masks(0b111)]
    ['001', '010', '100', '011', '101', '110', '111']
    """
    single = bits(places)
    for size in range(1, len(single) + 1):
        yield from map(sum, combinations(single, size))


def bits(places: int) -> list[int]:
    """Each of the places as a set of its own, ascending."""
    found = []
    while places:
        lowest = places & -places
        found.append(lowest)
        places ^= lowest
    return found


def _worth(places: int, demand: Demand) -> dict[int, int]:
    """What each place would bring alone: with shares of several places more than it may bring beside others."""
    worth = dict.fromkeys(bits(places), 0)
    for where, amount in demand.shares:
        for place in bits(where & places):
            worth[place] += amount
    return worth


def _at_least(places: int, demand: Demand) -> int:
    missing, size = demand.needed, 0
    for amount in sorted(_worth(places, demand).values(), reverse=True):
        if missing <= 0:
            break
        missing, size = missing - amount, size + 1
    return max(size, 1)


def _simply_met(places: int, demands: Sequence[Demand], size: int) -> bool:
    """Whether the places that bring most of all together do, counted in parts of what is needed."""
    parts = dict.fromkeys(bits(places), 0.0)
    for demand in demands:
        for place, amount in _worth(places, demand).items():
            parts[place] += amount / max(demand.needed, 1)
    chosen = sum(sorted(parts, key=lambda place: (-parts[place], place))[:size])
    return all(demand.met_by(chosen) for demand in demands)


def _at_most(places: int, demands: Sequence[Demand]) -> int:
    """A size that surely does: always the place next that brings most of what is still missing."""
    chosen, left = 0, bits(places)
    while left:
        missing = [max(demand.needed - demand.total(chosen), 0) for demand in demands]
        if chosen and not any(missing):
            break
        best = max(left, key=lambda place: (_relief(chosen | place, demands, missing), -place))
        left.remove(best)
        chosen |= best
    return chosen.bit_count()


def _relief(chosen: int, demands: Sequence[Demand], missing: Sequence[int]) -> float:
    """How much of what is missing the choice takes away, in parts of each demand."""
    relief = 0.0
    for demand, short in zip(demands, missing, strict=True):
        if short:
            relief += min(demand.total(chosen) - demand.needed + short, short) / short
    return relief


def _reaching(places: int, demands: Sequence[Demand], size: int) -> Iterator[int]:
    """A choice of that size that has enough, if there is one; each 0 before it is one step of the search."""
    worths = [_worth(places, demand) for demand in demands]
    order = sorted(bits(places), key=lambda place: (-sum(worth[place] for worth in worths), place))
    # tops[d][i][r]: the most that r places from i onwards can bring to demand d.
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
        have = [demand.total(chosen) for demand in demands]
        if any(
            got + top[start][left] < demand.needed
            for got, top, demand in zip(have, tops, demands, strict=True)
        ):
            continue
        stack.append((start + 1, chosen, left))
        stack.append((start + 1, chosen | order[start], left - 1))


def _prefix_sums(amounts: list[int]) -> list[int]:
    sums = [0]
    for amount in sorted(amounts, reverse=True):
        sums.append(sums[-1] + amount)
    return sums
