"""Why kube-scheduler never binds a pod to a node whose kubelet would admit it.

The kubelet shares the filters for amounts, ports, node selector and affinity with the scheduler; here is what only the
scheduler heeds, whatever pods the node has. Inter-pod affinity and topology spread depend on other nodes and are not judged.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.predicates.predicate_check import NodeView
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_mirror, is_static
from nodewright.model.kubernetes.objects import (
    UNSCHEDULABLE,
    Affinity,
    NodeAffinity,
    NodeSelector,
    Pod,
    PodSpec,
    untolerated,
)
from nodewright.model.kubernetes.resource_names import is_extended, readable_amount
from nodewright.model.reasons.predicates import NodeAffinityMismatch, taint_text


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
    details: tuple[str, ...] = ()
    """What supports the fact, a sentence each."""
    other_remedies: tuple[str, ...] = ()
    is_fatal: bool = False
    """Whether the filter ends with an error, which keeps the scheduler from binding the pod to any node."""
    family: str = ""
    """What it has in common with obstacles on other nodes that differ in names and amounts only; empty: `why`."""
    is_open: bool = False
    """Whether it is not known that the filter rejects the node, because objects are missing."""


class BoundVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentVolume that is bound to a claim of a pod, and is accessible from some nodes only."""

    claim: str
    name: str
    required: NodeSelector
    """The node affinity of the volume."""


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
    pod: Pod,
    node: NodeView,
    volumes: Sequence[BoundVolume] = (),
    *,
    comparisons: bool = False,
    served: Collection[str] = (),
) -> tuple[SchedulerObstacle, ...]:
    """What keeps the scheduler from binding the pod to the node, whatever pods are there; empty: nothing.

    Pods that no scheduler binds have none: static pods, their mirror pods, and pods whose `spec.nodeName` is this node.
    ``volumes``: those of the pod's claims.
    ``comparisons``: the gate TaintTolerationComparisonOperators.
    ``served``: the extended resources that device classes serve, so that the node need not offer them.

    Follows: v1.36, pkg/scheduler/framework/plugins: schedulinggates/scheduling_gates.go, PreEnqueue, and
        {nodeunschedulable,tainttoleration,noderesources,volumebinding}, Filter; their order.
    """
    bound_to = pod.spec.node_name
    if is_static(pod) or is_mirror(pod) or (bound_to and bound_to == node.name):
        return ()
    obstacles = _obstacles(pod, node, comparisons=comparisons, served=served)
    return (*obstacles, *_volume_obstacles(node, volumes))


def _obstacles(
    pod: Pod, node: NodeView, *, comparisons: bool, served: Collection[str]
) -> Iterator[SchedulerObstacle]:
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
        if unknown.resource in served:
            continue
        message = f"Insufficient {unknown.resource}"
        remedy = f"{unknown.resource} not requested, or offered by a device plugin of the node"
        yield SchedulerObstacle("NodeResourcesFit", message, unknown.sentence(), remedy)


def _volume_obstacles(node: NodeView, volumes: Sequence[BoundVolume]) -> Iterator[SchedulerObstacle]:
    for volume in volumes:
        mismatch = volume_mismatch(volume, node.labels)
        if mismatch is not None:
            yield SchedulerObstacle(
                "VolumeBinding",
                "node(s) didn't match PersistentVolume's node affinity",
                f"PersistentVolume `{volume.name}` of claim `{volume.claim}`: {mismatch.sentence()}",
                f"a node that PersistentVolume `{volume.name}` is accessible from, or another volume",
            )


def volume_mismatch(volume: BoundVolume, labels: Mapping[str, str]) -> NodeAffinityMismatch | None:
    """Why the volume is not accessible from a node with these labels; None: it is.

    Follows: v1.36, component-helpers/storage/volume/helpers.go, CheckNodeAffinity: labels alone, not the node's name.
    """
    affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=volume.required)
    return affinity_mismatch(PodSpec(affinity=Affinity(node_affinity=affinity)), "", labels)
