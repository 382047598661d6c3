"""Who makes way for critical pods, as tables, as a document and as names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodewright.core.preemption import Candidate, Distance, Missing, Optimum, Round, Toll, Victims
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.node.config import NodeConfig
from nodewright.node.preview import Preview
from nodewright.node.step import Decision
from nodewright.render.amounts import readable
from nodewright.render.documents import fact_document
from nodewright.render.messages import message
from nodewright.render.policies import policies_document, speaker
from nodewright.render.sentences import sentence
from nodewright.render.tables import table

NEAREST = 5
"""So many candidates of a round are shown without `-o wide`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The preview for one pod, and the smallest choice of victims where it was asked for."""

    preview: Preview
    optimum: Optimum | None = None
    origin: str = ""
    """Where the pod comes from, e.g. `DaemonSet dns`."""

    @property
    def victims(self) -> tuple[Candidate, ...]:
        """The kubelet's victims, in the order in which they are ended."""
        found = self.preview.step.victims
        return found.victims if found else ()


def preemption_text(entries: Iterable[Entry], *, wide: bool = False) -> str:
    """For each pod what becomes of it, who makes way, and how far each candidate was in each round."""
    return "\n".join(_told(entry, wide=wide) for entry in entries)


def victim_names(entries: Iterable[Entry]) -> str:
    """The victims in order, a line each, as kubectl names them: the smallest choice where it was asked for."""
    return "".join(
        f"pod/{victim.pod.metadata.name}\n"
        for entry in entries
        for victim in (entry.optimum.victims if entry.optimum else entry.victims)
    )


def _told(entry: Entry, *, wide: bool) -> str:
    preview = entry.preview
    origin = f" (of {entry.origin})" if entry.origin else ""
    lines = [f"{preview.pod.full_name}{origin}: {preview.step.decision}, {_summary(entry)}"]
    if preview.step.decision is Decision.REFUSED:
        lines.append(f"  {speaker(preview.step.because[0])}: {message(preview.step.because[0]).message}")
    lines += [f"  - {sentence(reason)}" for reason in preview.step.because]
    if preview.missing:
        lines.append(f"  missing: {_amounts(preview.missing)}")
    parts = ["".join(f"{line}\n" for line in lines)]
    if entry.victims:
        parts.append(_pods("VICTIM", entry.victims, preview.missing))
    if preview.step.victims is not None and preview.step.victims.rounds:
        parts.append(_rounds(preview.step.victims.rounds, wide=wide))
    if preview.unmet and preview.candidates:
        parts.append(_pods("CANDIDATE", preview.candidates, preview.missing))
    if entry.optimum is not None:
        parts.append(_optimal(entry.optimum, preview.missing))
    return "\n".join(parts)


def _summary(entry: Entry) -> str:
    preview = entry.preview
    if preview.step.victims is not None:
        return f"{len(entry.victims)} of {_count(len(preview.candidates), 'candidate')} must make way"
    if preview.unmet:
        held = _count(len(preview.candidates), "candidate")
        return f"and {held} together cannot free enough, so nobody makes way"
    if preview.step.decision is Decision.ADMITTED:
        return "nobody must make way"
    if not preview.critical:
        return "nobody makes way for a pod that is not critical (static, or priority 2000000000 and above)"
    return "nobody makes way: more than room is missing"


def _pods(header: str, pods: Iterable[Candidate], missing: Sequence[Missing]) -> str:
    return table(
        (header, "QOS", "PRIORITY", "FREES"),
        [(one.pod.full_name, one.qos_class.value, _priority(one.pod), _freed(one, missing)) for one in pods],
    )


def _rounds(rounds: Sequence[Round], *, wide: bool) -> str:
    rows = []
    for number, one in enumerate(rounds, 1):
        head = (str(number), one.qos_class.value, _amounts(one.missing))
        # The one that was picked comes first: none is nearer.
        nearest = _by_distance(one)
        for candidate, distance in nearest if wide else nearest[:NEAREST]:
            mark = "picked" if candidate is one.picked else ""
            rows.append((*head, candidate.pod.full_name, f"{distance:.6g}", mark))
            head = ("", "", "")
        if not wide and len(nearest) > NEAREST:
            rows.append((*head, f"and {len(nearest) - NEAREST} more (-o wide)", "", ""))
    return table(("ROUND", "QOS", "MISSING", "CANDIDATE", "DISTANCE", ""), rows)


def _by_distance(one: Round) -> list[Distance]:
    return sorted(one.distances, key=lambda each: (each.distance, each.candidate is not one.picked))


def _optimal(best: Optimum, missing: Sequence[Missing]) -> str:
    certainty = "proved" if best.proved else f"not proved: given up after {best.steps} steps"
    if best.toll == best.greedy_toll:
        return f"no choice is known to be smaller than the kubelet's ({certainty})\n"
    rows = [("kubelet", *_toll(best.greedy_toll, best)), ("smallest", *_toll(best.toll, best))]
    headers = ("CHOICE", "GUARANTEED", "BURSTABLE", "BESTEFFORT", *(name.upper() for name in best.resources))
    return "\n".join(
        (
            f"smallest choice ({certainty}):\n",
            _pods("VICTIM", best.victims, missing),
            table(headers, rows),
        )
    )


def _toll(toll: Toll, best: Optimum) -> list[str]:
    sums = zip(best.resources, toll.requests, strict=True)
    counts = map(str, (toll.guaranteed, toll.burstable, toll.best_effort))
    return [*counts, *(readable(name, amount) for name, amount in sums)]


def _amounts(amounts: Iterable[Missing]) -> str:
    return ", ".join(f"{name} {readable(name, amount)}" for name, amount in amounts)


def _freed(candidate: Candidate, missing: Iterable[Missing]) -> str:
    return _amounts(Missing(name, candidate.frees(name)) for name, _ in missing)


def _priority(pod: Pod) -> str:
    return "-" if pod.spec.priority is None else str(pod.spec.priority)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def preemption_document(
    entries: Iterable[Entry], config: NodeConfig, *, warnings: Sequence[str] = (), skipped: Mapping[str, int]
) -> dict[str, Any]:
    """The previews as one document with all the evidence.

    Units: amounts in thousandths for cpu, else bytes or pieces.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "PreemptionReport",
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
        "pods": [_entry_document(entry) for entry in entries],
        "skipped": dict(skipped),
        "warnings": list(warnings),
    }


def _entry_document(entry: Entry) -> dict[str, Any]:
    preview = entry.preview
    taken = preview.step
    document: dict[str, Any] = {
        **_reference(preview.pod),
        "critical": preview.critical,
        "verdict": taken.decision,
        "admitted": taken.decision is Decision.ADMITTED,
    }
    if entry.origin:
        document["from"] = entry.origin
    if taken.decision is Decision.REFUSED:
        document["reason"], document["message"] = message(taken.because[0])
    document["why"] = [sentence(reason) for reason in taken.because]
    document["because"] = [fact_document(reason) for reason in taken.because]
    document["missing"] = dict(preview.missing)
    document["candidates"] = [
        {**_reference(one.pod), "qosClass": one.qos_class.value, "requests": dict(one.requests)}
        for one in preview.candidates
    ]
    document["stillMissing"] = dict(preview.unmet)
    document.update(_victims_document(taken.victims))
    if entry.optimum is not None:
        document["smallest"] = _optimum_document(entry.optimum)
    return document


def _victims_document(found: Victims | None) -> dict[str, Any]:
    if found is None:
        return {"victims": [], "rounds": []}
    return {
        "preemptionSignal": found.signal,
        "victims": [_reference(one.pod) for one in found.victims],
        "rounds": [
            {
                "qosClass": one.qos_class.value,
                "missing": dict(one.missing),
                "distances": [
                    {**_reference(each.candidate.pod), "distance": each.distance} for each in one.distances
                ],
                "picked": _reference(one.picked.pod),
                "left": dict(one.left),
            }
            for one in found.rounds
        ],
    }


def _optimum_document(best: Optimum) -> dict[str, Any]:
    return {
        "victims": [_reference(one.pod) for one in best.victims],
        "proved": best.proved,
        "steps": best.steps,
        "cost": _toll_document(best.toll, best),
        "kubeletCost": _toll_document(best.greedy_toll, best),
    }


def _toll_document(toll: Toll, best: Optimum) -> dict[str, Any]:
    return {
        "guaranteed": toll.guaranteed,
        "burstable": toll.burstable,
        "bestEffort": toll.best_effort,
        "requests": dict(zip(best.resources, toll.requests, strict=True)),
    }


def _reference(pod: Pod) -> dict[str, Any]:
    return {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace or "default",
        "uid": pod.uid,
        "priority": pod.spec.priority,
    }
