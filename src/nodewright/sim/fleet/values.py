"""What comes of a fleet: events as they happen, and at the end the fate of every pod."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from nodewright.model.fleet import FleetNode, FleetPod
from nodewright.model.reasons import Reason
from nodewright.node.placement import Placement
from nodewright.node.state import NodeState

_MOST_WAITS = 65_536
"""So many different waits are told apart; of more, only three digits each."""

NOTHING_HELD = Placement(containers=())
"""What a pod holds for itself that runs in the shared pool: one object for all of them."""


class Kind(StrEnum):
    """What can happen to a pod of a fleet."""

    WAITING = "waiting"
    """The scheduler found no node for it; told once until it is placed."""
    PLACED = "placed"
    """A node took it."""
    REFUSED = "refused"
    """The node that the scheduler chose turned it away."""
    LOOPING = "looping"
    """Another try would end as the last one did: its controller and the scheduler go round in circles."""
    PREEMPTED = "preempted"
    """It made way for a pod of higher priority."""
    EVICTED = "evicted"
    """Its node ran short."""
    ENDED = "ended"
    """It has run as long as it was to run."""


class Fate(StrEnum):
    """How a pod stands at the end."""

    RUNNING = "running"
    ENDED = "ended"
    WAITING = "waiting"
    """No node had room for it, or none suited it."""
    LOOPING = "looping"
    """Nodes refused it over and over until the end."""
    REFUSED = "refused"
    """A node refused it, and nothing made another one."""
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    NOT_YET = "not-yet"
    """The run was ended before it arrived."""


class Lack(msgspec.Struct, frozen=True):
    """Why the scheduler found no node: how many nodes each filter turned down first."""

    filter: str
    """The scheduler's plugin, e.g. `NodeResourcesFit`."""
    what: str
    """The resource, label or taint in question; empty: the filter says it all."""
    nodes: int


class Happening(msgspec.Struct, frozen=True):
    """One thing that happened.

    Units: at_s in seconds since the beginning.
    """

    at_s: float
    kind: Kind
    pod: int
    """Its number, in the order of arrival."""
    node: int = -1
    """The number of the node; -1: none."""
    because: tuple[Reason, ...] = ()
    """Why a node refused it; the first reason is the one that the kubelet reports."""
    lacks: tuple[Lack, ...] = ()
    """Why it waits."""
    placement: Placement = NOTHING_HELD
    """What it was given for itself."""
    by: int = -1
    """The number of the pod that it made way for."""


class PodRecord(msgspec.Struct, kw_only=True, gc=False):
    """A pod from its arrival to the end. Filled in while the fleet runs, not changed afterwards.

    Units: arrived_s, placed_s and left_s in seconds since the beginning.
    """

    pod: FleetPod
    fate: Fate
    arrived_s: float
    node: int = -1
    """Where it runs or ran last; -1: nowhere."""
    uid: str = ""
    """What it is known by on that node."""
    stays: int = 0
    """How often it was placed."""
    placed_s: float = -1.0
    """When it was placed first; -1: never."""
    left_s: float = -1.0
    """When it left; -1: it has not."""
    tries: int = 0
    """How often a node was asked to take it."""
    refusals: int = 0
    refused_by: int = -1
    """The node that refused it last."""
    because: tuple[Reason, ...] = ()
    """Why a node refused it last; of one that is placed, what could not be judged."""
    lacks: tuple[Lack, ...] = ()
    """Why no node was found last."""
    placement: Placement = NOTHING_HELD


class Forgotten(msgspec.Struct):
    """Pods that are done, in numbers.

    Units: waits in seconds, by how many pods waited so long; most_s in seconds.
    """

    fates: Counter[Fate] = msgspec.field(default_factory=Counter)
    waits: Counter[float] = msgspec.field(default_factory=Counter)
    most_s: float = 0.0
    shared_gpu_pods: int = 0
    shared_gpu_milli: int = 0

    def take(self, record: PodRecord) -> None:
        """One more."""
        self.fates[record.fate] += 1
        if record.pod.gpu_milli:
            self.shared_gpu_pods += 1
            self.shared_gpu_milli += record.pod.gpu_milli
        if record.placed_s >= 0:
            wait_s = record.placed_s - record.arrived_s
            self.most_s = max(self.most_s, wait_s)
            self.waits[wait_s if len(self.waits) < _MOST_WAITS else _three_digits(wait_s)] += 1


def _three_digits(seconds: float) -> float:
    return float(f"{seconds:.3g}")


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node at the end."""

    node: FleetNode
    state: NodeState
    """With its pods under uids of its own: see `pods`. It is settled: nothing is held for pods that are gone."""
    pods: Mapping[str, int]
    """The number of the pod behind each uid."""
    placed: int
    """Pods that it took."""
    refused: int


class Sample(msgspec.Struct, frozen=True):
    """The whole fleet at one moment.

    Units: at_s in seconds since the beginning; requested in thousandths for cpu, else bytes or pieces.
    """

    at_s: float
    running: int
    waiting: int
    requested: Mapping[str, int]


class RefusalCount(msgspec.Struct, frozen=True):
    """How often nodes of a shape refused pods for one reason of the kubelet."""

    shape: str
    reason: Reason
    """One of them, as an example."""
    count: int


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a fleet.

    Units: ended_s in seconds since the beginning; allocatable in thousandths for cpu, else bytes or pieces.
    """

    nodes: Sequence[NodeRecord]
    pods: Sequence[PodRecord]
    """In the order of their arrival; where pods that are done are not kept, all others."""
    forgotten: Forgotten
    """Those that are not among them."""
    samples: Sequence[Sample]
    refusals: Sequence[RefusalCount]
    allocatable: Mapping[str, int]
    """Of all nodes together."""
    placements: int
    """How often a pod was placed; one that was placed again counts again."""
    preemptions: int
    evictions: int
    ended_s: float
    complete: bool
    """False: the run was broken off, and this is how far it came."""
    steps: int
    """How often a node's `step` was asked."""
    remembered: int
    """How often its answer was known from a node that was alike."""
