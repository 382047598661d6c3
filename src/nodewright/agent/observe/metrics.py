"""Counts and times of what the agent has decided and done since it started; reads every iteration, changes nothing."""

from collections.abc import Iterator
from typing import TypeAlias

from nodewright.agent.loop import IterationTrace
from nodewright.agent.observe.metric_names import CounterMetric, HistogramMetric, Labels, MetricValues
from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.agent.state.effects import CleanUpPod, SyncPod, TerminatePod
from nodewright.agent.state.observations import (
    SANDBOX_ERROR,
    NodeUsageObserved,
    PodEffectCompleted,
    ProbeCompleted,
    Ticked,
)
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.eviction.eviction_state import Eviction
from nodewright.engine.core.eviction.eviction_thresholds import signal_observations
from nodewright.engine.core.topology.manager_config import NONE_POLICY, SINGLE_NUMA_NODE
from nodewright.engine.node.actions import KillPod
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.managers.manager_trace import AllocationCall, ManagerTrace, manager_trace
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, Step
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.model.reasons.eviction import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    NodeRanShort,
    NodeUnderPressure,
    PodStorageOverLimit,
)
from nodewright.model.reasons.reason import SysctlForbidden
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet

_LIMIT_SIGNALS = {
    EmptyDirOverLimit: "emptydirfs.limit",
    PodStorageOverLimit: "ephemeralpodfs.limit",
    ContainerStorageOverLimit: "ephemeralcontainerfs.limit",
}
_RESULTS = {ProbeResult.SUCCESS: "successful", ProbeResult.FAILURE: "failed", None: "unknown"}


class AgentMetrics(MetricValues):
    """The agent's metrics; call `record_iteration` after every iteration."""

    def __init__(self, started_ns: int) -> None:
        """What started before ``started_ns`` (nanoseconds since 1970) is not counted: an earlier agent counted it."""
        super().__init__()
        self.last_iteration_ns = 0
        """When the last iteration was, on the monotonic clock."""
        self._started_ns = started_ns
        self._first_seen: dict[str, int] = {}
        self._begun: set[str] = set()
        """The pods that work has begun on."""
        self._running_effects: dict[str, tuple[str, int]] = {}
        """By uid the kind of the running effect, and when it started."""
        self._static_names: dict[str, str] = {}
        """By full name the uid of the last static pod of that name."""

    def record_iteration(self, trace: IterationTrace) -> None:
        """Counts one iteration."""
        observation, result = trace.observation, trace.result
        self.last_iteration_ns = trace.at_ns
        self.observe(
            HistogramMetric.ITERATION_DURATION, trace.duration_ns / 10**9, type(observation).__name__
        )
        if isinstance(observation, Ticked) and not result.effects and result.changes.is_empty:
            return
        self._count_node_steps(trace)
        self._count_changed_records(trace)
        self._time_effects(trace)
        if isinstance(observation, ProbeCompleted):
            self._count_probe(observation, trace)
        if isinstance(observation, PodEffectCompleted):
            self._count_failures(observation)
        if result.evictions:
            assert isinstance(observation, NodeUsageObserved)
            self._count_evictions(observation, result.evictions, trace.at_ns)

    # ------------------------------------------------------------ decisions

    def _count_node_steps(self, trace: IterationTrace) -> None:
        node = trace.state_before.node
        for node_step in trace.result.changes.node_steps:
            event, step_result = node_step.event, node_step.step
            if isinstance(event, PodAdded) and reached_managers(step_result):
                self.observe(HistogramMetric.ALIGNMENT_DURATION, trace.duration_ns / 10**6)
                for metric, labels in manager_counts(node, event.pod):
                    self.increment(metric, *labels)
            for action in step_result.actions:
                if isinstance(action, KillPod):
                    for threshold in action.if_done:
                        self.increment(CounterMetric.PREEMPTED, threshold.signal)
            node = step_result.state

    def _count_evictions(
        self, observation: NodeUsageObserved, evictions: tuple[Eviction, ...], at_ns: int
    ) -> None:
        usage = observation.eviction_observation.usage
        observed = signal_observations(usage) if usage is not None else {}
        for eviction in evictions:
            reason = eviction.because
            if not isinstance(reason, NodeRanShort):
                self.increment(CounterMetric.EVICTED, _LIMIT_SIGNALS[type(reason)])
                continue
            self.increment(CounterMetric.EVICTED, reason.signal)
            measured_at = observed[reason.signal].measured_at if reason.signal in observed else None
            if measured_at is not None:
                self.observe(
                    HistogramMetric.STATS_AGE, max(0, at_ns - measured_at.nanoseconds) / 10**9, reason.signal
                )

    # ------------------------------------------------------------ pods

    def _count_changed_records(self, trace: IterationTrace) -> None:
        before, after = trace.state_before.pods, trace.result.state.pods
        for uid, record in after.items():
            record_before = before.get(uid)
            if record_before is record:
                continue
            if record_before is None:
                self._first_seen[uid] = trace.at_ns
                self._count_admission(record)
            # When the pods of an earlier agent were first seen is unknown.
            if (
                record.has_started
                and not (record_before and record_before.has_started)
                and uid in self._first_seen
            ):
                self.observe(
                    HistogramMetric.POD_START_DURATION, (trace.at_ns - self._first_seen[uid]) / 10**9
                )
            if record_before is None or record_before.runtime_status is not record.runtime_status:
                self._count_runtime_changes(record_before, record)
        for uid in before.keys() - after.keys():
            self._first_seen.pop(uid, None)
            self._begun.discard(uid)
            self._running_effects.pop(uid, None)
            for labels in [labels for labels in self.counts[CounterMetric.PROBED] if labels[-1] == uid]:
                del self.counts[CounterMetric.PROBED][labels]
                kind, _, *rest, _uid = labels
                self.remove(HistogramMetric.PROBE_DURATION, kind, *rest)

    def _count_admission(self, record: PodRecord) -> None:
        if record.stage is PodStage.REJECTED and record.status_override is not None:
            self.increment(CounterMetric.REJECTED, record.status_override.reason)
            return
        if record.source.is_static_pod_source:
            name, uid = record.pod.full_name, record.pod.uid
            if self._static_names.get(name) == uid:
                self.increment(CounterMetric.PODS_RESTARTED, "true")
            self._static_names[name] = uid

    def _count_runtime_changes(self, record_before: PodRecord | None, record: PodRecord) -> None:
        """Counts sandboxes and containers that are new in the runtime's status."""
        sandboxes = {sandbox.id for sandbox in record_before.sandboxes} if record_before else set()
        for sandbox in record.sandboxes:
            if sandbox.id not in sandboxes and sandbox.created_ns >= self._started_ns:
                self.increment(CounterMetric.PODS_STARTED)
        before = {each.id: each for each in record_before.containers} if record_before else {}
        for container in record.containers:
            container_before = before.get(container.id)
            if container_before is container:
                continue
            kind = container_type(record.pod, container.name)
            if (
                container.started_ns >= self._started_ns
                and container.started_ns
                and not (container_before and container_before.started_ns)
            ):
                self.increment(CounterMetric.CONTAINERS_STARTED, kind)
            if (
                _has_ended(container)
                and not (container_before and _has_ended(container_before))
                and container.finished_ns >= self._started_ns
            ):
                self.increment(
                    CounterMetric.CONTAINERS_ENDED, kind, str(container.exit_code), container.reason
                )

    def _count_failures(self, observation: PodEffectCompleted) -> None:
        if not isinstance(observation.effect, SyncPod) or observation.is_cancelled:
            return
        for failure in observation.failures:
            if failure.container:
                kind = container_type(observation.effect.pod, failure.container)
                self.increment(CounterMetric.CONTAINERS_NOT_STARTED, kind, failure.reason)
            elif failure.reason == SANDBOX_ERROR:
                self.increment(CounterMetric.PODS_NOT_STARTED)

    def _time_effects(self, trace: IterationTrace) -> None:
        """Times the effects that have ended, and notes the start of those that begin."""
        observation = trace.observation
        if isinstance(observation, PodEffectCompleted):
            kind, started_ns = self._running_effects.pop(observation.uid, ("", 0))
            if kind and not observation.is_cancelled:
                self.observe(HistogramMetric.POD_WORKER_DURATION, (trace.at_ns - started_ns) / 10**9, kind)
        for effect in trace.result.effects:
            match effect:
                case SyncPod(uid=uid):
                    record = trace.result.state.pods[uid]
                    self._count_start_of_work(record, trace.at_ns)
                    self._running_effects[uid] = (
                        "create" if record.runtime_status is None else "sync",
                        trace.at_ns,
                    )
                case TerminatePod(uid=uid):
                    self._running_effects[uid] = ("kill", trace.at_ns)
                case CleanUpPod(uid=uid):
                    self._running_effects[uid] = ("terminated", trace.at_ns)
                case _:
                    pass

    def _count_start_of_work(self, record: PodRecord, at_ns: int) -> None:
        """Counts the first effect of a pod that this agent has seen arrive.

        Follows: v1.36, kubelet/pod_workers.go, startPodSync; kubelet/kubelet.go, SyncPod.
        """
        uid = record.pod.uid
        if uid in self._begun or uid not in self._first_seen:
            return
        self._begun.add(uid)
        self.observe(HistogramMetric.CONTAINERS_PER_POD, len(record.pod.spec.containers))
        self.observe(HistogramMetric.WORKER_START_DURATION, (at_ns - self._first_seen[uid]) / 10**9)

    def _count_probe(self, observation: ProbeCompleted, trace: IterationTrace) -> None:
        record = trace.result.state.pods.get(observation.uid)
        if record is None:
            return
        meta = record.pod.metadata
        labels = (observation.container, meta.name, meta.namespace or "default", meta.uid)
        kind = observation.probe.kind.value.capitalize()
        self.increment(CounterMetric.PROBED, kind, _RESULTS[observation.health], *labels)
        if observation.health is ProbeResult.SUCCESS:
            self.observe(HistogramMetric.PROBE_DURATION, observation.duration_s, kind, *labels[:-1])


def container_type(pod: Pod, container: str) -> str:
    """The kubelet's word for the type of a container."""
    is_init = any(init_container.name == container for init_container in pod.spec.init_containers)
    return "init_container" if is_init else "container"


def _has_ended(container: RuntimeContainerStatus) -> bool:
    return container.phase is ContainerPhase.EXITED


LabelledCounter: TypeAlias = tuple[CounterMetric, Labels]
"""A counter and its labels."""
_CONTAINER, _POD = "container", "pod"
_NUMA, _CORE, _CACHE = "numa_node", "physical_cpu", "uncore_cache"


# ---------------------------------------------------------------- allocations of the managers


def reached_managers(node_step: Step) -> bool:
    """Whether the admission of a pod reached the resource managers: earlier handlers reject some pods."""
    if node_step.decision is not Decision.REFUSED or not node_step.because:
        return node_step.decision is Decision.ADMITTED
    return not isinstance(node_step.because[0], NodeUnderPressure | SysctlForbidden)


def manager_counts(node: NodeState, pod: Pod) -> Iterator[LabelledCounter]:
    """The counts of the managers for a pod that is admitted or rejected at this node.

    Follows: v1.36, topologymanager/{topology_manager,scope_container,scope_pod}.go, cpumanager/policy_static.go,
        memorymanager/policy_static.go: where metrics are counted.
    """
    yield CounterMetric.ALIGNMENTS, ()
    trace = manager_trace(node, pod)
    is_refused = bool(trace.aligned.rejected_for)
    if is_refused and trace.managers.policy != NONE_POLICY:
        yield CounterMetric.ALIGNMENT_ERRORS, ()
    if trace.managers.policy == SINGLE_NUMA_NODE:
        yield from _alignment_counts(trace)
    for call in trace.allocations:
        for provider in trace.managers.providers:
            if provider.name == call.provider:
                yield from _allocation_counts(provider, call, pod)


def _alignment_counts(trace: ManagerTrace) -> Iterator[LabelledCounter]:
    """Counts of NUMA alignment, which only this policy guarantees."""
    is_refused = bool(trace.aligned.rejected_for)
    if any(not attempt.admits for attempt in trace.rounds):
        last = trace.rounds[-1]
        yield CounterMetric.UNALIGNED, (_CONTAINER if last.container else _POD, _NUMA)
    if trace.rounds and not trace.rounds[0].container:
        if not is_refused:
            yield CounterMetric.ALIGNED, (_POD, _NUMA)
        return
    refused_at = trace.allocations[-1].container if is_refused and trace.allocations else None
    for attempt in trace.rounds:
        is_served = any(call.container == attempt.container for call in trace.allocations)
        if attempt.admits and is_served and attempt.container != refused_at:
            yield CounterMetric.ALIGNED, (_CONTAINER, _NUMA)


def _allocation_counts(provider: object, call: AllocationCall, pod: Pod) -> Iterator[LabelledCounter]:
    verdict = call.verdict
    match provider:
        case MemoryProvider() if isinstance(verdict, Refused) or verdict.value is not None:
            yield CounterMetric.MEMORY_PINS, ()
            if isinstance(verdict, Refused):
                yield CounterMetric.MEMORY_PIN_ERRORS, ()
        case CPUProvider(policy=StaticCPUPolicy() as policy):
            yield from _cpu_pin_counts(policy, call, pod)
        case _:
            pass


def _cpu_pin_counts(policy: StaticCPUPolicy, call: AllocationCall, pod: Pod) -> Iterator[LabelledCounter]:
    verdict, requests = call.verdict, policy.cpu_requests(pod)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    containers_with_cpus = [
        container
        for container in containers
        if call.container in ("", container.name) and requests.container_cpus(container)
    ]
    if requests.is_ignored or not containers_with_cpus:
        return
    for _ in containers_with_cpus:
        yield CounterMetric.CPU_PINS, ()
    is_refused = isinstance(verdict, Refused)
    if is_refused:
        yield CounterMetric.CPU_PIN_ERRORS, ()
    if policy.options.full_pcpus_only:
        yield (CounterMetric.UNALIGNED if is_refused else CounterMetric.ALIGNED), (_CONTAINER, _CORE)
    if isinstance(verdict, Granted) and call.after is not call.before:
        cpus = verdict.value
        if isinstance(cpus, CPUSet) and _in_one_cache(policy.topology, cpus):
            yield CounterMetric.ALIGNED, (_CONTAINER, _CACHE)


def _in_one_cache(topology: CPUTopology, cpus: CPUSet) -> bool:
    """Whether CPUs share a cache.

    Follows: v1.36, cpumanager/topology/alignment.go, isAlignedAtUncoreCache.
    """
    caches = {info.cpu: info.uncore_cache for info in topology.cpu_info}
    return len({caches.get(cpu) for cpu in cpus}) <= 1 and all(cpu in caches for cpu in cpus)
