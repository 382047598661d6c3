"""Admission under node pressure: pods that the kubelet rejects or that taints keep from being scheduled."""

from enum import StrEnum

import msgspec

from nodewright.engine.core.requests.qos_and_priority import (
    QOSClass,
    is_critical,
    is_mirror,
    is_static,
    qos_class,
)
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.kubernetes.tolerations import tolerates
from nodewright.model.reasons.eviction import NodeUnderPressure

MEMORY_PRESSURE_ONLY = (NodeCondition.MEMORY_PRESSURE,)


class PressureAdmission(StrEnum):
    """Why a pod is admitted under pressure, or that it is not."""

    NO_CONDITION = "no condition"
    CRITICAL = "critical"
    NOT_BEST_EFFORT = "not best effort"
    TOLERATES = "tolerates the taint"
    NOT_SCHEDULED = "not scheduled"
    """Static pods and their mirrors are not scheduled."""
    NONE = "none"

    @property
    def admits(self) -> bool:
        """Whether the pod is admitted."""
        return self is not PressureAdmission.NONE


class ConditionEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one condition on the admission of a pod."""

    condition: NodeCondition
    taint: Taint
    scheduler: PressureAdmission
    """In a scheduler that respects taints."""
    kubelet: PressureAdmission


def pressure_refusal(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False, pod_level: bool = True
) -> NodeUnderPressure | None:
    """Why the kubelet rejects a pod while the node has these conditions; None: it admits the pod.

    ``comparisons`` is the gate TaintTolerationComparisonOperators, ``pod_level`` PodLevelResources.

    Follows: v1.36, eviction/eviction_manager.go, Admit.
    """
    if kubelet_admission(conditions, pod, comparisons=comparisons, pod_level=pod_level).admits:
        return None
    return NodeUnderPressure(conditions=conditions, best_effort_only=conditions == MEMORY_PRESSURE_ONLY)


def kubelet_admission(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False, pod_level: bool = True
) -> PressureAdmission:
    """Why the kubelet admits the pod under these conditions, or NONE.

    Under memory pressure alone, only best-effort pods are rejected; only in this case a toleration helps.
    """
    if not conditions:
        return PressureAdmission.NO_CONDITION
    if is_critical(pod):
        return PressureAdmission.CRITICAL
    if conditions == MEMORY_PRESSURE_ONLY:
        if qos_class(pod, pod_level) is not QOSClass.BEST_EFFORT:
            return PressureAdmission.NOT_BEST_EFFORT
        if _tolerates(pod, NodeCondition.MEMORY_PRESSURE, comparisons=comparisons):
            return PressureAdmission.TOLERATES
    return PressureAdmission.NONE


def condition_effects(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False
) -> tuple[ConditionEffect, ...]:
    """The effect of each condition as if it were the only one.

    Tolerations that an admission plugin adds for the QoS class are not assumed.

    Follows: v1.36, pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, Filter.
    """
    return tuple(
        ConditionEffect(
            condition=condition,
            taint=condition.taint,
            scheduler=_scheduler_admission(condition, pod, comparisons=comparisons),
            kubelet=kubelet_admission((condition,), pod, comparisons=comparisons),
        )
        for condition in conditions
    )


def _scheduler_admission(condition: NodeCondition, pod: Pod, *, comparisons: bool) -> PressureAdmission:
    if is_static(pod) or is_mirror(pod):
        return PressureAdmission.NOT_SCHEDULED
    return (
        PressureAdmission.TOLERATES
        if _tolerates(pod, condition, comparisons=comparisons)
        else PressureAdmission.NONE
    )


def _tolerates(pod: Pod, condition: NodeCondition, *, comparisons: bool) -> bool:
    return any(
        tolerates(toleration, condition.taint, comparisons=comparisons) for toleration in pod.spec.tolerations
    )
