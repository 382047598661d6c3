"""The report of a replay: struct, text and names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.engine.core.eviction.eviction_state import EvictionPass, StopReason
from nodewright.engine.node.actions import LimitBorrowers
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.resize import ResizeOutcome, resize_condition
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount
from nodewright.model.printable import counted, printable_line
from nodewright.model.reasons.reason import kubelet_fatal_error, kubelet_text
from nodewright.model.values.idset import CPUSet
from nodewright.predict.admit.admission_report import (
    AdmissionEntry,
    PodAdmission,
    admitted_names,
    pod_admission,
)
from nodewright.predict.admit.resize_report import ResizeAnswer, resize_answer
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReferencedPod,
    RemainingResources,
    node_of_report,
    referenced_pod,
    remaining_resources,
    remaining_text,
    table_without_empty_columns,
)
from nodewright.predict.replay.scenario_journal import action_documents
from nodewright.predict.replay.scenario_run import ReplayedEvent
from nodewright.predict.reported import reported

_NOTHING = "-"
_HEADERS = ("EVENT", "WHAT", "POD", "VERDICT", "REASON", "CPUS", "DEVICES", "PREEMPTS", "MESSAGE")
_OPTIONAL_COLUMNS = ("CPUS", "DEVICES", "PREEMPTS")


class RestartRejection(Report, frozen=True, kw_only=True):
    """A pod that the kubelet rejects when it starts."""

    name: str
    reason: str
    message: str


def is_success(event: ReplayedEvent) -> bool:
    """Whether nothing was rejected, evicted or failed."""
    refused = event.decision not in (None, Decision.ADMITTED)
    evicted = event.relief is not None and event.relief.evictions
    resized = all(resize.outcome is ResizeOutcome.DONE for resize in event.resizes)
    return resized and not (refused or event.rejected or _error(event) or evicted)


def _entry(event: ReplayedEvent) -> AdmissionEntry | None:
    """The admission of an added pod."""
    if event.decision is None:
        return None
    assert event.pod is not None
    return AdmissionEntry(
        pod=event.pod,
        decision=event.decision,
        because=event.because,
        victims=event.victims,
        placement=event.placement,
    )


def _rejections(event: ReplayedEvent) -> tuple[RestartRejection, ...]:
    return tuple(
        reported(RestartRejection, kubelet_text(because[0]), name=pod.full_name)
        for pod, because in event.rejected
    )


def _error(event: ReplayedEvent) -> str:
    """For a restart: the error with which the kubelet exits; empty: it starts."""
    is_down = event.event.restart is not None and event.kubelet_down_for
    return kubelet_fatal_error(event.kubelet_down_for[0]) if is_down else ""


def _name(outcome: ReplayedEvent) -> str:
    """The pod concerned; for an eviction pass, the evicted pods."""
    if outcome.relief is not None:
        return ",".join(eviction.active_pod.pod.full_name for eviction in outcome.relief.evictions)
    event = outcome.event
    if event.devices is not None:
        return event.devices.resource
    return outcome.pod.full_name if outcome.pod else event.remove or event.started or event.kill_failed or ""


def _outcome_text(outcome: ReplayedEvent) -> str:
    if outcome.event.observe is not None:
        return _observation_outcome(outcome)
    if outcome.event.lend is not None:
        return _lent_text(outcome)
    if outcome.event.devices is not None:
        return "gone" if outcome.event.devices.devices is None else "listed"
    if outcome.decision is not None:
        return outcome.decision.value
    if outcome.event.restart is not None:
        return "does not start" if outcome.kubelet_down_for else "started"
    if outcome.pod is None:
        return "not there"
    if outcome.event.resize is not None:
        return next(each.outcome.value for each in outcome.resizes if each.pod.uid == outcome.pod.uid)
    if outcome.event.remove is not None:
        return "removed"
    if outcome.event.started is not None:
        return "started"
    if outcome.event.served is not None:
        return "served" if outcome.event.served.refused is None else "refused"
    if outcome.was_present:
        return "already there"
    return "counted" if outcome.event.found is not None else "stays"


def _lent_text(outcome: ReplayedEvent) -> str:
    """The limits of BestEffort pods, as CPU/memory."""
    for action in outcome.actions:
        if isinstance(action, LimitBorrowers):
            cpu, memory = readable_amount(CPU, action.cpu_milli), readable_amount(MEMORY, action.memory_bytes)
            return f"limit {cpu}/{memory}"
    return "unchanged"


def _observation_outcome(outcome: ReplayedEvent) -> str:
    relief = outcome.relief
    if relief is not None and relief.evictions:
        return "evicted"
    if relief is not None and relief.stopped is not None:
        return "stopped"
    return "under pressure" if outcome.is_under_pressure else "calm"


def replay_text(events: Sequence[ReplayedEvent], final_state: NodeState, *, wide: bool = False) -> str:
    """One line per event, the totals, and the remaining resources of the node."""
    rows = [_row(event) for event in events]
    headers = _HEADERS if wide else _HEADERS[:-1]
    lines = table_without_empty_columns(headers, rows, optional=_OPTIONAL_COLUMNS)
    after_table = (printable_line(line) for event in events for line in _restart_lines(event))
    return "\n".join(
        (
            "".join((lines, *after_table)),
            printable_line(_summary(events, final_state)),
            remaining_text(final_state),
        )
    )


def _restart_lines(event: ReplayedEvent) -> Iterator[str]:
    if error := _error(event):
        yield f"event {event.number}: the kubelet does not start: {error}"
    for lost in _rejections(event):
        yield f"event {event.number}: {lost.name} is rejected: {lost.reason}: {lost.message}"


def _summary(events: Sequence[ReplayedEvent], final_state: NodeState) -> str:
    """Number of events, and of pods by outcome, without outcomes that did not occur."""
    entries = [entry for event in events if (entry := _entry(event)) is not None]
    counts = Counter(entry.decision for entry in entries)
    parts = [f"{counts[decision]} {decision}" for decision in Decision if counts[decision]]
    evicted = sum(len(event.relief.evictions) for event in events if event.relief is not None)
    if evicted:
        parts.append(f"{evicted} evicted")
    # A deferred resize is tried repeatedly; only its own event and its final outcome count.
    outcomes = Counter(
        resize.outcome
        for each in events
        for resize in each.resizes
        if resize.outcome is not ResizeOutcome.DEFERRED or (each.pod and resize.pod.uid == each.pod.uid)
    )
    parts += [f"{outcomes[outcome]} resized {outcome}" for outcome in ResizeOutcome if outcomes[outcome]]
    preempted = sum(len(entry.preempted) for entry in entries)
    lost = sum(len(event.rejected) for event in events)
    parts += [f"{count} {what}" for count, what in ((preempted, "preempted"), (lost, "lost")) if count]
    parts.append(f"{counted(len(final_state.pods), 'pod')} on the node")
    if final_state.kubelet_down_for:
        parts.append("the kubelet is down")
    return f"{counted(len(events), 'event')}: {', '.join(parts)}"


def _row(event: ReplayedEvent) -> tuple[str, ...]:
    begin = (str(event.number), event.event.kind, _name(event) or _NOTHING, _outcome_text(event))
    if event.relief is not None:
        evictions = event.relief.evictions
        message = evictions[0].because.kubelet().message if evictions else ""
        return (
            *begin,
            ",".join(event.relief.state.conditions) or _NOTHING,
            *[_NOTHING] * 3,
            message or _NOTHING,
        )
    entry = _entry(event)
    if entry is None:
        return (*begin, *_resize_cells(event))
    placement, kubelet = entry.placement, entry.kubelet
    cells = (
        kubelet.reason,
        all_cpus_text(placement) if placement else "",
        all_devices_text(placement) if placement else "",
        ",".join(victim.full_name for victim in entry.preempted),
        kubelet.message,
    )
    return (*begin, *(cell or _NOTHING for cell in cells))


def _resize_cells(event: ReplayedEvent) -> list[str]:
    """Cells of a requested resize; for other events, placeholders."""
    attempt = next((each for each in event.resizes if event.pod and each.pod.uid == event.pod.uid), None)
    if attempt is None:
        return [_NOTHING] * 5
    condition = resize_condition(attempt)
    reason = "" if condition.reason == attempt.outcome else condition.reason
    victims = attempt.victims.victims if attempt.victims else ()
    names = ",".join(victim.pod.full_name for victim in victims)
    return [cell or _NOTHING for cell in (reason, "", "", names, condition.message)]


def all_cpus_text(placement: Placement) -> str:
    """The exclusive CPUs of a pod and its containers together."""
    held = placement.cpus or CPUSet()
    for container in placement.containers:
        held |= container.cpus or CPUSet()
    return str(held)


def all_devices_text(placement: Placement) -> str:
    """The devices of all containers by resource."""
    held: dict[str, set[str]] = {}
    for container in placement.containers:
        for resource, devices in container.devices.items():
            held.setdefault(resource, set()).update(devices)
    return " ".join(f"{resource}={','.join(sorted(ids))}" for resource, ids in sorted(held.items()))


class ReportedEvictionPass(Inlined, frozen=True, kw_only=True):
    """A pass of the eviction manager."""

    conditions: tuple[NodeCondition, ...]
    met: tuple[Signal, ...]
    """The signals of the thresholds that are met."""
    handled_signal: Signal | None
    """The signal of the threshold acted on; null: none."""
    evicted: tuple[Pod, ...]
    stopped: StopReason | UnsetType = UNSET


class EventReport(Report, frozen=True, kw_only=True):
    """An event and what the kubelet does about it."""

    event: int
    """Its number, from 0."""
    what: str
    """Its kind."""
    admission: PodAdmission | UnsetType = UNSET
    """For an added pod."""
    pod: ReferencedPod | UnsetType = UNSET
    name: str | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    lost: tuple[RestartRejection, ...] | UnsetType = UNSET
    """For a restart: the pods that the new kubelet rejects."""
    error: str | UnsetType = UNSET
    """For a restart: the error with which the kubelet exits; absent: it starts."""
    relief: ReportedEvictionPass | UnsetType = UNSET
    resizes: tuple[ResizeAnswer, ...] | UnsetType = UNSET
    actions: tuple[Mapping[str, Any], ...]
    """The kubelet's actions, in order, as in a journal."""


class ReplayReport(ReportDocument, frozen=True, kw_only=True):
    """The events of a scenario, and the node afterwards: `nodewright replay`."""

    kind: Literal["ReplayReport"] = "ReplayReport"
    node: NodeOfReport
    events: tuple[EventReport, ...]
    interrupted: bool
    pods: tuple[Pod, ...]
    """The pods of the node after the last event."""
    resources: RemainingResources
    warnings: tuple[str, ...]


def replay_report(
    events: Sequence[ReplayedEvent],
    final_state: NodeState,
    *,
    warnings: Sequence[str] = (),
    interrupted: bool = False,
) -> ReplayReport:
    """The report of a replay."""
    return ReplayReport(
        node=node_of_report(final_state.config),
        events=tuple(map(_event_report, events)),
        interrupted=interrupted,
        pods=tuple(final_state.pods.values()),
        resources=remaining_resources(final_state),
        warnings=tuple(warnings),
    )


def _event_report(event: ReplayedEvent) -> EventReport:
    entry, kind = _entry(event), event.event.kind
    is_restart, is_admission = kind == "restart", entry is not None
    is_about_a_pod = not (
        is_restart or is_admission or event.relief is not None or kind in ("observe", "lend")
    )
    return EventReport(
        event=event.number,
        what=kind,
        admission=UNSET if entry is None else pod_admission(entry),
        pod=referenced_pod(event.pod) if is_about_a_pod and event.pod is not None else UNSET,
        name=_name(event) if is_about_a_pod and event.pod is None else UNSET,
        verdict=UNSET if is_admission else _outcome_text(event),
        lost=_rejections(event) if is_restart else UNSET,
        error=_error(event) or UNSET,
        relief=UNSET if event.relief is None else _eviction_pass(event.relief),
        resizes=tuple(map(resize_answer, event.resizes)) or UNSET,
        actions=tuple(action_documents(event.actions)),
    )


def _eviction_pass(relief: EvictionPass) -> ReportedEvictionPass:
    return ReportedEvictionPass(
        conditions=tuple(relief.state.conditions),
        met=tuple(met.threshold.signal for met in relief.met),
        handled_signal=None if relief.target is None else relief.target.signal,
        evicted=tuple(eviction.active_pod.pod for eviction in relief.evictions),
        stopped=UNSET if relief.stopped is None else relief.stopped,
    )


def admitted_pod_names(events: Sequence[ReplayedEvent]) -> str:
    """The admitted pods, one per line, in kubectl's notation."""
    return admitted_names(entry for event in events if (entry := _entry(event)) is not None)
