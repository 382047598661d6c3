"""Counts and times of what the agent does with its surroundings, with the kubelet's names.

That is: calls of the runtime and of the API server, relists, cgroups, images, volumes, the Node and statuses of pods.

Follows: v1.36, kubelet/metrics/metrics.go; kubelet/kuberuntime/instrumented_services.go; volume/util/metrics.go;
    component-base/metrics/prometheus/restclient/metrics.go.
"""

import re

from nodewright.agent.observe.metric_names import (
    CounterMetric,
    GaugeMetric,
    HistogramMetric,
    MetricValues,
    counter_families,
    counters_text,
    gauge_families,
    gauges_text,
    histogram_families,
    histograms_text,
)

_OPERATION, _HANDLER = ("operation_type",), ("runtime_handler",)
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_KUBELET_NAMES = {"update_container_resources": "update_container"}
_MIB = 1 << 20
_SIZES = (
    *((0, "0-10MB"), (10, "10MB-100MB"), (100, "100MB-500MB"), (500, "500MB-1GB"), (1 << 10, "1GB-5GB")),
    *((5 << 10, "5GB-10GB"), (10 << 10, "10GB-20GB"), (20 << 10, "20GB-30GB"), (30 << 10, "30GB-40GB")),
    *((40 << 10, "40GB-60GB"), (60 << 10, "60GB-100GB"), (100 << 10, "GT100GB")),
)
"""Sizes of images in MiB that a label stands for: all that are larger."""

_COUNTERS = counter_families(
    (
        (
            CounterMetric.RUNTIME_CALLS,
            "kubelet_runtime_operations_total",
            "Calls of the runtime.",
            _OPERATION,
        ),
        (
            CounterMetric.RUNTIME_CALL_ERRORS,
            "kubelet_runtime_operations_errors_total",
            "Calls of the runtime that failed.",
            _OPERATION,
        ),
        (
            CounterMetric.SANDBOX_ERRORS,
            "kubelet_run_podsandbox_errors_total",
            "Sandboxes that did not start, by the handler of their RuntimeClass.",
            _HANDLER,
        ),
        (
            CounterMetric.API_REQUESTS,
            "rest_client_requests_total",
            "Requests to the API server.",
            ("code", "host", "method"),
        ),
    )
)
_TIMES = histogram_families(
    (
        (
            HistogramMetric.RUNTIME_CALL_DURATION,
            "kubelet_runtime_operations_duration_seconds",
            "Duration of calls of the runtime.",
            _OPERATION,
        ),
        (
            HistogramMetric.SANDBOX_DURATION,
            "kubelet_run_podsandbox_duration_seconds",
            "How long the runtime takes to start a sandbox, by the handler of its RuntimeClass.",
            _HANDLER,
        ),
        (
            HistogramMetric.API_REQUEST_DURATION,
            "rest_client_request_duration_seconds",
            "Time until the API server answers.",
            ("host", "verb"),
        ),
        (
            HistogramMetric.RELIST_DURATION,
            "kubelet_pleg_relist_duration_seconds",
            "How long the runtime takes to list all sandboxes and containers.",
            (),
        ),
        (
            HistogramMetric.RELIST_INTERVAL,
            "kubelet_pleg_relist_interval_seconds",
            "Time between two lists of all sandboxes and containers.",
            (),
        ),
        (
            HistogramMetric.CGROUP_DURATION,
            "kubelet_cgroup_manager_duration_seconds",
            "Duration of operations on cgroups.",
            _OPERATION,
        ),
        (
            HistogramMetric.PULL_DURATION,
            "kubelet_image_pull_duration_seconds",
            "Duration of successful pulls with their waiting time, by the size of the image.",
            ("image_size_in_bytes",),
        ),
        (
            HistogramMetric.STORAGE_DURATION,
            "storage_operation_duration_seconds",
            "Duration of operations on volumes.",
            ("volume_plugin", "operation_name", "status", "migrated"),
        ),
        (
            HistogramMetric.STATUS_SYNC_DURATION,
            "kubelet_pod_status_sync_duration_seconds",
            "Time from a change of a pod's status until the API server has it.",
            (),
        ),
        (
            HistogramMetric.POD_START_SLI_DURATION,
            "kubelet_pod_start_sli_duration_seconds",
            "Time from a pod's creation until its containers are seen to run, without pulls and init containers.",
            (),
        ),
        (
            HistogramMetric.POD_START_TOTAL_DURATION,
            "kubelet_pod_start_total_duration_seconds",
            "Time from a pod's creation until its containers are seen to run.",
            (),
        ),
    )
)
_GAUGES = gauge_families(
    (
        (
            GaugeMetric.LAST_RELIST,
            "kubelet_pleg_last_seen_seconds",
            "When all sandboxes and containers were listed last, since 1970.",
        ),
        (
            GaugeMetric.STARTUP_BEFORE_AGENT,
            "kubelet_node_startup_pre_kubelet_duration_seconds",
            "Time from the boot of a new node until the agent's start.",
        ),
        (
            GaugeMetric.STARTUP_BEFORE_REGISTRATION,
            "kubelet_node_startup_pre_registration_duration_seconds",
            "Time from the agent's start until it began to register a new node.",
        ),
        (
            GaugeMetric.STARTUP_REGISTRATION,
            "kubelet_node_startup_registration_duration_seconds",
            "How long the registration of a new node took.",
        ),
        (
            GaugeMetric.STARTUP_AFTER_REGISTRATION,
            "kubelet_node_startup_post_registration_duration_seconds",
            "Time from the registration of a new node until it was ready.",
        ),
        (
            GaugeMetric.STARTUP,
            "kubelet_node_startup_duration_seconds",
            "Time from the boot of a new node until it was ready.",
        ),
    )
)


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
        return counters_text(self, _COUNTERS) + histograms_text(self, _TIMES) + gauges_text(self, _GAUGES)
