"""Pods that sources add and remove: deferred, admitted by the node, or terminated."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodewright.agent.decide.device_admission import (
    awaits_preference,
    decide_admission,
    devices_of_pod,
    stage_after_allocation,
)
from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.decide.pod_resize import update_pod, with_known_uids, without_api_fields
from nodewright.agent.decide.pod_sync import sync_pod
from nodewright.agent.decide.record_status import rejected_status
from nodewright.agent.decide.termination import (
    ADMITTED_STAGES,
    is_shorter_grace,
    preempt_pod,
    rejected_stage,
    terminate_pod,
)
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import DrainRequested
from nodewright.cluster.tasks.supervision import error_text
from nodewright.engine.node.actions import AdmitPod, KillPod, RecordPodEvent, RejectPod
from nodewright.engine.node.resource_holders import FullNames, with_pod_names
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Pod, PodStatus
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.instant import Instant

_MAX_APPLIED = 20
"""Pods of lists that one decision applies: what else is observed waits for some milliseconds only."""


def set_source_pods(iteration: Iteration, source: PodSource, pods: Iterable[Pod]) -> None:
    """Makes the source's pods exactly these, at once or, if there are many, over the next decisions."""
    if source is not PodSource.CLUSTER:
        # A manifest may hold the status of another pod, as `kubectl get -o yaml` prints it.
        pods = [
            replace(without_api_fields(pod), status=PodStatus()) if pod.status != PodStatus() else pod
            for pod in pods
        ]
    by_uid = {pod.uid: pod for pod in with_known_uids(iteration, source, pods)}
    iteration.keep_deferred(lambda origin, pod: origin is not source or pod.uid in by_uid)
    for uid, record in tuple(iteration.pods.items()):
        if record.source is not source or uid in by_uid:
            continue
        if record.is_cleaned_up:
            iteration.delete_record(uid)
            continue
        if record.has_api_object:
            iteration.put_record(replace(record, has_api_object=False))
        if record.is_in_source:
            delete_pod(iteration, uid, None)
    to_apply = [pod for pod in by_uid.values() if not _is_applied(iteration, source, pod)]
    # The kubelet also adds several pods in order of their age.
    iteration.set_waiting_pods(source, tuple(sorted(to_apply, key=_age)))


def _is_applied(iteration: Iteration, source: PodSource, pod: Pod) -> bool:
    """Whether this very pod was applied before, so that nothing follows from it; lists of thousands repeat most pods."""
    record = iteration.pods.get(pod.uid)
    return (
        record is not None
        and record.pod is pod
        and record.source is source
        and record.resizing.desired is None
        and source is not PodSource.CLUSTER
    )


def apply_waiting_pods(iteration: Iteration) -> None:
    """Applies the next pods of the sources' lists; one that cannot be applied does not keep the others waiting."""
    left = _MAX_APPLIED
    for source, pods in tuple(iteration.waiting_pods.items()):
        for pod in pods[:left]:
            try:
                apply_pod(iteration, source, pod)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns this pod alone
                message = f"{pod.full_name}: {error_text(error)}"
                iteration.record_event("", "PodNotApplied", message, warning=True)
        iteration.set_waiting_pods(source, pods[left:])
        left = max(0, left - len(pods))


def _age(pod: Pod) -> tuple[int, str, str]:
    created = pod.metadata.creation_timestamp
    return (created.nanoseconds if created is not None else 0), pod.full_name, pod.uid


def apply_pod(iteration: Iteration, source: PodSource, pod: Pod) -> None:
    """Adds or updates a pod of a source, perhaps with other resources."""
    known = iteration.pods.get(pod.uid)
    if known is not None and known.source is not source:
        _defer_repeated(iteration, source, pod, known)
        return
    if source is PodSource.CLUSTER and (pod.metadata.deletion_timestamp is not None or pod.is_terminal):
        _end_cluster_pod(iteration, pod, known)
        return
    if known is not None:
        if known.is_in_source and known.stage in ADMITTED_STAGES:
            update_pod(iteration, known, pod)
        elif not known.is_in_source and source is not PodSource.CLUSTER:
            _defer_once(iteration, source, pod)
        return
    if awaits_preference(iteration, pod.uid):
        return
    same_name = iteration.records_named(pod.full_name)
    if any(record.stage is not PodStage.REJECTED for record in same_name):
        _defer_once(iteration, source, pod)
        return
    _admit(iteration, source, pod)


def _end_cluster_pod(iteration: Iteration, pod: Pod, known: PodRecord | None) -> None:
    """Ends a pod that the API server has deleted, or that has a terminal phase there; it is never started again.

    Follows: v1.36, kubelet/pod_workers.go, UpdatePod, calculateEffectiveGracePeriod.
    """
    is_deleted = pod.metadata.deletion_timestamp is not None
    grace_s = max(1, pod.metadata.deletion_grace_period_seconds or 0) if is_deleted else None
    if known is None:
        iteration.keep_deferred(lambda _, deferred: deferred.uid != pod.uid)
        record = PodRecord(
            pod=without_api_fields(pod),
            source=PodSource.CLUSTER,
            stage=PodStage.TERMINATING,
            memory=iteration.node.held.memory,
            is_in_source=not is_deleted,
            status=pod.status,
            grace_period_s=grace_s,
            runtime_status=iteration.orphans.pop(pod.uid, None),
        )
        iteration.put_record(record)
    elif is_deleted and (known.is_in_source or is_shorter_grace(known, grace_s)):
        iteration.put_record(
            replace(known, pod=replace(known.pod, metadata=without_api_fields(pod).metadata))
        )
        delete_pod(iteration, pod.uid, grace_s)
    elif not is_deleted and known.stage in ADMITTED_STAGES:
        ended = replace(
            known.status, phase=pod.status.phase, reason=pod.status.reason, message=pod.status.message
        )
        iteration.put_record(replace(known, status=ended))
        terminate_pod(iteration, pod.uid, None, None)


def _defer_once(iteration: Iteration, source: PodSource, pod: Pod) -> None:
    """Keeps a pod until the pod of the same name, or its former self, has ended.

    Follows: v1.36, kubelet/pod_workers.go, UpdatePod: restartRequested.
    """
    if all(deferred.uid != pod.uid for _, deferred in iteration.deferred):
        iteration.defer(source, pod)


def _defer_repeated(iteration: Iteration, source: PodSource, pod: Pod, known: PodRecord) -> None:
    """Keeps a pod until the pod of another source with the same uid has ended; reports it once."""
    if any(origin is source and deferred.uid == pod.uid for origin, deferred in iteration.deferred):
        return
    iteration.defer(source, pod)
    message = (
        f"pod {pod.full_name} ({source}) waits: its uid is used by {known.pod.full_name} ({known.source})"
    )
    iteration.record_event("", "PodRepeated", message, warning=True)


def admit_deferred(iteration: Iteration) -> None:
    """Admits deferred pods for which the older pod of the same name has ended."""
    for source, pod in iteration.take_deferred():
        known = iteration.pods.get(pod.uid)
        if awaits_preference(iteration, pod.uid) or (known is not None and known.source is not source):
            iteration.defer(source, pod)
            continue
        before = len(iteration.pods)
        apply_pod(iteration, source, pod)
        if len(iteration.pods) > before:
            sync_pod(iteration, pod.uid)
    _record_name_conflicts(iteration)


def _record_name_conflicts(iteration: Iteration) -> None:
    """Reports pods that wait, from this iteration on, for a pod of the same name from another source."""
    known = {pod.uid for _, pod in iteration.state_before.deferred}
    for source, pod in iteration.deferred:
        for record in iteration.pods.values() if pod.uid not in known else ():
            if (
                record.pod.full_name == pod.full_name
                and record.pod.uid != pod.uid
                and record.is_in_source
                and record.source is not source
            ):
                message = (
                    f"pod {pod.full_name} ({source}) waits until the pod of the same name "
                    f"({record.source}) is gone"
                )
                iteration.record_event("", "PodRepeated", message, warning=True)


def _admit(iteration: Iteration, source: PodSource, pod: Pod) -> None:
    """Has the node decide on a pod."""
    memory = iteration.node.held.memory
    # An orphan is taken over once a source lists it.
    runtime_status = iteration.orphans.pop(pod.uid, None)
    record = PodRecord(
        pod=pod, source=source, stage=PodStage.REJECTED, memory=memory, runtime_status=runtime_status
    )
    if source is PodSource.CLUSTER or pod.status != PodStatus():
        # An agent that has lost its records goes on with what it has reported, and a pod that starts again as well.
        record = replace(record, pod=without_api_fields(pod), status=pod.status)
    if iteration.shutdown_reason:
        _reject_for_shutdown(iteration, record)
        return
    node_step = decide_admission(iteration, source, pod)
    if node_step is None:
        return
    record = replace(
        record, memory=iteration.node.held.memory, because=_with_pod_names(iteration, node_step.because)
    )
    victims: set[str] = set()
    for action in node_step.actions:
        match action:
            case KillPod():
                victims.add(action.pod_uid)
                preempt_pod(iteration, action)
            case RecordPodEvent(pod_uid=uid, type=kind, reason=reason, message=message):
                iteration.record_event(uid, reason, message, warning=kind == "Warning")
            case RejectPod(because=refusals):
                record = _rejected_record(iteration, record, refusals)
            case AdmitPod():
                record = replace(record, waits_for=frozenset(victims))
                has_devices = devices_of_pod(iteration.node, pod)
                stage = PodStage.ALLOCATING if has_devices else stage_after_allocation(record)
                record = replace(record, stage=stage)
            case _:
                pass
    iteration.put_record(record)


def _rejected_record(iteration: Iteration, record: PodRecord, refusals: tuple[Reason, ...]) -> PodRecord:
    override = rejected_status(refusals)
    iteration.record_event(record.pod.uid, override.reason, override.message, warning=True)
    return replace(
        record,
        stage=rejected_stage(record),
        status_override=override,
        because=_with_pod_names(iteration, refusals),
    )


def _reject_for_shutdown(iteration: Iteration, record: PodRecord) -> None:
    message = iteration.shutdown_reason
    override = StatusOverride(phase="Failed", reason="NodeShutdown", message=message)
    iteration.put_record(replace(record, stage=rejected_stage(record), status_override=override))
    iteration.record_event(record.pod.uid, "NodeShutdown", message, warning=True)


def _with_pod_names(iteration: Iteration, because: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons with pods by namespace and name: the uids may be unknown by the time they are read."""
    names = FullNames(iteration.pods, lambda record: record.pod)
    return tuple(with_pod_names(reason, names) for reason in because)


# ---------------------------------------------------------------- deletion


def delete_pod(iteration: Iteration, uid: str, grace_period_s: int | None) -> None:
    """Marks a pod as deleted and terminates it."""
    record = iteration.pods.get(uid)
    # A pod of another source with the same uid waits for the end of this one.
    iteration.keep_deferred(
        lambda origin, pod: pod.uid != uid or (record is not None and origin is not record.source)
    )
    if record is None:
        return
    if record.pod.metadata.deletion_timestamp is None:
        grace_s = grace_period_s
        if grace_s is None:
            own_s = record.pod.spec.termination_grace_period_seconds
            grace_s = DEFAULT_GRACE_PERIOD_S if own_s is None else own_s
        metadata = replace(
            record.pod.metadata,
            deletion_timestamp=Instant(iteration.now.wall_ns),
            deletion_grace_period_seconds=grace_s,
        )
        record = replace(record, pod=replace(record.pod, metadata=metadata))
    iteration.put_record(replace(record, is_in_source=False))
    terminate_pod(iteration, uid, None, grace_period_s)


def start_drain(iteration: Iteration, observation: DrainRequested) -> None:
    """Stops admitting pods and terminates the given ones."""
    iteration.shutdown_reason = observation.reason
    for uid, grace_period_s in observation.grace_periods_s.items():
        terminate_pod(iteration, uid, observation.status_override, grace_period_s)
