"""The agent's metrics: closed lists, without the names that they are exposed under."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeAlias

from nodewright.documents.output.exposition import (
    DEFAULT_BOUNDS,
    HistogramBuckets,
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)

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
    RUNTIME_CALLS = "runtime calls"
    """Operation."""
    RUNTIME_CALL_ERRORS = "runtime call errors"
    """Operation."""
    SANDBOX_ERRORS = "sandbox errors"
    """Runtime handler."""
    API_REQUESTS = "API requests"
    """Code, host, method."""


class GaugeMetric(StrEnum):
    """What has one value; all in seconds."""

    LAST_RELIST = "last relist"
    """Since 1970."""
    STARTUP_BEFORE_AGENT = "startup before the agent"
    STARTUP_BEFORE_REGISTRATION = "startup before registration"
    STARTUP_REGISTRATION = "startup, registration"
    STARTUP_AFTER_REGISTRATION = "startup after registration"
    STARTUP = "startup"


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
    CONTAINERS_PER_POD = "containers of a pod"
    """Containers."""
    WORKER_START_DURATION = "first effect"
    """Seconds."""
    POD_START_TOTAL_DURATION = "start since creation"
    """Seconds."""
    POD_START_SLI_DURATION = "start since creation, without pulls and init containers"
    """Seconds."""
    STATUS_SYNC_DURATION = "reporting a status"
    """Seconds."""
    RUNTIME_CALL_DURATION = "runtime call"
    """Seconds; operation."""
    SANDBOX_DURATION = "sandbox start"
    """Seconds; runtime handler."""
    API_REQUEST_DURATION = "API request"
    """Seconds; host, method."""
    RELIST_DURATION = "relist"
    """Seconds."""
    RELIST_INTERVAL = "between relists"
    """Seconds."""
    CGROUP_DURATION = "cgroup operation"
    """Seconds; operation."""
    PULL_DURATION = "pull"
    """Seconds; size of the image."""
    STORAGE_DURATION = "storage operation"
    """Seconds; plugin, operation, status, `false`."""


_POD_START_BOUNDS = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900),
    *(1200, 1800, 2700, 3600),
)
BOUNDS: Mapping[HistogramMetric, tuple[float, ...]] = {
    HistogramMetric.ALIGNMENT_DURATION: tuple(0.05 * 2**n for n in range(15)),
    HistogramMetric.POD_START_DURATION: _POD_START_BOUNDS,
    HistogramMetric.POD_START_TOTAL_DURATION: _POD_START_BOUNDS,
    HistogramMetric.POD_START_SLI_DURATION: _POD_START_BOUNDS,
    HistogramMetric.CONTAINERS_PER_POD: (1, 2, 4, 8, 16),
    HistogramMetric.STATUS_SYNC_DURATION: (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60),
    HistogramMetric.RUNTIME_CALL_DURATION: tuple(0.005 * 2.5**n for n in range(14)),
    HistogramMetric.API_REQUEST_DURATION: (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
    HistogramMetric.PULL_DURATION: (
        *(1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
    ),
    HistogramMetric.STORAGE_DURATION: (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600),
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
"""The upper bounds of the buckets, where they are not `DEFAULT_BOUNDS`; the kubelet's where it measures the same."""


class MetricValues:
    """All counts, histograms and gauges so far."""

    def __init__(self) -> None:
        self.counts: dict[CounterMetric, Counter[Labels]] = {metric: Counter() for metric in CounterMetric}
        self.histograms: dict[tuple[HistogramMetric, Labels], HistogramBuckets] = {}
        self.gauges: dict[GaugeMetric, float] = {}

    def increment(self, metric: CounterMetric, *labels: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counts[metric][labels] += by

    def observe(self, metric: HistogramMetric, value: float, *labels: str) -> None:
        """Adds a value to a histogram."""
        buckets = self.histograms.get((metric, labels))
        if buckets is None:
            buckets = self.histograms[metric, labels] = HistogramBuckets(BOUNDS.get(metric, DEFAULT_BOUNDS))
        buckets.observe(value)

    def remove(self, metric: HistogramMetric, *labels: str) -> None:
        """Removes the histogram with these labels."""
        self.histograms.pop((metric, labels), None)

    def histograms_of(self, metric: HistogramMetric) -> Iterator[tuple[Labels, HistogramBuckets]]:
        """The histograms of a metric, by labels."""
        return ((labels, buckets) for (kind, labels), buckets in self.histograms.items() if kind is metric)


def counter_families(
    rows: Iterable[tuple[CounterMetric, str, str, Labels]],
) -> Mapping[CounterMetric, MetricFamily]:
    """A table of counters: what is counted, the name, the help and the names of the labels."""
    return {what: MetricFamily(name, MetricType.COUNTER, about, labels) for what, name, about, labels in rows}


def histogram_families(
    rows: Iterable[tuple[HistogramMetric, str, str, Labels]],
) -> Mapping[HistogramMetric, MetricFamily]:
    """A table of histograms, as of `counter_families`."""
    return {
        what: MetricFamily(name, MetricType.HISTOGRAM, about, labels) for what, name, about, labels in rows
    }


def gauge_families(rows: Iterable[tuple[GaugeMetric, str, str]]) -> Mapping[GaugeMetric, MetricFamily]:
    """A table of gauges without labels."""
    return {what: MetricFamily(name, MetricType.GAUGE, about) for what, name, about in rows}


def counters_text(values: MetricValues, families: Mapping[CounterMetric, MetricFamily]) -> str:
    """The counters that have counted something."""
    return "".join(
        family_text(family, [MetricSample(key, counts[key]) for key in sorted(counts)])
        for what, family in families.items()
        if (counts := values.counts[what])
    )


def histograms_text(values: MetricValues, families: Mapping[HistogramMetric, MetricFamily]) -> str:
    """The histograms that have observed something."""
    return "".join(family_text(family, _histograms(values, what)) for what, family in families.items())


def gauges_text(values: MetricValues, families: Mapping[GaugeMetric, MetricFamily]) -> str:
    """The gauges that have a value."""
    return "".join(
        family_text(family, [MetricSample((), values.gauges[what])])
        for what, family in families.items()
        if what in values.gauges
    )


def _histograms(values: MetricValues, metric: HistogramMetric) -> list[MetricHistogram]:
    histograms = sorted(values.histograms_of(metric), key=lambda each: each[0])
    return [
        MetricHistogram(labels, buckets.bounds, buckets.counts, buckets.total)
        for labels, buckets in histograms
    ]
