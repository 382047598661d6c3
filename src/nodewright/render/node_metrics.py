"""What an agent knows and has counted, as metrics: the kubelet's names where the meaning is the same, else our own.

Follows: v1.36, kubelet/metrics/metrics.go, kubelet/prober/prober_manager.go: names, types, labels and classes.
Departs: preemptions are counted when they are decided on, not when the pod is gone; how long aligning takes is how
    long the whole decision does; of eviction's statistics the age counts for the signal that decided alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nodewright.agent.counted import Counted, Counts, Labels, Timed
from nodewright.agent.values import Mind, Stage
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.model.pressure import NodeCondition
from nodewright.model.running import ContainerPhase
from nodewright.model.thresholds import Signal
from nodewright.node.providers import CPUs
from nodewright.render.exposition import Family, Histogram, Kind, Sample, exposed

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
"""The reasons that are told apart; follows v1.36, kubelet/kubelet.go, admissionRejectionReasons."""
_SCOPES = ("scope", "boundary")

_COUNTERS: Mapping[Counted, Family] = {
    what: Family(name, Kind.COUNTER, about, labels)
    for what, name, about, labels in (
        (Counted.REJECTED, "kubelet_admission_rejections_total", "Pods turned away, by reason.", ("reason",)),
        (
            Counted.ALIGNMENTS,
            "kubelet_topology_manager_admission_requests_total",
            "Pods that the resource managers were asked about.",
            (),
        ),
        (
            Counted.ALIGNMENT_ERRORS,
            "kubelet_topology_manager_admission_errors_total",
            "Pods whose resources could not be aligned.",
            (),
        ),
        (
            Counted.CPU_PINS,
            "kubelet_cpu_manager_pinning_requests_total",
            "Containers that asked for CPUs of their own.",
            (),
        ),
        (
            Counted.CPU_PIN_ERRORS,
            "kubelet_cpu_manager_pinning_errors_total",
            "Containers that asked for CPUs of their own and could not have them.",
            (),
        ),
        (
            Counted.MEMORY_PINS,
            "kubelet_memory_manager_pinning_requests_total",
            "Containers that asked for memory of certain NUMA nodes.",
            (),
        ),
        (
            Counted.MEMORY_PIN_ERRORS,
            "kubelet_memory_manager_pinning_errors_total",
            "Containers that asked for memory of certain NUMA nodes and could not have it.",
            (),
        ),
        (
            Counted.ALIGNED,
            "kubelet_container_aligned_compute_resources_count",
            "Resources given out aligned, by what they are aligned at.",
            _SCOPES,
        ),
        (
            Counted.UNALIGNED,
            "kubelet_container_aligned_compute_resources_failure_count",
            "Resources that could not be given out aligned, by what at.",
            _SCOPES,
        ),
        (Counted.EVICTED, "kubelet_evictions", "Pods evicted, by signal.", ("eviction_signal",)),
        (
            Counted.PREEMPTED,
            "kubelet_preemptions",
            "Pods that made way for critical ones, by what was missing.",
            ("preemption_signal",),
        ),
        (Counted.PODS_STARTED, "kubelet_started_pods_total", "Sandboxes of pods made.", ()),
        (
            Counted.PODS_NOT_STARTED,
            "kubelet_started_pods_errors_total",
            "Sandboxes of pods that could not be made.",
            (),
        ),
        (
            Counted.CONTAINERS_STARTED,
            "kubelet_started_containers_total",
            "Containers started, by kind.",
            ("container_type",),
        ),
        (
            Counted.CONTAINERS_NOT_STARTED,
            "kubelet_started_containers_errors_total",
            "Containers that could not be started, by kind and error.",
            ("container_type", "code"),
        ),
        (
            Counted.CONTAINERS_ENDED,
            "kubelet_terminated_containers_total",
            "Containers that ended, by kind and how.",
            ("container_type", "exit_code", "reason"),
        ),
        (
            Counted.PODS_RESTARTED,
            "kubelet_restarted_pods_total",
            "Pods that went and came back as they were.",
            ("static",),
        ),
    )
}
_PLAIN = (
    *(Counted.ALIGNMENTS, Counted.ALIGNMENT_ERRORS, Counted.CPU_PINS, Counted.CPU_PIN_ERRORS),
    *(Counted.MEMORY_PINS, Counted.MEMORY_PIN_ERRORS, Counted.PODS_STARTED, Counted.PODS_NOT_STARTED),
)
_ALWAYS: Mapping[Counted, tuple[Labels, ...]] = {
    **dict.fromkeys(_PLAIN, ((),)),
    Counted.PODS_RESTARTED: (("",), ("true",)),
}
"""Counts that are told even where there is nothing to count."""
_PROBES = Family(
    "prober_probe_total",
    Kind.COUNTER,
    "Answers to probes, by result.",
    ("probe_type", "result", "container", "pod", "namespace", "pod_uid"),
)
_PROBE_TIMES = Family(
    "prober_probe_duration_seconds",
    Kind.HISTOGRAM,
    "How long good answers to probes take.",
    ("probe_type", "container", "pod", "namespace"),
)
_TIMES: Mapping[Timed, Family] = {
    what: Family(name, Kind.HISTOGRAM, about, labels)
    for what, name, about, labels in (
        (
            Timed.ALIGNING,
            "kubelet_topology_manager_admission_duration_ms",
            "How long it takes to decide on a pod, in milliseconds.",
            (),
        ),
        (
            Timed.STARTING,
            "kubelet_pod_start_duration_seconds",
            "From a pod's first sight until all its containers have run.",
            (),
        ),
        (
            Timed.WORKING,
            "kubelet_pod_worker_duration_seconds",
            "How long a work for a pod takes, by kind.",
            ("operation_type",),
        ),
        (
            Timed.STATS_AGE,
            "kubelet_eviction_stats_age_seconds",
            "How old the reading was that a pod was evicted for, by signal.",
            ("eviction_signal",),
        ),
        (
            Timed.DECIDING,
            "nodewright_turn_duration_seconds",
            "How long it takes to decide on what was seen, by what that is.",
            ("observation",),
        ),
    )
}


class Room(NamedTuple):
    """How much is left above a threshold of eviction.

    Units: bytes, inodes or processes, as the signal has it.
    """

    signal: Signal
    is_hard: bool
    left: int


class Around(NamedTuple):
    """What is to be told of the agent beside its mind.

    Units: bytes.
    """

    rooms: tuple[Room, ...] = ()
    queue_length: int = 0
    journal_bytes: int | None = None


def node_metrics(mind: Mind, tally: Counts, around: Around) -> str:
    """All but those of the process and the servers."""
    parts = [exposed(family, found) for family, found in _gauges(mind, around)]
    for what, family in _COUNTERS.items():
        counts = tally.counts[what]
        if what is Counted.REJECTED:
            counts = _known_reasons(counts)
        labels = dict.fromkeys((*_ALWAYS.get(what, ()), *sorted(counts)))
        parts.append(exposed(family, [Sample(one, counts[one]) for one in labels]))
    parts += [exposed(family, _spreads(tally, time)) for time, family in _TIMES.items()]
    return "".join(parts)


def probe_metrics(tally: Counts) -> str:
    """What probes have answered, and how long good answers took."""
    counts = tally.counts[Counted.PROBED]
    answers = exposed(_PROBES, [Sample(labels, counts[labels]) for labels in sorted(counts)])
    return answers + exposed(_PROBE_TIMES, _spreads(tally, Timed.PROBING))


def _spreads(tally: Counts, what: Timed) -> list[Histogram]:
    found = sorted(tally.of(what), key=lambda each: each[0])
    return [Histogram(labels, one.bounds, one.counts, one.total) for labels, one in found]


def _known_reasons(counts: Mapping[Labels, int]) -> Counter[Labels]:
    """Few enough to be told apart.

    Follows: v1.36, kubelet/kubelet.go, recordAdmissionRejection.
    """
    found = Counter[Labels]()
    for (reason,), count in counts.items():
        if reason in _REASONS:
            found[(reason,)] += count
        else:
            found[("OutOfExtendedResources" if reason.startswith("OutOf") else "Other",)] += count
    return found


def _gauge(name: str, about: str, *labels: str) -> Family:
    return Family(name, Kind.GAUGE, about, labels)


def _gauges(mind: Mind, around: Around) -> Iterator[tuple[Family, Iterable[Sample]]]:
    """What is so now."""
    facts = mind.node.config.facts
    yield _gauge("kubelet_node_name", "The node's name; always 1.", "node"), [Sample((facts.name,), 1)]
    version = facts.cgroup_version
    yield _gauge("kubelet_cgroup_version", "The version of cgroups."), [Sample((), version)]
    yield from _pods(mind)
    yield from _cpus(mind)
    yield (
        _gauge("nodewright_node_condition", "Whether the node runs short, by condition.", "condition"),
        [Sample((str(one),), one in mind.node.conditions) for one in NodeCondition],
    )
    yield (
        _gauge(
            "nodewright_eviction_threshold_left",
            "How much more is available than a threshold of eviction; below 0 it is met.",
            *("eviction_signal", "kind"),
        ),
        [Sample((one.signal, "hard" if one.is_hard else "soft"), one.left) for one in around.rooms],
    )
    yield (
        _gauge("nodewright_observations_waiting", "What was seen and is not decided on yet."),
        [Sample((), around.queue_length)],
    )
    if around.journal_bytes is not None:
        size = [Sample((), around.journal_bytes)]
        yield _gauge("nodewright_journal_bytes", "How large the journal is."), size


def _pods(mind: Mind) -> Iterator[tuple[Family, Iterable[Sample]]]:
    desired, active, states = Counter[str](), Counter[str](), Counter[str]()
    running = 0
    for record in mind.pods.values():
        static = "true" if record.source.is_static else ""
        desired[static] += record.is_wanted
        active[static] += record.pod.uid in mind.node.pods
        if record.facts is not None:
            running += any(one.is_ready for one in record.facts.sandboxes)
            states.update(str(one.phase) for one in record.facts.containers)
    yield _gauge("kubelet_running_pods", "Pods with a sandbox that is ready."), [Sample((), running)]
    yield (
        _gauge("kubelet_running_containers", "Containers by state.", "container_state"),
        [Sample((str(one),), states[one]) for one in ContainerPhase if states[one]],
    )
    for name, about, counts in (
        ("kubelet_desired_pods", "Pods that are to run.", desired),
        ("kubelet_active_pods", "Pods that the node counts when others come.", active),
    ):
        yield _gauge(name, about, "static"), [Sample((one,), counts[one]) for one in ("", "true")]
    stages = Counter(str(record.stage) for record in mind.pods.values())
    yield (
        _gauge("nodewright_pods", "Pods by how far they have come.", "stage"),
        [Sample((str(one),), stages[one]) for one in Stage],
    )


def _cpus(mind: Mind) -> Iterator[tuple[Family, Iterable[Sample]]]:
    """What the CPU manager has given away; nothing where it never does.

    Follows: v1.36, cpumanager/policy_static.go, initializeMetrics, updateAllocationPerNUMAMetric.
    """
    state = mind.node.held.cpu
    for provider in mind.node.config.managers.providers:
        if isinstance(provider, CPUs) and isinstance(provider.policy, StaticPolicy):
            topology, shared = provider.policy.topology, provider.policy.free(state)
            exclusive = topology.cpus - state.default
            yield (
                _gauge(
                    "kubelet_cpu_manager_shared_pool_size_millicores",
                    "CPUs that are nobody's own and not reserved, in thousandths.",
                ),
                [Sample((), len(shared) * 1000)],
            )
            yield (
                _gauge(
                    "kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that are a container's own."
                ),
                [Sample((), len(exclusive))],
            )
            per_numa = Counter(one.numa for one in topology.places if one.cpu in exclusive)
            yield (
                _gauge(
                    "kubelet_cpu_manager_allocation_per_numa",
                    "CPUs that are a container's own, by NUMA node.",
                    "numa_node",
                ),
                [Sample((str(numa),), per_numa[numa]) for numa in topology.numa_ids],
            )
