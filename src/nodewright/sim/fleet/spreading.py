"""The best node for pods that only wish to be spread: what `Around.spread_scores` comes to, at less cost.

Nodes with as many pods that are meant, in zones with as many, are equally good as far as spreading goes: they make a
group, and of each group only the best by the other scores counts. Groups are put right where nodes have changed.
"""

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush

from nodewright.sim.fleet.around import HOSTNAME, counts_for, meant_by_node
from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.scores import MOST
from nodewright.sim.fleet.shapes import PodShape
from nodewright.sim.fleet.terms import Spread


class Spreading:
    """The nodes of a shape in groups."""

    def __init__(self, shape: PodShape, seats: Sequence[Seat], board: Board) -> None:
        together = () if shape.spreads_by_default else shape.spreads
        self._board, self._width = board, len(board.seats)
        self._numbers = [seat.number for seat in seats]
        self._has_all = [all(one.key in seat.labels for one in together) for seat in board.seats]
        self._wishes = [_Wish(shape, one, board, self._has_all) for one in shape.spreads]
        self._groups: dict[Hashable, _Group] = {}
        self._group: list[_Group | None] = [None] * self._width
        """Of each node that has room."""
        self._known = [-1] * self._width
        """The other scores that were looked at last."""
        self._seen: int | None = None

    def best(self, scores: Sequence[int], without: Collection[int] = (), *, weight: int) -> int | None:
        """The number of the node with the best score, spreading counting so much; the first of equals.

        ``scores`` are the other scores by the numbers of nodes; less than 0: there is no room.
        """
        self._catch_up(scores)
        with self._leaving_out(without, scores):
            found = None
            for group, spread in self._spread():
                top = group.best(scores, self._group, self._width)
                # Greater by its score, and among equals by coming first.
                rank = (scores[top] + weight * spread, -top)
                found = rank if found is None else max(found, rank)
        return None if found is None else -found[1]

    def _spread(self) -> Iterator[tuple["_Group", int]]:
        """Each group that has nodes, and how evenly pods would be spread with one more there."""
        groups = [one for one in self._groups.values() if one.size]
        known = [one for one in groups if one.is_known]
        sizes = sum(one.size for one in known)
        weights = [
            math.log((sizes if wish.is_by_node else len({one.key[at] for one in known})) + 2)
            for at, wish in enumerate(self._wishes)
        ]
        raw = [math.floor(self._sum(one, weights) + 0.5) for one in known]
        most, least = max(raw, default=0), min(raw, default=0)
        for group, one in zip(known, raw, strict=True):
            yield group, MOST * (most + least - one) // most if most else MOST
        for group in groups:
            if not group.is_known:
                yield group, 0

    def _sum(self, group: "_Group", weights: Sequence[float]) -> float:
        found = 0.0
        for wish, value, weight in zip(self._wishes, group.key, weights, strict=True):
            if value is not None:
                found += wish.count(value) * weight + wish.more
        return found

    def _catch_up(self, scores: Sequence[int]) -> None:
        board, seen = self._board, self._seen
        if seen == board.changes:
            return
        for number in self._numbers if seen is None else board.changed_since(seen):
            for wish in self._wishes if seen is not None else ():
                wish.recount(board, board.seats[number])
            self._move(number, scores)
        self._seen = board.changes

    def _move(self, number: int, scores: Sequence[int]) -> None:
        """Put the node where it belongs."""
        score, old = scores[number], self._group[number]
        new = self._group_of(number) if score >= 0 else None
        if old is new and (new is None or score == self._known[number]):
            return
        self._known[number] = score
        self._group[number] = new
        if old is not None and old is not new:
            old.size -= 1
        if new is not None:
            new.size += old is not new
            heappush(new.heap, number - score * self._width)
            if len(new.heap) > 4 * new.size + 64:
                new.rebuild(scores, self._group, self._width)

    def _group_of(self, number: int) -> "_Group":
        has_all = self._has_all[number]
        key = tuple(wish.key(number) for wish in self._wishes) if has_all else ()
        found = self._groups.get(key)
        if found is None:
            if len(self._groups) > 2 * len(self._numbers) + 64:
                self._groups = {name: one for name, one in self._groups.items() if one.size}
            found = self._groups[key] = _Group(key, is_known=has_all)
        return found

    @contextmanager
    def _leaving_out(self, without: Collection[int], scores: Sequence[int]) -> Iterator[None]:
        """While this lasts, these nodes have no room."""
        out = [number for number in self._numbers if number in without] if without else []
        for number in out:
            group, self._group[number] = self._group[number], None
            if group is not None:
                group.size -= 1
        yield
        for number in out:
            self._move(number, scores)


class _Group:
    """Nodes that are equally good as far as spreading goes; the best of them first, once stale entries are gone."""

    __slots__ = ("heap", "is_known", "key", "size")

    def __init__(self, key: tuple[int | str | None, ...], *, is_known: bool) -> None:
        self.key, self.is_known = key, is_known
        """Whether its nodes have all labels that are wanted."""
        self.heap: list[int] = []
        self.size = 0

    def best(self, scores: Sequence[int], groups: Sequence["_Group | None"], width: int) -> int:
        """The number of the best of its nodes, of which there are some."""
        while True:
            negative, number = divmod(self.heap[0], width)
            if scores[number] == -negative and groups[number] is self:
                return number
            heappop(self.heap)

    def rebuild(self, scores: Sequence[int], groups: Sequence["_Group | None"], width: int) -> None:
        """Without stale entries."""
        self.heap = [
            entry
            for entry in set(self.heap)
            if scores[entry % width] == -(entry // width) and groups[entry % width] is self
        ]
        heapify(self.heap)


class _Wish:
    """One constraint: how many pods that are meant each node has, and each value of its label."""

    __slots__ = (
        "_counts",
        "_here",
        "_meant",
        "_shape",
        "_spread",
        "_totals",
        "_values",
        "is_by_node",
        "more",
    )

    def __init__(self, shape: PodShape, spread: Spread, board: Board, has_all: Sequence[bool]) -> None:
        self._shape, self._spread = shape, spread
        self.is_by_node, self.more = spread.key == HOSTNAME, spread.max_skew - 1
        self._values = [seat.labels.get(spread.key) for seat in board.seats]
        self._counts = [
            has and counts_for(shape, spread, seat) for has, seat in zip(has_all, board.seats, strict=True)
        ]
        self._meant: dict[int, bool] = {}
        """By the number of a shape, whether its pods are meant."""
        self._here = meant_by_node(shape, board, spread)
        self._totals: dict[str | None, int] = {}
        for number, count in self._here.items():
            self._add(number, count)

    def key(self, number: int) -> int | str | None:
        """What decides about the node; None: it lacks the label."""
        value = self._values[number]
        return value if value is None or not self.is_by_node else self._here.get(number, 0)

    def count(self, key: int | str) -> int:
        """How many pods that are meant there are where that is so."""
        return key if isinstance(key, int) else self._totals.get(key, 0)

    def recount(self, board: Board, seat: Seat) -> None:
        """Look at the pods of this node again."""
        number, now = seat.number, 0
        for other, count in seat.shapes.items():
            is_meant = self._meant.get(other)
            if is_meant is None:
                is_meant = self._meant[other] = self._means(board.shapes[other])
            now += count if is_meant else 0
        before = self._here.get(number, 0)
        if now != before:
            self._here[number] = now
            self._add(number, now - before)

    def _add(self, number: int, by: int) -> None:
        if self._counts[number]:
            value = self._values[number]
            self._totals[value] = self._totals.get(value, 0) + by

    def _means(self, shape: PodShape) -> bool:
        selector = self._spread.selector
        return (
            not selector.is_empty
            and shape.namespace == self._shape.namespace
            and selector.matches(shape.labels)
        )
