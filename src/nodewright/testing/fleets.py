"""Small fleets in a few words, for tests and notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.core.requests import with_defaults
from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.model.objects import Pod, Taint
from nodewright.model.profile import NodeProfile
from nodewright.sim.fleet.board import Board, Seat, Tenant
from nodewright.sim.fleet.shapes import PodShape
from nodewright.testing.nodes import a_profile
from nodewright.world.decode import decode

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


def a_seat(
    number: int,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    *,
    cordoned: bool = False,
    **allocatable: int,
) -> Seat:
    """A node named `n0`, `n1`, … with room for 110 pods and what else it has."""
    named = {HOSTNAME: f"n{number}", **(labels or {})}
    return Seat(number, f"n{number}", {"pods": 110, **allocatable}, named, taints, cordoned=cordoned)


def a_board(seats: Sequence[Seat], pods: Sequence[tuple[PodShape, str]] = ()) -> Board:
    """These nodes with pods on them: of each shape as many as there are digits, each on the node of that number.

    >>> a_board([a_seat(0), a_seat(1)], [(a_shape(), "001")]).where
    {0: {0: 2, 1: 1}}
    """
    board = Board(seats)
    for shape, places in pods:
        for place in places:
            uid = f"{board.running:04d}"
            board.put(seats[int(place)], uid, Tenant(board.running, shape, 0.0))
    return board


def some_nodes(count: int, profile: NodeProfile | None = None, **node: Any) -> list[FleetNode]:
    """Nodes `n0`, `n1`, … that are alike: two NUMA nodes with 4 CPUs each, if nothing else is said."""
    profile = profile or a_profile()
    return [FleetNode(name=f"n{number}", profile=profile, shape="small", **node) for number in range(count)]


def some_pods(count: int, template: Pod, name: str = "p", **pod: Any) -> list[FleetPod]:
    """Pods `p0`, `p1`, … that are alike."""
    return [FleetPod(name=f"{name}{number}", pod=template, **pod) for number in range(count)]
