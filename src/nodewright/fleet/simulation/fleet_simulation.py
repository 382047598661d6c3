"""Simulates a fleet in virtual time: pods arrive, are scheduled, admitted, run and end."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.eviction.eviction_policy import MONITORING_PERIOD_S
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.resource_holders import with_pod_names
from nodewright.fleet.simulation.cluster_view import AssignedPod, ClusterView, NodeSlot
from nodewright.fleet.simulation.kubelets import (
    AdmissionOutcome,
    EvictionCheck,
    PlacedUsage,
    SimulatedKubelet,
    SimulatedKubelets,
    allocatable_of,
    next_check,
    own_config,
    usage_reading,
)
from nodewright.fleet.simulation.node_drains import NodeDrains
from nodewright.fleet.simulation.outcomes import (
    FleetEvent,
    FleetEventKind,
    FleetPodRecord,
    PodOutcome,
    PodRecords,
    SimulationCounters,
)
from nodewright.fleet.simulation.pending_queue import PendingQueue, TemplateQueue
from nodewright.fleet.simulation.placed_claims import PlacedClaims, with_served
from nodewright.fleet.simulation.pod_templates import PodTemplate, PodTemplates
from nodewright.fleet.simulation.scheduler import (
    ExhaustiveScheduler,
    IncrementalScheduler,
    NodeScore,
    Scheduler,
)
from nodewright.fleet.simulation.scheduler_preemption import (
    DisruptionBudgets,
    PreemptionPlan,
    preemption_plan,
)
from nodewright.fleet.simulation.scores import ImageLocality, default_score
from nodewright.fleet.workload import DisruptionBudget, FleetNode, FleetPod
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.model.values.event_queue import EventQueue


class Retry(StrEnum):
    """How a pod that a kubelet rejected is scheduled again after its controller has replaced it."""

    SAME = "same"
    """The scheduler does not know of the rejection and chooses as before, as in a real cluster."""
    ELSEWHERE = "elsewhere"
    """The scheduler skips nodes that rejected such a pod until they change."""
    NEVER = "never"


class ScheduledDrain(msgspec.Struct, frozen=True):
    """A node that is cordoned and drained at a time.

    Units: at_s in seconds since the beginning.
    """

    node: str
    at_s: float


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run."""

    scores: str = "default"
    """A name in `runner.SCORES`, or the name of a node scorer in `policies`."""
    retry: Retry = Retry.SAME
    preemption: bool = True
    """Whether pods of higher priority preempt others."""
    budgets: tuple[DisruptionBudget, ...] = ()
    """Budgets that preemption respects where possible, and drains always."""
    drains: tuple[ScheduledDrain, ...] = ()
    """Nodes that are drained; their pods are evicted as budgets allow it, and placed elsewhere."""
    claims: ClaimCluster | None = None
    """The objects of Dynamic Resource Allocation; None: there are none."""
    policies: tuple[CustomPolicy, ...] = ()
    """Custom policies: those of the kubelets, and node scorers."""
    until_s: float | None = None
    """When the run ends, in seconds; None: after the last event."""
    exhaustive: bool = False
    """Evaluate every node for every pod, without caches: slow, for comparison."""
    keep_finished_pods: bool = True
    """Keep the record of every pod. False: finished pods are only counted, so that memory grows with the pods that
    exist at one time and not with the length of the trace."""
    samples_nodes: bool = False
    """Sample the load of each node over time: up to 96 times, for all nodes."""
    extender: bool = False
    """The scheduler asks each node's kubelet before it binds a pod, as with `nodewright extender`."""


class PodCompletion(msgspec.Struct, frozen=True, gc=False):
    """The end of a pod's running time; outdated if the pod has been placed again since."""

    pod: int
    placement: int


class Progress(NamedTuple):
    """Progress of a simulation.

    Units: at_s in seconds since the beginning.
    """

    at_s: float
    arrived: int
    running: int
    waiting: int


ProgressCallback: TypeAlias = Callable[[Progress], bool]
"""Called between decisions; False interrupts the simulation."""
EventSink: TypeAlias = Callable[[FleetEvent], None]

_OUTCOMES = {
    kind: PodOutcome(kind.value)
    for kind in (
        FleetEventKind.ENDED,
        FleetEventKind.PREEMPTED,
        FleetEventKind.EVICTED,
        FleetEventKind.DRAINED,
    )
}
"""The outcome of a pod that left its node."""
_PROGRESS_INTERVAL = 64
_MAX_PLACEMENTS = 100
"""Maximum number of placements of one pod, so that a pod that is preempted again and again does not loop."""


class FleetSimulation:
    """A fleet at a time of its simulation. Changed in place by `run`."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        options: Options,
        *,
        start_node: Callable[[NodeProfile], NodeState],
        score: NodeScore = default_score,
        sink: EventSink | None = None,
    ) -> None:
        """``start_node`` returns the state of a node that has just started with a profile."""
        self.nodes, self.options, self.sink = nodes, options, sink
        self.kubelets = SimulatedKubelets(nodes, start_node, is_caching=not options.exhaustive)
        self.claims = None if options.claims is None else PlacedClaims(options.claims, self._named_state)
        self.cluster = ClusterView([_node_slot(kubelet, options.claims) for kubelet in self.kubelets.all])
        self._score = ImageLocality(nodes).with_locality(score)
        self.scheduler = self._new_scheduler()
        self.templates, self.queue = PodTemplates(), PendingQueue(self.cluster)
        self.budgets = DisruptionBudgets(options.budgets)
        self.events: EventQueue[float, PodCompletion | EvictionCheck | ScheduledDrain] = EventQueue()
        self.nodes_under_check: set[int] = set()
        """Nodes under pressure, whose usage is checked every ten seconds."""
        self.records = PodRecords(keep_finished=options.keep_finished_pods)
        self.drains = NodeDrains(self.cluster, self.records, self._drain_pod, options.budgets)
        self.counters = SimulationCounters(samples_nodes=options.samples_nodes)
        self.now_s = 0.0
        self.node_numbers = {node.name: number for number, node in enumerate(nodes)}
        for drain in options.drains:
            if drain.node in self.node_numbers:
                self.events.schedule(drain.at_s, drain)
        self.attempts = 0
        """Number of scheduling attempts."""
        self._next_progress_at = _PROGRESS_INTERVAL

    def _named_state(self, node: int) -> NodeState:
        kubelet = self.kubelets.all[node]
        return replace(kubelet.start, config=own_config(kubelet))

    def run(self, pods: Iterator[FleetPod], watch: ProgressCallback | None = None) -> bool:
        """Runs the simulation; True when no event is left before its end, False when ``watch`` interrupted it."""
        next_pod, until_s = next(pods, None), self.options.until_s
        while True:
            due_s = self.events.next_due
            if next_pod is not None and (due_s is None or next_pod.arrives_s < due_s):
                due_s = next_pod.arrives_s
            if due_s is None and not self.queue.activate_after_changes():
                return True
            due_s = max(self.now_s, self.now_s if due_s is None else due_s)
            if until_s is not None and due_s > until_s:
                self.now_s = max(self.now_s, until_s)
                return True
            self.now_s = due_s
            for due in self.events.pop_due(self.now_s):
                match due:
                    case EvictionCheck():
                        self._check_usage(due)
                    case ScheduledDrain(node=name):
                        self.cordon([self.node_numbers[name]])
                        self.drains.begin(self.node_numbers[name])
                    case PodCompletion():
                        self._complete_pod(due)
            while next_pod is not None and next_pod.arrives_s <= self.now_s:
                self._add_arrival(next_pod)
                next_pod = next(pods, None)
            if not self.settle(watch):
                return False
            self.counters.add_sample(self.now_s, self.cluster, self.queue.length)

    def _new_scheduler(self) -> Scheduler:
        kind = ExhaustiveScheduler if self.options.exhaustive else IncrementalScheduler
        return kind(self.cluster, self._score)

    def cordon(self, nodes: Iterable[int]) -> None:
        """Lets the scheduler place no more pods on these nodes, but for those that tolerate it."""
        for node in nodes:
            self.cluster.nodes[node].unschedulable = True
        self.scheduler = self._new_scheduler()  # Its caches assume that nodes stay as they are.

    def _drain_pod(self, record: FleetPodRecord) -> None:
        self._remove_from_node(record.node, record.uid, FleetEventKind.DRAINED)

    def _add_arrival(self, pod: FleetPod) -> None:
        template = self.templates.template_of(pod)
        number = self.records.add(
            FleetPodRecord(pod=pod, outcome=PodOutcome.WAITING, arrived_s=pod.arrives_s)
        )
        if pod.node in self.node_numbers:
            kubelet = self.kubelets.all[self.node_numbers[pod.node]]
            uid = self.kubelets.next_uid(kubelet)
            outcome = self.kubelets.admit(kubelet, template, uid, is_running=True)
            self._record_placement(kubelet, uid, number, template, outcome)
        else:
            self.queue.add_pod(template, number)

    def settle(self, watch: ProgressCallback | None = None) -> bool:
        """Evicts pods of drained nodes and places all that can be, until nothing changes any more; False: interrupted."""
        while self._settle(watch):
            if not self.drains.evict_round():
                return True
        return False

    def _settle(self, watch: ProgressCallback | None) -> bool:
        """Tries all active queues until nothing changes any more; False: the simulation is interrupted."""
        while True:
            if watch is not None and self.attempts >= self._next_progress_at:
                self._next_progress_at = self.attempts + _PROGRESS_INTERVAL
                progress = Progress(
                    self.now_s, self.records.arrived_count, self.cluster.running, self.queue.length
                )
                if not watch(progress):
                    return False
            queue = self.queue.pop_active()
            if queue is not None:
                self.attempts += 1
                self._schedule_first(queue)
            elif not self.queue.activate_after_changes():
                break
        self._emit_waiting()
        return True

    def _schedule_first(self, queue: TemplateQueue) -> None:
        """Schedules the first pod of a queue, and admits it on the chosen node."""
        slots, template = self.cluster.nodes, queue.template
        skipped = self._skipped_nodes(queue)
        lacking = self._nodes_without_devices(queue)
        node = self._chosen_node(queue, skipped | lacking)
        if node is None and self.options.preemption:
            waiting = self.queue.pending_counts() if self.options.budgets else {}
            plan = preemption_plan(template, self.cluster, self.budgets, waiting, lacking)
            if plan is not None and plan.node not in skipped and self._makes_room(template, plan):
                for uid in plan.uids:
                    self._remove_from_node(
                        plan.node, uid, FleetEventKind.PREEMPTED, preemptor=queue.pods[0].pod_number
                    )
                node = plan.node
        queue.tried_at_generation = self.cluster.generation
        # The same pod on an unchanged node would be rejected again.
        queue.is_looping = node is not None and queue.refused_by.get(node) == slots[node].generation
        if node is None or queue.is_looping:
            return
        kubelet, number = self.kubelets.all[node], queue.pods[0].pod_number
        uid = self.kubelets.next_uid(kubelet)
        outcome = self.kubelets.admit(kubelet, template, uid)
        self.records[number].admission_attempts += 1
        for victim in outcome.victims:
            self._record_removal(node, victim, FleetEventKind.PREEMPTED, preemptor=number)
        if outcome.is_placed:
            self.queue.remove_first(queue)
            self._record_placement(kubelet, uid, number, template, outcome)
            queue.refused_by.clear()
        else:
            self._record_rejection(queue, kubelet, outcome)
        self.queue.activate(queue)

    def _nodes_without_devices(self, queue: TemplateQueue) -> frozenset[int]:
        """The nodes where the claims of the first pod get no devices; preemption does not change it."""
        obstacle = self.claim_obstacle(queue.template, queue.pods[0].pod_number)
        if obstacle is None:
            return frozenset()
        return frozenset(slot.number for slot in self.cluster.nodes if obstacle(slot.number))

    def claim_obstacle(self, template: PodTemplate, number: int) -> Callable[[int], str] | None:
        """Why the claims of the pod get no devices on a node, empty: they do; None: it has no claims."""
        if self.claims is None or not self.claims.has_claims(template):
            return None
        return partial(self.claims.obstacle, template, self.records[number], number)

    def _chosen_node(self, queue: TemplateQueue, skipped: frozenset[int]) -> int | None:
        """The best node; with an extender the best of those whose kubelets admit the pod."""
        if not self.options.extender:
            return self.scheduler.choose(queue.template, skipped)
        slots, known = self.cluster.nodes, queue.would_be_refused_by
        excluded = {node for node, generation in known.items() if slots[node].generation == generation}
        while True:
            node = self.scheduler.choose(queue.template, skipped | excluded)
            if node is None or self.kubelets.would_admit(self.kubelets.all[node], queue.template):
                return node
            known[node] = slots[node].generation
            excluded.add(node)

    def _makes_room(self, template: PodTemplate, plan: PreemptionPlan) -> bool:
        """Whether the kubelet admits the pod without the victims, which only an extender knows before."""
        kubelet = self.kubelets.all[plan.node]
        return not self.options.extender or self.kubelets.would_admit(kubelet, template, without=plan.uids)

    def _skipped_nodes(self, queue: TemplateQueue) -> frozenset[int]:
        if self.options.retry is not Retry.ELSEWHERE:
            return frozenset()
        slots = self.cluster.nodes
        return frozenset(
            node for node, generation in queue.refused_by.items() if slots[node].generation == generation
        )

    def _record_placement(
        self,
        kubelet: SimulatedKubelet,
        uid: str,
        number: int,
        template: PodTemplate,
        outcome: AdmissionOutcome,
    ) -> None:
        record = self.records[number]
        started_at_s = record.started_at_s(self.now_s, is_first=record.placements == 0)
        assigned = AssignedPod(number, template, self.now_s, started_at_s)
        self.cluster.add_pod(self.cluster.nodes[kubelet.number], uid, assigned)
        record.outcome, record.node, record.placement = PodOutcome.RUNNING, kubelet.number, outcome.placement
        record.uid, record.because, record.left_s = uid, outcome.because, -1.0
        record.placements += 1
        if self.claims is not None and self.claims.has_claims(template):
            self.claims.add(template, record, number, kubelet.number)
        if record.placed_s < 0:
            record.placed_s = self.now_s
        if record.pod.runs_s is not None:
            self.events.schedule(self.now_s + record.pod.runs_s, PodCompletion(number, record.placements))
        for used in record.pod.usage:
            self.events.schedule(self.now_s + used.at_s, EvictionCheck(kubelet.number))
        self.counters.placements += 1
        if self.sink is not None:
            self._emit(
                FleetEventKind.PLACED,
                number,
                kubelet.number,
                placement=outcome.placement,
                because=outcome.because,
            )

    def _record_rejection(
        self, queue: TemplateQueue, kubelet: SimulatedKubelet, outcome: AdmissionOutcome
    ) -> None:
        """Records a rejection; the replacement by the pod's controller is tried next."""
        number = queue.pods[0].pod_number
        record = self.records[number]
        slot = self.cluster.nodes[kubelet.number]
        names = {uid: self.records[pod.pod_number].pod.full_name for uid, pod in slot.pods.items()}
        record.because = tuple(with_pod_names(reason, names) for reason in outcome.because)
        record.refused_by = kubelet.number
        record.refusals += 1
        self.counters.count_refusal(kubelet.node.shape, record.because[0])
        self._emit(FleetEventKind.REFUSED, number, kubelet.number, because=record.because)
        if self.options.retry is Retry.NEVER or not record.pod.has_controller:
            self.queue.remove_first(queue)
            record.outcome = PodOutcome.REFUSED
            record.left_s = self.now_s
            self.records.finish(number)
        else:
            queue.refused_by[kubelet.number] = slot.generation
            queue.tried_at_generation = -1

    def _complete_pod(self, completion: PodCompletion) -> None:
        record = self.records.get(completion.pod)
        if (
            record is None
            or record.outcome is not PodOutcome.RUNNING
            or record.placements != completion.placement
        ):
            return
        self._remove_from_node(record.node, record.uid, FleetEventKind.ENDED)

    def _check_usage(self, check: EvictionCheck) -> None:
        """Makes an eviction check on a node."""
        node, records = check.node, self.records
        kubelet, pods = self.kubelets.all[node], self.cluster.nodes[node].pods
        usages = {
            uid: PlacedUsage(records[pod.pod_number].pod.usage, pod.placed_at_s) for uid, pod in pods.items()
        }
        known = {uid: placed for uid, placed in usages.items() if placed.usage}
        event, used_bytes = usage_reading(kubelet.state, known, self.now_s)
        evicted = self.kubelets.observe_usage(kubelet, event)
        for uid in evicted:
            self._record_removal(node, uid, FleetEventKind.EVICTED)
        is_followup = check.used_bytes >= 0
        followup = next_check(check, kubelet.state, used_bytes, evicted=bool(evicted))
        if followup is not None and (is_followup or node not in self.nodes_under_check):
            self.nodes_under_check.add(node)
            self.events.schedule(self.now_s + MONITORING_PERIOD_S, followup)
        elif is_followup:
            self.nodes_under_check.discard(node)

    def _remove_from_node(self, node: int, uid: str, kind: FleetEventKind, preemptor: int = -1) -> None:
        self.kubelets.remove_pod(self.kubelets.all[node], uid)
        self._record_removal(node, uid, kind, preemptor)

    def _record_removal(self, node: int, uid: str, kind: FleetEventKind, preemptor: int = -1) -> None:
        """Records that a pod was removed; its controller replaces it unless it ran to completion."""
        number = self.cluster.remove_pod(self.cluster.nodes[node], uid).pod_number
        record = self.records[number]
        record.left_s, record.outcome = self.now_s, _OUTCOMES[kind]
        if self.claims is not None:
            self.claims.remove(number)
        self.queue.nodes_with_removals.add(node)
        self.counters.count_departure(kind)
        if self.sink is not None:
            self._emit(kind, number, node, preemptor=preemptor)
        if kind is not FleetEventKind.ENDED and record.pod.has_controller and not _is_replaced(record.pod):
            if record.placements < _MAX_PLACEMENTS:
                record.outcome = PodOutcome.WAITING
                self.queue.add_pod(self.templates.template_of(record.pod), number)
                return
            self._emit(FleetEventKind.LOOPING, number, node)
        self.records.finish(number)

    def _emit_waiting(self) -> None:
        unreported = self.queue.unreported
        if not unreported:
            return
        self.queue.unreported = []
        for template, pod in unreported if self.sink is not None else ():
            record = self.records.get(pod)
            if record is not None and record.outcome is PodOutcome.WAITING:
                self._emit(
                    FleetEventKind.LOOPING
                    if self.queue.queues[template].is_looping
                    else FleetEventKind.WAITING,
                    pod,
                )

    def _emit(self, kind: FleetEventKind, pod: int, node: int = -1, **details: object) -> None:
        if self.sink is not None:
            self.sink(FleetEvent(self.now_s, kind, pod, node, **details))  # type: ignore[arg-type] # fields of FleetEvent


def _is_replaced(pod: FleetPod) -> bool:
    """Whether its controller has replaced it already, as most do once a pod is being deleted.

    Follows: v1.36, pkg/controller/statefulset/stateful_set_control.go, processReplica: a StatefulSet waits for the end.
    """
    return pod.eviction.is_deleting and pod.eviction.owner_kind != "StatefulSet"


def _node_slot(kubelet: SimulatedKubelet, claims: ClaimCluster | None) -> NodeSlot:
    node = kubelet.node
    allocatable = with_served(allocatable_of(kubelet), claims, kubelet.base_config.gates)
    slot = NodeSlot(
        kubelet.number,
        node.name,
        allocatable,
        node.labels,
        node.taints,
        cordoned=node.unschedulable,
    )
    slot.cpus_free_by_numa = kubelet.cpus_free_by_numa
    return slot
