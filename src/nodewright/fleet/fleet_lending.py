"""What BestEffort pods could have of the memory of a fleet, with loans of a predictor and without: `fleet --lend`.

The runs are the same: loans are judged from which pods were on which node, and what these used there.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import add

import msgspec

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.core.lending.node_loans import NodeSamples, node_reservations
from nodewright.engine.core.lending.predictors import (
    PREDICTORS,
    SECOND_NS,
    Predictor,
    State,
    UsageSamples,
)
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.fleet.simulation.outcomes import FleetEvent, FleetEventKind, FleetResult, NodeRecord
from nodewright.fleet.workload import FleetPod
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.predict.lend.lend_replay import PIECES, borrower_terms, term_percentiles
from nodewright.predict.lend.node_history import MAX_TIMES

INTERVAL_S = 60
"""How often usage is sampled."""
_LEAVES = {
    FleetEventKind.ENDED,
    FleetEventKind.PREEMPTED,
    FleetEventKind.EVICTED,
    FleetEventKind.DRAINED,
}


class BestEffortRoom(Report, frozen=True, kw_only=True):
    """What BestEffort pods could use in addition to the pods of the run, if nothing of it is left free.

    Units: bytes, mean over time; GiB-hours.
    """

    predictor: str
    margin_percent: int
    mean: int
    hours: float
    term_seconds: tuple[int, ...]
    """Uninterrupted time of borrowers of 1 GiB: 10th, 50th and 90th percentile; empty: no borrower."""
    ended: int
    """Borrowers whose memory is needed back before the run ends."""
    utilization: float
    """Share of what is allocatable that is then in use."""


class FleetLoans(Report, frozen=True, kw_only=True):
    """Memory of the fleet that BestEffort pods could have. Units: bytes, mean over time."""

    interval_seconds: int
    allocatable: int
    requested: int
    used: int
    """Unknown usage counts as the request."""
    without: BestEffortRoom
    lending: BestEffortRoom


class PodStay(msgspec.Struct):
    """That a pod was on a node. Units: seconds since the beginning; ends_s: infinite while it is there."""

    pod: int
    node: int
    begins_s: float
    ends_s: float = math.inf


class PodStays:
    """Records which pods are on which nodes when; receives the events of a run."""

    def __init__(self) -> None:
        self.stays: list[PodStay] = []
        self._present: dict[int, PodStay] = {}

    def __call__(self, event: FleetEvent) -> None:
        """Records the event."""
        if event.kind is FleetEventKind.PLACED:
            self._present[event.pod] = PodStay(event.pod, event.node, event.at_s)
            self.stays.append(self._present[event.pod])
        elif event.kind in _LEAVES:
            self._present.pop(event.pod).ends_s = event.at_s


def fleet_loans(result: FleetResult, stays: Iterable[PodStay], predictor: Predictor) -> FleetLoans | None:
    """The loans of a run that kept its finished pods; None if the predictor lends nothing.

    Errors: InputError for a run without usage or without end; CustomPolicyError of the predictor.
    """
    if not any(record.pod.usage for record in result.pods):
        raise InputError([Fault(source="--lend", rule="needs the pods' usage over time: --usage FILE")])
    count = int(result.ended_s // INTERVAL_S) + 1
    if count > MAX_TIMES:
        rule = f"the run takes {count} minutes; at most {MAX_TIMES} are supported: --until"
        raise InputError([Fault(source="--lend", rule=rule)])
    by_node = defaultdict[int, list[PodStay]](list)
    for stay in stays:
        by_node[stay.node].append(stay)
    pods = [record.pod for record in result.pods]
    nodes = [_NodeMemory(node, by_node[number], pods, count) for number, node in enumerate(result.nodes)]
    allocatable, used = sum(node.allocatable for node in nodes), _mean(node.used for node in nodes)
    without, lending = ([node.room(each) for node in nodes] for each in (PREDICTORS["request"], predictor))
    if lending == without:
        return None
    return FleetLoans(
        interval_seconds=INTERVAL_S,
        allocatable=allocatable,
        requested=_mean(node.requested for node in nodes),
        used=used,
        without=_room(PREDICTORS["request"], without, used=used, allocatable=allocatable),
        lending=_room(predictor, lending, used=used, allocatable=allocatable),
    )


class _NodeMemory:
    """The memory of a node at each time, in parts between which its pods change."""

    def __init__(self, node: NodeRecord, stays: Sequence[PodStay], pods: Sequence[FleetPod], count: int):
        self.allocatable = node.state.config.view.allocatable.get(MEMORY, 0)
        places = [
            (stay, _first_sample(stay.begins_s), min(_first_sample(stay.ends_s), count)) for stay in stays
        ]
        changes = sorted({0, count, *(begin for _, begin, _ in places), *(end for _, _, end in places)})
        self.parts = [
            self._samples(
                range(begin, end),
                {
                    f"{number}": (stay, pods[stay.pod])
                    for number, (stay, first, last) in enumerate(places)
                    if first <= begin < last
                },
            )
            for begin, end in pairwise(changes)
        ]
        self.requested = [part.requested for part in self.parts for _ in part.times_ns]
        self.used = [used for part in self.parts for used in part.used]

    def _samples(self, numbers: range, present: Mapping[str, tuple[PodStay, FleetPod]]) -> NodeSamples:
        times_ns = tuple(number * INTERVAL_S * SECOND_NS for number in numbers)
        pods = tuple(
            UsageSamples(
                times_ns=times_ns,
                usage=[_used_bytes(pod, number * INTERVAL_S - stay.begins_s) for number in numbers],
                request=scheduler_usage(pod.pod).get(MEMORY, 0),
                capacity=self.allocatable,
                is_memory=True,
            )
            for stay, pod in present.values()
        )
        return NodeSamples(
            times_ns=times_ns, pods=pods, names=tuple(present), capacity=self.allocatable, is_memory=True
        )

    def room(self, predictor: Predictor) -> list[int]:
        """What is left of the node beside what its pods keep, at each time."""
        states: Mapping[str, State] = {}
        room: list[int] = []
        for part in self.parts:
            states, reserved = node_reservations(predictor, part, states)
            room += [max(self.allocatable - kept, 0) for kept in reserved]
        return room


def _first_sample(at_s: float) -> int:
    return math.ceil(at_s / INTERVAL_S) if at_s < math.inf else MAX_TIMES


def _used_bytes(pod: FleetPod, since_start_s: float) -> int | None:
    """What the pod uses so long after its start; None: unknown."""
    place = bisect_right(pod.usage, since_start_s, key=lambda step: step.at_s)
    return pod.usage[place - 1].memory_bytes if place else None


def _mean(columns: Iterable[Sequence[int]]) -> int:
    """The mean over time of the sum of these columns."""
    total: Sequence[int] = []
    for column in columns:
        total = list(map(add, total, column)) if total else column
    return sum(total) // max(len(total), 1)


def _room(
    predictor: Predictor, rooms: Sequence[Sequence[int]], *, used: int, allocatable: int
) -> BestEffortRoom:
    """The room of all nodes; borrowers of 1 GiB take all of it, and end when a node has less."""
    mean, piece = _mean(rooms), PIECES[True]
    terms, ended = Counter[int](), 0
    for room in rooms:
        counts = [amount // piece for amount in room]
        terms += borrower_terms(counts, [number * INTERVAL_S * SECOND_NS for number in range(len(counts))])
        ended += sum(max(before - after, 0) for before, after in pairwise(counts))
    return BestEffortRoom(
        predictor=predictor.name,
        margin_percent=predictor.margin_percent,
        mean=mean,
        hours=round(sum(sum(room[:-1]) for room in rooms) * INTERVAL_S / piece / 3600, 1),
        term_seconds=term_percentiles(terms),
        ended=ended,
        utilization=round((used + mean) / allocatable, 3) if allocatable else 0.0,
    )
