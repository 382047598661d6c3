"""Why kube-scheduler never binds a pod to a node whose kubelet would admit it.

The kubelet shares the filters for amounts, ports, node selector and affinity with the scheduler; here is what only the
scheduler heeds, whatever pods the node has. Inter-pod affinity and topology spread depend on other nodes and are not judged.
"""

from collections.abc import Iterator

import msgspec

from nodewright.engine.core.predicates.predicate_check import NodeView
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_mirror, is_static
from nodewright.model.kubernetes.objects import UNSCHEDULABLE, Pod, untolerated
from nodewright.model.kubernetes.resource_names import is_extended, readable_amount
from nodewright.model.reasons.predicates import taint_text


class SchedulerObstacle(msgspec.Struct, frozen=True):
    """A filter of the scheduler that rejects the node for a pod."""

    plugin: str
    """The scheduler's plugin, e.g. `TaintToleration`."""
    message: str
    """What the scheduler writes into the pod's FailedScheduling event."""
    why: str
    """The fact as a sentence."""
    remedy: str
    """What removes the obstacle."""


class UnknownResource(msgspec.Struct, frozen=True):
    """An extended resource that a pod requests and the node does not offer.

    Units: pieces.
    """

    resource: str
    requested: int

    def sentence(self) -> str:
        """What kubelet and scheduler make of it."""
        amount = readable_amount(self.resource, self.requested)
        return (
            f"{self.resource}: {amount} requested, the node does not offer it; its kubelet would ignore the request, "
            "but the scheduler never binds the pod to this node"
        )


def unknown_resources(pod: Pod, node: NodeView) -> tuple[UnknownResource, ...]:
    """The extended resources that the pod requests and the node does not offer.

    Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources.
    """
    return tuple(
        UnknownResource(name, amount)
        for name, amount in sorted(scheduler_requests(pod).items())
        if amount and is_extended(name) and name not in node.allocatable
    )


def scheduler_obstacles(
    pod: Pod, node: NodeView, *, comparisons: bool = False
) -> tuple[SchedulerObstacle, ...]:
    """What keeps the scheduler from binding the pod to the node, whatever pods are there; empty: nothing.

    Pods that no scheduler binds have none: static pods, their mirror pods, and pods whose `spec.nodeName` is this node.
    ``comparisons``: the gate TaintTolerationComparisonOperators.

    Follows: v1.36, pkg/scheduler/framework/plugins: schedulinggates/scheduling_gates.go, PreEnqueue, and
        {nodeunschedulable,tainttoleration,noderesources}, Filter; their order.
    """
    bound_to = pod.spec.node_name
    if is_static(pod) or is_mirror(pod) or (bound_to and bound_to == node.name):
        return ()
    return tuple(_obstacles(pod, node, comparisons=comparisons))


def _obstacles(pod: Pod, node: NodeView, *, comparisons: bool) -> Iterator[SchedulerObstacle]:
    if gates := [str(gate.get("name")) for gate in pod.spec.scheduling_gates]:
        message = f"waiting for scheduling gates: [{' '.join(gates)}]"
        yield SchedulerObstacle(
            "SchedulingGates",
            message,
            f"scheduling gates: {', '.join(gates)}",
            "its scheduling gates removed",
        )
    repelling = untolerated(node.taints, pod.spec.tolerations, comparisons=comparisons)
    taints = [taint for taint in repelling if taint.key != UNSCHEDULABLE]
    if len(taints) < len(repelling):
        message, why = "node(s) were unschedulable", "the node is cordoned"
        yield SchedulerObstacle("NodeUnschedulable", message, why, "`kubectl uncordon` of the node")
    if taints:
        names = ", ".join(map(taint_text, taints))
        message, remedy = "node(s) had untolerated taint(s)", f"tolerations of {names} in the pod"
        yield SchedulerObstacle("TaintToleration", message, f"not tolerated: {names}", remedy)
    for unknown in unknown_resources(pod, node):
        message = f"Insufficient {unknown.resource}"
        remedy = f"{unknown.resource} not requested, or offered by a device plugin of the node"
        yield SchedulerObstacle("NodeResourcesFit", message, unknown.sentence(), remedy)
