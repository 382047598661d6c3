"""The pods that are preempted for critical pods, as tables, as a report and as names."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from math import gcd
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.core.preemption.greedy import (
    CandidateDistance,
    MissingAmount,
    PreemptionCandidate,
    PreemptionRound,
    PreemptionVictims,
)
from nodewright.engine.core.preemption.optimal import Cover, PreemptionCost, SmallestPreemption
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.previews import PreemptionPreview
from nodewright.engine.node.step import Decision
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.printable import counted, printable_line, printable_lines
from nodewright.model.reasons.reason import Reason, kubelet_text, sentence
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReportedObstacle,
    message_origin,
    referenced_pod,
    reported_obstacles,
)
from nodewright.predict.reported import reported
from nodewright.predict.verdict import Verdict, verdict_of
from nodewright.version import install_command

SHOWN_CANDIDATES = 5
"""Number of candidates that each round shows without `-o wide`."""


class PreemptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The preview for one pod, and the smallest choice of victims if requested."""

    preview: PreemptionPreview
    optimum: SmallestPreemption | None = None
    origin: str = ""
    """The object that creates the pod, e.g. `DaemonSet dns`."""
    scheduler: tuple[SchedulerObstacle, ...] = ()
    """Why the scheduler never binds the pod to the node."""

    @property
    def verdict(self) -> Verdict:
        """What becomes of the pod."""
        assert self.preview.step.decision is not None
        return verdict_of(self.preview.step.decision, self.scheduler)

    @property
    def victims(self) -> tuple[PreemptionCandidate, ...]:
        """The kubelet's victims, in order of termination."""
        return self.selection.victims if self.selection else ()

    @property
    def selection(self) -> PreemptionVictims | None:
        """The kubelet's choice of victims; None: it preempts no pod."""
        return None if self.verdict is Verdict.UNSCHEDULABLE else self.preview.step.victims


def preemption_text(entries: Iterable[PreemptionEntry], *, wide: bool = False) -> str:
    """For each pod the decision, the victims and each candidate's distance in each round."""
    return "\n".join(_entry_text(entry, wide=wide) for entry in entries)


def victim_names(entries: Iterable[PreemptionEntry]) -> str:
    """The victims in order, one line each, as kubectl names them: the smallest choice if requested."""
    return printable_lines(
        f"pod/{victim.pod.metadata.name}"
        for entry in entries
        for victim in (entry.optimum.victims if entry.optimum else entry.victims)
    )


def _entry_text(entry: PreemptionEntry, *, wide: bool) -> str:
    preview = entry.preview
    origin = f" (of {entry.origin})" if entry.origin else ""
    lines = [f"{preview.pod.full_name}{origin}: {entry.verdict}, {_summary(entry)}"]
    if preview.step.decision is Decision.REFUSED:
        lines.append(
            f"  {message_origin(preview.step.because[0])}: {kubelet_text(preview.step.because[0]).message}"
        )
    for obstacle in entry.scheduler:
        lines += [f"  - {obstacle.why}", *(f"    - {text}" for text in obstacle.details if wide)]
    lines += [f"  - {sentence(reason)}" for reason in preview.step.because]
    if preview.missing and entry.verdict is not Verdict.UNSCHEDULABLE:
        lines.append(f"  missing: {_amounts(preview.missing)}")
    parts = [printable_lines(lines)]
    if entry.victims:
        parts.append(_pods("VICTIM", entry.victims, preview.missing))
    if entry.selection is not None and entry.selection.rounds:
        parts.append(_rounds(entry.selection.rounds, wide=wide))
    if preview.unmet and preview.candidates:
        parts.append(_pods("CANDIDATE", preview.candidates, preview.missing))
    if entry.optimum is not None:
        parts.append(_optimal(entry.optimum, preview.missing))
    return "\n".join(parts)


def _summary(entry: PreemptionEntry) -> str:
    preview = entry.preview
    if entry.verdict is Verdict.UNSCHEDULABLE:
        return "preempts no pod: the scheduler does not bind it to this node"
    if preview.step.victims is not None:
        return f"preempts {len(entry.victims)} of {counted(len(preview.candidates), 'candidate')}"
    if preview.unmet:
        return f"preempts no pod: {_not_enough(len(preview.candidates))}"
    if preview.step.decision is Decision.ADMITTED:
        return "no preemption needed"
    if not preview.critical:
        return "preempts no pod: it is not critical (static, or priority 2000000000 and above)"
    return "preempts no pod: the refusal is not only for lack of resources"


def _not_enough(candidates: int) -> str:
    if not candidates:
        return "the node has no pod that it may preempt"
    return f"{counted(candidates, 'candidate')}{' together' if candidates > 1 else ''} cannot free enough"


def _pods(header: str, pods: Iterable[PreemptionCandidate], missing: Sequence[MissingAmount]) -> str:
    return table(
        (header, "QOS", "PRIORITY", "FREES"),
        [(pod.pod.full_name, pod.qos_class.value, _priority(pod.pod), _freed(pod, missing)) for pod in pods],
    )


def _rounds(rounds: Sequence[PreemptionRound], *, wide: bool) -> str:
    rows = []
    for number, preemption_round in enumerate(rounds, 1):
        head = (str(number), preemption_round.qos_class.value, _amounts(preemption_round.missing))
        # The picked candidate is first: it has the smallest distance.
        nearest = _by_distance(preemption_round)
        for candidate, distance in nearest if wide else nearest[:SHOWN_CANDIDATES]:
            mark = "picked" if candidate is preemption_round.picked else ""
            rows.append((*head, candidate.pod.full_name, f"{distance:.6g}", mark))
            head = ("", "", "")
        if not wide and len(nearest) > SHOWN_CANDIDATES:
            rows.append((*head, f"and {len(nearest) - SHOWN_CANDIDATES} more (-o wide)", "", ""))
    return table(("ROUND", "QOS", "MISSING", "CANDIDATE", "DISTANCE", ""), rows)


def _by_distance(preemption_round: PreemptionRound) -> list[CandidateDistance]:
    return sorted(
        preemption_round.distances,
        key=lambda each: (each.distance, each.candidate is not preemption_round.picked),
    )


def _optimal(best: SmallestPreemption, missing: Sequence[MissingAmount]) -> str:
    certainty = "proved" if best.proved else f"not proved: search stopped after {counted(best.steps, 'step')}"
    if best.cost == best.greedy_cost:
        return printable_line(f"no smaller choice than the kubelet's found ({certainty})")
    rows = [("kubelet", *_cost_cells(best.greedy_cost, best)), ("smallest", *_cost_cells(best.cost, best))]
    headers = ("CHOICE", "GUARANTEED", "BURSTABLE", "BESTEFFORT", *(name.upper() for name in best.resources))
    return "\n".join(
        (
            printable_line(f"smallest choice ({certainty}):"),
            _pods("VICTIM", best.victims, missing),
            table(headers, rows),
        )
    )


def _cost_cells(cost: PreemptionCost, best: SmallestPreemption) -> list[str]:
    sums = zip(best.resources, cost.requests, strict=True)
    counts = map(str, (cost.guaranteed, cost.burstable, cost.best_effort))
    return [*counts, *(readable_amount(name, amount) for name, amount in sums)]


def _amounts(amounts: Iterable[MissingAmount]) -> str:
    return ", ".join(f"{name} {readable_amount(name, amount)}" for name, amount in amounts)


def _freed(candidate: PreemptionCandidate, missing: Iterable[MissingAmount]) -> str:
    return _amounts(MissingAmount(name, candidate.frees(name)) for name, _ in missing)


def _priority(pod: Pod) -> str:
    return "-" if pod.spec.priority is None else str(pod.spec.priority)


class PrioritizedPod(Inlined, frozen=True, kw_only=True):
    """A pod with its priority."""

    name: str
    namespace: str
    uid: str
    priority: int | None


class ReportedCandidate(Report, frozen=True, kw_only=True):
    """A pod that may be preempted."""

    pod: PrioritizedPod
    qos_class: QOSClass
    requests: Mapping[str, int]


class PodDistance(Report, frozen=True, kw_only=True):
    """A candidate's distance from the missing amounts."""

    pod: PrioritizedPod
    distance: float


class ReportedRound(Report, frozen=True, kw_only=True):
    """The kubelet's choice of one victim."""

    qos_class: QOSClass
    missing: Mapping[str, int]
    distances: tuple[PodDistance, ...]
    picked: "PickedPod"
    left: Mapping[str, int]
    """What is still missing without it."""


class PickedPod(Report, frozen=True, kw_only=True):
    """The picked candidate."""

    pod: PrioritizedPod


class ReportedCost(Report, frozen=True, kw_only=True):
    """The number of victims by QoS class, and the sum of their requests."""

    guaranteed: int
    burstable: int
    best_effort: int
    requests: Mapping[str, int]


class SmallestChoice(Report, frozen=True, kw_only=True):
    """The smallest choice of victims that was found."""

    victims: tuple[PrioritizedPod, ...]
    proved: bool
    steps: int
    """Steps of the search."""
    cost: ReportedCost
    kubelet_cost: ReportedCost


class PodPreemption(Report, frozen=True, kw_only=True):
    """The preview of adding a pod, with all the evidence.

    Units: amounts in thousandths for cpu, else bytes or units.
    """

    pod: PrioritizedPod
    critical: bool
    verdict: Verdict
    admitted: bool
    """Whether the verdict is `admitted`."""
    scheduler: tuple[ReportedObstacle, ...]
    """Why the scheduler never binds the pod to the node; empty: it may."""
    origin: str | UnsetType = field(default=UNSET, name="from")
    """The object that creates the pod, e.g. `DaemonSet dns`."""
    reason: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    why: tuple[str, ...]
    because: tuple[Reason, ...]
    missing: Mapping[str, int]
    """The amounts to free; empty if no victims are searched."""
    candidates: tuple[ReportedCandidate, ...]
    """In the kubelet's order."""
    still_missing: Mapping[str, int]
    """The amounts that preempting all candidates would not free."""
    preemption_signal: str | UnsetType = UNSET
    victims: tuple[PrioritizedPod, ...]
    """In order of termination."""
    rounds: tuple[ReportedRound, ...]
    smallest: SmallestChoice | UnsetType = UNSET
    """Only with --optimal."""


class PreemptionReport(ReportDocument, frozen=True, kw_only=True):
    """Which pods a node preempts for each pod, in order: `nodewright preempt`."""

    kind: Literal["PreemptionReport"] = "PreemptionReport"
    node: NodeOfReport
    pods: tuple[PodPreemption, ...]
    skipped: Mapping[str, int]
    """Number of skipped objects of the manifests, by kind."""
    warnings: tuple[str, ...]


def pod_preemption(entry: PreemptionEntry) -> PodPreemption:
    """The preview for one pod as a part of the report."""
    preview, selection = entry.preview, entry.selection
    result = preview.step
    kubelet = kubelet_text(result.because[0]) if result.decision is Decision.REFUSED else None
    return PodPreemption(
        pod=_prioritized(preview.pod),
        critical=preview.critical,
        verdict=entry.verdict,
        admitted=entry.verdict is Verdict.ADMITTED,
        scheduler=reported_obstacles(entry.scheduler),
        origin=entry.origin or UNSET,
        reason=kubelet.reason if kubelet else UNSET,
        message=kubelet.message if kubelet else UNSET,
        why=tuple(map(sentence, result.because)),
        because=result.because,
        missing=dict(preview.missing),
        candidates=tuple(
            reported(
                ReportedCandidate,
                candidate,
                pod=_prioritized(candidate.pod),
                requests=dict(candidate.requests),
            )
            for candidate in preview.candidates
        ),
        still_missing=dict(preview.unmet),
        preemption_signal=selection.signal if selection else UNSET,
        victims=tuple(_prioritized(victim.pod) for victim in entry.victims),
        rounds=tuple(map(_reported_round, selection.rounds)) if selection else (),
        smallest=UNSET if entry.optimum is None else _smallest_choice(entry.optimum),
    )


def _reported_round(preemption_round: PreemptionRound) -> ReportedRound:
    return ReportedRound(
        qos_class=preemption_round.qos_class,
        missing=dict(preemption_round.missing),
        distances=tuple(
            PodDistance(pod=_prioritized(candidate.pod), distance=distance)
            for candidate, distance in preemption_round.distances
        ),
        picked=PickedPod(pod=_prioritized(preemption_round.picked.pod)),
        left=dict(preemption_round.still_missing),
    )


def _smallest_choice(best: SmallestPreemption) -> SmallestChoice:
    return SmallestChoice(
        victims=tuple(_prioritized(victim.pod) for victim in best.victims),
        proved=best.proved,
        steps=best.steps,
        cost=_reported_cost(best.cost, best),
        kubelet_cost=_reported_cost(best.greedy_cost, best),
    )


def _reported_cost(cost: PreemptionCost, best: SmallestPreemption) -> ReportedCost:
    return reported(ReportedCost, cost, requests=dict(zip(best.resources, cost.requests, strict=True)))


def _prioritized(pod: Pod) -> PrioritizedPod:
    return reported(PrioritizedPod, referenced_pod(pod), priority=pod.spec.priority)


MAX_NODES = 5_000
_LARGEST_EXACT_FLOAT = 2**53


def cheapest_cover(cover: Cover) -> tuple[int, ...] | None:
    """The items of the cheapest set that covers all needs, by HiGHS; None if it does not prove one.

    HiGHS computes in floats, so the caller must check the result. Returns None for amounts that floats cannot hold.

    Errors: HostError if the package is not installed.
    """
    needs = [
        _scaled([item.contribution[at] for item in cover.items], need) for at, need in enumerate(cover.needs)
    ]
    goals = [[float(item.tier == tier) for item in cover.items] for tier in range(3)]
    goals += [_scaled(list(sizes))[0] for sizes in zip(*(item.sizes for item in cover.items), strict=True)]
    if any(sum(row) >= _LARGEST_EXACT_FLOAT for row in (*goals, *(row for row, _ in needs))):
        return None
    program = _IntegerProgram(len(cover.items))
    for row, need in needs:
        program.add_constraint(row, at_least=need)
    items = None
    for goal in goals:
        items = program.minimise(goal)
        if items is None:
            return None
        # The next goal may not make this one worse.
        program.add_constraint(goal, at_most=sum(goal[index] for index in items))
    return items


class _IntegerProgram:
    """A program with one binary variable for each item: selected or not."""

    def __init__(self, items: int) -> None:
        try:
            highspy: Any = import_module("highspy")  # an optional dependency, used only here
        except ImportError as error:
            raise HostError("load", "highspy", f"{error}; {install_command('exact')}") from error
        self.items = list(range(items))
        self.optimal = highspy.HighsModelStatus.kOptimal
        self.infinity = highspy.kHighsInf
        self.solver: Any = highspy.Highs()
        options = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_max_nodes": MAX_NODES,
        }
        for name, value in options.items():
            self.solver.setOptionValue(name, value)
        for index in self.items:
            self.solver.addVar(0.0, 1.0)
            self.solver.changeColIntegrality(index, highspy.HighsVarType.kInteger)

    def add_constraint(
        self, row: list[float], *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Bound the sum of the row over the selected items."""
        low = -self.infinity if at_least is None else at_least
        high = self.infinity if at_most is None else at_most
        self.solver.addRow(low, high, len(row), self.items, row)

    def minimise(self, goal: list[float]) -> tuple[int, ...] | None:
        """The items that minimise the sum of the goal; None if the solver does not prove the minimum."""
        self.solver.changeColsCost(len(goal), self.items, goal)
        self.solver.run()
        if self.solver.getModelStatus() != self.optimal:
            return None
        values = self.solver.getSolution().col_value
        return tuple(index for index in self.items if round(values[index]))


def _scaled(row: list[int], need: int = 0) -> tuple[list[float], float]:
    """The numbers divided by their common divisor: the solver is more reliable with small numbers."""
    divisor = gcd(*row) or 1
    return [float(number // divisor) for number in row], float(-(-need // divisor))
