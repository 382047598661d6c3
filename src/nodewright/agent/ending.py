"""A pod has to end: from now on that is all that is done for it."""

from msgspec.structs import replace

from nodewright.agent.relief import kill_timeout_s
from nodewright.agent.turn import Turn
from nodewright.agent.values import Stage
from nodewright.core.lifecycle import NO_RESIZE, Override
from nodewright.model.objects import USUAL_GRACE_PERIOD_S, Pod
from nodewright.node.actions import KillPod


def ends(
    turn: Turn, uid: str, override: Override | None, grace_period_s: int | None, *, makes_way: bool = False
) -> None:
    """A pod has to end, with this status and so much time; one that ends already may be given less."""
    record = turn.pods.get(uid)
    if record is None or record.stage in (Stage.ENDED, Stage.REFUSED):
        return
    has_less = grace_period_s is not None and (
        record.grace_period_s is None or grace_period_s < record.grace_period_s
    )
    was_ending = record.stage is Stage.ENDING
    late_at_ns = record.late_at_ns
    if override is not None and not was_ending:
        late_at_ns = turn.now.steady_ns + kill_timeout_s(_grace_s(record.pod, grace_period_s)) * 10**9
    record = replace(
        record,
        stage=Stage.ENDING,
        override=record.override or override,
        makes_way=record.makes_way or makes_way,
        grace_period_s=grace_period_s if has_less else record.grace_period_s,
        late_at_ns=late_at_ns,
        look_at_ns=None,
        retry_at_ns=None,
        asks_at_ns={},
        resizing=NO_RESIZE,
    )
    turn.put(record)
    if record.is_busy and (has_less or not was_ending):
        turn.cancel(uid)


def makes_way(turn: Turn, kill: KillPod) -> None:
    """A pod is preempted, with the status that the node gives it."""
    ends(turn, kill.pod_uid, preempted(kill), kill.grace_period_s, makes_way=True)


def preempted(kill: KillPod) -> Override:
    """What a pod that makes way says of itself."""
    told = kill.status
    return Override(
        phase=told.phase,
        reason=told.reason,
        message=told.message,
        disruption_target=told.disruption_target,
    )


def tell_late(turn: Turn) -> None:
    """Whose end by the node's own decision takes too long is told, once.

    Follows: v1.36, kubelet/pod_workers.go, killPodNow.
    """
    for record in tuple(turn.pods.values()):
        if record.late_at_ns is None or record.late_at_ns > turn.now.steady_ns:
            continue
        if record.stage is Stage.ENDING:
            message = "Container runtime did not kill the pod within specified grace period."
            turn.tell(record.pod.uid, "ExceededGracePeriod", message, warning=True)
        turn.put(replace(record, late_at_ns=None))


def _grace_s(pod: Pod, override_s: int | None) -> int:
    own = pod.spec.termination_grace_period_seconds
    return next((one for one in (override_s, own) if one is not None), USUAL_GRACE_PERIOD_S)
