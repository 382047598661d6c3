"""What is done to the victims of a critical pod."""

from nodewright.core.preemption import Victims
from nodewright.node.actions import Action, CountPreemption, KillPod, RecordEvent, StatusChange

PREEMPTING = "Preempting"
PREEMPTED = "Preempted in order to admit critical pod"
DISRUPTED = "Pod was preempted by Kubelet to accommodate a critical pod."


def preempting(victims: Victims) -> tuple[Action, ...]:
    """For each victim in turn: the event, then the kill, counted if it succeeds. The pod is admitted all the same.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, evictPodsToFreeRequests.
    """
    status = StatusChange(phase="Failed", reason=PREEMPTING, message=PREEMPTED, disruption_target=DISRUPTED)
    count = CountPreemption(signal=victims.signal)
    actions: list[Action] = []
    for victim in victims.victims:
        uid = victim.pod.uid
        actions.append(RecordEvent(pod_uid=uid, type="Warning", reason=PREEMPTING, message=PREEMPTED))
        actions.append(KillPod(pod_uid=uid, status=status, if_done=(count,)))
    return tuple(actions)
