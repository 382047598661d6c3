"""The report of a rehearsed kubelet start: struct, text and names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument, as_yaml
from nodewright.documents.output.text_layout import table
from nodewright.engine.node.pod_placement import Placement
from nodewright.engine.node.restart.kubelet_startup import StartStage
from nodewright.engine.node.restart.restart_rehearsal import PodRestartOutcome, RestartRehearsal, StartRemedy
from nodewright.model.kubernetes.kubelet_configuration import MemoryReservation
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.state_files import StateFile
from nodewright.model.reasons.texts import kubelet_fatal_error, kubelet_text, sentence
from nodewright.model.releases.release import AppliedRules
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node_report.report_parts import (
    ReferencedPod,
    ReportedAllocations,
    pod_allocations,
    referenced_pod,
)
from nodewright.predict.replay.replay_report import all_cpus_text, all_devices_text

_NOTHING = "-"
_HEADERS = ("POD", "VERDICT", "CPUS", "MEMORY", "DEVICES", "REASON")
_OPTIONAL_COLUMNS = (2, 3, 4)


class RehearsalContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts for the report that are not part of the rehearsal."""

    node: str
    rules: AppliedRules
    paths: dict[StateFile, str]
    """Paths of the state files."""
    warnings: Sequence[str] = ()


def rehearsal_text(rehearsal: RestartRehearsal, context: RehearsalContext, *, wide: bool = False) -> str:
    """Whether the kubelet starts, what to do if not, and the outcome of each pod."""
    parts = [printable_lines(_verdict(rehearsal))]
    shown = rehearsal
    if rehearsal.remedy is not None:
        parts.append(printable_lines(_remedy_lines(rehearsal.remedy, context)))
        shown = rehearsal.remedy.then
    if shown.outcomes:
        parts.append(_pods(shown.outcomes, wide=wide) + _totals(shown.outcomes))
    parts.append(printable_lines(_remarks(rehearsal, shown)))
    return "\n".join(part for part in parts if part)


def _verdict(rehearsal: RestartRehearsal) -> Iterator[str]:
    for number, failure in enumerate(rehearsal.start_failures):
        lead = "and after that: " if number else "the kubelet does not start: "
        message, explanation = kubelet_fatal_error(failure.because), sentence(failure.because)
        yield f"{lead}{message}"
        if explanation not in message:
            yield f"  - {explanation}"
    if rehearsal.starts:
        yield "the kubelet starts" + (", but it rejects pods" if rehearsal.lost else "")
    for warning in rehearsal.warnings:
        yield f"ignored: {kubelet_fatal_error(warning)}"
        yield f"  - {sentence(warning)}; device allocations are lost, and devices may be allocated twice"


def _remedy_lines(remedy: StartRemedy, context: RehearsalContext) -> Iterator[str]:
    """The steps after which it starts, in order."""
    lost = [outcome.pod.full_name for outcome in remedy.then.lost]
    steps: list[list[str]] = []
    if remedy.reserved_memory is not None:
        steps.append(["configure:", *_reserved_lines(remedy.reserved_memory)])
    if lost:
        steps.append([f"drain the pods that are rejected: {', '.join(lost)}"])
    if remedy.delete:
        files = " ".join(context.paths[file] for file in remedy.delete)
        steps.append([f"stop the kubelet and delete {files}"])
    yield "to let it start:"
    for number, (first, *rest) in enumerate(steps, 1):
        yield f"  {number}. {first}"
        yield from (f"     {line}" for line in rest)
    yield "then, of the pods that continue to run:"


def _reserved_lines(reserved: Sequence[MemoryReservation]) -> list[str]:
    return as_yaml({"reservedMemory": _reserved_memory(reserved)}).splitlines()


def _pods(outcomes: Sequence[PodRestartOutcome], *, wide: bool) -> str:
    rows = [_row(outcome, wide=wide) for outcome in outcomes]
    columns = [
        at
        for at in range(len(_HEADERS))
        if at not in _OPTIONAL_COLUMNS or any(row[at] != _NOTHING for row in rows)
    ]
    return table([_HEADERS[at] for at in columns], [[row[at] for at in columns] for row in rows])


def _row(outcome: PodRestartOutcome, *, wide: bool) -> tuple[str, ...]:
    then = outcome.before if outcome.is_lost else outcome.after
    held = [_change(of(outcome.before), of(then)) for of in (all_cpus_text, _memory, all_devices_text)]
    return (
        outcome.pod.full_name,
        _verdict_word(outcome),
        *held,
        _reason_text(outcome, wide=wide) or _NOTHING,
    )


def _change(before: str, then: str) -> str:
    if before == then:
        return before or _NOTHING
    return f"{before or _NOTHING} -> {then or _NOTHING}"


def _verdict_word(outcome: PodRestartOutcome) -> str:
    if outcome.is_lost:
        return "lost"
    if outcome.is_undecided:
        return "undecided"
    return "moved" if outcome.is_moved else "kept"


def _reason_text(outcome: PodRestartOutcome, *, wide: bool) -> str:
    if outcome.preempted_by is not None:
        return f"preempted by {outcome.preempted_by.full_name}"
    if not outcome.because:
        return ""
    message = kubelet_text(outcome.because[0])
    return f"{message.reason}: {message.message}" if wide else message.reason


def _memory(placement: Placement) -> str:
    """The NUMA nodes on which the pod has memory allocated."""
    blocks = [block for container in placement.containers for block in container.memory]
    numa = sorted({node for block in (*blocks, *(placement.memory or ())) for node in block.numa})
    return f"NUMA {','.join(map(str, numa))}" if numa else ""


def _totals(outcomes: Sequence[PodRestartOutcome]) -> str:
    verdicts = [_verdict_word(outcome) for outcome in outcomes]
    counts = (
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("kept", "moved", "undecided", "lost")
        if verdict in verdicts
    )
    return printable_line(f"{len(outcomes)} pod{'' if len(outcomes) == 1 else 's'}: {', '.join(counts)}")


def _remarks(rehearsal: RestartRehearsal, shown: RestartRehearsal) -> Iterator[str]:
    if rehearsal.starts and rehearsal.lost:
        yield f"drain first: {', '.join(outcome.pod.full_name for outcome in rehearsal.lost)}"
    for uid in shown.stale_pods:
        yield f"{uid} has allocations but there is no such pod: they are released"
    for unknown in shown.not_judged:
        yield unknown.sentence()


def rehearsal_names(rehearsal: RestartRehearsal) -> str:
    """The rejected pods, one per line, in kubectl's notation."""
    shown = rehearsal.remedy.then if rehearsal.remedy else rehearsal
    return printable_lines(f"pod/{outcome.pod.metadata.name}" for outcome in shown.lost)


class StartError(Report, frozen=True, kw_only=True):
    """Why the kubelet exits."""

    stage: StartStage
    error: str
    """The kubelet's error."""
    why: str
    because: Reason


class IgnoredFault(Report, frozen=True, kw_only=True):
    """A fault that the kubelet ignores."""

    error: str
    because: Reason


class RestartedPod(Report, frozen=True, kw_only=True):
    """The outcome of the restart for a pod."""

    pod: ReferencedPod
    verdict: str
    preempted_by: str | UnsetType = UNSET
    """The critical pod that preempts it."""
    reason: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    why: tuple[str, ...] | UnsetType = UNSET
    because: tuple[Reason, ...] | UnsetType = UNSET
    before: ReportedAllocations
    after: ReportedAllocations | None
    """null: the pod is lost."""


class StartOutcome(Inlined, frozen=True, kw_only=True):
    """Whether the kubelet starts, and what becomes of the pods."""

    starts: bool
    errors: tuple[StartError, ...]
    """The kubelet reports the first."""
    ignored_faults: tuple[IgnoredFault, ...]
    pods: tuple[RestartedPod, ...]
    """In the order in which the kubelet handles them."""
    leftovers: tuple[str, ...]
    """Uids of removed pods whose allocations are released."""
    not_judged: tuple[NotJudged, ...]


class ReservedMemory(Report, frozen=True, kw_only=True):
    """Memory of a NUMA node that is reserved for the system."""

    numa_node: int
    limits: Mapping[str, Quantity]


class StartAfterRemedy(Report, frozen=True, kw_only=True):
    """The start after the remedy."""

    outcome: StartOutcome


class ReportedRemedy(Report, frozen=True, kw_only=True):
    """What makes the start succeed."""

    delete_files: tuple[str, ...]
    drain: tuple[str, ...]
    """Pods that would be lost."""
    reserved_memory: tuple[ReservedMemory, ...] | None
    """The `reservedMemory` to configure; null: it stays."""
    then: StartAfterRemedy


class RehearsalReport(ReportDocument, frozen=True, kw_only=True):
    """Whether a kubelet restart succeeds and which pods it rejects: `nodewright rehearse`."""

    kind: Literal["RehearsalReport"] = "RehearsalReport"
    node: str
    kubernetes_version: str
    rules_of: str
    outcome: StartOutcome
    remedy: ReportedRemedy | None
    """null: the start succeeds anyway, or no remedy is known."""
    warnings: tuple[str, ...]


def rehearsal_report(rehearsal: RestartRehearsal, context: RehearsalContext) -> RehearsalReport:
    """The report of a rehearsal."""
    return RehearsalReport(
        node=context.node,
        kubernetes_version=context.rules.release.text,
        rules_of=context.rules.rules_of,
        outcome=_start_outcome(rehearsal),
        remedy=None if rehearsal.remedy is None else _reported_remedy(rehearsal.remedy, context),
        warnings=tuple(context.warnings),
    )


def _reported_remedy(remedy: StartRemedy, context: RehearsalContext) -> ReportedRemedy:
    return ReportedRemedy(
        delete_files=tuple(context.paths[file] for file in remedy.delete),
        drain=tuple(outcome.pod.full_name for outcome in remedy.then.lost),
        reserved_memory=None if remedy.reserved_memory is None else _reserved_memory(remedy.reserved_memory),
        then=StartAfterRemedy(outcome=_start_outcome(remedy.then)),
    )


def _reserved_memory(reserved: Sequence[MemoryReservation]) -> tuple[ReservedMemory, ...]:
    return tuple(ReservedMemory(numa_node=entry.numa_node, limits=entry.limits) for entry in reserved)


def _start_outcome(rehearsal: RestartRehearsal) -> StartOutcome:
    return StartOutcome(
        starts=rehearsal.starts,
        errors=tuple(
            StartError(
                stage=failure.stage,
                error=kubelet_fatal_error(failure.because),
                why=sentence(failure.because),
                because=failure.because,
            )
            for failure in rehearsal.start_failures
        ),
        ignored_faults=tuple(
            IgnoredFault(error=kubelet_fatal_error(reason), because=reason) for reason in rehearsal.warnings
        ),
        pods=tuple(map(_restarted_pod, rehearsal.outcomes)),
        leftovers=rehearsal.stale_pods,
        not_judged=rehearsal.not_judged,
    )


def _restarted_pod(outcome: PodRestartOutcome) -> RestartedPod:
    preempting = outcome.preempted_by
    because = outcome.because if preempting is None else ()
    kubelet = kubelet_text(because[0]) if because else None
    return RestartedPod(
        pod=referenced_pod(outcome.pod),
        verdict=_verdict_word(outcome),
        preempted_by=UNSET if preempting is None else preempting.full_name,
        reason=kubelet.reason if kubelet else UNSET,
        message=kubelet.message if kubelet else UNSET,
        why=tuple(map(sentence, because)) or UNSET,
        because=because or UNSET,
        before=pod_allocations(outcome.before),
        after=None if outcome.is_lost else pod_allocations(outcome.after),
    )
