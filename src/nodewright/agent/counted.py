"""What an agent counts and measures: closed lists, without the names that they are exposed by."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

Labels: TypeAlias = tuple[str, ...]


class Counted(StrEnum):
    """What is counted; after it, what the counts are told apart by."""

    REJECTED = "rejected"
    """Reason."""
    ALIGNMENTS = "alignments"
    ALIGNMENT_ERRORS = "alignment errors"
    CPU_PINS = "CPU pins"
    CPU_PIN_ERRORS = "CPU pin errors"
    MEMORY_PINS = "memory pins"
    MEMORY_PIN_ERRORS = "memory pin errors"
    ALIGNED = "aligned"
    """Scope, boundary."""
    UNALIGNED = "unaligned"
    """Scope, boundary."""
    EVICTED = "evicted"
    """Signal."""
    PREEMPTED = "preempted"
    """Signal."""
    PODS_STARTED = "pods started"
    PODS_NOT_STARTED = "pods not started"
    CONTAINERS_STARTED = "containers started"
    """Kind of container."""
    CONTAINERS_NOT_STARTED = "containers not started"
    """Kind of container, code."""
    CONTAINERS_ENDED = "containers ended"
    """Kind of container, exit code, reason."""
    PODS_RESTARTED = "pods restarted"
    """`true` for static pods, else empty."""
    PROBED = "probed"
    """Kind of probe, result, container, pod, namespace, uid."""


class Timed(StrEnum):
    """What is measured; after it, its unit and what the measures are told apart by."""

    ALIGNING = "aligning"
    """Milliseconds."""
    STARTING = "starting"
    """Seconds."""
    WORKING = "working"
    """Seconds; kind of work."""
    STATS_AGE = "stats age"
    """Seconds; signal."""
    PROBING = "probing"
    """Seconds; kind of probe, container, pod, namespace."""
    DECIDING = "deciding"
    """Seconds; what had been seen."""


DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS: Mapping[Timed, tuple[float, ...]] = {
    Timed.ALIGNING: tuple(0.05 * 2**n for n in range(15)),
    Timed.STARTING: (
        *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900),
        *(1200, 1800, 2700, 3600),
    ),
    Timed.WORKING: DEFAULT_BOUNDS,
    Timed.STATS_AGE: DEFAULT_BOUNDS,
    Timed.PROBING: DEFAULT_BOUNDS,
    Timed.DECIDING: (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
}
"""The upper bounds of the classes that measures fall into; the kubelet's where it measures the same."""


class Spread:
    """Measures by class."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """One more measure."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counts:
    """All counts and measures so far."""

    def __init__(self) -> None:
        self.counts: dict[Counted, Counter[Labels]] = {one: Counter() for one in Counted}
        self.spreads: dict[tuple[Timed, Labels], Spread] = {}

    def count(self, what: Counted, *labels: str, by: int = 1) -> None:
        """So many more."""
        self.counts[what][labels] += by

    def time(self, what: Timed, value: float, *labels: str) -> None:
        """One more measure."""
        spread = self.spreads.get((what, labels))
        if spread is None:
            spread = self.spreads[what, labels] = Spread(BOUNDS[what])
        spread.add(value)

    def forget(self, what: Timed, *labels: str) -> None:
        """These measures are nobody's any more."""
        self.spreads.pop((what, labels), None)

    def of(self, what: Timed) -> Iterator[tuple[Labels, Spread]]:
        """The measures of one thing."""
        return ((labels, spread) for (one, labels), spread in self.spreads.items() if one is what)
