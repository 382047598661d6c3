"""How a start of a kubelet would go, as text, as a document and as names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nodewright.model.kubelet_config import MemoryReservation
from nodewright.model.profile import API_VERSION
from nodewright.model.release import RulesOf
from nodewright.model.state_reasons import StateFile
from nodewright.node.placement import Placement
from nodewright.node.rehearsal import Fate, Rehearsal, Remedy
from nodewright.render.documents import as_yaml, fact_document, plain
from nodewright.render.messages import fatal_error, message
from nodewright.render.placement import placement_document
from nodewright.render.sentences import sentence
from nodewright.render.tables import table
from nodewright.values.idset import CPUSet

_NOTHING = "-"
_HEADERS = ("POD", "VERDICT", "CPUS", "MEMORY", "DEVICES", "REASON")
_MAY_BE_LEFT_OUT = (2, 3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """What is told of a rehearsal beside itself."""

    node: str
    rules: RulesOf
    paths: dict[StateFile, str]
    """Where the state files are."""
    warnings: Sequence[str] = ()


def rehearsal_text(found: Rehearsal, about: Rehearsed, *, wide: bool = False) -> str:
    """Whether the kubelet starts, what to do if not, and what becomes of each pod."""
    parts = ["".join(f"{line}\n" for line in _verdict(found))]
    shown = found
    if found.remedy is not None:
        parts.append("".join(f"{line}\n" for line in _to_do(found.remedy, about)))
        shown = found.remedy.then
    if shown.fates:
        parts.append(_pods(shown.fates, wide=wide) + _sum(shown.fates))
    parts.append("".join(f"{line}\n" for line in _remarks(found, shown)))
    return "\n".join(part for part in parts if part)


def _verdict(found: Rehearsal) -> Iterator[str]:
    for number, ending in enumerate(found.endings):
        lead = "and after that: " if number else "the kubelet does not start: "
        told, plain_words = fatal_error(ending.because), sentence(ending.because)
        yield f"{lead}{told}"
        if plain_words not in told:
            yield f"  - {plain_words}"
    if found.starts:
        yield "the kubelet starts" + (", but not all pods survive it" if found.lost else "")
    for warning in found.warnings:
        yield f"passed over: {fatal_error(warning)}"
        yield f"  - {sentence(warning)}; who holds which devices is forgotten, and they may be given out twice"


def _to_do(remedy: Remedy, about: Rehearsed) -> Iterator[str]:
    """The steps that let it start, in order."""
    lost = [fate.pod.full_name for fate in remedy.then.lost]
    steps: list[list[str]] = []
    if remedy.reserved_memory is not None:
        steps.append(["configure:", *_reserved(remedy.reserved_memory)])
    if lost:
        steps.append([f"drain the pods that do not survive: {', '.join(lost)}"])
    if remedy.delete:
        files = " ".join(about.paths[file] for file in remedy.delete)
        steps.append([f"stop the kubelet and delete {files}"])
    yield "to let it start:"
    for number, (first, *rest) in enumerate(steps, 1):
        yield f"  {number}. {first}"
        yield from (f"     {line}" for line in rest)
    yield "then, of the pods that go on running:"


def _reserved(reserved: Sequence[MemoryReservation]) -> list[str]:
    return as_yaml({"reservedMemory": _reserved_documents(reserved)}).splitlines()


def _reserved_documents(reserved: Sequence[MemoryReservation]) -> list[dict[str, Any]]:
    return [
        {"numaNode": one.numa_node, "limits": {kind: str(amount) for kind, amount in one.limits.items()}}
        for one in reserved
    ]


def _pods(fates: Sequence[Fate], *, wide: bool) -> str:
    rows = [_row(fate, wide=wide) for fate in fates]
    kept = [
        at
        for at in range(len(_HEADERS))
        if at not in _MAY_BE_LEFT_OUT or any(row[at] != _NOTHING for row in rows)
    ]
    return table([_HEADERS[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _row(fate: Fate, *, wide: bool) -> tuple[str, ...]:
    then = fate.before if fate.is_lost else fate.after
    held = [_change(of(fate.before), of(then)) for of in (_cpus, _memory, _devices)]
    return (fate.pod.full_name, _word(fate), *held, _why(fate, wide=wide) or _NOTHING)


def _change(before: str, then: str) -> str:
    if before == then:
        return before or _NOTHING
    return f"{before or _NOTHING} -> {then or _NOTHING}"


def _word(fate: Fate) -> str:
    if fate.is_lost:
        return "lost"
    if fate.is_open:
        return "undecided"
    return "moved" if fate.is_moved else "kept"


def _why(fate: Fate, *, wide: bool) -> str:
    if fate.pushed_out_by is not None:
        return f"makes way for {fate.pushed_out_by.full_name}"
    if not fate.because:
        return ""
    told = message(fate.because[0])
    return f"{told.reason}: {told.message}" if wide else told.reason


def _cpus(placement: Placement) -> str:
    held = placement.cpus or CPUSet()
    for container in placement.containers:
        held |= container.cpus or CPUSet()
    return str(held)


def _memory(placement: Placement) -> str:
    """The NUMA nodes on which it holds memory."""
    blocks = [block for container in placement.containers for block in container.memory]
    numa = sorted({node for block in (*blocks, *(placement.memory or ())) for node in block.numa})
    return f"NUMA {','.join(map(str, numa))}" if numa else ""


def _devices(placement: Placement) -> str:
    held: dict[str, set[str]] = {}
    for container in placement.containers:
        for resource, devices in container.devices.items():
            held.setdefault(resource, set()).update(devices)
    return " ".join(f"{resource}={','.join(sorted(ids))}" for resource, ids in sorted(held.items()))


def _sum(fates: Sequence[Fate]) -> str:
    words = [_word(fate) for fate in fates]
    counted = (
        f"{words.count(word)} {word}" for word in ("kept", "moved", "undecided", "lost") if word in words
    )
    return f"{len(fates)} pod{'' if len(fates) == 1 else 's'}: {', '.join(counted)}\n"


def _remarks(asked: Rehearsal, found: Rehearsal) -> Iterator[str]:
    if asked.starts and asked.lost:
        yield f"drain first: {', '.join(fate.pod.full_name for fate in asked.lost)}"
    for uid in found.leftovers:
        yield f"{uid} holds something, and there is no such pod: it is taken back"
    for one in found.not_judged:
        yield sentence(one)


def rehearsal_names(found: Rehearsal) -> str:
    """The pods that do not survive, a line each, as kubectl names them."""
    shown = found.remedy.then if found.remedy else found
    return "".join(f"pod/{fate.pod.metadata.name}\n" for fate in shown.lost)


def rehearsal_document(found: Rehearsal, about: Rehearsed) -> dict[str, Any]:
    """The same as one document.

    Units: sizes in bytes.
    """
    document: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "RehearsalReport",
        "node": about.node,
        "kubernetesVersion": about.rules.release.text,
        "rulesOf": about.rules.rules_of,
        **_body(found),
        "remedy": None,
        "warnings": list(about.warnings),
    }
    if found.remedy is not None:
        remedy = found.remedy
        document["remedy"] = {
            "deleteFiles": [about.paths[file] for file in remedy.delete],
            "drain": [fate.pod.full_name for fate in remedy.then.lost],
            "reservedMemory": None
            if remedy.reserved_memory is None
            else _reserved_documents(remedy.reserved_memory),
            "then": _body(remedy.then),
        }
    return document


def _body(found: Rehearsal) -> dict[str, Any]:
    return {
        "starts": found.starts,
        "errors": [
            {
                "stage": ending.stage.value,
                "error": fatal_error(ending.because),
                "why": sentence(ending.because),
                "because": fact_document(ending.because),
            }
            for ending in found.endings
        ],
        "passedOver": [
            {"error": fatal_error(reason), "because": fact_document(reason)} for reason in found.warnings
        ],
        "pods": [_fate_document(fate) for fate in found.fates],
        "leftovers": list(found.leftovers),
        "notJudged": [fact_document(one) for one in found.not_judged],
    }


def _fate_document(fate: Fate) -> dict[str, Any]:
    document: dict[str, Any] = {**plain(fate.pod), "verdict": _word(fate)}
    if fate.pushed_out_by is not None:
        document["makesWayFor"] = fate.pushed_out_by.full_name
    elif fate.because:
        document["reason"], document["message"] = message(fate.because[0])
        document["why"] = [sentence(reason) for reason in fate.because]
        document["because"] = [fact_document(reason) for reason in fate.because]
    document["before"] = placement_document(fate.before)
    document["after"] = None if fate.is_lost else placement_document(fate.after)
    return document
