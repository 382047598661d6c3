"""Which nodes can take a pod, by the scheduler's filters; the first that says no is the one that counts.

Follows: v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins: their order.
Departs: volumes, resource claims, images and scheduling gates are not looked at.
"""

from collections.abc import Iterable
from typing import NamedTuple

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.core.predicates.room import ALL_ADDRESSES, HostPort
from nodewright.model.objects import Taint, Toleration
from nodewright.model.tolerations import tolerates
from nodewright.sim.fleet.board import Seat
from nodewright.sim.fleet.shapes import PodShape

CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ORDER = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


class Objection(NamedTuple):
    """Why a node is out of the question."""

    filter: str
    what: str = ""
    for_good: bool = False
    """Whether no pod that left could change it."""


def standing_objection(shape: PodShape, seat: Seat) -> Objection | None:
    """What speaks against the node whoever is there.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go,
        tainttoleration/taint_toleration.go, nodeaffinity/node_affinity.go, Filter; for pods of one node
        pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations and
        ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    only = shape.only_on
    if only and only != seat.name:
        return Objection("NodeAffinity", for_good=True)
    if not (seat.cordoned or seat.taints or shape.selects):
        return None
    spec = shape.pod.spec
    if seat.cordoned and not only and not _tolerated(CORDONED, spec.tolerations):
        return Objection("NodeUnschedulable", for_good=True)
    taint = forbidding(shape, seat)
    if taint is not None:
        return Objection("TaintToleration", taint.key, for_good=True)
    if shape.selects and affinity_mismatch(spec, seat.name, seat.labels) is not None:
        return Objection("NodeAffinity", for_good=True)
    return None


def forbidding(shape: PodShape, seat: Seat) -> Taint | None:
    """The first taint that keeps the pod away.

    Follows: v1.36, component-helpers/scheduling/corev1/helpers.go, FindMatchingUntoleratedTaint.
    """
    for taint in seat.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, shape.pod.spec.tolerations):
            return taint
    return None


def room_objection(shape: PodShape, seat: Seat) -> Objection | None:
    """What speaks against the node because of what its pods take.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeports/node_ports.go and noderesources/fit.go, Filter.
    """
    if shape.ports and seat.ports and _meet(shape.ports, seat.ports):
        return Objection("NodePorts")
    if len(seat.tenants) >= seat.places:
        return Objection("NodeResourcesFit", "pods")
    for name, amount in sorted(shape.asks, key=lambda ask: (_ORDER.get(ask[0], 3), ask[0])):
        has = seat.allocatable.get(name, 0)
        if amount > has - seat.used.get(name, 0):
            return Objection("NodeResourcesFit", name, for_good=amount > has)
    return None


def has_room(shape: PodShape, seat: Seat) -> bool:
    """Whether `room_objection` has nothing to say."""
    if shape.room_cpu > seat.free_cpu or shape.room_memory > seat.free_memory or seat.free_places <= 0:
        return False
    for name, amount in shape.others:
        if amount > seat.allocatable.get(name, 0) - seat.used.get(name, 0):
            return False
    return not (shape.ports and seat.ports and _meet(shape.ports, seat.ports))


def repelling(shape: PodShape, seat: Seat) -> int:
    """How many taints would rather not have the pod.

    Follows: v1.36, pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, Score.
    """
    return sum(
        taint.effect == "PreferNoSchedule" and not _tolerated(taint, shape.pod.spec.tolerations)
        for taint in seat.taints
    )


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(one, taint) for one in tolerations)


def _meet(wanted: Iterable[HostPort], held: Iterable[HostPort]) -> bool:
    """Follows: v1.36, kube-scheduler/framework/types.go, HostPortInfo.CheckConflict."""
    return any(
        one.port == other.port
        and one.protocol == other.protocol
        and (one.host_ip == other.host_ip or ALL_ADDRESSES in (one.host_ip, other.host_ip))
        for one in wanted
        for other in held
    )
