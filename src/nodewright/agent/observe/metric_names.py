"""The agent's metrics by name: closed lists of counters, gauges and histograms, their values, and their text.

Names, types, labels and classes are the kubelet's where the meaning is the same, else our own.

Follows: v1.36, kubelet/metrics/metrics.go; kubelet/prober/prober_manager.go; kubelet/kuberuntime/instrumented_services.go;
    volume/util/metrics.go; component-base/metrics/prometheus/restclient/metrics.go.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
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


_POD_START_BOUNDS = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900),
    *(1200, 1800, 2700, 3600),
)
_PULL_BOUNDS = (1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_ITERATION_BOUNDS = (*(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005), *(0.01, 0.02, 0.05, 0.1, 0.5))


class CounterMetric(Enum):
    """The counters: name, help and labels."""

    REJECTED = ("kubelet_admission_rejections_total", "Pods rejected at admission, by reason.", ("reason",))
    ALIGNMENTS = (
        "kubelet_topology_manager_admission_requests_total",
        "Pods submitted to the topology manager.",
    )
    ALIGNMENT_ERRORS = (
        "kubelet_topology_manager_admission_errors_total",
        "Pods whose resources could not be aligned.",
    )
    CPU_PINS = ("kubelet_cpu_manager_pinning_requests_total", "Containers that requested exclusive CPUs.")
    CPU_PIN_ERRORS = (
        "kubelet_cpu_manager_pinning_errors_total",
        "Containers that requested exclusive CPUs and did not get them.",
    )
    MEMORY_PINS = (
        "kubelet_memory_manager_pinning_requests_total",
        "Containers that requested pinned memory.",
    )
    MEMORY_PIN_ERRORS = (
        "kubelet_memory_manager_pinning_errors_total",
        "Containers that requested pinned memory and did not get it.",
    )
    ALIGNED = (
        "kubelet_container_aligned_compute_resources_count",
        "Aligned allocations, by scope and boundary.",
        ("scope", "boundary"),
    )
    UNALIGNED = (
        "kubelet_container_aligned_compute_resources_failure_count",
        "Allocations that could not be aligned, by scope and boundary.",
        ("scope", "boundary"),
    )
    EVICTED = ("kubelet_evictions", "Pods evicted, by signal.", ("eviction_signal",))
    PREEMPTED = (
        "kubelet_preemptions",
        "Pods preempted by critical pods, by missing resource.",
        ("preemption_signal",),
    )
    PODS_STARTED = ("kubelet_started_pods_total", "Pod sandboxes created.")
    PODS_NOT_STARTED = ("kubelet_started_pods_errors_total", "Pod sandboxes that could not be created.")
    CONTAINERS_STARTED = (
        "kubelet_started_containers_total",
        "Containers started, by kind.",
        ("container_type",),
    )
    CONTAINERS_NOT_STARTED = (
        "kubelet_started_containers_errors_total",
        "Containers that could not be started, by kind and error.",
        ("container_type", "code"),
    )
    CONTAINERS_ENDED = (
        "kubelet_terminated_containers_total",
        "Containers that ended, by kind, exit code and reason.",
        ("container_type", "exit_code", "reason"),
    )
    PODS_RESTARTED = (
        "kubelet_restarted_pods_total",
        "Pods that were removed and created again unchanged.",
        ("static",),
    )
    PROBED = (
        "prober_probe_total",
        "Probes, by result.",
        ("probe_type", "result", "container", "pod", "namespace", "pod_uid"),
    )
    RUNTIME_CALLS = ("kubelet_runtime_operations_total", "Calls of the runtime.", ("operation_type",))
    RUNTIME_CALL_ERRORS = (
        "kubelet_runtime_operations_errors_total",
        "Calls of the runtime that failed.",
        ("operation_type",),
    )
    SANDBOX_ERRORS = (
        "kubelet_run_podsandbox_errors_total",
        "Sandboxes that did not start, by the handler of their RuntimeClass.",
        ("runtime_handler",),
    )
    API_REQUESTS = ("rest_client_requests_total", "Requests to the API server.", ("code", "host", "method"))

    def __init__(self, exposed_name: str, about: str, labels: Labels = ()) -> None:
        self.family = MetricFamily(exposed_name, MetricType.COUNTER, about, labels)


class GaugeMetric(Enum):
    """The gauges, each with one value: name and help."""

    LAST_RELIST = (
        "kubelet_pleg_last_seen_seconds",
        "When all sandboxes and containers were listed last, since 1970.",
    )
    STARTUP_BEFORE_AGENT = (
        "kubelet_node_startup_pre_kubelet_duration_seconds",
        "Time from the boot of a new node until the agent's start.",
    )
    STARTUP_BEFORE_REGISTRATION = (
        "kubelet_node_startup_pre_registration_duration_seconds",
        "Time from the agent's start until it began to register a new node.",
    )
    STARTUP_REGISTRATION = (
        "kubelet_node_startup_registration_duration_seconds",
        "How long the registration of a new node took.",
    )
    STARTUP_AFTER_REGISTRATION = (
        "kubelet_node_startup_post_registration_duration_seconds",
        "Time from the registration of a new node until it was ready.",
    )
    STARTUP = (
        "kubelet_node_startup_duration_seconds",
        "Time from the boot of a new node until it was ready.",
    )

    def __init__(self, exposed_name: str, about: str) -> None:
        self.family = MetricFamily(exposed_name, MetricType.GAUGE, about)


class HistogramMetric(Enum):
    """The histograms: name, help, labels, and the upper bounds of the buckets; the kubelet's where it measures the same."""

    ALIGNMENT_DURATION = (
        "kubelet_topology_manager_admission_duration_ms",
        "Duration of a decision about a pod, in milliseconds.",
        (),
        tuple(0.05 * 2**n for n in range(15)),
    )
    POD_START_DURATION = (
        "kubelet_pod_start_duration_seconds",
        "Time from a pod's arrival until all its containers have started.",
        (),
        _POD_START_BOUNDS,
    )
    POD_WORKER_DURATION = (
        "kubelet_pod_worker_duration_seconds",
        "Duration of an operation on a pod, by type.",
        ("operation_type",),
    )
    STATS_AGE = (
        "kubelet_eviction_stats_age_seconds",
        "Age of the stats on which an eviction was decided, by signal.",
        ("eviction_signal",),
    )
    ITERATION_DURATION = (
        "nodewright_turn_duration_seconds",
        "Duration of an iteration of the loop, by observation.",
        ("observation",),
        _ITERATION_BOUNDS,
    )
    CONTAINERS_PER_POD = (
        "kubelet_containers_per_pod_count",
        "Containers of a pod, without init containers.",
        (),
        (1, 2, 4, 8, 16),
    )
    WORKER_START_DURATION = (
        "kubelet_pod_worker_start_duration_seconds",
        "Time from a pod's arrival until the work on it begins.",
    )
    PROBE_DURATION = (
        "prober_probe_duration_seconds",
        "Duration of successful probes.",
        ("probe_type", "container", "pod", "namespace"),
    )
    RUNTIME_CALL_DURATION = (
        "kubelet_runtime_operations_duration_seconds",
        "Duration of calls of the runtime.",
        ("operation_type",),
        tuple(0.005 * 2.5**n for n in range(14)),
    )
    SANDBOX_DURATION = (
        "kubelet_run_podsandbox_duration_seconds",
        "How long the runtime takes to start a sandbox, by the handler of its RuntimeClass.",
        ("runtime_handler",),
    )
    API_REQUEST_DURATION = (
        "rest_client_request_duration_seconds",
        "Time until the API server answers.",
        ("host", "verb"),
        (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
    )
    RELIST_DURATION = (
        "kubelet_pleg_relist_duration_seconds",
        "How long the runtime takes to list all sandboxes and containers.",
    )
    RELIST_INTERVAL = (
        "kubelet_pleg_relist_interval_seconds",
        "Time between two lists of all sandboxes and containers.",
    )
    CGROUP_DURATION = (
        "kubelet_cgroup_manager_duration_seconds",
        "Duration of operations on cgroups.",
        ("operation_type",),
    )
    PULL_DURATION = (
        "kubelet_image_pull_duration_seconds",
        "Duration of successful pulls with their waiting time, by the size of the image.",
        ("image_size_in_bytes",),
        _PULL_BOUNDS,
    )
    STORAGE_DURATION = (
        "storage_operation_duration_seconds",
        "Duration of operations on volumes.",
        ("volume_plugin", "operation_name", "status", "migrated"),
        (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600),
    )
    STATUS_SYNC_DURATION = (
        "kubelet_pod_status_sync_duration_seconds",
        "Time from a change of a pod's status until the API server has it.",
        (),
        (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60),
    )
    POD_START_SLI_DURATION = (
        "kubelet_pod_start_sli_duration_seconds",
        "Time from a pod's creation until its containers are seen to run, without pulls and init containers.",
        (),
        _POD_START_BOUNDS,
    )
    POD_START_TOTAL_DURATION = (
        "kubelet_pod_start_total_duration_seconds",
        "Time from a pod's creation until its containers are seen to run.",
        (),
        _POD_START_BOUNDS,
    )

    def __init__(
        self, exposed_name: str, about: str, labels: Labels = (), bounds: tuple[float, ...] = DEFAULT_BOUNDS
    ) -> None:
        self.family, self.bounds = MetricFamily(exposed_name, MetricType.HISTOGRAM, about, labels), bounds


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
            buckets = self.histograms[metric, labels] = HistogramBuckets(metric.bounds)
        buckets.observe(value)

    def remove(self, metric: HistogramMetric, *labels: str) -> None:
        """Removes the histogram with these labels."""
        self.histograms.pop((metric, labels), None)

    def histograms_of(self, metric: HistogramMetric) -> Iterator[tuple[Labels, HistogramBuckets]]:
        """The histograms of a metric, by labels."""
        return ((labels, buckets) for (kind, labels), buckets in self.histograms.items() if kind is metric)


def counters_text(values: MetricValues) -> str:
    """The counters that have counted something."""
    return "".join(
        family_text(metric.family, [MetricSample(key, counts[key]) for key in sorted(counts)])
        for metric, counts in values.counts.items()
    )


def histograms_text(values: MetricValues, metrics: Iterable[HistogramMetric] = HistogramMetric) -> str:
    """The histograms that have observed something."""
    return "".join(family_text(metric.family, _histograms(values, metric)) for metric in metrics)


def gauges_text(values: MetricValues) -> str:
    """The gauges that have a value."""
    return "".join(
        family_text(metric.family, [MetricSample((), values.gauges[metric])])
        for metric in GaugeMetric
        if metric in values.gauges
    )


def _histograms(values: MetricValues, metric: HistogramMetric) -> list[MetricHistogram]:
    histograms = sorted(values.histograms_of(metric), key=lambda each: each[0])
    return [
        MetricHistogram(labels, buckets.bounds, buckets.counts, buckets.total)
        for labels, buckets in histograms
    ]


# ---------------------------------------------------------------- calls


_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_KUBELET_NAMES = {"update_container_resources": "update_container"}
_MIB = 1 << 20
_SIZES = (
    *((0, "0-10MB"), (10, "10MB-100MB"), (100, "100MB-500MB"), (500, "500MB-1GB"), (1 << 10, "1GB-5GB")),
    *((5 << 10, "5GB-10GB"), (10 << 10, "10GB-20GB"), (20 << 10, "20GB-30GB"), (30 << 10, "30GB-40GB")),
    *((40 << 10, "40GB-60GB"), (60 << 10, "60GB-100GB"), (100 << 10, "GT100GB")),
)
"""Sizes of images in MiB that a label stands for: all that are larger."""


def operation_type(call: str) -> str:
    """The kubelet's name of a call of the runtime.

    >>> operation_type("RunPodSandbox"), operation_type("UpdateContainerResources"), operation_type("ImageFsInfo")
    ('run_podsandbox', 'update_container', 'image_fs_info')
    """
    name = _WORDS.sub("_", call.replace("PodSandbox", "Podsandbox")).lower()
    return _KUBELET_NAMES.get(name, name)


def image_size_label(size_bytes: int) -> str:
    """The range that the size of an image is in.

    Follows: v1.36, kubelet/metrics/metrics.go, GetImageSizeBucket: a bound belongs to the range below it.

    >>> [image_size_label(size) for size in (0, 1, 10 << 20, (10 << 20) + 1, 200 << 30)]
    ['N/A', '0-10MB', '0-10MB', '10MB-100MB', 'GT100GB']
    """
    labels = [label for bound_mib, label in _SIZES if size_bytes > bound_mib * _MIB]
    return labels[-1] if labels else "N/A"


class CallMetrics(MetricValues):
    """The calls so far."""

    def record_operation(self, call: str, handler: str, duration_s: float, has_failed: bool) -> None:  # noqa: FBT001 - the runtime's channel calls it
        """Counts a call of the runtime that has ended; ``handler``: that of a sandbox which was to start."""
        operation = operation_type(call)
        self.increment(CounterMetric.RUNTIME_CALLS, operation)
        self.observe(HistogramMetric.RUNTIME_CALL_DURATION, duration_s, operation)
        if has_failed:
            self.increment(CounterMetric.RUNTIME_CALL_ERRORS, operation)
        if call == "RunPodSandbox":
            self.observe(HistogramMetric.SANDBOX_DURATION, duration_s, handler)
            if has_failed:
                self.increment(CounterMetric.SANDBOX_ERRORS, handler)

    def record_request(self, verb: str, host: str, code: int, duration_s: float) -> None:
        """Counts a request to the API server; ``code`` is its status, 0 without an answer."""
        self.increment(CounterMetric.API_REQUESTS, str(code) if code else "<error>", host, verb)
        self.observe(HistogramMetric.API_REQUEST_DURATION, duration_s, host, verb)

    def record_relist(self, at_s: float, duration_s: float, interval_s: float | None) -> None:
        """Counts a list of all sandboxes and containers; ``interval_s``: since the one before.

        Units: at_s since 1970.
        """
        self.observe(HistogramMetric.RELIST_DURATION, duration_s)
        if interval_s is not None:
            self.observe(HistogramMetric.RELIST_INTERVAL, interval_s)
        self.gauges[GaugeMetric.LAST_RELIST] = int(at_s)

    def record_cgroup_operation(self, operation: str, duration_s: float) -> None:
        """Times an operation on a cgroup: `create`, `update` or `destroy`."""
        self.observe(HistogramMetric.CGROUP_DURATION, duration_s, operation)

    def record_pull(self, _uid: str, _started_s: float, duration_s: float, size_bytes: int) -> None:
        """Times a pull of an image for a pod; ``size_bytes`` is 0 if it is unknown."""
        self.observe(HistogramMetric.PULL_DURATION, duration_s, image_size_label(size_bytes))

    def record_storage_operation(
        self,
        plugin: str,
        operation: str,
        duration_s: float,
        has_failed: bool,  # noqa: FBT001 - a callback
    ) -> None:
        """Times an operation on a volume; no volume is migrated to a CSI driver."""
        status = "fail-unknown" if has_failed else "success"
        self.observe(HistogramMetric.STORAGE_DURATION, duration_s, plugin, operation, status, "false")

    def text(self) -> str:
        """The metrics."""
        return counters_text(self) + histograms_text(self) + gauges_text(self)
