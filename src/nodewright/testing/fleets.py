"""Short constructors of small fleets, for tests and notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.fleet.simulation.cluster_view import AssignedPod, ClusterView, NodeSlot
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.testing.nodes import a_profile

HOSTNAME = "kubernetes.io/hostname"


def a_template(requests: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> Pod:
    """A pod with one container of these requests and limits; `spec` as in its manifest.

    >>> a_template("cpu=2 memory=1Gi", priority=5).spec.priority
    5
    """
    amounts = dict(word.split("=") for word in requests.split())
    resources = {"requests": amounts, "limits": amounts}
    document = {
        "metadata": {"name": "pod", "namespace": "default", "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "main", "resources": resources}], **spec},
    }
    return with_defaults(decode(document, Pod))


def a_shape(
    number: int = 0, requests: str = "", labels: Mapping[str, str] | None = None, **spec: Any
) -> PodShape:
    """The shape of such a pod."""
    return PodShape(number, a_template(requests, labels, **spec), "default")


def a_node_slot(
    number: int,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    *,
    cordoned: bool = False,
    **allocatable: int,
) -> NodeSlot:
    """A node named `n0`, `n1`, … with room for 110 pods and further capacity."""
    named = {HOSTNAME: f"n{number}", **(labels or {})}
    return NodeSlot(number, f"n{number}", {"pods": 110, **allocatable}, named, taints, cordoned=cordoned)


def a_cluster_view(slots: Sequence[NodeSlot], pods: Sequence[tuple[PodShape, str]] = ()) -> ClusterView:
    """These nodes with pods: of each shape one pod per digit, on the node with that number.

    >>> a_cluster_view([a_node_slot(0), a_node_slot(1)], [(a_shape(), "001")]).pods_by_shape_and_node
    {0: {0: 2, 1: 1}}
    """
    view = ClusterView(slots)
    for shape, numbers in pods:
        for number in numbers:
            uid = f"{view.running:04d}"
            view.add_pod(slots[int(number)], uid, AssignedPod(view.running, shape, 0.0))
    return view


def some_nodes(count: int, profile: NodeProfile | None = None, **node: Any) -> list[FleetNode]:
    """Equal nodes `n0`, `n1`, …: by default with two NUMA nodes of 4 CPUs each."""
    profile = profile or a_profile()
    return [FleetNode(name=f"n{number}", profile=profile, shape="small", **node) for number in range(count)]


def some_pods(count: int, template: Pod, name: str = "p", **pod: Any) -> list[FleetPod]:
    """Equal pods `p0`, `p1`, …."""
    return [FleetPod(name=f"{name}{number}", pod=template, **pod) for number in range(count)]
