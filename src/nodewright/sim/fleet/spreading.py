"""How evenly pods would be spread, where constraints only wish for it: `Around.spread_scores` at less cost.

Labels, taints and what a pod selects stay as they are: which nodes count for which constraint is worked out once
for each shape. What is left for each pod is to count those that are meant, and a sum for each node.
"""

import math
from collections.abc import Sequence

from nodewright.sim.fleet.around import HOSTNAME, counts_for, meant_by_node
from nodewright.sim.fleet.board import Board
from nodewright.sim.fleet.scores import MOST
from nodewright.sim.fleet.shapes import PodShape
from nodewright.sim.fleet.terms import Spread


class Spreading:
    """The soft constraints of a shape, on these nodes."""

    def __init__(self, shape: PodShape, board: Board) -> None:
        self._shape, self._board = shape, board
        seats, together = board.seats, () if shape.spreads_by_default else shape.spreads
        self._has_all = [all(one.key in seat.labels for one in together) for seat in seats]
        self._values = [[seat.labels.get(one.key) for seat in seats] for one in shape.spreads]
        self._counts = [
            [
                has_all and counts_for(shape, one, seat)
                for has_all, seat in zip(self._has_all, seats, strict=True)
            ]
            for one in shape.spreads
        ]

    def scores(self, numbers: Sequence[int]) -> list[int]:
        """How well each of these nodes would do; 0 for those that lack a label that is wanted."""
        has_all = self._has_all
        known = [number for number in numbers if has_all[number]]
        sums = [0.0] * len(known)
        for at, spread in enumerate(self._shape.spreads):
            self._add(at, spread, known, sums)
        rounded = [math.floor(one + 0.5) for one in sums]
        most, least = max(rounded, default=0), min(rounded, default=0)
        scores = [MOST * (most + least - one) // most if most else MOST for one in rounded]
        if len(known) == len(numbers):
            return scores
        found = dict(zip(known, scores, strict=True))
        return [found.get(number, 0) for number in numbers]

    def _add(self, at: int, spread: Spread, known: Sequence[int], sums: list[float]) -> None:
        values, counts = self._values[at], self._counts[at]
        here, more = meant_by_node(self._shape, self._board, spread), spread.max_skew - 1
        if spread.key == HOSTNAME:
            weight = math.log(len(known) + 2)
            for index, number in enumerate(known):
                if values[number] is not None:
                    sums[index] += here.get(number, 0) * weight + more
            return
        totals: dict[str | None, int] = {}
        for number, count in here.items():
            if counts[number]:
                totals[values[number]] = totals.get(values[number], 0) + count
        weight = math.log(len({values[number] for number in known}) + 2)
        for index, number in enumerate(known):
            value = values[number]
            if value is not None:
                sums[index] += totals.get(value, 0) * weight + more
