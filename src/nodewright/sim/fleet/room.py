"""How many more pods of a kind fit: what each node itself would take, and what its free amounts alone would."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.core.requests import scheduler_requests
from nodewright.model.fleet import FleetNode
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason
from nodewright.model.tolerations import tolerates
from nodewright.node.events import PodArrived, PodStarted
from nodewright.node.placement import left_of
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step
from nodewright.sim.fleet.values import NodeRecord

_KEEPING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many more pods of one kind some nodes hold."""

    nodes: int
    fits: int
    """Those that the nodes take, one after the other."""
    by_amounts: int
    """As many as free amounts alone would hold, were they all in one place on their node."""
    because: Reason | None = None
    """Why the first of the nodes takes no more; None: no node was asked."""

    @property
    def stranded(self) -> int:
        """Pods for which there is enough on a node, yet not where it can be used."""
        return self.by_amounts - self.fits


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRoom:
    """The room on the nodes of a shape."""

    shape: str
    room: Room


def rooms(nodes: Sequence[NodeRecord], pod: Pod) -> tuple[ShapeRoom, ...]:
    """How many more of these pods fit, by shape of node, in the order of the nodes.

    The pod's node selector, required node affinity and tolerations count; what it wants of other pods
    (spreading, affinity to them) does not. Nobody is sent away for them.
    """
    known: dict[object, Room] = {}
    found: dict[str, Room] = {}
    for record in nodes:
        room = _NOWHERE
        if suits(record.node, pod):
            key = _key(record.state)
            if key not in known:
                known[key] = _room(record.state, pod)
            room = known[key]
        found[record.node.shape] = _sum(found.get(record.node.shape), room)
    return tuple(ShapeRoom(shape=shape, room=room) for shape, room in found.items())


def total(rooms: Iterable[ShapeRoom]) -> Room:
    """All of them together."""
    found = Room(nodes=0, fits=0, by_amounts=0)
    for one in rooms:
        found = _sum(found, one.room)
    return found


def suits(node: FleetNode, pod: Pod) -> bool:
    """Whether the scheduler would look at the node for the pod, however much is free there."""
    keeping = [taint for taint in node.taints if taint.effect in _KEEPING]
    return (
        not node.unschedulable
        and all(any(tolerates(one, taint) for one in pod.spec.tolerations) for taint in keeping)
        and affinity_mismatch(pod.spec, node.name, node.labels) is None
    )


_NOWHERE = Room(nodes=1, fits=0, by_amounts=0)


def _sum(one: Room | None, other: Room) -> Room:
    if one is None:
        return other
    return Room(
        nodes=one.nodes + other.nodes,
        fits=one.fits + other.fits,
        by_amounts=one.by_amounts + other.by_amounts,
        because=one.because or other.because,
    )


def _room(state: NodeState, pod: Pod) -> Room:
    # Labels have been looked at, and nobody is to make way.
    spec = replace(pod.spec, node_selector={}, affinity=None, priority=0, priority_class_name="")
    plain = replace(pod, spec=spec)
    fits, because = 0, None
    by_amounts = _by_amounts(state, plain)
    while True:
        uid = f"room-{fits}"
        copy = replace(plain, metadata=replace(plain.metadata, name=uid, uid=uid))
        taken = step(state, PodArrived(copy))
        if taken.decision is not Decision.ADMITTED:
            because = taken.because[0] if taken.because else None
            break
        fits += 1
        state = step(taken.state, PodStarted(uid)).state
    return Room(nodes=1, fits=fits, by_amounts=max(by_amounts, fits), because=because)


def _by_amounts(state: NodeState, pod: Pod) -> int:
    allocatable = state.config.view.allocatable
    used = state.totals.requests
    places = allocatable.get("pods", 0) - state.totals.pods
    parts = [
        (allocatable.get(name, 0) - used.get(name, 0)) // amount
        for name, amount in scheduler_requests(pod).items()
        if amount
    ]
    return max(min([places, *parts]), 0)


def _key(state: NodeState) -> object:
    """What decides about further pods: nodes with equal keys take as many."""
    left = left_of(state)
    return (
        id(state.config.parts.machine),
        id(state.config.parts.kubelet),
        state.totals.pods,
        _frozen(state.totals.requests),
        state.totals.ports,
        left.shared_cpus,
        tuple((one.numa, one.group, one.assignments, _frozen(one.free)) for one in left.memory),
        tuple((name, frozenset(ids)) for name, ids in sorted(left.devices.items())),
    )


def _frozen(amounts: Mapping[str, int]) -> frozenset[tuple[str, int]]:
    return frozenset(amounts.items())
