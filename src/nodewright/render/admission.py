"""What a node says to pods, as a table, as a document and as names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodewright.core.preemption import Victims
from nodewright.core.requests import qos_class, scheduler_requests
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.model.reasons import NotJudged, Reason
from nodewright.node.placement import Placement
from nodewright.node.state import NodeState
from nodewright.node.step import Decision
from nodewright.render.amounts import amount_text, readable
from nodewright.render.documents import fact_document
from nodewright.render.messages import Message, message
from nodewright.render.placement import left_document, placement_document, placement_texts
from nodewright.render.policies import policies_document, speaker
from nodewright.render.sentences import sentence
from nodewright.render.tables import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The answer to one pod."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...]
    victims: Victims | None
    placement: Placement | None = None
    """What the pod was given for itself; None: it is not taken."""
    origin: str = ""
    """Where the pod comes from, e.g. `Deployment web`."""

    @property
    def kubelet(self) -> Message:
        """The kubelet's reason and message; empty where it has none."""
        return message(self.because[0]) if self.decision is Decision.REFUSED else Message("", "")

    @property
    def preempted(self) -> tuple[Pod, ...]:
        """The pods that have to go, in this order."""
        return tuple(one.pod for one in self.victims.victims) if self.victims else ()


def admission_text(entries: Sequence[Entry], after: NodeState, *, wide: bool = False) -> str:
    """The answers as a table, the reasons below it, and what remains of the node."""
    parts = [_verdicts(entries, wide=wide)]
    parts += [_explained(entry) for entry in entries if entry.because or entry.victims]
    parts += placement_texts([(entry.pod, entry.placement) for entry in entries], after, wide=wide)
    parts.append(remaining_text(after))
    return "\n".join(parts)


def _verdicts(entries: Sequence[Entry], *, wide: bool) -> str:
    headers = ["POD", "QOS", "VERDICT", "REASON"]
    if wide:
        headers += ["REQUESTS", "PRIORITY", "FROM", "MESSAGE"]
    rows = []
    for entry in entries:
        row = [
            entry.pod.full_name,
            qos_class(entry.pod).value,
            entry.decision.value,
            entry.kubelet.reason or "-",
        ]
        if wide:
            asked = ",".join(
                f"{name}={amount_text(name, amount)}" for name, amount in sorted(_asked(entry.pod))
            )
            priority = entry.pod.spec.priority
            row += [asked or "-", "-" if priority is None else str(priority), entry.origin or "-"]
            row.append(entry.kubelet.message or "-")
        rows.append(row)
    return table(headers, rows)


def _asked(pod: Pod) -> Iterable[tuple[str, int]]:
    return ((name, amount) for name, amount in scheduler_requests(pod).items() if amount)


def _explained(entry: Entry) -> str:
    lines = [f"{entry.pod.full_name}: {entry.decision.value}"]
    if entry.kubelet.message:
        lines.append(f"  {speaker(entry.because[0])}: {entry.kubelet.message}")
    lines += [f"  - {sentence(reason)}" for reason in entry.because]
    lines += [
        f"  - {victim.full_name} ({qos_class(victim).value}) is preempted to make room"
        for victim in entry.preempted
    ]
    return "".join(f"{line}\n" for line in lines)


def remaining_text(state: NodeState) -> str:
    """What the node has, what its pods request, and what is left, a line a resource."""
    rows = [
        (name, *(readable(name, amount) for amount in (has, used, has - used)))
        for name, has, used in amounts(state)
    ]
    return table(("RESOURCE", "ALLOCATABLE", "REQUESTED", "REMAINING"), rows)


def amounts(state: NodeState) -> list[tuple[str, int, int]]:
    """What pods can have and what they ask for, by resource.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.
    """
    has = state.config.view.allocatable
    used = {**state.totals.requests, "pods": state.totals.pods}
    order = {"cpu": 0, "memory": 1, "ephemeral-storage": 2, "pods": 3}
    names = sorted(has, key=lambda name: (order.get(name, len(order)), name))
    return [(name, has[name], used.get(name, 0)) for name in names]


def admission_document(
    entries: Sequence[Entry], after: NodeState, *, warnings: Sequence[str] = (), skipped: Mapping[str, int]
) -> dict[str, Any]:
    """The answers as one document with all the evidence.

    Units: in `because` cpu in thousandths, everything else in bytes or pieces; elsewhere amounts have their suffix.
    """
    return {
        **report_head("AdmissionReport", after),
        "pods": [entry_document(entry) for entry in entries],
        **remaining_document(after),
        "skipped": dict(skipped),
        "warnings": list(warnings),
    }


def report_head(kind: str, state: NodeState) -> dict[str, Any]:
    """How a report about a node begins."""
    config = state.config
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
    }


def remaining_document(state: NodeState) -> dict[str, Any]:
    """What the node has, and what is left of it, as members of a report."""
    return {
        "capacity": dict(state.config.resources.capacity),
        "allocatable": dict(state.config.resources.allocatable),
        "remaining": {name: amount_text(name, has - used) for name, has, used in amounts(state)},
        **left_document(state),
    }


def entry_document(entry: Entry) -> dict[str, Any]:
    """The answer to one pod with all the evidence; units as in `admission_document`."""
    pod = entry.pod
    document: dict[str, Any] = {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace or "default",
        "uid": pod.uid,
        "qosClass": qos_class(pod).value,
        "requests": {name: amount_text(name, amount) for name, amount in _asked(pod)},
        "verdict": entry.decision.value,
        "admitted": entry.decision is Decision.ADMITTED,
    }
    if entry.origin:
        document["from"] = entry.origin
    if entry.kubelet.reason:
        document["reason"], document["message"] = entry.kubelet
    document["why"] = [sentence(reason) for reason in entry.because]
    document["because"] = [fact_document(reason) for reason in entry.because]
    document["notJudged"] = [
        {"what": reason.what, "because": reason.because}
        for reason in entry.because
        if isinstance(reason, NotJudged)
    ]
    document["preempted"] = [
        {"name": victim.metadata.name, "namespace": victim.metadata.namespace or "default", "uid": victim.uid}
        for victim in entry.preempted
    ]
    if entry.placement is not None:
        document["placement"] = placement_document(entry.placement)
    return document


def admitted_names(entries: Iterable[Entry]) -> str:
    """The pods that get in for certain, a line each, as kubectl names them."""
    return "".join(
        f"pod/{entry.pod.metadata.name}\n" for entry in entries if entry.decision is Decision.ADMITTED
    )
