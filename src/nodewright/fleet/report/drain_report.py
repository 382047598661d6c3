"""The drain of nodes: which pods are evicted and when, where their replacements go, and what a shutdown grants each pod."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.core.disruption.node_shutdown import shutdown_groups, shutdown_periods
from nodewright.engine.core.disruption.pod_eviction import DrainFlag, drain_flags
from nodewright.fleet.load.fleet_input import FleetInput
from nodewright.fleet.place_changes import PlaceChange, smallest_changes
from nodewright.fleet.report.fleet_text import (
    cpus_text,
    devices_text,
    filter_rejection_text,
    numa_text,
    reason_text,
)
from nodewright.fleet.runner import Options, fleet_result, fleet_simulation
from nodewright.fleet.simulation.node_drains import Eviction
from nodewright.fleet.simulation.outcomes import FleetEvent, FleetEventKind, FleetPodRecord, PodOutcome
from nodewright.fleet.workload import FleetNode
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S
from nodewright.model.reasons.reason import sentence

MAX_SEARCHES = 20
"""Of so many different pods without a place the changes that give them one are looked for."""


class DrainOutcome(StrEnum):
    """What a drain does to a pod."""

    MOVED = "moved"
    """Its replacement runs on another node."""
    RETURNED = "returned"
    """Its replacement runs on a node that is drained: it tolerates the cordon."""
    REPLACED_BEFORE = "replaced before"
    """It is being deleted already, and its controller has replaced it."""
    KEPT = "kept"
    """`kubectl drain` leaves it on the node."""
    UNDECIDED = "undecided"
    """Whether the kubelet of the chosen node admits its replacement is not known."""
    REJECTED = "rejected"
    """The kubelet of the node that the scheduler chooses rejects its replacement, each time."""
    NO_PLACE = "no place"
    """The scheduler finds no node for its replacement."""
    NOT_REPLACED = "not replaced"
    """It is evicted, and no controller replaces it."""
    BLOCKED = "blocked"
    """It is not evicted."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is lost."""
        return self in tuple(DrainOutcome)[:4]


class DrainedPod(Report, frozen=True, kw_only=True):
    """A pod of a node that is drained.

    Units: seconds.
    """

    namespace: str
    name: str
    owner: str | UnsetType = UNSET
    """The kind and the name of its controller."""
    outcome: DrainOutcome
    flags: tuple[DrainFlag, ...]
    """What `kubectl drain` wants for it."""
    round: int | UnsetType = UNSET
    """The round in which it is evicted, from 1, or last refused; each begins when the replacements of the last one run."""
    code: int | UnsetType = UNSET
    """The HTTP status of the eviction API if it refuses the eviction; 429: kubectl tries again."""
    budget: str | UnsetType = UNSET
    """The PodDisruptionBudget that refuses the eviction, or that is charged."""
    node: str | UnsetType = UNSET
    """Where its replacement runs."""
    cpus: str | UnsetType = UNSET
    numa: str | UnsetType = UNSET
    devices: str | UnsetType = UNSET
    why: tuple[str, ...]
    """Why it stays or is not evicted, or its replacement has no place or may have none."""
    changes: tuple[PlaceChange, ...] | UnsetType = UNSET
    """The smallest change of each kind that gives it a place; absent: it has one, or they were not looked for."""
    asked_seconds: int
    """Its `terminationGracePeriodSeconds`."""
    granted_seconds: int | UnsetType = UNSET
    """Of them, what a shutdown grants; absent: the kubelet terminates no pods at shutdown."""
    begins_by_seconds: int | UnsetType = UNSET
    """When it is terminated at the latest after the shutdown begins: earlier if all pods before it have ended."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class NodeDrainReport(Report, frozen=True, kw_only=True):
    """The drain of one node, and what its shutdown would grant the pods that it has now."""

    node: str
    command: str
    """The `kubectl drain` that begins."""
    refusals: Mapping[str, tuple[str, ...]]
    """What kubectl prints without each flag of the command, with the pods."""
    is_drained: bool
    """Whether all pods that are to be evicted are."""
    pods: tuple[DrainedPod, ...]
    preempted: tuple[str, ...]
    """Pods that are preempted for replacements and have no place afterwards."""
    shutdown_seconds: int
    """How long the shutdown takes at most; 0: the kubelet terminates no pods, they end with the machine."""


class DrainReport(ReportDocument, frozen=True, kw_only=True):
    """What happens when nodes are drained one after the other, or shut down: `nodewright drain`."""

    kind: Literal["DrainReport"] = "DrainReport"
    drains: tuple[NodeDrainReport, ...]
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every pod is evicted and has a place afterwards."""
        pods = [pod for drain in self.drains for pod in drain.pods]
        return all(pod.outcome.is_good for pod in pods) and not any(each.preempted for each in self.drains)


def drain_report(
    fleet: FleetInput, nodes: Sequence[FleetNode], names: Sequence[str], assumed: Sequence[str] = ()
) -> DrainReport:
    """The drains of these nodes, one after the other; all are cordoned at first, as by one `kubectl drain`.

    ``nodes``: those of the fleet.
    Errors: InputError for a node that the fleet does not have, and as of the simulation.
    Follows: v1.36, kubectl/pkg/cmd/drain/drain.go, RunDrain.
    """
    numbers = {node.name: number for number, node in enumerate(nodes)}
    if unknown := [name for name in names if name not in numbers]:
        raise InputError([Fault(source=f"node/{name}", rule="there is no such node") for name in unknown])
    drains = _FleetDrain(fleet, nodes).reports([numbers[name] for name in names])
    return DrainReport(drains=drains, assumed=tuple(assumed), warnings=fleet.warnings)


class _FleetDrain:
    """A simulated fleet of which nodes are drained. Changed in place."""

    def __init__(self, fleet: FleetInput, nodes: Sequence[FleetNode]) -> None:
        self._nodes, self._events = nodes, list[FleetEvent]()
        options = Options(budgets=fleet.budgets, claims=fleet.claims, until_s=0)
        self._simulation = fleet_simulation(nodes, options, self._events.append)
        self._simulation.run(fleet.pods())
        self._records = self._simulation.records
        self._changes: dict[int, tuple[PlaceChange, ...]] = {}
        """By template."""

    def reports(self, drained: Sequence[int]) -> tuple[NodeDrainReport, ...]:
        """The drains of these nodes."""
        simulation, slots = self._simulation, self._simulation.cluster.nodes
        before = {node: [pod.pod_number for pod in slots[node].pods.values()] for node in drained}
        events: dict[int, tuple[FleetEvent, ...]] = {}
        simulation.cordon(drained)
        for node in drained:
            self._events.clear()
            simulation.drains.begin(node)
            simulation.settle()
            simulation.drains.end_all()
            events[node] = tuple(self._events)
        fleet_result(simulation, complete=True)
        return tuple(self._report(node, before[node], events[node], drained) for node in drained)

    def _report(
        self, node: int, numbers: Sequence[int], events: Sequence[FleetEvent], drained: Sequence[int]
    ) -> NodeDrainReport:
        name = self._nodes[node].name
        begins, shutdown_s = self._shutdown(node, numbers)
        unsorted = (self._pod(number, drained, begins.get(str(number))) for number in numbers)
        pods = tuple(sorted(unsorted, key=lambda pod: pod.full_name))
        flags = {flag: tuple(pod.full_name for pod in pods if flag in pod.flags) for flag in DrainFlag}
        flags = {flag: names for flag, names in flags.items() if names}
        victims = [self._records[event.pod] for event in events if event.kind is FleetEventKind.PREEMPTED]
        return NodeDrainReport(
            node=name,
            command=" ".join(["kubectl drain", name, *flags]),
            refusals={flag.refusal: names for flag, names in flags.items()},
            is_drained=not any(pod.outcome is DrainOutcome.BLOCKED for pod in pods),
            pods=pods,
            preempted=tuple(each.pod.full_name for each in victims if each.outcome is not PodOutcome.RUNNING),
            shutdown_seconds=shutdown_s,
        )

    def _pod(self, number: int, drained: Sequence[int], grant: tuple[int, int] | None) -> DrainedPod:
        record, eviction = self._records[number], self._simulation.drains.evictions.get(number)
        pod, facts, placement = record.pod, record.pod.eviction, record.placement
        outcome = drain_outcome(record, eviction, drained)
        moves = outcome in (DrainOutcome.MOVED, DrainOutcome.RETURNED, DrainOutcome.UNDECIDED)
        answer = None if eviction is None else eviction.answer
        has_empty_dir = any(volume.get("emptyDir") is not None for volume in pod.pod.spec.volumes)
        is_placeless = outcome in (DrainOutcome.NO_PLACE, DrainOutcome.REJECTED)
        return DrainedPod(
            namespace=pod.namespace,
            name=pod.name,
            owner=f"{facts.owner_kind} {facts.owner_name}" if facts.owner_kind else UNSET,
            outcome=outcome,
            flags=drain_flags(facts, has_empty_dir=has_empty_dir),
            round=eviction.round if eviction else UNSET,
            code=UNSET if answer is None or answer.is_evicted else answer.code,
            budget=(answer is not None and answer.budget) or UNSET,
            node=self._nodes[record.node].name if moves else UNSET,
            cpus=(moves and cpus_text(placement)) or UNSET,
            numa=(moves and numa_text(placement)) or UNSET,
            devices=(moves and devices_text(placement)) or UNSET,
            why=tuple(self._why(outcome, record, eviction)),
            changes=self._changes_for(number, drained) if is_placeless else UNSET,
            asked_seconds=_asked_s(record),
            granted_seconds=grant[1] if grant else UNSET,
            begins_by_seconds=grant[0] if grant else UNSET,
        )

    def _why(self, outcome: DrainOutcome, record: FleetPodRecord, eviction: Eviction | None) -> Iterator[str]:
        if eviction is None:
            yield "static pod" if record.pod.eviction.is_mirror else "DaemonSet"
        elif outcome is DrainOutcome.BLOCKED:
            yield from filter(None, (eviction.answer.message, eviction.answer.cause))
        elif outcome is DrainOutcome.NO_PLACE:
            yield from map(filter_rejection_text, record.filter_rejections)
        elif outcome is DrainOutcome.REJECTED:
            yield f"the scheduler chooses {self._nodes[record.refused_by].name}, whose kubelet rejects it"
            yield f"{reason_text(record.because[0])} ({sentence(record.because[0])})"
        elif outcome is DrainOutcome.UNDECIDED:
            yield from map(sentence, record.because)

    def _changes_for(self, number: int, drained: Sequence[int]) -> tuple[PlaceChange, ...] | UnsetType:
        template = self._simulation.templates.template_of(self._records[number].pod).number
        if template not in self._changes and len(self._changes) < MAX_SEARCHES:
            self._changes[template] = smallest_changes(self._simulation, number, drained)
        return self._changes.get(template, UNSET)

    def _shutdown(self, node: int, numbers: Sequence[int]) -> tuple[Mapping[str, tuple[int, int]], int]:
        """When each pod is terminated at the latest and what it is granted, and how long all takes; empty, 0: no shutdown."""
        parts = self._simulation.kubelets.all[node].base_config.parts
        periods = shutdown_periods(parts.kubelet, parts.gates)
        grants, passed_s, pods = dict[str, tuple[int, int]](), 0, []
        for number in numbers:
            pod, asked_s = self._records[number].pod.pod, _asked_s(self._records[number])
            spec = replace(pod.spec, termination_grace_period_seconds=asked_s)
            pods.append(replace(pod, metadata=replace(pod.metadata, uid=str(number)), spec=spec))
        for group in shutdown_groups(periods, pods) if periods else ():
            grants |= {uid: (passed_s, granted_s) for uid, granted_s in group.pod_grace_periods_s}
            passed_s += group.grace_period_s
        return grants, passed_s


_OUTCOMES = {PodOutcome.LOOPING: DrainOutcome.REJECTED, PodOutcome.REFUSED: DrainOutcome.REJECTED}


def drain_outcome(record: FleetPodRecord, eviction: Eviction | None, drained: Sequence[int]) -> DrainOutcome:
    """What the drain did to a pod."""
    if eviction is None:
        return DrainOutcome.KEPT
    if not eviction.answer.is_evicted:
        return DrainOutcome.BLOCKED
    if record.outcome is PodOutcome.DRAINED:
        is_replaced = record.pod.eviction.is_deleting and record.pod.has_controller
        return DrainOutcome.REPLACED_BEFORE if is_replaced else DrainOutcome.NOT_REPLACED
    if record.outcome is not PodOutcome.RUNNING:
        return _OUTCOMES.get(record.outcome, DrainOutcome.NO_PLACE)
    moved = DrainOutcome.RETURNED if record.node in drained else DrainOutcome.MOVED
    return DrainOutcome.UNDECIDED if record.because else moved


def _asked_s(record: FleetPodRecord) -> int:
    own_s = record.pod.pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_PERIOD_S if own_s is None else own_s
