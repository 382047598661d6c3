"""The agent's decision: a pure function from a state and an observation to a new state and effects."""

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from nodewright.agent.decide.device_admission import observe_devices, with_allocation_result
from nodewright.agent.decide.iteration import Iteration, IterationResult
from nodewright.agent.decide.lending import lend_less_for_new_pods, observe_usage
from nodewright.agent.decide.pod_events import failure_events
from nodewright.agent.decide.pod_resize import (
    RESIZE_ERROR,
    apply_resize_decisions,
    retry_pending_resizes,
    with_resize_result,
)
from nodewright.agent.decide.pod_sources import (
    admit_deferred,
    apply_pod,
    apply_waiting_pods,
    delete_pod,
    set_source_pods,
    start_drain,
)
from nodewright.agent.decide.pod_sync import sync_pod
from nodewright.agent.decide.termination import (
    eviction_wait_ns,
    forget_pod,
    pending_evictions,
    report_overdue_terminations,
    terminate_pod,
)
from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.rules.probe_state import ProbeState, probe_state_after
from nodewright.agent.state import observations
from nodewright.agent.state.agent_state import (
    AgentConstants,
    AgentState,
    ClockReading,
    PodRecord,
    PodSource,
    PodStage,
)
from nodewright.agent.state.effects import (
    AllocateDevices,
    CleanUpPod,
    ReclaimNodeResources,
    SyncPod,
    TerminatePod,
)
from nodewright.cluster.tasks.supervision import error_text
from nodewright.engine.core.eviction.eviction_manager import begin_pass, finish_pass
from nodewright.engine.core.eviction.eviction_state import Eviction, PendingPass
from nodewright.engine.node.events import ConditionsObserved, PodRemoved
from nodewright.engine.node.node_state import container_names
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, NodeCondition
from nodewright.model.kubernetes.objects import (
    DEFAULT_GRACE_PERIOD_S,
    Container,
    ContainerStateWaiting,
    ObjectMeta,
    Pod,
    PodSpec,
)
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.reasons.eviction import THRESHOLD_MET_REASON, threshold_met_message
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.values.instant import Instant


def decide(
    state: AgentState, observation: observations.Observation, now: ClockReading, constants: AgentConstants
) -> IterationResult:
    """The state after an observation, and the effects to run; equal arguments give equal results."""
    iteration = Iteration(state, now, constants)
    match observation:
        case observations.SourcePodsListed(source, pods):
            set_source_pods(iteration, source, pods)
        case observations.PodApplied(source, pod):
            apply_pod(iteration, source, pod)
        case observations.PodDeletionRequested(uid, grace_period_s):
            delete_pod(iteration, uid, grace_period_s)
        case observations.PodStatusObserved() | observations.ClaimHealthObserved():
            _observe_statuses(iteration, observation)
        case observations.RuntimeRelisted():
            apply_relist(iteration, observation)
        case observations.PodEffectCompleted():
            _complete_effect(iteration, observation)
        case observations.PodReferencesChanged(uids):
            _retry_now(iteration, uids)
        case observations.ContainerUpdateFailed():
            _retry_update(iteration, observation)
        case observations.ProbeCompleted():
            _record_probe_result(iteration, observation)
        case observations.NodeUsageObserved():
            _manage_eviction(iteration, observation)
        case observations.PodUsageSampled() | observations.LentMemoryObserved():
            observe_usage(iteration, observation)
        case observations.PluginDevicesListed() | observations.PreferredAllocationReceived():
            observe_devices(iteration, observation)
        case observations.DrainRequested():
            start_drain(iteration, observation)
        case observations.NodeObjectObserved(labels, taints):
            iteration.set_node_labels(labels, taints)
        case observations.Ticked():
            pass
        case _:
            assert_never(observation)
    _apply_consequences(iteration)
    return iteration.finish()


def _apply_consequences(iteration: Iteration) -> None:
    """What each observation may have made possible or due."""
    apply_waiting_pods(iteration)
    terminate_orphans(iteration)
    apply_resize_decisions(iteration)
    lend_less_for_new_pods(iteration)
    report_overdue_terminations(iteration)
    _sync_pods(iteration)
    admit_deferred(iteration)


def _sync_pods(iteration: Iteration) -> None:
    """Syncs the pods that have changed or are due."""
    for uid in iteration.uids_to_sync():
        try:
            sync_pod(iteration, uid)
        except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this pod alone
            iteration.postpone(uid)
            iteration.record_event(uid, "FailedSync", error_text(error), warning=True)


def _observe_statuses(
    iteration: Iteration, observation: observations.PodStatusObserved | observations.ClaimHealthObserved
) -> None:
    """Notes what the runtime reports of a pod, or drivers of the devices of pods."""
    if isinstance(observation, observations.ClaimHealthObserved):
        for uid in sorted(observation.statuses.keys() & iteration.pods.keys()):
            iteration.put_record(replace(iteration.pods[uid], claim_health=observation.statuses[uid]))
    elif (record := iteration.pods.get(observation.uid)) is not None:
        status, observed_at_ns = observation.runtime_status, observation.observed_at_ns
        iteration.put_record(with_runtime_status(record, status, observed_at_ns))


# ---------------------------------------------------------------- completed effects


def _complete_effect(iteration: Iteration, observation: observations.PodEffectCompleted) -> None:
    """Processes the end of a pod's effect; containers that failed wait before the next attempt."""
    record = iteration.pods.get(observation.uid)
    if record is None:
        return
    record = replace(
        with_runtime_status(record, observation.runtime_status, observation.observed_at_ns),
        has_running_effect=False,
    )
    match observation.effect:
        case AllocateDevices():
            record = with_allocation_result(iteration, record, observation)
        case SyncPod():
            record = _after_sync(iteration, record, observation, observation.effect)
        case TerminatePod():
            if observation.failures and not observation.is_cancelled:
                record = _retry(iteration, record, observation.failures)
            elif not observation.is_cancelled:
                record = replace(record, stage=PodStage.TERMINATED)
                iteration.step(PodRemoved(record.pod.uid))
        case CleanUpPod():
            if not observation.failures and not observation.is_cancelled:
                forget_pod(iteration, record)
                return
            record = _retry(iteration, record, observation.failures)
        case _:
            assert_never(observation.effect)
    iteration.put_record(record)


def _after_sync(
    iteration: Iteration, record: PodRecord, observation: observations.PodEffectCompleted, effect: SyncPod
) -> PodRecord:
    """The record after a sync: which containers run with which resources, and which wait for the next attempt."""
    waiting = {
        name: state
        for name, state in record.container_waiting.items()
        if name not in effect.plan.containers_to_start
    }
    failures = tuple(failure for failure in observation.failures if failure.reason != RESIZE_ERROR)
    for failure in failures:
        if failure.reason in (observations.MOUNT_ERROR, observations.CLAIMS_ERROR):
            # Until its volumes are mounted and its claims prepared a container is in ContainerCreating; events explain the delay.
            continue
        names = (failure.container,) if failure.container else container_names(record.pod)
        waiting |= dict.fromkeys(names, ContainerStateWaiting(failure.reason, failure.message))
    applied = dict(record.applied_resources)
    for name in effect.plan.containers_to_start:
        runtime_status = observation.runtime_status
        newest = runtime_status.newest_attempt(name) if runtime_status is not None else None
        if newest is not None and name in record.starting_resources:
            applied[newest.id] = record.starting_resources[name]
    iteration.update_resources_of(observation.uid)
    record = replace(
        record,
        container_waiting=waiting,
        applied_resources=applied,
        starting_resources={},
        pending_post_start_hooks=_hooks_still_pending(record, observation.failures),
    )
    record = with_resize_result(iteration, record, observation, effect)
    return _retry(iteration, record, failures) if observation.failures else record


def _hooks_still_pending(record: PodRecord, failures: Iterable[observations.EffectFailure]) -> dict[str, int]:
    """The postStart hooks that stay pending: of containers that failed otherwise, and may run all the same."""
    names = {failure.container for failure in failures if failure.reason != observations.HOOK_ERROR}
    return {name: attempt for name, attempt in record.pending_post_start_hooks.items() if names & {name, ""}}


def _retry(
    iteration: Iteration, record: PodRecord, failures: Iterable[observations.EffectFailure]
) -> PodRecord:
    for failure in failures:
        iteration.add_effects(*failure_events(record, failure))
    return replace(record, retry_at_ns=iteration.now.monotonic_ns + iteration.constants.retry_ns)


def _retry_now(iteration: Iteration, uids: Iterable[str]) -> None:
    """Ends the delay of pods before their next attempt."""
    for uid in sorted(uids):
        record = iteration.pods.get(uid)
        if record is not None and record.retry_at_ns is not None and not record.has_running_effect:
            iteration.put_record(replace(record, retry_at_ns=iteration.now.monotonic_ns))


def _retry_update(iteration: Iteration, observation: observations.ContainerUpdateFailed) -> None:
    """Repeats a failed resource update after a delay."""
    record = iteration.pods.get(observation.uid)
    if record is None:
        return
    applied = {
        id_: files for id_, files in record.applied_resources.items() if id_ != observation.container_id
    }
    retry_at_ns = record.retry_at_ns or iteration.now.monotonic_ns + iteration.constants.retry_ns
    iteration.put_record(replace(record, applied_resources=applied, retry_at_ns=retry_at_ns))


def _record_probe_result(iteration: Iteration, observation: observations.ProbeCompleted) -> None:
    record = iteration.pods.get(observation.uid)
    key = (observation.container, observation.probe.kind)
    if record is None or key not in record.probes:
        return
    state: ProbeState = record.probes[key]
    next_probe_at_ns = {
        **record.next_probe_at_ns,
        key: iteration.now.monotonic_ns + observation.probe.period_s * 10**9,
    }
    if observation.health is not ProbeResult.SUCCESS:
        outcome = "failed" if observation.health is not None else "errored and resulted in unknown state"
        message = f"{observation.probe.kind.value.capitalize()} probe {outcome}: {observation.output}"
        iteration.record_event(
            observation.uid, "Unhealthy", message, warning=True, container=observation.container
        )
    elif observation.is_warning:
        kind = observation.probe.kind.value.capitalize()
        iteration.record_event(
            observation.uid, "ProbeWarning", f"{kind} probe warning: {observation.output}", warning=True
        )
    if observation.health is not None and state.container_id == observation.container_id:
        state = probe_state_after(observation.probe, state, observation.health)
    probes = {**record.probes, key: state}
    iteration.put_record(replace(record, probes=probes, next_probe_at_ns=next_probe_at_ns))


# ---------------------------------------------------------------- pressure


def _manage_eviction(iteration: Iteration, observation: observations.NodeUsageObserved) -> None:
    """Runs a pass of the eviction manager; first the node reclaims what it can without ending pods.

    Follows: v1.36, eviction/eviction_manager.go, synchronize, waitForPodsCleanup.
    """
    config, now_ns = iteration.node.config, iteration.now.monotonic_ns
    pending_pass = begin_pass(
        config.eviction, iteration.eviction, observation.eviction_observation, now_ns / 10**9
    )
    iteration.eviction = pending_pass.state
    if not pending_evictions(iteration.evicted_until_ns, iteration.pods, now_ns):
        _relieve_pressure(iteration, pending_pass, observation)
    before, after = iteration.node.conditions, iteration.eviction.conditions
    if after != before:
        iteration.step(ConditionsObserved(after))
        for reason, message in _condition_events(before, after, config.parts.facts.name):
            iteration.record_event("", reason, message)


def _relieve_pressure(
    iteration: Iteration, pending_pass: PendingPass, observation: observations.NodeUsageObserved
) -> None:
    """Reclaims node resources, and evicts pods if that is not enough."""
    if pending_pass.target is not None and not observation.is_after_reclaim:
        message = threshold_met_message(SIGNAL_RESOURCES[pending_pass.target.signal])
        iteration.record_event("", THRESHOLD_MET_REASON, message, warning=True)
    if pending_pass.reclaim and not observation.is_after_reclaim:
        iteration.add_effects(ReclaimNodeResources(pending_pass.reclaim))
        return
    finished = finish_pass(
        iteration.node.config.eviction, pending_pass, observation.eviction_observation.usage
    )
    iteration.eviction = finished.state
    for eviction in finished.evictions:
        _evict(iteration, eviction)


def _evict(iteration: Iteration, eviction: Eviction) -> None:
    uid, grace_period_s = eviction.active_pod.uid, eviction.grace_period_s
    override = _evicted_status(eviction)
    iteration.record_event(uid, override.reason, override.message, warning=True)
    iteration.add_eviction(eviction, iteration.now.monotonic_ns + eviction_wait_ns(grace_period_s))
    terminate_pod(iteration, uid, override, grace_period_s)


def _evicted_status(eviction: Eviction) -> StatusOverride:
    """The status of an evicted pod.

    Follows: v1.36, kubelet/eviction/eviction_manager.go, evictPod.
    """
    text = kubelet_text(eviction.because)
    disruption_target = text.message if eviction.is_disruption else None
    return StatusOverride(
        phase="Failed", reason=text.reason, message=text.message, disruption_target=disruption_target
    )


def _condition_events(
    before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...], node: str
) -> tuple[tuple[str, str], ...]:
    """Reasons and messages of the events for changed node conditions.

    Follows: v1.36, kubelet/nodestatus/setters.go; kubelet/kubelet_node_status.go, recordNodeStatusEvent.

    >>> _condition_events((), (NodeCondition.PID_PRESSURE,), "node1")
    (('NodeHasInsufficientPID', 'Node node1 status is now: NodeHasInsufficientPID'),)
    """
    changed = [condition for condition in NodeCondition if (condition in before) != (condition in after)]
    reasons = [_NODE_REASONS[condition][condition in after] for condition in changed]
    return tuple((reason, f"Node {node} status is now: {reason}") for reason in reasons)


_NODE_REASONS = {
    NodeCondition.DISK_PRESSURE: ("NodeHasNoDiskPressure", "NodeHasDiskPressure"),
    NodeCondition.MEMORY_PRESSURE: ("NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
    NodeCondition.PID_PRESSURE: ("NodeHasSufficientPID", "NodeHasInsufficientPID"),
}
"""The reasons while the condition is false, and while it is true."""


# ---------------------------------------------------------------- statuses of the runtime, and orphans


def with_runtime_status(
    record: PodRecord, runtime_status: RuntimePodStatus | None, observed_at_ns: int
) -> PodRecord:
    """The record with the runtime's status, unless it already has a newer one.

    Units: observed_at_ns in nanoseconds on the monotonic clock.
    """
    if observed_at_ns < record.observed_at_ns:
        return record
    return replace(record, runtime_status=runtime_status, observed_at_ns=observed_at_ns)


def apply_relist(iteration: Iteration, observation: observations.RuntimeRelisted) -> None:
    """Updates all records from a relist; unknown pods are kept as orphans until every source has listed its pods."""
    by_uid = {runtime_status.uid: runtime_status for runtime_status in observation.pods}
    for uid, record in tuple(iteration.pods.items()):
        iteration.put_record(with_runtime_status(record, by_uid.pop(uid, None), observation.observed_at_ns))
        iteration.update_resources_of(uid)
    iteration.orphans = by_uid
    retry_pending_resizes(iteration)


def terminate_orphans(iteration: Iteration) -> None:
    """Terminates running pods that no source lists."""
    if iteration.unready_sources or iteration.waiting_pods:
        return
    for uid, runtime_status in iteration.orphans.items():
        name = f"{runtime_status.namespace}/{runtime_status.name}"
        iteration.record_event(
            uid, "OrphanFound", f"{name} runs, but no source lists it: it is terminated", warning=True
        )
        iteration.put_record(_orphan_record(iteration, runtime_status))
    iteration.orphans = {}


def _orphan_record(iteration: Iteration, runtime_status: RuntimePodStatus) -> PodRecord:
    """The record of an orphan, built from the runtime's status alone."""
    names = dict.fromkeys(container.name for container in runtime_status.containers)
    metadata = ObjectMeta(
        name=runtime_status.name,
        namespace=runtime_status.namespace,
        uid=runtime_status.uid,
        deletion_timestamp=Instant(iteration.now.wall_ns),
        deletion_grace_period_seconds=DEFAULT_GRACE_PERIOD_S,
    )
    cgroups = (
        container.cgroup.rpartition("/")[0] for container in runtime_status.containers if container.cgroup
    )
    return PodRecord(
        pod=Pod(metadata=metadata, spec=PodSpec(containers=tuple(Container(name=name) for name in names))),
        source=PodSource.API,
        stage=PodStage.TERMINATING,
        memory=iteration.node.held.memory,
        is_in_source=False,
        runtime_status=runtime_status,
        cgroup=next(cgroups, ""),
    )
