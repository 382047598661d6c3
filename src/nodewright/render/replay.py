"""What happened to a node, as a table, as a document, as names and as a journal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nodewright.core.eviction import Pass
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.model.scenario import JournalHeader
from nodewright.node.actions import Action, EvictPod, RecordEvent
from nodewright.node.placement import Placement
from nodewright.node.resizing import Outcome, Resize
from nodewright.node.state import NodeState
from nodewright.node.step import Decision
from nodewright.render.admission import (
    Entry,
    admitted_names,
    entry_document,
    remaining_document,
    remaining_text,
    report_head,
)
from nodewright.render.documents import fact_document, plain
from nodewright.render.eviction_messages import EVICTED, eviction_message
from nodewright.render.messages import fatal_error, message
from nodewright.render.profiles import object_document
from nodewright.render.resize import outcome_document, resize_condition
from nodewright.render.tables import table
from nodewright.sim.happened import Happened
from nodewright.values.idset import CPUSet

_NOTHING = "-"
_HEADERS = ("EVENT", "WHAT", "POD", "VERDICT", "REASON", "CPUS", "DEVICES", "PREEMPTS", "MESSAGE")
_MAY_BE_LEFT_OUT = ("CPUS", "DEVICES", "PREEMPTS")


class Lost(NamedTuple):
    """A pod that a kubelet which starts turns away."""

    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What there is to tell of an event, without the node as it was then."""

    number: int
    what: str
    name: str
    """The pod in question, by namespace and name where it is known."""
    pod: Pod | None
    outcome: str
    entry: Entry | None
    """The answer to a pod that arrived."""
    resizes: tuple[Resize, ...] = ()
    """What became of the resizes that were tried."""
    actions: tuple[Action, ...]
    lost: tuple[Lost, ...] = ()
    """Of a restart, the pods that the new kubelet turned away."""
    error: str = ""
    """Of a restart, with what the kubelet ends; empty: it starts."""
    relief: Pass | None = None
    """What the eviction manager did, where it went over the node."""

    @property
    def is_well(self) -> bool:
        """Whether the answer was yes, if anybody asked."""
        refused = self.entry is not None and self.entry.decision is not Decision.ADMITTED
        evicted = self.relief is not None and self.relief.evictions
        resized = all(one.outcome is Outcome.DONE for one in self.resizes)
        return resized and not (refused or self.lost or self.error or evicted)


def told(one: Happened) -> Told:
    """What there is to tell of an event."""
    event, entry = one.event, None
    if one.decision is not None:
        assert one.pod is not None
        entry = Entry(
            pod=one.pod,
            decision=one.decision,
            because=one.because,
            victims=one.victims,
            placement=one.placement,
        )
    return Told(
        number=one.number,
        what=event.kind,
        name=_name(one),
        pod=one.pod,
        outcome=_outcome(one),
        entry=entry,
        resizes=one.resizes,
        actions=one.actions,
        lost=tuple(Lost(pod.full_name, *message(because[0])) for pod, because in one.lost),
        error=_error(one),
        relief=one.relief,
    )


def _error(one: Happened) -> str:
    down = one.event.restart is not None and one.after.down_for
    return fatal_error(one.after.down_for[0]) if down else ""


def _name(one: Happened) -> str:
    """The pod in question; of a look over the node, those that it ends."""
    if one.relief is not None:
        return ",".join(each.claim.pod.full_name for each in one.relief.evictions)
    event = one.event
    if event.devices is not None:
        return event.devices.resource
    return one.pod.full_name if one.pod else event.remove or event.started or event.kill_failed or ""


def _outcome(one: Happened) -> str:
    if one.event.observe is not None:
        return _look_outcome(one)
    if one.event.devices is not None:
        return "gone" if one.event.devices.devices is None else "listed"
    if one.decision is not None:
        return one.decision.value
    if one.event.restart is not None:
        return "does not start" if one.after.down_for else "started"
    if one.pod is None:
        return "not there"
    if one.event.resize is not None:
        return next(each.outcome.value for each in one.resizes if each.pod.uid == one.pod.uid)
    if one.event.remove is not None:
        return "removed"
    if one.event.started is not None:
        return "started"
    if one.event.served is not None:
        return "served" if one.event.served.refused is None else "refused"
    if one.was_there:
        return "already there"
    return "counted" if one.event.found is not None else "stays"


def _look_outcome(one: Happened) -> str:
    relief = one.relief
    if relief is not None and relief.evictions:
        return "evicted"
    if relief is not None and relief.stopped is not None:
        return "stopped"
    return "under pressure" if one.after.conditions else "calm"


def replay_text(events: Sequence[Told], after: NodeState, *, wide: bool = False) -> str:
    """A line an event, the sum of it, and what remains of the node."""
    rows = [_row(one) for one in events]
    kept = [
        at
        for at, header in enumerate(_HEADERS)
        if (header not in _MAY_BE_LEFT_OUT or any(row[at] != _NOTHING for row in rows))
        and (header != "MESSAGE" or wide)
    ]
    lines = table([_HEADERS[at] for at in kept], [[row[at] for at in kept] for row in rows])
    after_table = (f"{line}\n" for one in events for line in _restart_lines(one))
    return "\n".join(("".join((lines, *after_table)), f"{_summary(events, after)}\n", remaining_text(after)))


def _restart_lines(one: Told) -> Iterator[str]:
    if one.error:
        yield f"event {one.number}: the kubelet does not start: {one.error}"
    for lost in one.lost:
        yield f"event {one.number}: {lost.name} is lost: {lost.reason}: {lost.message}"


def _summary(events: Sequence[Told], after: NodeState) -> str:
    """How many events there were, and how many pods came to what; nothing of what none came to."""
    entries = [one.entry for one in events if one.entry is not None]
    counts = Counter(entry.decision for entry in entries)
    parts = [f"{counts[decision]} {decision}" for decision in Decision if counts[decision]]
    evicted = sum(len(one.relief.evictions) for one in events if one.relief is not None)
    if evicted:
        parts.append(f"{evicted} evicted")
    # One that waits is tried again and again; it is told when something comes of it.
    outcomes = Counter(
        one.outcome
        for each in events
        for one in each.resizes
        if one.outcome is not Outcome.DEFERRED or (each.pod and one.pod.uid == each.pod.uid)
    )
    parts += [f"{outcomes[outcome]} resized {outcome}" for outcome in Outcome if outcomes[outcome]]
    preempted = sum(len(entry.preempted) for entry in entries)
    if preempted:
        parts.append(f"{preempted} preempted")
    lost = sum(len(one.lost) for one in events)
    if lost:
        parts.append(f"{lost} lost")
    parts.append(f"{_counted(len(after.pods), 'pod')} on the node")
    if after.down_for:
        parts.append("the kubelet is down")
    return f"{_counted(len(events), 'event')}: {', '.join(parts)}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _row(one: Told) -> tuple[str, ...]:
    begin = (str(one.number), one.what, one.name or _NOTHING, one.outcome)
    if one.relief is not None:
        said = _said(one.relief)
        return (
            *begin,
            ",".join(one.relief.state.conditions) or _NOTHING,
            *[_NOTHING] * 3,
            said or _NOTHING,
        )
    if one.entry is None:
        return (*begin, *_resize_cells(one))
    placement = one.entry.placement
    kubelet = one.entry.kubelet
    cells = (
        kubelet.reason,
        _cpus(placement) if placement else "",
        _devices(placement) if placement else "",
        ",".join(victim.full_name for victim in one.entry.preempted),
        kubelet.message,
    )
    return (*begin, *(cell or _NOTHING for cell in cells))


def _said(relief: Pass) -> str:
    """The kubelet's message about the first pod that goes."""
    return eviction_message(relief.evictions[0].because) if relief.evictions else ""


def _resize_cells(one: Told) -> list[str]:
    """What there is to say of a resize that was asked for; of any other event nothing."""
    asked = next((each for each in one.resizes if one.pod and each.pod.uid == one.pod.uid), None)
    if asked is None:
        return [_NOTHING] * 5
    said = resize_condition(asked)
    reason = "" if said.reason == asked.outcome else said.reason
    victims = asked.victims.victims if asked.victims else ()
    names = ",".join(victim.pod.full_name for victim in victims)
    return [cell or _NOTHING for cell in (reason, "", "", names, said.message)]


def _cpus(placement: Placement) -> str:
    held = placement.cpus or CPUSet()
    for container in placement.containers:
        held |= container.cpus or CPUSet()
    return str(held)


def _devices(placement: Placement) -> str:
    held: dict[str, set[str]] = {}
    for container in placement.containers:
        for resource, devices in container.devices.items():
            held.setdefault(resource, set()).update(devices)
    return " ".join(f"{resource}={','.join(sorted(ids))}" for resource, ids in sorted(held.items()))


def replay_document(
    events: Sequence[Told],
    after: NodeState,
    *,
    warnings: Sequence[str] = (),
    interrupted: bool = False,
) -> dict[str, Any]:
    """What happened as one document with all the evidence; units as in `admission_document`."""
    return {
        **report_head("ReplayReport", after),
        "events": [_event_document(one) for one in events],
        "interrupted": interrupted,
        "pods": [plain(pod) for pod in after.pods.values()],
        **remaining_document(after),
        "warnings": list(warnings),
    }


def _event_document(one: Told) -> dict[str, Any]:
    document: dict[str, Any] = {"event": one.number, "what": one.what}
    if one.entry is not None:
        document |= entry_document(one.entry)
    elif one.what == "restart":
        lost = [lost._asdict() for lost in one.lost]
        document |= {"verdict": one.outcome, "lost": lost}
        document |= {"error": one.error} if one.error else {}
    else:
        if one.relief is None and one.what != "observe":
            document |= {"name": one.name} if one.pod is None else plain(one.pod)
        document["verdict"] = one.outcome
    if one.relief is not None:
        document |= _relief_document(one.relief)
    if one.resizes:
        document["resizes"] = [outcome_document(each) for each in one.resizes]
    document["actions"] = action_documents(one.actions)
    return document


def _relief_document(relief: Pass) -> dict[str, Any]:
    """What the eviction manager found and did."""
    document: dict[str, Any] = {
        "conditions": [condition.value for condition in relief.state.conditions],
        "met": [one.threshold.signal.value for one in relief.met],
        "takenUp": None if relief.target is None else relief.target.signal.value,
        "evicted": [plain(one.claim.pod) for one in relief.evictions],
    }
    if relief.stopped is not None:
        document["stopped"] = fact_document(relief.stopped)
    return document


def action_documents(actions: Sequence[Action]) -> list[dict[str, Any]]:
    """What the kubelet would do, in order."""
    return [_action_document(action) for action in actions]


def _action_document(action: Action) -> dict[str, Any]:
    document = fact_document(action)
    # The name of its class goes by another key: events have a type of their own.
    own = document if isinstance(action, RecordEvent) else dict(list(document.items())[1:])
    if isinstance(action, EvictPod):
        message = eviction_message(action.because)
        own["status"] = {"phase": "Failed", "reason": EVICTED, "message": message}
    return {"action": type(action).__name__, **own}


def replayed_names(events: Sequence[Told]) -> str:
    """The pods that got in for certain, a line each, as kubectl names them."""
    return admitted_names(one.entry for one in events if one.entry is not None)


# ---------------------------------------------------------------- journals


def journal_head(node: Mapping[str, Any], release: JournalHeader) -> dict[str, Any]:
    """The Scenario that a journal is, without its events; ``node`` is a NodeProfile as a document."""
    header = {"nodewright": release.nodewright, "rulesOf": release.rules_of}
    return {"apiVersion": API_VERSION, "kind": "Scenario", "spec": {"journal": header, "node": node}}


def journal_event(event: Mapping[str, Any], actions: Sequence[Action]) -> dict[str, Any]:
    """An event of a journal: as it was, and what came of it."""
    return {**event, "actions": action_documents(actions)}


def resize_event(pod: Pod) -> dict[str, Any]:
    """The event of a pod that is to have other resources, as a document."""
    return {"resize": plain(object_document(pod))}


def arrival_event(pod: Pod) -> dict[str, Any]:
    """The event of a pod that arrives, as a document."""
    return {"add": plain(object_document(pod))}
