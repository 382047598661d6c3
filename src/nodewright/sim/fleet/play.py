"""A fleet through its time: pods arrive, are placed, decided about, run and leave."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from nodewright.core.eviction import INTERVAL_S
from nodewright.model.fleet import Budget, FleetNode, FleetPod
from nodewright.model.profile import NodeProfile
from nodewright.node.evidence import with_names
from nodewright.node.state import NodeState
from nodewright.sim.agenda import Agenda
from nodewright.sim.fleet.board import Board, Seat, Tenant
from nodewright.sim.fleet.budgets import Budgets
from nodewright.sim.fleet.kubelets import Kubelet, Kubelets, Outcome, allocatable_of
from nodewright.sim.fleet.lines import Line, Lines
from nodewright.sim.fleet.preempting import way_for
from nodewright.sim.fleet.pressure import Look, Stay, next_look, reading
from nodewright.sim.fleet.roll import Roll
from nodewright.sim.fleet.scheduler import FastScheduler, LocalScore, PlainScheduler, Scheduler
from nodewright.sim.fleet.scores import by_default
from nodewright.sim.fleet.shapes import Shapes
from nodewright.sim.fleet.tally import Tally
from nodewright.sim.fleet.values import Fate, Happening, Kind, PodRecord


class Retry(StrEnum):
    """What becomes of a pod that a node refused, if a controller makes another one in its place."""

    SAME = "same"
    """The scheduler knows nothing of it and chooses as before: as it is in reality."""
    ELSEWHERE = "elsewhere"
    """The scheduler passes over nodes that refused such a pod until something changes there."""
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a fleet is played."""

    start: Callable[[NodeProfile], NodeState]
    """The state of a node that has just started with a profile."""
    score: LocalScore = by_default
    scored_by: str = "default"
    """What the score is called."""
    retry: Retry = Retry.SAME
    preempts: bool = True
    """Whether pods of higher priority send others away."""
    budgets: tuple[Budget, ...] = ()
    """Whom they had better leave in peace."""
    plain: bool = False
    """Ask every node about every pod, and remember no answers: slow, and obviously right."""
    until_s: float | None = None
    """When it ends, whatever is still to come; None: when nothing is."""
    keeps: bool = True
    """Whether pods that are done are kept one by one, or in numbers only."""


class Leaving(NamedTuple):
    """A pod has run as long as it was to, unless it went and came again meanwhile."""

    pod: int
    stay: int


class Progress(NamedTuple):
    """How far a run has come.

    Units: at_s in seconds since the beginning.
    """

    at_s: float
    arrived: int
    running: int
    waiting: int


Watch: TypeAlias = Callable[[Progress], bool]
"""Called between decisions; False ends the run there."""
Sink: TypeAlias = Callable[[Happening], None]

_SEEN_EVERY = 64
_STAYS = 100
"""How often a pod is placed at most: one that is sent away over and over is not tried for ever."""


class Play:
    """A fleet at some moment of its time. Changed in place by `run`."""

    def __init__(self, nodes: Sequence[FleetNode], setup: Setup, sink: Sink | None = None) -> None:
        self.nodes, self.setup, self.sink = nodes, setup, sink
        self.kubelets = Kubelets(nodes, setup.start, remembering=not setup.plain)
        self.board = Board([_seat(kubelet) for kubelet in self.kubelets.all])
        self.scheduler: Scheduler = (PlainScheduler if setup.plain else FastScheduler)(
            self.board, setup.score
        )
        self.shapes, self.lines = Shapes(), Lines(self.board)
        self.budgets = Budgets(setup.budgets)
        self.agenda: Agenda[Leaving | Look] = Agenda()
        self.looking: set[int] = set()
        """The nodes whose eviction managers look every ten seconds, because something is short."""
        self.records = Roll(keeps=setup.keeps)
        self.tally = Tally()
        self.now_s = 0.0
        self.numbers = {node.name: number for number, node in enumerate(nodes)}
        self.turns = 0
        """How often a line was tried."""
        self._look_at = _SEEN_EVERY
        self.resumed = False
        """Whether it stands in the middle of a moment at which another run was broken off."""

    def run(self, pods: Iterator[FleetPod], watch: Watch | None = None) -> bool:
        """Whether it came to the end: nobody arrives or leaves any more, or not in time. `watch` can end it before."""
        if self.resumed and not self._moment(watch):
            return False
        coming = next(pods, None)
        while True:
            moments = [] if coming is None else [coming.arrives_s]
            moments += [] if self.agenda.next_s is None else [self.agenda.next_s]
            if not moments and not self.lines.wake():
                return True
            if self.setup.until_s is not None and min(moments, default=self.now_s) > self.setup.until_s:
                self.now_s = max(self.now_s, self.setup.until_s)
                return True
            self.now_s = max(self.now_s, min(moments, default=self.now_s))
            for due in self.agenda.due(self.now_s):
                if isinstance(due, Look):
                    self._looked(due)
                else:
                    self._ended(due)
            while coming is not None and coming.arrives_s <= self.now_s:
                self._arrived(coming)
                coming = next(pods, None)
            if not self._moment(watch):
                return False

    def _moment(self, watch: Watch | None) -> bool:
        settled = self._settled(watch)
        if settled:
            self.tally.sample(self.now_s, self.board, self.lines.length)
        return settled

    def _arrived(self, pod: FleetPod) -> None:
        shape = self.shapes.of(pod)
        number = self.records.add(PodRecord(pod=pod, fate=Fate.WAITING, arrived_s=pod.arrives_s))
        if pod.node in self.numbers:
            kubelet = self.kubelets.all[self.numbers[pod.node]]
            uid = self.kubelets.next_uid(kubelet)
            self._placed(kubelet, uid, number, self.kubelets.arrive(kubelet, shape, found=True))
        else:
            self.lines.join(shape, number)

    def _settled(self, watch: Watch | None) -> bool:
        """Try whoever can be tried until nothing changes any more; False: the run is broken off."""
        while True:
            if watch is not None and self.turns >= self._look_at:
                self._look_at = self.turns + _SEEN_EVERY
                progress = Progress(self.now_s, self.records.arrived, self.board.running, self.lines.length)
                if not watch(progress):
                    return False
            line = self.lines.next()
            if line is not None:
                self.turns += 1
                self._try(line)
            elif not self.lines.wake():
                break
        self._tell_waiting()
        return True

    def _try(self, line: Line) -> None:
        """Find a node for the first of the line, and ask it."""
        seats, shape = self.board.seats, line.shape
        passed = self._passed_over(line)
        node = self.scheduler.choose(shape, passed)
        if node is None and self.setup.preempts:
            waiting = self.lines.counts() if self.setup.budgets else {}
            way = way_for(shape, self.board, self.budgets, waiting)
            if way is not None and way.node not in passed:
                for uid in way.uids:
                    self._sent_away(way.node, uid, Kind.PREEMPTED, by=line.pods[0].pod)
                node = self.scheduler.choose(shape, passed)
        line.seen = self.board.changes
        # The same pod on the same node: it would be refused again.
        line.is_looping = node is not None and line.refused_by.get(node) == seats[node].version
        if node is None or line.is_looping:
            return
        kubelet, number = self.kubelets.all[node], line.pods[0].pod
        uid = self.kubelets.next_uid(kubelet)
        outcome = self.kubelets.arrive(kubelet, shape)
        self.records[number].tries += 1
        for victim in outcome.victims:
            self._gone(node, victim, Kind.PREEMPTED, by=number)
        if outcome.is_in:
            self.lines.leave(line)
            self._placed(kubelet, uid, number, outcome)
            line.refused_by.clear()
        else:
            self._refused(line, kubelet, outcome)
        self.lines.ready(line)

    def _passed_over(self, line: Line) -> frozenset[int]:
        if self.setup.retry is not Retry.ELSEWHERE:
            return frozenset()
        seats = self.board.seats
        return frozenset(node for node, version in line.refused_by.items() if seats[node].version == version)

    def _placed(self, kubelet: Kubelet, uid: str, number: int, outcome: Outcome) -> None:
        record = self.records[number]
        shape = self.shapes.of(record.pod)
        self.board.put(self.board.seats[kubelet.number], uid, Tenant(number, shape, self.now_s))
        record.fate, record.node, record.placement = Fate.RUNNING, kubelet.number, outcome.placement
        record.uid, record.because, record.left_s = uid, outcome.because, -1.0
        record.stays += 1
        if record.placed_s < 0:
            record.placed_s = self.now_s
        if record.pod.runs_s is not None:
            self.agenda.note(self.now_s + record.pod.runs_s, Leaving(number, record.stays))
        for used in record.pod.usage:
            self.agenda.note(self.now_s + used.at_s, Look(kubelet.number))
        self.tally.placements += 1
        self._tell(Kind.PLACED, number, kubelet.number, placement=outcome.placement, because=outcome.because)

    def _refused(self, line: Line, kubelet: Kubelet, outcome: Outcome) -> None:
        """The pod is turned away; what its controller makes in its place is the last of the line."""
        number = line.pods[0].pod
        record = self.records[number]
        seat = self.board.seats[kubelet.number]
        names = {uid: self.records[one.pod].pod.full_name for uid, one in seat.tenants.items()}
        record.because = tuple(with_names(reason, names) for reason in outcome.because)
        record.refused_by = kubelet.number
        record.refusals += 1
        self.tally.refused(kubelet.node.shape, record.because[0])
        self._tell(Kind.REFUSED, number, kubelet.number, because=record.because)
        if self.setup.retry is Retry.NEVER or not record.pod.controlled:
            self.lines.leave(line)
            record.fate = Fate.REFUSED
            record.left_s = self.now_s
            self.records.done(number)
        else:
            line.refused_by[kubelet.number] = seat.version
            line.seen = -1

    def _ended(self, leaving: Leaving) -> None:
        record = self.records.get(leaving.pod)
        if record is None or record.fate is not Fate.RUNNING or record.stays != leaving.stay:
            return
        self._sent_away(record.node, record.uid, Kind.ENDED)

    def _looked(self, look: Look) -> None:
        """The eviction manager of a node looks at what its pods use."""
        node, records = look.node, self.records
        kubelet, tenants = self.kubelets.all[node], self.board.seats[node].tenants
        stays = {uid: Stay(records[one.pod].pod.usage, one.since_s) for uid, one in tenants.items()}
        told = {uid: stay for uid, stay in stays.items() if stay.usage}
        event, used_bytes = reading(kubelet.known.state, told, self.now_s)
        evicted = self.kubelets.observe(kubelet, event)
        for uid in evicted:
            self._gone(node, uid, Kind.EVICTED)
        is_second = look.used_bytes >= 0
        again = next_look(look, kubelet.known.state, used_bytes, evicted=bool(evicted))
        if again is not None and (is_second or node not in self.looking):
            self.looking.add(node)
            self.agenda.note(self.now_s + INTERVAL_S, again)
        elif is_second:
            self.looking.discard(node)

    def _sent_away(self, node: int, uid: str, kind: Kind, by: int = -1) -> None:
        self.kubelets.leave(self.kubelets.all[node], uid)
        self._gone(node, uid, kind, by)

    def _gone(self, node: int, uid: str, kind: Kind, by: int = -1) -> None:
        """A pod has left; its controller makes another one unless it ran to its end."""
        number = self.board.take(self.board.seats[node], uid).pod
        record = self.records[number]
        record.left_s, record.fate = self.now_s, Fate(kind.value)
        self.lines.freed(node)
        self.tally.gone(kind)
        self._tell(kind, number, node, by=by)
        if kind is not Kind.ENDED and record.pod.controlled:
            if record.stays < _STAYS:
                record.fate = Fate.WAITING
                self.lines.join(self.shapes.of(record.pod), number)
                return
            self._tell(Kind.LOOPING, number, node)
        self.records.done(number)

    def _tell_waiting(self) -> None:
        untold, self.lines.untold = self.lines.untold, []
        for shape, pod in untold if self.sink is not None else ():
            record = self.records.get(pod)
            if record is not None and record.fate is Fate.WAITING:
                self._tell(Kind.LOOPING if self.lines.lines[shape].is_looping else Kind.WAITING, pod)

    def _tell(self, kind: Kind, pod: int, node: int = -1, **more: object) -> None:
        if self.sink is not None:
            self.sink(Happening(self.now_s, kind, pod, node, **more))  # type: ignore[arg-type] # as given


def _seat(kubelet: Kubelet) -> Seat:
    node = kubelet.node
    seat = Seat(
        kubelet.number,
        node.name,
        allocatable_of(kubelet),
        node.labels,
        node.taints,
        cordoned=node.unschedulable,
    )
    seat.cpus_free_by_numa = kubelet.cpus_free_by_numa
    return seat
