"""Who does not get in while the node has conditions: refused by the kubelet, or kept away by the scheduler."""

from enum import StrEnum

import msgspec

from nodewright.core.requests import QOSClass, is_critical, is_mirror, is_static, qos_class
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.objects import Pod, Taint
from nodewright.model.pressure import NodeCondition
from nodewright.model.tolerations import tolerates

ONLY_MEMORY = (NodeCondition.MEMORY_PRESSURE,)


class Passage(StrEnum):
    """What lets a pod pass, or that nothing does."""

    NO_CONDITION = "no condition"
    CRITICAL = "critical"
    NOT_BEST_EFFORT = "not best effort"
    TOLERATES = "tolerates the taint"
    NOT_SCHEDULED = "not scheduled"
    """Static pods and their mirrors do not come by way of a scheduler."""
    NONE = "none"

    @property
    def is_open(self) -> bool:
        """Whether the pod passes."""
        return self is not Passage.NONE


class UnderCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What a condition by itself means for a pod that wants in."""

    condition: NodeCondition
    taint: Taint
    scheduler: Passage
    """Of a scheduler that honours taints."""
    kubelet: Passage


def refused_under_pressure(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False
) -> NodeUnderPressure | None:
    """Why the kubelet turns a pod away while the node has these conditions; None: it does not.

    ``comparisons`` is the gate TaintTolerationComparisonOperators.

    Follows: v1.36, eviction/eviction_manager.go, Admit.
    """
    if kubelet_passage(conditions, pod, comparisons=comparisons).is_open:
        return None
    return NodeUnderPressure(conditions=conditions, best_effort_only=conditions == ONLY_MEMORY)


def kubelet_passage(conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False) -> Passage:
    """What makes the kubelet take the pod under these conditions.

    Under memory pressure alone, only best-effort pods are turned away; a toleration helps there, and nowhere else.
    """
    if not conditions:
        return Passage.NO_CONDITION
    if is_critical(pod):
        return Passage.CRITICAL
    if conditions == ONLY_MEMORY:
        if qos_class(pod) is not QOSClass.BEST_EFFORT:
            return Passage.NOT_BEST_EFFORT
        if _tolerates(pod, NodeCondition.MEMORY_PRESSURE, comparisons=comparisons):
            return Passage.TOLERATES
    return Passage.NONE


def under_each(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False
) -> tuple[UnderCondition, ...]:
    """For each of the conditions, who would keep the pod off if it were the only one.

    The pod is taken as it is: tolerations that an admission plugin adds for its class are not assumed.

    Follows: v1.36, pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, Filter.
    """
    return tuple(
        UnderCondition(
            condition=condition,
            taint=condition.taint,
            scheduler=_scheduler_passage(condition, pod, comparisons=comparisons),
            kubelet=kubelet_passage((condition,), pod, comparisons=comparisons),
        )
        for condition in conditions
    )


def _scheduler_passage(condition: NodeCondition, pod: Pod, *, comparisons: bool) -> Passage:
    if is_static(pod) or is_mirror(pod):
        return Passage.NOT_SCHEDULED
    return Passage.TOLERATES if _tolerates(pod, condition, comparisons=comparisons) else Passage.NONE


def _tolerates(pod: Pod, condition: NodeCondition, *, comparisons: bool) -> bool:
    return any(tolerates(one, condition.taint, comparisons=comparisons) for one in pod.spec.tolerations)
