"""What becomes of a pod that is meant for a node: the kubelet's decision beside the scheduler's."""

from collections.abc import Sequence
from enum import StrEnum

from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.node.step import Decision


class Verdict(StrEnum):
    """What becomes of a pod that is meant for the node."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    """By the API server or the kubelet."""
    UNDECIDED = "undecided"
    UNSCHEDULABLE = "unschedulable"
    """The kubelet would not refuse it, but the scheduler never binds it to the node."""


def verdict_of(decision: Decision, obstacles: Sequence[SchedulerObstacle]) -> Verdict:
    """The kubelet's decision, unless it is no refusal and the scheduler never binds the pod."""
    is_unbound = obstacles and decision is not Decision.REFUSED
    return Verdict.UNSCHEDULABLE if is_unbound else Verdict(decision)
