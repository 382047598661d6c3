"""Metrics pages as bytes, cached for a short time so that frequent scrapes are cheap."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from nodewright.agent.observe.metrics import AgentMetrics
from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.agent.serving.node_metrics import GaugeInputs, node_metrics, probe_metrics
from nodewright.cluster.serving.middleware import RefusalLog, RequestMetrics
from nodewright.cluster.serving.process_metrics import kubernetes_metrics, own_process_metrics
from nodewright.documents.output.exposition import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)

FRESH_S, STEADY_FRESH_S = 0.1, 1.0
"""How long a page is served from the cache: after a change of state, and without one."""
_BY_REQUEST = ("long_running", "method", "path", "server_type")
_REQUESTS = MetricFamily(
    "kubelet_http_requests_total", MetricType.COUNTER, "Requests over HTTP.", _BY_REQUEST
)
_INFLIGHT = MetricFamily(
    "kubelet_http_inflight_requests", MetricType.GAUGE, "Requests that are being answered.", _BY_REQUEST
)
_DURATIONS = MetricFamily(
    "kubelet_http_requests_duration_seconds",
    MetricType.HISTOGRAM,
    "How long it takes to answer a request.",
    _BY_REQUEST,
)
_REFUSALS = MetricFamily(
    "nodewright_http_refusals_total", MetricType.COUNTER, "Connections and requests refused.", ("kind",)
)
_LONG_RUNNING = ("exec", "attach", "portForward", "debug")


class AgentMetricsPages:
    """The metrics of an agent and its servers."""

    def __init__(
        self,
        agent: ServedAgent,
        metrics: AgentMetrics,
        gauge_inputs: Callable[[], GaugeInputs],
        servers: tuple[RequestMetrics, RefusalLog],
    ) -> None:
        self._agent, self._event_recorder = agent, agent.event_recorder
        self._metrics, self._gauge_inputs = metrics, gauge_inputs
        self._requests, self._refusals = servers
        self._cached: tuple[float, asyncio.Event, bytes] | None = None

    def metrics(self) -> bytes:
        """All metrics but those of probes."""
        now_s, change_signal = time.monotonic(), self._event_recorder.change_signal()
        if self._cached is not None:
            cached_s, cached_signal, text = self._cached
            if now_s - cached_s < (STEADY_FRESH_S if change_signal is cached_signal else FRESH_S):
                return text
        parts = [
            node_metrics(self._event_recorder.state, self._metrics, self._gauge_inputs()),
            *_server_metrics(self._requests, self._refusals),
            *own_process_metrics(),
            *kubernetes_metrics(
                self._event_recorder.state.node.config, self._agent.system_info.kubelet_version
            ),
            *_pod_resources_metrics(self._agent.pod_resources_calls),
            *(source() for source in self._agent.metric_sources),
        ]
        text = "".join(parts).encode()
        self._cached = (now_s, change_signal, text)
        return text

    def probe_metrics(self) -> bytes:
        """The results of probes."""
        return probe_metrics(self._metrics).encode()


def _server_metrics(requests: RequestMetrics, refusals: RefusalLog) -> Iterator[str]:
    """The metrics of the servers.

    Follows: v1.36, kubelet/server/metrics/metrics.go.
    """
    keys = sorted(requests.counts)
    yield family_text(_REQUESTS, [MetricSample(_labels(key), requests.counts[key]) for key in keys])
    yield family_text(_INFLIGHT, [MetricSample(_labels(key), requests.inflight[key]) for key in keys])
    histograms: Iterable[MetricHistogram] = (
        MetricHistogram(_labels(key), buckets.bounds, buckets.counts, buckets.total)
        for key, buckets in sorted(requests.histograms.items(), key=lambda item: item[0])
    )
    yield family_text(_DURATIONS, histograms)
    kinds = sorted(refusals.counts.items())
    yield family_text(_REFUSALS, [MetricSample((kind,), count) for kind, count in kinds])


def _pod_resources_metrics(calls: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """The calls of PodResources; a counter appears with its first call.

    Follows: v1.36, kubelet/metrics/metrics.go, PodResourcesEndpointRequestsTotalCount.
    """
    for name in sorted({name for _, name in calls}):
        family = MetricFamily(
            f"kubelet_pod_resources_endpoint_{name}",
            MetricType.COUNTER,
            "Calls of PodResources.",
            ("server_api_version",),
        )
        samples = [
            MetricSample((version,), count)
            for (version, kind), count in sorted(calls.items())
            if kind == name
        ]
        yield family_text(family, samples)


def _labels(key: tuple[str, str, str]) -> tuple[str, ...]:
    method, path, server = key
    return "true" if path in _LONG_RUNNING else "false", method, path, server
