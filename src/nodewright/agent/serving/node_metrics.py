"""The metrics of an agent: with the kubelet's names where the meaning is the same, else with our own.

Follows: v1.36, kubelet/metrics/metrics.go, kubelet/prober/prober_manager.go: names, types, labels and classes.
Departs: preemptions are counted at the decision, not when the pod has ended; the duration of topology admission is
    that of the whole decision; the age of eviction stats is observed for the signal that decided only.
"""

from collections import Counter
from collections.abc import Mapping

from nodewright.agent.observe.metric_names import (
    CounterMetric,
    HistogramMetric,
    Labels,
    MetricValues,
    counter_families,
    histogram_families,
    histograms_text,
)
from nodewright.agent.serving.node_metrics import GaugeInputs, node_gauges
from nodewright.agent.state.agent_state import AgentState
from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType, family_text

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
_SCOPES = ("scope", "boundary")

_COUNTERS = counter_families(
    (
        (
            CounterMetric.REJECTED,
            "kubelet_admission_rejections_total",
            "Pods rejected at admission, by reason.",
            ("reason",),
        ),
        (
            CounterMetric.ALIGNMENTS,
            "kubelet_topology_manager_admission_requests_total",
            "Pods submitted to the topology manager.",
            (),
        ),
        (
            CounterMetric.ALIGNMENT_ERRORS,
            "kubelet_topology_manager_admission_errors_total",
            "Pods whose resources could not be aligned.",
            (),
        ),
        (
            CounterMetric.CPU_PINS,
            "kubelet_cpu_manager_pinning_requests_total",
            "Containers that requested exclusive CPUs.",
            (),
        ),
        (
            CounterMetric.CPU_PIN_ERRORS,
            "kubelet_cpu_manager_pinning_errors_total",
            "Containers that requested exclusive CPUs and did not get them.",
            (),
        ),
        (
            CounterMetric.MEMORY_PINS,
            "kubelet_memory_manager_pinning_requests_total",
            "Containers that requested pinned memory.",
            (),
        ),
        (
            CounterMetric.MEMORY_PIN_ERRORS,
            "kubelet_memory_manager_pinning_errors_total",
            "Containers that requested pinned memory and did not get it.",
            (),
        ),
        (
            CounterMetric.ALIGNED,
            "kubelet_container_aligned_compute_resources_count",
            "Aligned allocations, by scope and boundary.",
            _SCOPES,
        ),
        (
            CounterMetric.UNALIGNED,
            "kubelet_container_aligned_compute_resources_failure_count",
            "Allocations that could not be aligned, by scope and boundary.",
            _SCOPES,
        ),
        (CounterMetric.EVICTED, "kubelet_evictions", "Pods evicted, by signal.", ("eviction_signal",)),
        (
            CounterMetric.PREEMPTED,
            "kubelet_preemptions",
            "Pods preempted by critical pods, by missing resource.",
            ("preemption_signal",),
        ),
        (CounterMetric.PODS_STARTED, "kubelet_started_pods_total", "Pod sandboxes created.", ()),
        (
            CounterMetric.PODS_NOT_STARTED,
            "kubelet_started_pods_errors_total",
            "Pod sandboxes that could not be created.",
            (),
        ),
        (
            CounterMetric.CONTAINERS_STARTED,
            "kubelet_started_containers_total",
            "Containers started, by kind.",
            ("container_type",),
        ),
        (
            CounterMetric.CONTAINERS_NOT_STARTED,
            "kubelet_started_containers_errors_total",
            "Containers that could not be started, by kind and error.",
            ("container_type", "code"),
        ),
        (
            CounterMetric.CONTAINERS_ENDED,
            "kubelet_terminated_containers_total",
            "Containers that ended, by kind, exit code and reason.",
            ("container_type", "exit_code", "reason"),
        ),
        (
            CounterMetric.PODS_RESTARTED,
            "kubelet_restarted_pods_total",
            "Pods that were removed and created again unchanged.",
            ("static",),
        ),
    )
)
_PLAIN = (
    *(
        CounterMetric.ALIGNMENTS,
        CounterMetric.ALIGNMENT_ERRORS,
        CounterMetric.CPU_PINS,
        CounterMetric.CPU_PIN_ERRORS,
    ),
    *(
        CounterMetric.MEMORY_PINS,
        CounterMetric.MEMORY_PIN_ERRORS,
        CounterMetric.PODS_STARTED,
        CounterMetric.PODS_NOT_STARTED,
    ),
)
_ALWAYS: Mapping[CounterMetric, tuple[Labels, ...]] = {
    **dict.fromkeys(_PLAIN, ((),)),
    CounterMetric.PODS_RESTARTED: (("",), ("true",)),
}
"""Counters that are exported even if they are zero."""
_PROBES = MetricFamily(
    "prober_probe_total",
    MetricType.COUNTER,
    "Probes, by result.",
    ("probe_type", "result", "container", "pod", "namespace", "pod_uid"),
)
_PROBE_TIMES = histogram_families(
    (
        (
            HistogramMetric.PROBE_DURATION,
            "prober_probe_duration_seconds",
            "Duration of successful probes.",
            ("probe_type", "container", "pod", "namespace"),
        ),
    )
)
_TIMES = histogram_families(
    (
        (
            HistogramMetric.ALIGNMENT_DURATION,
            "kubelet_topology_manager_admission_duration_ms",
            "Duration of a decision about a pod, in milliseconds.",
            (),
        ),
        (
            HistogramMetric.POD_START_DURATION,
            "kubelet_pod_start_duration_seconds",
            "Time from a pod's arrival until all its containers have started.",
            (),
        ),
        (
            HistogramMetric.POD_WORKER_DURATION,
            "kubelet_pod_worker_duration_seconds",
            "Duration of an operation on a pod, by type.",
            ("operation_type",),
        ),
        (
            HistogramMetric.STATS_AGE,
            "kubelet_eviction_stats_age_seconds",
            "Age of the stats on which an eviction was decided, by signal.",
            ("eviction_signal",),
        ),
        (
            HistogramMetric.ITERATION_DURATION,
            "nodewright_turn_duration_seconds",
            "Duration of an iteration of the loop, by observation.",
            ("observation",),
        ),
        (
            HistogramMetric.CONTAINERS_PER_POD,
            "kubelet_containers_per_pod_count",
            "Containers of a pod, without init containers.",
            (),
        ),
        (
            HistogramMetric.WORKER_START_DURATION,
            "kubelet_pod_worker_start_duration_seconds",
            "Time from a pod's arrival until the work on it begins.",
            (),
        ),
    )
)


def node_metrics(state: AgentState, metrics: MetricValues, inputs: GaugeInputs) -> str:
    """The metrics of the node, without those of the process and the servers."""
    parts = [family_text(family, samples) for family, samples in node_gauges(state, inputs)]
    for counter, family in _COUNTERS.items():
        counts = metrics.counts[counter]
        if counter is CounterMetric.REJECTED:
            counts = _known_reasons(counts)
        labels = dict.fromkeys((*_ALWAYS.get(counter, ()), *sorted(counts)))
        parts.append(family_text(family, [MetricSample(label, counts[label]) for label in labels]))
    return "".join(parts) + histograms_text(metrics, _TIMES)


def probe_metrics(metrics: MetricValues) -> str:
    """The metrics of probes: results, and durations of successful probes."""
    counts = metrics.counts[CounterMetric.PROBED]
    results = family_text(_PROBES, [MetricSample(labels, counts[labels]) for labels in sorted(counts)])
    return results + histograms_text(metrics, _PROBE_TIMES)


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
