"""The pages of an agent's metrics: counters and histograms, gauges of its state, and its servers.

Follows: v1.36, kubelet/metrics/metrics.go, kubelet/prober/prober_manager.go.
Departs: preemptions are counted at the decision, not when the pod has ended; the duration of topology admission is
    that of the whole decision; the age of eviction stats is observed for the signal that decided only.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

from nodewright.agent.observe.metric_names import (
    CounterMetric,
    HistogramMetric,
    Labels,
    MetricValues,
    histograms_text,
)
from nodewright.agent.observe.metrics import AgentMetrics
from nodewright.agent.pods.volume_setup import mounted_volumes
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.cluster.serving.middleware import RefusalLog, RequestMetrics
from nodewright.cluster.serving.process_metrics import kubernetes_metrics, own_process_metrics
from nodewright.documents.output.exposition import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.node.managers.hint_providers import CPUProvider
from nodewright.engine.node.node_cgroups import lent_amounts
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.kubernetes.runtime_status import ContainerPhase


class ThresholdDistance(NamedTuple):
    """The available amount above an eviction threshold.

    Units: bytes, inodes or processes, depending on the signal.
    """

    signal: Signal
    is_hard: bool
    distance: int


class GaugeInputs(NamedTuple):
    """The gauges that are not in the agent's state.

    Units: bytes.
    """

    threshold_distances: tuple[ThresholdDistance, ...] = ()
    queue_length: int = 0
    journal_bytes: int | None = None
    volume_plugin: Callable[[Pod, Mapping[str, Any]], str] = lambda _pod, _volume: ""
    """The plugin of a volume; empty: none."""
    claims_in_use: Mapping[str, int] = MappingProxyType({})
    """The number of prepared claims by driver."""


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
        agent: AgentInterface,
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


# ---------------------------------------------------------------- counters and histograms


_REASONS = frozenset(
    [
        *("AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported", "InvalidNodeInfo"),
        *("InitContainerRestartPolicyForbidden", "SupplementalGroupsPolicyNotSupported"),
        *("UnexpectedAdmissionError", "UnknownReason", "UnexpectedPredicateFailureType", "OutOfcpu"),
        *("OutOfmemory", "OutOfephemeral-storage", "OutOfpods", "PodLevelResourcesNotSupported"),
        *("PodFeatureUnsupported", "node(s) had taints that the pod didn't tolerate", "Evicted"),
        *("SysctlForbidden", "TopologyAffinityError", "NodeShutdown", "VolumeAttachmentLimitExceeded"),
    ]
)
"""The values of the label `reason`; follows v1.36, kubelet/kubelet.go, admissionRejectionReasons."""

_PLAIN = (
    *(CounterMetric.ALIGNMENTS, CounterMetric.ALIGNMENT_ERRORS),
    *(CounterMetric.CPU_PINS, CounterMetric.CPU_PIN_ERRORS),
    *(CounterMetric.MEMORY_PINS, CounterMetric.MEMORY_PIN_ERRORS),
    *(CounterMetric.PODS_STARTED, CounterMetric.PODS_NOT_STARTED),
)
_ALWAYS: Mapping[CounterMetric, tuple[Labels, ...]] = {
    **dict.fromkeys(_PLAIN, ((),)),
    CounterMetric.PODS_RESTARTED: (("",), ("true",)),
}
"""Counters that are exported even if they are zero."""


def node_metrics(state: AgentState, metrics: MetricValues, inputs: GaugeInputs) -> str:
    """The metrics of the node, without those of the process and the servers."""
    parts = [family_text(family, samples) for family, samples in node_gauges(state, inputs)]
    for counter, observed in metrics.counts.items():
        if counter is CounterMetric.PROBED:
            continue
        counts = _known_reasons(observed) if counter is CounterMetric.REJECTED else observed
        labels = dict.fromkeys((*_ALWAYS.get(counter, ()), *sorted(counts)))
        parts.append(family_text(counter.family, [MetricSample(label, counts[label]) for label in labels]))
    histograms = (metric for metric in HistogramMetric if metric is not HistogramMetric.PROBE_DURATION)
    return "".join(parts) + histograms_text(metrics, histograms)


def probe_metrics(metrics: MetricValues) -> str:
    """The metrics of probes: results, and durations of successful probes."""
    counts = metrics.counts[CounterMetric.PROBED]
    results = family_text(
        CounterMetric.PROBED.family, [MetricSample(labels, counts[labels]) for labels in sorted(counts)]
    )
    return results + histograms_text(metrics, [HistogramMetric.PROBE_DURATION])


def _known_reasons(counts: Mapping[Labels, int]) -> Counter[Labels]:
    """The counts with a bounded set of reasons.

    Follows: v1.36, kubelet/kubelet.go, recordAdmissionRejection.
    """
    known = Counter[Labels]()
    for (reason,), count in counts.items():
        if reason in _REASONS:
            known[(reason,)] += count
        else:
            known[("OutOfExtendedResources" if reason.startswith("OutOf") else "Other",)] += count
    return known


# ---------------------------------------------------------------- gauges


_Family = tuple[MetricFamily, list[MetricSample]]


def node_gauges(state: AgentState, inputs: GaugeInputs) -> Iterator[_Family]:
    """Each gauge with its values."""
    facts, conditions = state.node.config.facts, state.node.conditions
    yield _gauge("kubelet_node_name", "The node's name; always 1.", [((facts.name,), 1)], "node")
    yield _gauge("kubelet_cgroup_version", "The version of cgroups.", [((), facts.cgroup_version)])
    yield from _pods(state)
    yield from _cpus(state)
    yield _volumes(state, inputs)
    about = "ResourceClaims in use by driver; the driver <any>: all claims."
    claims = [((driver,), count) for driver, count in sorted(inputs.claims_in_use.items())]
    yield _gauge("dra_resource_claims_in_use", about, claims, "driver_name")
    about = "Whether the node is under pressure, by condition."
    pressures = [((str(condition),), condition in conditions) for condition in NodeCondition]
    yield _gauge("nodewright_node_condition", about, pressures, "condition")
    yield from _loans(state)
    about = "Available amount above an eviction threshold; it is met below 0."
    distances = [
        ((distance.signal, "hard" if distance.is_hard else "soft"), distance.distance)
        for distance in inputs.threshold_distances
    ]
    yield _gauge("nodewright_eviction_threshold_left", about, distances, "eviction_signal", "kind")
    about = "Observations that wait for the loop."
    yield _gauge("nodewright_observations_waiting", about, [((), inputs.queue_length)])
    if inputs.journal_bytes is not None:
        yield _gauge("nodewright_journal_bytes", "Size of the journal.", [((), inputs.journal_bytes)])


def _gauge(name: str, about: str, values: Iterable[tuple[Labels, float]], *labels: str) -> _Family:
    samples = [MetricSample(key, value) for key, value in values]
    return MetricFamily(name, MetricType.GAUGE, about, labels), samples


def _pods(state: AgentState) -> Iterator[_Family]:
    desired, active, states = Counter[str](), Counter[str](), Counter[str]()
    running = 0
    for record in state.pods.values():
        static = "true" if record.source.is_static_pod_source else ""
        desired[static] += record.is_in_source
        # A pod that was removed from its source still counts for admission; the kubelet leaves it out here.
        active[static] += _is_desired(record) and record.pod.uid in state.node.pods
        running += any(sandbox.is_ready for sandbox in record.sandboxes)
        states.update(str(container.phase) for container in record.containers)
    yield _gauge("kubelet_running_pods", "Pods with a ready sandbox.", [((), running)])
    containers = [((str(value),), states[value]) for value in ContainerPhase if states[value]]
    yield _gauge("kubelet_running_containers", "Containers by state.", containers, "container_state")
    for name, about, counts in (
        ("kubelet_desired_pods", "Pods that should run.", desired),
        ("kubelet_active_pods", "Pods that count for the admission of others.", active),
    ):
        yield _gauge(name, about, [((value,), counts[value]) for value in ("", "true")], "static")
    labels = ("lifecycle", "config", "static")
    yield _gauge("kubelet_working_pods", "Pods by phase of their life.", _working_pods(state), *labels)
    stages = Counter(str(record.stage) for record in state.pods.values())
    by_stage = [((str(value),), stages[value]) for value in PodStage]
    yield _gauge("nodewright_pods", "Pods by stage.", by_stage, "stage")


def _working_pods(state: AgentState) -> list[tuple[Labels, int]]:
    """The pods that are worked on; those that only the runtime knows are being ended.

    Follows: v1.36, kubelet/kubelet_pods.go, HandlePodCleanups.
    """
    counts = Counter[Labels]()
    for record in state.pods.values():
        lifecycle = _LIFECYCLES.get(record.stage)
        if lifecycle is not None:
            static = "true" if record.source.is_static_pod_source else ""
            counts[lifecycle, "desired" if _is_desired(record) else "orphan", static] += 1
    counts["terminating", "runtime_only", "unknown"] = len(state.orphans)
    kinds = (*product(("desired", "orphan"), ("", "true")), ("runtime_only", "unknown"))
    return [
        ((lifecycle, *kind), counts[(lifecycle, *kind)])
        for lifecycle in ("sync", "terminating", "terminated")
        for kind in kinds
    ]


def _is_desired(record: PodRecord) -> bool:
    return record.is_in_source or (record.source is PodSource.CLUSTER and record.has_api_object)


_LIFECYCLES = {
    PodStage.ALLOCATING: "sync",
    PodStage.WAITING: "sync",
    PodStage.ACTIVE: "sync",
    PodStage.TERMINATING: "terminating",
    PodStage.TERMINATED: "terminated",
}


def _loans(state: AgentState) -> Iterator[_Family]:
    """What is lent and borrowed, and how memory came back; none before the first loan."""
    loans, lending = state.node.loans, state.lending
    if loans is None:
        return
    lent, used = lent_amounts(state.node), tuple(lending.borrowed.values())
    amounts: tuple[tuple[str, str, int, int], ...] = (
        ("lent", "What BestEffort pods may use of what others request.", lent[CPU], lent[MEMORY]),
        ("borrower_limit", "What BestEffort pods may use.", loans.cpu_milli, loans.memory_bytes),
        (
            "borrowed",
            "What BestEffort pods use.",
            sum(cpu or 0 for cpu, _ in used),
            sum(memory or 0 for _, memory in used),
        ),
    )
    for name, about, milli_cpu, memory_bytes in amounts:
        values: list[tuple[Labels, float]] = [((CPU,), milli_cpu / 1000), ((MEMORY,), memory_bytes)]
        yield _gauge(f"nodewright_{name}", f"{about} In CPUs and bytes.", values, "resource")
    about = "Memory that BestEffort pods hold beyond what they may use."
    yield _gauge("nodewright_owed_bytes", about, [((), loans.owed_bytes)])
    about = "Returns of lent memory since the agent started."
    yield _gauge("nodewright_loan_returns", about, [((), lending.returns_total)])
    last = lending.last_return
    if last is not None and last.duration_ns is not None:
        about = "How long the last return of lent memory took."
        yield _gauge("nodewright_last_loan_return_seconds", about, [((), last.duration_ns / 10**9)])


def _volumes(state: AgentState, inputs: GaugeInputs) -> _Family:
    """The volumes of pods that are worked on, and of those whose sandbox exists: it starts after their volumes.

    Follows: v1.36, kubelet/volumemanager/metrics/metrics.go, getVolumeCount.
    """
    counts = Counter[Labels]()
    for record in state.pods.values():
        if record.stage not in (PodStage.ACTIVE, PodStage.TERMINATING):
            continue
        mounted = mounted_volumes(record.pod)
        has_sandbox = bool(record.sandboxes)
        for volume in mounted:
            plugin = inputs.volume_plugin(record.pod, volume) or "N/A"
            counts[plugin, "desired_state_of_world"] += 1
            counts[plugin, "actual_state_of_world"] += has_sandbox
    present, about = [each for each in sorted(counts.items()) if each[1]], "Volumes of pods, by plugin."
    return _gauge("volume_manager_total_volumes", about, present, "plugin_name", "state")


def _cpus(state: AgentState) -> Iterator[_Family]:
    """The allocations of a static CPU manager.

    Follows: v1.36, cpumanager/policy_static.go, initializeMetrics, updateAllocationPerNUMAMetric.
    """
    cpu_state = state.node.held.cpu
    for provider in state.node.config.managers.providers:
        if isinstance(provider, CPUProvider) and isinstance(provider.policy, StaticCPUPolicy):
            topology, shared = provider.policy.topology, provider.policy.free(cpu_state)
            exclusive = topology.cpus - cpu_state.default
            prefix, about = (
                "kubelet_cpu_manager",
                "CPUs that are neither exclusive nor reserved, in thousandths.",
            )
            yield _gauge(f"{prefix}_shared_pool_size_millicores", about, [((), len(shared) * 1000)])
            about = "Exclusive CPUs of containers"
            yield _gauge(f"{prefix}_exclusive_cpu_allocation_count", f"{about}.", [((), len(exclusive))])
            counts = Counter(info.numa for info in topology.cpu_info if info.cpu in exclusive)
            by_numa = [((str(numa),), counts[numa]) for numa in topology.numa_ids]
            yield _gauge(f"{prefix}_allocation_per_numa", f"{about}, by NUMA node.", by_numa, "numa_node")
