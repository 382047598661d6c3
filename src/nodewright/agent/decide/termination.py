"""Terminations of pods, their deadlines, and the wait after an eviction.

No further pod is evicted while an evicted pod terminates, unless that takes too long.
"""

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.rules.pod_status import NO_RESIZE, StatusOverride
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.effects import CancelEffect
from nodewright.engine.node.actions import KillPod
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Pod
from nodewright.model.kubernetes.runtime_status import ContainerPhase

ADMITTED_STAGES = (PodStage.ALLOCATING, PodStage.WAITING, PodStage.ACTIVE)
"""Stages of pods that the node has admitted and that are not being terminated."""
COUNTED_STAGES = (*ADMITTED_STAGES, PodStage.TERMINATING)
"""Stages of pods that the node counts."""
LISTED_STAGES = (PodStage.WAITING, PodStage.ACTIVE, PodStage.TERMINATING)
"""Stages of pods that are listed and measured: their devices are allocated, and they have not ended."""


KILL_TIMEOUT_S, CLEANUP_TIMEOUT_S = 10, 30
"""The kubelet's minimum wait for the kill of an evicted pod, and its wait for the cleanup.

Follows: v1.36, kubelet/pod_workers.go, killPodNow; eviction/eviction_manager.go, podCleanupTimeout.
"""


def eviction_wait_ns(grace_period_s: int) -> int:
    """How long no further pod is evicted after an eviction, if the pod does not end.

    >>> eviction_wait_ns(1) // 10**9, eviction_wait_ns(600) // 10**9
    (40, 930)
    """
    return (kill_timeout_s(grace_period_s) + CLEANUP_TIMEOUT_S) * 10**9


def kill_timeout_s(grace_period_s: int) -> int:
    """How long the termination of a pod with this grace period may take."""
    return max(grace_period_s + grace_period_s // 2, KILL_TIMEOUT_S)


def pending_evictions(
    wait_until_ns: Mapping[str, int], pods: Mapping[str, PodRecord], now_ns: int, *, is_overdue: bool = False
) -> frozenset[str]:
    """The uids of evicted pods that the node still waits for; or of those that have not ended in time.

    Units: ``wait_until_ns`` and ``now_ns`` in nanoseconds on the monotonic clock.
    """
    return frozenset(
        uid
        for uid, until_ns in wait_until_ns.items()
        if (until_ns <= now_ns) is is_overdue and uid in pods and pods[uid].stage is PodStage.TERMINATING
    )


def terminate_pod(
    iteration: Iteration,
    uid: str,
    override: StatusOverride | None,
    grace_period_s: int | None,
    *,
    is_preempted: bool = False,
) -> None:
    """Terminates a pod with a status and a grace period; a pod that is already terminating may get a shorter one."""
    record = iteration.pods.get(uid)
    if record is None or record.stage in (PodStage.TERMINATED, PodStage.REJECTED):
        return
    is_shorter = is_shorter_grace(record, grace_period_s)
    was_terminating = record.stage is PodStage.TERMINATING
    kill_deadline_ns = record.kill_deadline_ns
    if override is not None and not was_terminating:
        kill_deadline_ns = (
            iteration.now.monotonic_ns + kill_timeout_s(_grace_s(record.pod, grace_period_s)) * 10**9
        )
    record = replace(
        record,
        stage=PodStage.TERMINATING,
        status_override=record.status_override or override,
        is_preempted=record.is_preempted or is_preempted,
        grace_period_s=grace_period_s if is_shorter else record.grace_period_s,
        kill_deadline_ns=kill_deadline_ns,
        next_sync_at_ns=None,
        retry_at_ns=None,
        resizing=NO_RESIZE,
    )
    iteration.put_record(record)
    if record.has_running_effect and (is_shorter or not was_terminating):
        iteration.add_effects(CancelEffect(uid))


def is_shorter_grace(record: PodRecord, grace_period_s: int | None) -> bool:
    """Whether the termination of the pod has a longer grace period than this one.

    Units: seconds; None: the pod spec's.
    """
    return grace_period_s is not None and (
        record.grace_period_s is None or grace_period_s < record.grace_period_s
    )


def rejected_stage(record: PodRecord) -> PodStage:
    """The stage of a rejected pod: containers that run, as of a pod whose record was lost, are ended first."""
    runs = any(container.phase is not ContainerPhase.EXITED for container in record.containers)
    return PodStage.TERMINATING if runs else PodStage.REJECTED


def forget_pod(iteration: Iteration, record: PodRecord) -> None:
    """Deletes the record of a pod of which nothing is left; while the API server lists the pod, its end is kept."""
    if record.source is PodSource.CLUSTER and record.has_api_object:
        iteration.put_record(replace(record, has_running_effect=False, is_cleaned_up=True))
    else:
        iteration.keep_status_of_restart(record)
        iteration.delete_record(record.pod.uid)


def preempt_pod(iteration: Iteration, kill: KillPod) -> None:
    """Preempts a pod, with the status that the node gives it."""
    terminate_pod(iteration, kill.pod_uid, preempted_status(kill), kill.grace_period_s, is_preempted=True)


def preempted_status(kill: KillPod) -> StatusOverride:
    """The status of a preempted pod."""
    return StatusOverride(**asdict(kill.status))


def report_overdue_terminations(iteration: Iteration) -> None:
    """Reports, once, each termination by the node that is overdue.

    Follows: v1.36, kubelet/pod_workers.go, killPodNow.
    """
    for record in tuple(iteration.pods.values()):
        if record.kill_deadline_ns is None or record.kill_deadline_ns > iteration.now.monotonic_ns:
            continue
        if record.stage is PodStage.TERMINATING:
            message = "Container runtime did not kill the pod within specified grace period."
            iteration.record_event(record.pod.uid, "ExceededGracePeriod", message, warning=True)
        iteration.put_record(replace(record, kill_deadline_ns=None))


def _grace_s(pod: Pod, override_s: int | None) -> int:
    own_s = pod.spec.termination_grace_period_seconds
    return next((grace_s for grace_s in (override_s, own_s) if grace_s is not None), DEFAULT_GRACE_PERIOD_S)
