"""What becomes of a pod that is meant for a node: the kubelet's decision beside the scheduler's."""

from collections.abc import Sequence
from enum import StrEnum

from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle, scheduler_obstacles
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import next_start_refusals
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason, kubelet_fatal_error, sentence


def obstacles_on(config: NodeConfig, pod: Pod) -> tuple[SchedulerObstacle, ...]:
    """Why the scheduler never binds the pod to the node, by the node's gates; empty: it may."""
    comparisons = config.gates["TaintTolerationComparisonOperators"]
    return scheduler_obstacles(pod, config.view, comparisons=comparisons)


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


def next_start_sentence(reason: Reason) -> str:
    """Why the kubelet does not start the next time, as a sentence."""
    error = kubelet_fatal_error(reason)
    return f"the kubelet does not start again, after a restart, a reboot or an upgrade: {error} ({sentence(reason)})"


def later_sentences(state: NodeState, uid: str) -> tuple[str, ...]:
    """What comes later of the admission of a pod that holds resources on the node; empty: nothing."""
    holders = {*state.held.cpu.assignments, *state.held.cpu.pods, *state.held.memory.assignments}
    if uid not in holders:
        return ()
    return tuple(map(next_start_sentence, next_start_refusals(state)))
