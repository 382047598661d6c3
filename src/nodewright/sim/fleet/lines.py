"""Pods that wait for a node: one line for each shape, for what holds for the first of a line holds for the rest.

Follows: v1.36, pkg/scheduler/framework/plugins/queuesort/priority_sort.go: higher priority first, then who has
    waited longer.
Departs: a pod for which there was no node is tried again as soon as something changes that could help it; the
    scheduler backs off for 1 to 10 seconds.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from nodewright.sim.fleet.board import Board
from nodewright.sim.fleet.filters import has_room, standing_objection
from nodewright.sim.fleet.shapes import PodShape


class Queued(NamedTuple):
    """A pod in a line, and when it came there relative to others."""

    turn: int
    pod: int


class Line:
    """The pods of one shape that wait."""

    __slots__ = ("is_looping", "is_ready", "pods", "refused_by", "seen", "shape")

    def __init__(self, shape: PodShape) -> None:
        self.shape = shape
        self.pods: deque[Queued] = deque()
        self.is_ready = False
        self.is_looping = False
        """Whether it would be given to a node that refused it and is as it was."""
        self.seen = -1
        """How often the board had changed when the first of the line was tried last."""
        self.refused_by: dict[int, int] = {}
        """The nodes that refused the first of the line, by the version of theirs that did."""


class Lines:
    """All lines, and which of them is next."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.lines: dict[int, Line] = {}
        self.turns = self.length = 0
        self.untold: list[tuple[int, int]] = []
        """Pods that came since it was told last who waits, with their shapes."""
        self._ready: list[tuple[int, int, int]] = []
        self.freed_nodes: set[int] = set()
        """On which pods have left since lines were woken last."""

    def join(self, shape: PodShape, pod: int) -> None:
        """A pod comes to the end of its line."""
        line = self.opened(shape)
        line.pods.append(Queued(self.turns, pod))
        self.untold.append((shape.number, pod))
        self.length += 1
        self.turns += 1
        if len(line.pods) == 1:
            self.ready(line)

    def opened(self, shape: PodShape) -> Line:
        """The line of this shape, there from now on if it was not."""
        line = self.lines.get(shape.number)
        if line is None:
            line = self.lines[shape.number] = Line(shape)
        return line

    def ready(self, line: Line) -> None:
        """The first of this line is to be tried."""
        if line.pods and not line.is_ready:
            line.is_ready = True
            heappush(self._ready, (-line.shape.priority, line.pods[0].turn, line.shape.number))

    def next(self) -> Line | None:
        """The line whose first pod is tried next; None: nothing is to be tried."""
        if not self._ready:
            return None
        line = self.lines[heappop(self._ready)[2]]
        line.is_ready = False
        return line

    def freed(self, node: int) -> None:
        """A pod has left this node."""
        self.freed_nodes.add(node)

    def wake(self) -> bool:
        """Whether there are lines that can be tried again, because of what changed since they were tried."""
        changed, freed = self._board.changes, [self._board.seats[node] for node in sorted(self.freed_nodes)]
        self.freed_nodes.clear()
        for line in self.lines.values():
            if line.is_ready or not line.pods or line.seen == changed:
                continue
            shape = line.shape
            depends = line.is_looping or shape.is_kept_by_others or bool(self._board.looking)
            if depends or any(
                has_room(shape, seat) and standing_objection(shape, seat) is None for seat in freed
            ):
                self.ready(line)
        return bool(self._ready)

    def counts(self) -> dict[int, tuple[PodShape, int]]:
        """How many wait, by the number of their shape."""
        return {number: (line.shape, len(line.pods)) for number, line in self.lines.items() if line.pods}

    def waiting(self) -> Iterator[tuple[Line, Queued]]:
        """All that wait, by line."""
        for line in self.lines.values():
            for one in line.pods:
                yield line, one

    def leave(self, line: Line) -> int:
        """The first of the line goes; its number."""
        self.length -= 1
        pod = line.pods.popleft().pod
        if not line.pods:
            del self.lines[line.shape.number]
        return pod
