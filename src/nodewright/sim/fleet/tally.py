"""What is counted while a fleet runs."""

from collections.abc import Sequence

from nodewright.model.reasons import Reason
from nodewright.sim.fleet.board import Board
from nodewright.sim.fleet.values import Kind, RefusalCount, Sample

_SAMPLES = 1024
"""How many samples are kept at most: then every second one is dropped, and half as many are taken."""


class Tally:
    """Counts, and samples of the whole fleet evenly over its moments."""

    def __init__(self) -> None:
        self.placements = self.preemptions = self.evictions = self.loops = 0
        self.samples: list[Sample] = []
        self.refusals: dict[tuple[str, str], RefusalCount] = {}
        self._stride = 1
        self._moments = 0

    def gone(self, kind: Kind) -> None:
        """A pod left its node for this reason."""
        self.preemptions += kind is Kind.PREEMPTED
        self.evictions += kind is Kind.EVICTED

    def refused(self, shape: str, reason: Reason) -> None:
        """A node of this shape refused a pod."""
        key = (shape, type(reason).__name__)
        before = self.refusals.get(key)
        self.refusals[key] = RefusalCount(
            shape, before.reason if before else reason, before.count + 1 if before else 1
        )

    def sample(self, at_s: float, board: Board, waiting: int) -> None:
        """The fleet as it is after all that happened at one moment."""
        self._moments += 1
        if self._moments % self._stride:
            return
        self.samples.append(Sample(at_s, board.running, waiting, board.requested()))
        if len(self.samples) >= _SAMPLES:
            del self.samples[::2]
            self._stride *= 2

    def counted(self) -> Sequence[RefusalCount]:
        """The refusals, most frequent first."""
        return tuple(
            one for _, one in sorted(self.refusals.items(), key=lambda item: (-item[1].count, item[0]))
        )
