"""The nodes in the order of their score for pods that are alike, put right where nodes have changed."""

from collections.abc import Callable, Container, Sequence
from heapq import heapify, heappop, heappush

from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.filters import has_room
from nodewright.sim.fleet.shapes import PodShape

_OUT = -1
_ABSENT = -2


class Ranking:
    """Which of these nodes is best for a shape; the first of equals. Costs as much as nodes changed meanwhile."""

    def __init__(
        self, shape: PodShape, seats: Sequence[Seat], board: Board, score: Callable[[PodShape, Seat], int]
    ) -> None:
        self._shape, self._board, self._score = shape, board, score
        self._is_simple = not shape.others and not shape.ports
        # A number orders nodes by score and then by place: cheaper to compare than a pair.
        self._width = len(board.seats)
        self._scores = [_ABSENT] * self._width
        for seat in seats:
            self._scores[seat.number] = self._scored(seat)
        self._count = len(seats)
        self._seen = board.changes
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

    def scores(self) -> Sequence[int]:
        """The scores of all nodes by their numbers; less than 0: it has no room, or is none of these."""
        self._catch_up()
        return self._scores

    def _catch_up(self) -> None:
        board = self._board
        if self._seen == board.changes:
            return
        scores, heap, width, seats = self._scores, self._heap, self._width, board.seats
        shape, score, is_simple = self._shape, self._score, self._is_simple
        room_cpu, room_memory = shape.room_cpu, shape.room_memory
        for number in board.changed_since(self._seen):
            before = scores[number]
            if before == _ABSENT:
                continue
            seat = seats[number]
            # Written out, for this is asked more often than anything else.
            if is_simple:
                fits = room_cpu <= seat.free_cpu and room_memory <= seat.free_memory and seat.free_places > 0
            else:
                fits = has_room(shape, seat)
            now = score(shape, seat) if fits else _OUT
            if now != before:
                scores[number] = now
                if fits:
                    heappush(heap, number - now * width)
        self._seen = board.changes
        if len(heap) > 4 * self._count + 64:
            self._rebuild()

    def _rebuild(self) -> None:
        width = self._width
        self._heap = [number - score * width for number, score in enumerate(self._scores) if score >= 0]
        heapify(self._heap)

    def _scored(self, seat: Seat) -> int:
        return self._score(self._shape, seat) if has_room(self._shape, seat) else _OUT
