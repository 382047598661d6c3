"""Counts and times of the agent's own calls: of the container runtime and of the API server, with the kubelet's names.

Follows: v1.36, kubelet/kuberuntime/instrumented_services.go; component-base/metrics/prometheus/restclient/metrics.go.
"""

import re
from collections import Counter

from nodewright.agent.observe.metric_names import DEFAULT_BOUNDS, HistogramBuckets, Labels
from nodewright.output.exposition import MetricFamily, MetricHistogram, MetricSample, MetricType, family_text

REQUEST_BOUNDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_OPERATION, _REQUEST = ("operation_type",), ("code", "host", "method")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_KUBELET_NAMES = {"update_container_resources": "update_container"}


def operation_type(call: str) -> str:
    """The kubelet's name of a call of the runtime.

    >>> operation_type("RunPodSandbox"), operation_type("UpdateContainerResources"), operation_type("ImageFsInfo")
    ('run_podsandbox', 'update_container', 'image_fs_info')
    """
    name = _WORDS.sub("_", call.replace("PodSandbox", "Podsandbox")).lower()
    return _KUBELET_NAMES.get(name, name)


class CallMetrics:
    """The calls so far."""

    def __init__(self) -> None:
        self._operations, self._errors, self._requests = (
            Counter[Labels](),
            Counter[Labels](),
            Counter[Labels](),
        )
        self._operation_times: dict[Labels, HistogramBuckets] = {}
        self._request_times: dict[Labels, HistogramBuckets] = {}

    def record_operation(self, call: str, duration_s: float, has_failed: bool) -> None:  # noqa: FBT001 - the runtime's channel calls it
        """Counts a call of the runtime that has ended."""
        labels = (operation_type(call),)
        self._operations[labels] += 1
        self._errors[labels] += has_failed
        _observe(self._operation_times, labels, duration_s, DEFAULT_BOUNDS)

    def record_request(self, verb: str, host: str, code: int, duration_s: float) -> None:
        """Counts a request to the API server; ``code`` is its status, 0 without an answer."""
        self._requests[str(code) if code else "<error>", host, verb] += 1
        _observe(self._request_times, (host, verb), duration_s, REQUEST_BOUNDS)

    def text(self) -> str:
        """The metrics."""
        return "".join(
            (
                _counts(
                    "kubelet_runtime_operations_total", "Calls of the runtime.", _OPERATION, self._operations
                ),
                _counts(
                    "kubelet_runtime_operations_errors_total",
                    "Calls of the runtime that failed.",
                    _OPERATION,
                    +self._errors,
                ),
                _times(
                    "kubelet_runtime_operations_duration_seconds",
                    "Duration of calls of the runtime.",
                    _OPERATION,
                    self._operation_times,
                ),
                _counts(
                    "rest_client_requests_total", "Requests to the API server.", _REQUEST, self._requests
                ),
                _times(
                    "rest_client_request_duration_seconds",
                    "Time until the API server answers.",
                    ("host", "verb"),
                    self._request_times,
                ),
            )
        )


def _observe(
    times: dict[Labels, HistogramBuckets], labels: Labels, duration_s: float, bounds: tuple[float, ...]
) -> None:
    buckets = times.get(labels)
    if buckets is None:
        buckets = times[labels] = HistogramBuckets(bounds)
    buckets.observe(duration_s)


def _counts(name: str, help_text: str, labels: Labels, counts: Counter[Labels]) -> str:
    family = MetricFamily(name, MetricType.COUNTER, help_text, labels)
    return family_text(family, [MetricSample(key, counts[key]) for key in sorted(counts)])


def _times(name: str, help_text: str, labels: Labels, times: dict[Labels, HistogramBuckets]) -> str:
    family = MetricFamily(name, MetricType.HISTOGRAM, help_text, labels)
    histograms = [
        MetricHistogram(key, buckets.bounds, buckets.counts, buckets.total)
        for key, buckets in sorted(times.items(), key=lambda item: item[0])
    ]
    return family_text(family, histograms)
