"""The agent's metrics: closed lists, without the names that they are exposed under."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

Labels: TypeAlias = tuple[str, ...]


class CounterMetric(StrEnum):
    """What is counted; after each counter its labels."""

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


class HistogramMetric(StrEnum):
    """What is measured; after each histogram its unit and labels."""

    ALIGNMENT_DURATION = "aligning"
    """Milliseconds."""
    POD_START_DURATION = "starting"
    """Seconds."""
    POD_WORKER_DURATION = "working"
    """Seconds; kind of work."""
    STATS_AGE = "stats age"
    """Seconds; signal."""
    PROBE_DURATION = "probing"
    """Seconds; kind of probe, container, pod, namespace."""
    ITERATION_DURATION = "deciding"
    """Seconds; type of the observation."""


DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BOUNDS: Mapping[HistogramMetric, tuple[float, ...]] = {
    HistogramMetric.ALIGNMENT_DURATION: tuple(0.05 * 2**n for n in range(15)),
    HistogramMetric.POD_START_DURATION: (
        *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900),
        *(1200, 1800, 2700, 3600),
    ),
    HistogramMetric.POD_WORKER_DURATION: DEFAULT_BOUNDS,
    HistogramMetric.STATS_AGE: DEFAULT_BOUNDS,
    HistogramMetric.PROBE_DURATION: DEFAULT_BOUNDS,
    HistogramMetric.ITERATION_DURATION: (
        0.0001,
        0.0002,
        0.0005,
        0.001,
        0.002,
        0.005,
        0.01,
        0.02,
        0.05,
        0.1,
        0.5,
    ),
}
"""The upper bounds of the buckets; the kubelet's where it measures the same."""


class HistogramBuckets:
    """The buckets of a histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Adds a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class MetricValues:
    """All counts and histograms so far."""

    def __init__(self) -> None:
        self.counts: dict[CounterMetric, Counter[Labels]] = {metric: Counter() for metric in CounterMetric}
        self.histograms: dict[tuple[HistogramMetric, Labels], HistogramBuckets] = {}

    def increment(self, metric: CounterMetric, *labels: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counts[metric][labels] += by

    def observe(self, metric: HistogramMetric, value: float, *labels: str) -> None:
        """Adds a value to a histogram."""
        buckets = self.histograms.get((metric, labels))
        if buckets is None:
            buckets = self.histograms[metric, labels] = HistogramBuckets(BOUNDS[metric])
        buckets.observe(value)

    def remove(self, metric: HistogramMetric, *labels: str) -> None:
        """Removes the histogram with these labels."""
        self.histograms.pop((metric, labels), None)

    def histograms_of(self, metric: HistogramMetric) -> Iterator[tuple[Labels, HistogramBuckets]]:
        """The histograms of a metric, by labels."""
        return ((labels, buckets) for (kind, labels), buckets in self.histograms.items() if kind is metric)
