"""The nodes in the order of their score for one shape of pod, put right where nodes have changed."""

from collections.abc import Callable, Container, Sequence
from heapq import heapify, heappop, heappush

from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.filters import has_room
from nodewright.sim.fleet.shapes import PodShape

_OUT = -1


class Ranking:
    """Which of these nodes is best for a shape; the first of equals. Costs as much as nodes changed meanwhile."""

    def __init__(
        self, shape: PodShape, seats: Sequence[Seat], board: Board, score: Callable[[PodShape, Seat], int]
    ) -> None:
        self._shape, self._board, self._score = shape, board, score
        self._seats = board.seats
        # A number orders nodes by score and then by place: cheaper to compare than a pair.
        self._width = len(board.seats)
        self._scores: dict[int, int] = {seat.number: self._scored(seat) for seat in seats}
        self._seen = len(board.log)
        self._heap: list[int] = []
        self._rebuild()

    def best(self, without: Container[int] = ()) -> int | None:
        """The number of the best node that has room; None: none has."""
        self._catch_up()
        heap, scores, width = self._heap, self._scores, self._width
        aside = []
        found = None
        while heap:
            negative, number = divmod(heap[0], width)
            if scores[number] != -negative:
                heappop(heap)
            elif number in without:
                aside.append(heappop(heap))
            else:
                found = number
                break
        for one in aside:
            heappush(heap, one)
        return found

    def _catch_up(self) -> None:
        log = self._board.log
        if self._seen == len(log):
            return
        scores, heap, width, seats = self._scores, self._heap, self._width, self._seats
        shape, score = self._shape, self._score
        for number in dict.fromkeys(log[self._seen :]) if len(log) - self._seen < width else scores:
            before = scores.get(number)
            if before is None:
                continue
            seat = seats[number]
            now = score(shape, seat) if has_room(shape, seat) else _OUT
            if now != before:
                scores[number] = now
                if now != _OUT:
                    heappush(heap, number - now * width)
        self._seen = len(log)
        if len(heap) > 4 * len(scores) + 64:
            self._rebuild()

    def _rebuild(self) -> None:
        width = self._width
        self._heap = [number - score * width for number, score in self._scores.items() if score != _OUT]
        heapify(self._heap)

    def _scored(self, seat: Seat) -> int:
        return self._score(self._shape, seat) if has_room(self._shape, seat) else _OUT
