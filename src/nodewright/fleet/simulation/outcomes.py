"""The results of a fleet simulation: events, the outcome of every pod, and counters.

Records of finished pods can be reduced to counts, so that memory does not grow with the length of a trace.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement
from nodewright.fleet.simulation.cluster_view import ClusterView
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.resource_names import PODS
from nodewright.model.reasons.reason import Reason

_MAX_DISTINCT_WAITS = 65_536
"""Maximum number of distinct waiting times that are counted exactly; beyond it, to three significant digits."""
_MAX_SAMPLES = 1024
"""Maximum number of samples; when it is reached, every second one is dropped and the rate is halved."""
_MAX_NODE_SAMPLES = 96
"""Maximum number of samples of all nodes, thinned out in the same way."""
SHARED_POOL_PLACEMENT = Placement(containers=())
"""The placement of pods without exclusive resources: one object for all of them."""


class FleetEventKind(StrEnum):
    """What happens to a pod of a fleet."""

    WAITING = "waiting"
    """The scheduler finds no node for it; reported once until it is placed."""
    PLACED = "placed"
    """A node admitted it."""
    REFUSED = "refused"
    """The kubelet of the chosen node rejected it."""
    LOOPING = "looping"
    """Another attempt would have the same outcome: controller and scheduler are in a loop."""
    PREEMPTED = "preempted"
    """It was preempted by a pod of higher priority."""
    EVICTED = "evicted"
    """It was evicted because its node was under pressure."""
    DRAINED = "drained"
    """It was evicted because its node is drained."""
    ENDED = "ended"
    """It ran to completion."""


class PodOutcome(StrEnum):
    """State of a pod at the end of the simulation."""

    RUNNING = "running"
    ENDED = "ended"
    WAITING = "waiting"
    """No node is feasible for it."""
    LOOPING = "looping"
    """Nodes rejected it repeatedly until the end."""
    REFUSED = "refused"
    """A node rejected it, and no controller replaced it."""
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    DRAINED = "drained"
    NOT_ARRIVED = "not-yet"
    """The simulation ended before it arrived."""


class FilterRejections(msgspec.Struct, frozen=True):
    """Why the scheduler finds no node: the number of nodes for which this filter was the first to reject the pod."""

    plugin: str
    """The scheduler's plugin, e.g. `NodeResourcesFit`."""
    detail: str
    """The resource, label or taint that is concerned; may be empty."""
    nodes: int


class FleetEvent(msgspec.Struct, frozen=True):
    """An event of a fleet simulation.

    Units: at_s in seconds since the beginning.
    """

    at_s: float
    kind: FleetEventKind
    pod: int
    """Number of the pod, in the order of arrival."""
    node: int = -1
    """Number of the node; -1: none."""
    because: tuple[Reason, ...] = ()
    """Why a node rejected it; the kubelet reports the first reason."""
    filter_rejections: tuple[FilterRejections, ...] = ()
    """Why no node is feasible."""
    placement: Placement = SHARED_POOL_PLACEMENT
    """Its exclusive resources."""
    preemptor: int = -1
    """Number of the pod that preempted it; -1: none."""


class FleetPodRecord(msgspec.Struct, kw_only=True, gc=False):
    """The record of a pod. Updated during the simulation, constant afterwards.

    Units: arrived_s, placed_s and left_s in seconds since the beginning.
    """

    pod: FleetPod
    outcome: PodOutcome
    arrived_s: float
    node: int = -1
    """Number of the node on which it runs or last ran; -1: none."""
    uid: str = ""
    """Its uid on that node."""
    placements: int = 0
    """Number of its placements."""
    placed_s: float = -1.0
    """Time of the first placement; -1: never placed."""
    left_s: float = -1.0
    """When it ended; -1: it has not."""
    admission_attempts: int = 0
    """Number of admissions that were tried."""
    refusals: int = 0
    refused_by: int = -1
    """Number of the node that last rejected it; -1: none."""
    because: tuple[Reason, ...] = ()
    """Why a node last rejected it; for a placed pod, what could not be decided."""
    filter_rejections: tuple[FilterRejections, ...] = ()
    """Why no node was feasible at the last attempt."""
    placement: Placement = SHARED_POOL_PLACEMENT

    def started_at_s(self, placed_at_s: float, *, is_first: bool) -> float:
        """When the pod's kubelet started it, which may be before the beginning where it runs first."""
        earlier_s = self.pod.started_s if is_first else None
        return placed_at_s if earlier_s is None else earlier_s


class FinishedPods(msgspec.Struct):
    """Counts of finished pods.

    Units: waits counts pods by waiting time in seconds; longest_wait_s in seconds.
    """

    outcomes: Counter[PodOutcome] = msgspec.field(default_factory=Counter)
    waits: Counter[float] = msgspec.field(default_factory=Counter)
    longest_wait_s: float = 0.0
    shared_gpu_pods: int = 0
    shared_gpu_milli: int = 0

    def add(self, record: FleetPodRecord) -> None:
        """Counts a finished pod."""
        self.outcomes[record.outcome] += 1
        if record.pod.gpu_milli:
            self.shared_gpu_pods += 1
            self.shared_gpu_milli += record.pod.gpu_milli
        if record.placed_s >= 0:
            wait_s = record.placed_s - record.arrived_s
            self.longest_wait_s = max(self.longest_wait_s, wait_s)
            self.waits[wait_s if len(self.waits) < _MAX_DISTINCT_WAITS else float(f"{wait_s:.3g}")] += 1


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node at the end of the simulation."""

    node: FleetNode
    state: NodeState
    """Its pods have simulated uids: see `pods`. No resources are allocated to removed pods."""
    pods: Mapping[str, int]
    """Number of the pod with each uid."""
    placed_pods: int
    """Number of admitted pods."""
    refused_pods: int


class FleetSample(msgspec.Struct, frozen=True):
    """Totals of the fleet at one time.

    Units: at_s in seconds since the beginning; requested in thousandths for cpu, else bytes or units.
    """

    at_s: float
    running: int
    waiting: int
    requested: Mapping[str, int]


class NodeSample(msgspec.Struct, frozen=True):
    """The load of each node at one time.

    Units: at_s in seconds since the beginning; shares in percent of allocatable, rounded down, in the order of the nodes.
    """

    at_s: float
    shares: Mapping[str, tuple[int, ...]]
    """Requested shares by resource."""


class RefusalCount(msgspec.Struct, frozen=True):
    """Number of rejections by nodes of a shape with one of the kubelet's reasons."""

    shape: str
    reason: Reason
    """The first of them, as an example."""
    count: int


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fleet simulation.

    Units: ended_s in seconds since the beginning; allocatable in thousandths for cpu, else bytes or units.
    """

    nodes: Sequence[NodeRecord]
    pods: Sequence[FleetPodRecord]
    """Records in the order of arrival, without finished pods that are only counted."""
    finished_pods: FinishedPods
    """Counts of pods that are not among the records."""
    samples: Sequence[FleetSample]
    node_samples: Sequence[NodeSample] = ()
    """Empty: they were not requested."""
    refusals: Sequence[RefusalCount]
    allocatable: Mapping[str, int]
    """Sum over all nodes."""
    placements: int
    """Number of placements; a pod that is placed again counts again."""
    preemptions: int
    evictions: int
    ended_s: float
    complete: bool
    """False: the simulation was interrupted, and this is its state at that time."""
    steps: int
    """Number of calls of a node's `step`."""
    cached_steps: int
    """Number of decisions taken from the cache."""
    claims: ClaimCluster | None = None
    """The resource claims with the devices that pods have; None: there are none."""


class PodRecords:
    """Records of pods by number."""

    def __init__(self, *, keep_finished: bool = True) -> None:
        self.keep_finished = keep_finished
        """Whether records of finished pods are kept."""
        self.arrived_count = 0
        self.records: dict[int, FleetPodRecord] = {}
        """In the order of arrival."""
        self.finished = FinishedPods()

    def __getitem__(self, number: int) -> FleetPodRecord:
        return self.records[number]

    def get(self, number: int) -> FleetPodRecord | None:
        """The record of this pod; None: it is finished and only counted."""
        return self.records.get(number)

    def add(self, record: FleetPodRecord) -> int:
        """Adds the record of an arriving pod; its number."""
        number = self.arrived_count
        self.records[number] = record
        self.arrived_count += 1
        return number

    def finish(self, number: int) -> None:
        """Marks a pod as finished."""
        if not self.keep_finished:
            self.finished.add(self.records.pop(number))


class SimulationCounters:
    """Counters, and samples of the fleet that are evenly spread over the simulated moments."""

    def __init__(self, *, samples_nodes: bool = False) -> None:
        self.placements = self.preemptions = self.evictions = self.loops = 0
        self.samples: list[FleetSample] = []
        self.node_samples: list[NodeSample] = []
        self.refusals: dict[tuple[str, str], RefusalCount] = {}
        self._stride = 1
        self._node_stride = 1 if samples_nodes else 0
        """0: nodes are not sampled."""
        self._moments = 0

    def count_departure(self, kind: FleetEventKind) -> None:
        """Counts the removal of a pod from its node."""
        self.preemptions += kind is FleetEventKind.PREEMPTED
        self.evictions += kind is FleetEventKind.EVICTED

    def count_refusal(self, shape: str, reason: Reason) -> None:
        """Counts a rejection by a node of this shape."""
        key = (shape, type(reason).__name__)
        previous = self.refusals.get(key)
        self.refusals[key] = RefusalCount(
            shape, previous.reason if previous else reason, previous.count + 1 if previous else 1
        )

    def add_sample(self, at_s: float, cluster: ClusterView, waiting: int) -> None:
        """Records the state of the fleet after all events of one moment."""
        self._moments += 1
        if self._node_stride and not self._moments % self._node_stride:
            self.node_samples.append(node_sample(at_s, cluster))
            if len(self.node_samples) >= _MAX_NODE_SAMPLES:
                del self.node_samples[::2]
                self._node_stride *= 2
        if self._moments % self._stride:
            return
        self.samples.append(FleetSample(at_s, cluster.running, waiting, cluster.requested()))
        if len(self.samples) >= _MAX_SAMPLES:
            del self.samples[::2]
            self._stride *= 2

    def refusal_counts(self) -> Sequence[RefusalCount]:
        """The refusals, most frequent first."""
        return tuple(
            count for _, count in sorted(self.refusals.items(), key=lambda item: (-item[1].count, item[0]))
        )


def node_sample(at_s: float, cluster: ClusterView) -> NodeSample:
    """The requested share of each node now."""
    resources = dict.fromkeys(
        name
        for slot in cluster.nodes
        for name, amount in slot.allocatable.items()
        if 0 < amount < 2**62 and name != PODS
    )
    requested = cluster.requested()
    return NodeSample(
        at_s,
        {
            name: tuple(
                100 * slot.requested.get(name, 0) // amount
                if (amount := slot.allocatable.get(name, 0))
                else 0
                for slot in cluster.nodes
            )
            for name in resources
            if name in requested
        },
    )
