"""The gauges of an agent's node: pods, containers, CPUs and volumes, by its state."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from nodewright.agent.observe.metric_names import Labels
from nodewright.agent.pods.volume_setup import mounted_volumes
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.node.managers.hint_providers import CPUProvider
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.objects import Pod
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


def node_gauges(
    state: AgentState, inputs: GaugeInputs
) -> Iterator[tuple[MetricFamily, Iterable[MetricSample]]]:
    """Each gauge with its values."""
    facts = state.node.config.facts
    yield _gauge("kubelet_node_name", "The node's name; always 1.", "node"), [MetricSample((facts.name,), 1)]
    version = facts.cgroup_version
    yield _gauge("kubelet_cgroup_version", "The version of cgroups."), [MetricSample((), version)]
    yield from _pods(state)
    yield from _cpus(state)
    yield _volumes(state, inputs)
    yield (
        _gauge("nodewright_node_condition", "Whether the node is under pressure, by condition.", "condition"),
        [MetricSample((str(condition),), condition in state.node.conditions) for condition in NodeCondition],
    )
    yield (
        _gauge(
            "nodewright_eviction_threshold_left",
            "Available amount above an eviction threshold; it is met below 0.",
            *("eviction_signal", "kind"),
        ),
        [
            MetricSample((distance.signal, "hard" if distance.is_hard else "soft"), distance.distance)
            for distance in inputs.threshold_distances
        ],
    )
    yield (
        _gauge("nodewright_observations_waiting", "Observations that wait for the loop."),
        [MetricSample((), inputs.queue_length)],
    )
    if inputs.journal_bytes is not None:
        size = [MetricSample((), inputs.journal_bytes)]
        yield _gauge("nodewright_journal_bytes", "Size of the journal."), size


def _gauge(name: str, help_text: str, *labels: str) -> MetricFamily:
    return MetricFamily(name, MetricType.GAUGE, help_text, labels)


def _pods(state: AgentState) -> Iterator[tuple[MetricFamily, Iterable[MetricSample]]]:
    desired, active, states = Counter[str](), Counter[str](), Counter[str]()
    running = 0
    for record in state.pods.values():
        static = "true" if record.source.is_static_pod_source else ""
        desired[static] += record.is_in_source
        # A pod that was removed from its source still counts for admission; the kubelet leaves it out here.
        active[static] += _is_desired(record) and record.pod.uid in state.node.pods
        if record.runtime_status is not None:
            running += any(sandbox.is_ready for sandbox in record.runtime_status.sandboxes)
            states.update(str(container.phase) for container in record.runtime_status.containers)
    yield _gauge("kubelet_running_pods", "Pods with a ready sandbox."), [MetricSample((), running)]
    yield (
        _gauge("kubelet_running_containers", "Containers by state.", "container_state"),
        [MetricSample((str(value),), states[value]) for value in ContainerPhase if states[value]],
    )
    for name, help_text, counts in (
        ("kubelet_desired_pods", "Pods that should run.", desired),
        ("kubelet_active_pods", "Pods that count for the admission of others.", active),
    ):
        yield (
            _gauge(name, help_text, "static"),
            [MetricSample((value,), counts[value]) for value in ("", "true")],
        )
    yield (
        _gauge("kubelet_working_pods", "Pods by phase of their life.", "lifecycle", "config", "static"),
        _working_pods(state),
    )
    stages = Counter(str(record.stage) for record in state.pods.values())
    yield (
        _gauge("nodewright_pods", "Pods by stage.", "stage"),
        [MetricSample((str(value),), stages[value]) for value in PodStage],
    )


def _working_pods(state: AgentState) -> list[MetricSample]:
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
        MetricSample((lifecycle, *kind), counts[(lifecycle, *kind)])
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


def _volumes(state: AgentState, inputs: GaugeInputs) -> tuple[MetricFamily, list[MetricSample]]:
    """The volumes of pods that are worked on, and of those whose sandbox exists: it starts after their volumes.

    Follows: v1.36, kubelet/volumemanager/metrics/metrics.go, getVolumeCount.
    """
    counts = Counter[Labels]()
    for record in state.pods.values():
        if record.stage not in (PodStage.ACTIVE, PodStage.TERMINATING):
            continue
        mounted = mounted_volumes(record.pod)
        has_sandbox = record.runtime_status is not None and bool(record.runtime_status.sandboxes)
        for volume in mounted:
            plugin = inputs.volume_plugin(record.pod, volume) or "N/A"
            counts[plugin, "desired_state_of_world"] += 1
            counts[plugin, "actual_state_of_world"] += has_sandbox
    family = _gauge("volume_manager_total_volumes", "Volumes of pods, by plugin.", "plugin_name", "state")
    return family, [MetricSample(labels, count) for labels, count in sorted(counts.items()) if count]


def _cpus(state: AgentState) -> Iterator[tuple[MetricFamily, Iterable[MetricSample]]]:
    """The allocations of a static CPU manager.

    Follows: v1.36, cpumanager/policy_static.go, initializeMetrics, updateAllocationPerNUMAMetric.
    """
    cpu_state = state.node.held.cpu
    for provider in state.node.config.managers.providers:
        if isinstance(provider, CPUProvider) and isinstance(provider.policy, StaticCPUPolicy):
            topology, shared = provider.policy.topology, provider.policy.free(cpu_state)
            exclusive = topology.cpus - cpu_state.default
            yield (
                _gauge(
                    "kubelet_cpu_manager_shared_pool_size_millicores",
                    "CPUs that are neither exclusive nor reserved, in thousandths.",
                ),
                [MetricSample((), len(shared) * 1000)],
            )
            yield (
                _gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "Exclusive CPUs of containers."),
                [MetricSample((), len(exclusive))],
            )
            per_numa = Counter(info.numa for info in topology.cpu_info if info.cpu in exclusive)
            yield (
                _gauge(
                    "kubelet_cpu_manager_allocation_per_numa",
                    "Exclusive CPUs of containers, by NUMA node.",
                    "numa_node",
                ),
                [MetricSample((str(numa),), per_numa[numa]) for numa in topology.numa_ids],
            )
