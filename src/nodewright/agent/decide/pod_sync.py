"""Decides what a pod needs now: its next effect, and when to look at it again."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodewright.agent.decide.device_admission import allocation_effect, devices_of_pod
from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.decide.pod_resize import with_restarts
from nodewright.agent.decide.record_status import containers_awaiting_hook, has_post_start_hook, probe_results
from nodewright.agent.decide.resource_updates import cgroups_of_record, pending_updates, pod_cgroup
from nodewright.agent.decide.termination import ADMITTED_STAGES, COUNTED_STAGES, forget_pod
from nodewright.agent.rules.pod_actions import BackOff, PodActions, pod_actions
from nodewright.agent.rules.pod_status import deadline_exceeded_status
from nodewright.agent.rules.probe_state import (
    ProbeKind,
    ProbeState,
    initial_probe_state,
    is_probe_due,
    probes_of,
)
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.effects import (
    CleanUpPod,
    PodEffect,
    RunProbe,
    SyncPod,
    TerminatePod,
    UpdateContainerResources,
)
from nodewright.engine.node.events import PodStarted
from nodewright.model.kubernetes.objects import Container, ContainerStateWaiting, Pod
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
)
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant

CRASH_LOOP = "CrashLoopBackOff"


def sync_pod(iteration: Iteration, uid: str) -> None:
    """Starts the pod's due probes, and its next effect unless one is running."""
    record = iteration.pods.get(uid)
    if record is None or record.is_cleaned_up:
        return
    if record.has_running_effect:
        if record.stage in (PodStage.ACTIVE, PodStage.TERMINATING):
            _start_due_probes(iteration, record)
        return
    if record.stage in ADMITTED_STAGES and awaits_cluster(iteration, record):
        iteration.postpone(uid)
        return
    if record.retry_at_ns is not None and record.retry_at_ns <= iteration.now.monotonic_ns:
        record = iteration.put_record(replace(record, retry_at_ns=None))
        iteration.update_resources_of(uid)
    if record.stage is PodStage.ALLOCATING:
        _start_effect(iteration, record, allocation_effect(iteration, record))
        return
    if record.stage is PodStage.WAITING:
        record = _activate_if_ready(iteration, record)
    if record.stage is PodStage.ACTIVE:
        record = _sync_active(iteration, record)
    elif record.stage is PodStage.TERMINATING:
        record = _start_due_probes(iteration, record)
    if record.has_running_effect or (
        record.retry_at_ns is not None and record.retry_at_ns > iteration.now.monotonic_ns
    ):
        return
    _end_pod(iteration, record)


def _end_pod(iteration: Iteration, record: PodRecord) -> None:
    """Starts the termination or the clean-up of a pod that ends or has ended."""
    pod, grace_s = record.pod, record.grace_period_s
    if record.stage is PodStage.TERMINATING:
        effect = TerminatePod(
            uid=pod.uid,
            pod=pod,
            grace_period_s=grace_s,
            cgroup=_cgroup_of(iteration, record),
            is_eviction=pod.uid in iteration.evicted_until_ns,
        )
        _start_effect(iteration, record, effect)
    elif record.stage in (PodStage.TERMINATED, PodStage.REJECTED) and not record.is_in_source:
        if record.stage is PodStage.REJECTED and record.runtime_status is None:
            forget_pod(iteration, record)
        else:
            cleanup = CleanUpPod(uid=pod.uid, pod=pod, cgroup=_cgroup_of(iteration, record))
            _start_effect(iteration, record, cleanup)


def _cgroup_of(iteration: Iteration, record: PodRecord) -> str:
    return record.cgroup or pod_cgroup(record.pod, iteration.node.config)


def awaits_cluster(iteration: Iteration, record: PodRecord) -> bool:
    """Whether the API server may have deleted the pod while no agent ran: nothing of it is started before the list."""
    return record.source is PodSource.CLUSTER and PodSource.CLUSTER in iteration.unready_sources


def _activate_if_ready(iteration: Iteration, record: PodRecord) -> PodRecord:
    """A waiting pod becomes active once its victims have ended."""
    if any(uid in iteration.pods and iteration.pods[uid].stage in COUNTED_STAGES for uid in record.waits_for):
        return record
    return iteration.put_record(replace(record, stage=PodStage.ACTIVE, waits_for=frozenset()))


def _sync_active(iteration: Iteration, record: PodRecord) -> PodRecord:
    """Syncs an active pod: its probes, its own end, and its plan."""
    record = _report_start(iteration, _start_due_probes(iteration, record))
    deadline_status = deadline_exceeded_status(record.pod, record.status, Instant(iteration.now.wall_ns))
    if deadline_status is not None:
        iteration.record_event(record.pod.uid, deadline_status.reason, deadline_status.message)
        return _begin_termination(iteration, replace(record, status_override=deadline_status))
    plan = pod_actions(record.pod, record.runtime_status, probe_results(record))
    has_ended = record.status.phase in ("Succeeded", "Failed")
    if has_ended or (plan.kill_pod and plan.sandbox_attempt is None):
        return _begin_termination(iteration, record)
    if record.retry_at_ns is not None and record.retry_at_ns > iteration.now.monotonic_ns:
        return _clear_due_sync(iteration, record)
    plan, record = _apply_back_off(iteration, plan, record)
    pending_hooks = {container.name: container.attempt for container in containers_awaiting_hook(record)}
    if record.resizing.is_in_progress:
        plan = with_restarts(plan, record)
    elif plan.is_empty and not pending_hooks:
        return iteration.put_record(replace(record, pending_post_start_hooks={}))
    return _start_sync(iteration, record, plan, pending_hooks)


def _start_sync(
    iteration: Iteration, record: PodRecord, plan: PodActions, pending_hooks: Mapping[str, int]
) -> PodRecord:
    """Starts the effect that carries out the plan, and notes the hooks and resources of the containers it starts."""
    cgroups, settings = cgroups_of_record(iteration.node, record)
    is_resize = record.resizing.is_in_progress
    effect = SyncPod(
        uid=record.pod.uid,
        pod=record.pod,
        plan=plan,
        cgroups=cgroups,
        settings=settings,
        attempts={name: _next_attempt(record, name) for name in plan.containers_to_start},
        post_start_retries=tuple(pending_hooks),
        updates=_resource_updates(iteration, record, plan) if is_resize else (),
        is_resize=is_resize,
        devices=devices_of_pod(iteration.node, record.pod),
    )
    files = {cgroup.container: cgroup.files for cgroup in cgroups}
    started_hooks = {
        name: effect.attempts[name]
        for name in plan.containers_to_start
        if has_post_start_hook(record.pod, name)
    }
    record = replace(
        record,
        pending_post_start_hooks={**pending_hooks, **started_hooks},
        starting_resources={name: files[name] for name in plan.containers_to_start},
    )
    return _start_effect(iteration, record, effect)


def _resource_updates(
    iteration: Iteration, record: PodRecord, plan: PodActions
) -> tuple[UpdateContainerResources, ...]:
    """The updates for containers that keep running."""
    ending = {kill.container.id for kill in plan.containers_to_kill}
    return tuple(
        update for update in pending_updates(iteration.node, record) if update.container_id not in ending
    )


def _clear_due_sync(iteration: Iteration, record: PodRecord) -> PodRecord:
    """The record of a pod that waits for a retry; other due moments are handled at the retry."""
    if record.next_sync_at_ns is None or record.next_sync_at_ns > iteration.now.monotonic_ns:
        return record
    return iteration.put_record(replace(record, next_sync_at_ns=None))


def _begin_termination(iteration: Iteration, record: PodRecord) -> PodRecord:
    return iteration.put_record(
        replace(record, stage=PodStage.TERMINATING, next_sync_at_ns=None, retry_at_ns=None)
    )


def _start_effect(iteration: Iteration, record: PodRecord, effect: PodEffect) -> PodRecord:
    record = iteration.put_record(replace(record, has_running_effect=True, retry_at_ns=None))
    iteration.add_effects(effect)
    return record


def _report_start(iteration: Iteration, record: PodRecord) -> PodRecord:
    """Tells the node, once, that all main containers of the pod have run."""
    runtime_status = record.runtime_status
    if record.has_started or runtime_status is None:
        return record
    ran = (ContainerPhase.RUNNING, ContainerPhase.EXITED)
    newest = [runtime_status.newest_attempt(container.name) for container in record.pod.spec.containers]
    if not all(container is not None and container.phase in ran for container in newest):
        return record
    iteration.step(PodStarted(record.pod.uid))
    return iteration.put_record(replace(record, has_started=True))


def _next_attempt(record: PodRecord, name: str) -> int:
    """The number of the next attempt at a container; no number is used twice."""
    attempts = [container.attempt + 1 for container in record.containers if container.name == name]
    statuses = (*record.status.container_statuses, *record.status.init_container_statuses)
    counts = [status.restart_count + bool(status.container_id) for status in statuses if status.name == name]
    return max((*attempts, *counts), default=0)


def _apply_back_off(
    iteration: Iteration, plan: PodActions, record: PodRecord
) -> tuple[PodActions, PodRecord]:
    """The plan without containers that are backing off, and the record with the end of their back-off.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, doBackOff.
    """
    rule, wall_ns = iteration.constants.back_off, iteration.now.wall_ns
    containers_to_start, waiting = [], dict(record.container_waiting)
    back_offs, delays_ns = dict(record.back_offs), []
    due_ns = record.next_sync_at_ns
    has_waited = due_ns is not None and due_ns <= iteration.now.monotonic_ns
    for name in plan.containers_to_start:
        ended = _last_end(record, name)
        if ended is None:
            containers_to_start.append(name)
            continue
        left_ns = rule.remaining_ns(back_offs.get(name), ended.finished_ns, wall_ns)
        # Where the clock was set back, the end is in the future: the delay that has passed counts.
        if left_ns == 0 or (has_waited and wall_ns < ended.finished_ns):
            back_offs[name] = rule.next(back_offs.get(name), ended.finished_ns, wall_ns)
            containers_to_start.append(name)
            continue
        delays_ns.append(left_ns)
        waiting[name] = ContainerStateWaiting(CRASH_LOOP, _back_off_text(record.pod, name, back_offs[name]))
        # An init container delays all after it; a sidecar or main container delays no other.
        if any(
            container.name == name and not container.is_sidecar
            for container in record.pod.spec.init_containers
        ):
            break
    deadline_ns = _deadline_in_ns(record, wall_ns)
    delays_ns += [] if deadline_ns is None else [deadline_ns]
    next_sync_at_ns = iteration.now.monotonic_ns + min(delays_ns) if delays_ns else None
    record = replace(record, back_offs=back_offs, container_waiting=waiting, next_sync_at_ns=next_sync_at_ns)
    return replace(plan, containers_to_start=tuple(containers_to_start)), record


def _deadline_in_ns(record: PodRecord, wall_ns: int) -> int | None:
    """Time until the pod's active deadline; None: it has none.

    Units: nanoseconds.
    """
    limit = record.pod.spec.active_deadline_seconds
    if limit is None:
        return None
    started = Instant.parse(record.status.start_time)
    return max(0, started.nanoseconds + limit * 10**9 - wall_ns)


def _last_end(record: PodRecord, name: str) -> RuntimeContainerStatus | None:
    ended = (
        container
        for container in record.containers
        if container.name == name and container.phase is ContainerPhase.EXITED
    )
    return next(ended, None)


def _back_off_text(pod: Pod, name: str, back_off: BackOff) -> str:
    pod_name = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return f"back-off {Duration(back_off.delay_ns)} restarting failed container={name} pod={pod_name}"


# ---------------------------------------------------------------- probes


def _start_due_probes(iteration: Iteration, record: PodRecord) -> PodRecord:
    """Starts every due probe of containers that run and whose postStart hooks have completed.

    Probes go on while containers start and end; those of readiness also while the pod ends.

    Follows: v1.36, kubelet/prober/prober_manager.go, StopLivenessAndStartup.
    """
    pod = record.pod
    probes, next_probe_at_ns = dict(record.probes), dict[tuple[str, ProbeKind], int]()
    starting = containers_awaiting_hook(record)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        running = record.running_container(container.name)
        if running is not None and running not in starting:
            _start_container_probes(iteration, record, container, running, (probes, next_probe_at_ns))
    if probes == record.probes and next_probe_at_ns == record.next_probe_at_ns:
        return record
    return iteration.put_record(replace(record, probes=probes, next_probe_at_ns=next_probe_at_ns))


def _start_container_probes(
    iteration: Iteration,
    record: PodRecord,
    container: Container,
    running: RuntimeContainerStatus,
    schedule: tuple[dict[tuple[str, ProbeKind], ProbeState], dict[tuple[str, ProbeKind], int]],
) -> None:
    """Starts the due probes of one running container, and notes their states and next moments in the schedule."""
    probes, next_probe_at_ns = schedule
    statuses = (*record.status.container_statuses, *record.status.init_container_statuses)
    status = next((status for status in reversed(statuses) if status.name == container.name), None)
    if status is None:
        return
    is_ending = record.stage is PodStage.TERMINATING
    for probe in (each for each in probes_of(container) if not is_ending or each.kind is ProbeKind.READINESS):
        key = (container.name, probe.kind)
        state = probes.get(key)
        if state is None or state.container_id != running.id:
            ran_before = running.started_ns < iteration.constants.started_ns
            probes[key] = state = initial_probe_state(
                probe, running.id, ran_before=ran_before, had_started=bool(status.started)
            )
        elif record.next_probe_at_ns.get(key, 0) > iteration.now.monotonic_ns:
            next_probe_at_ns[key] = record.next_probe_at_ns[key]
            continue
        next_probe_at_ns[key] = iteration.now.monotonic_ns + probe.period_s * 10**9
        if is_probe_due(probe, state, status, iteration.now.wall_ns, is_ending=is_ending):
            iteration.add_effects(
                RunProbe(
                    uid=record.pod.uid,
                    pod=record.pod,
                    container=container.name,
                    container_id=running.id,
                    probe=probe,
                    pod_ip=record.status.pod_ip,
                )
            )
