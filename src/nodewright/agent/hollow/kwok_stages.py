"""Reads Stages of kwok: those of pods that delay what containers do."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.hollow.behaviour import (
    KWOK_STAGE,
    MAP_KEY,
    MAX_NS,
    MAX_WEIGHT,
    OWNER_KEY,
    PodStage,
    StageMatch,
    StageNumber,
)
from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.model.errors import Fault, InputError
from nodewright.model.values.golang import saturated_int

_NODE_STAGES = frozenset({"node-initialize", "node-heartbeat", "node-heartbeat-with-lease"})
"""What each hollow node does anyway."""
_PHASE_KEY = ".status.phase"
_IS_DELETED = StageMatch(key=".metadata.deletionTimestamp", operator="Exists")
_IS_LIVE = StageMatch(key=".metadata.deletionTimestamp", operator="DoesNotExist")
_PROGRESS_KEY = re.compile(
    r'\.status\.(podIP|conditions\.\[\]\|select\(\.type=="(Ready|Initialized|ContainersReady)"\)\|\.status'
    r"|(init)?[cC]ontainerStatuses\.\[\]\.state\.\w+\.\w+)"
)
"""What changes on a pod's way: the phases tell which step it is."""
_STEPS = {
    ("Pending", "Pending"): "create",
    ("Pending", "Running"): "start",
    ("Pending", "Failed"): "init",
    ("Running", "Running"): "ready",
    ("Running", "Succeeded"): "end",
    ("Running", "Failed"): "end",
}
"""The step, by the phases of the pod before and after."""
_SOURCES = {
    "delay": "delay.durationFrom",
    "jitter-delay": "delay.jitterDurationFrom",
    "weight": "weightFrom",
}
"""The fields that name an annotation, by what kwok's own annotations are named for."""
_INIT_STATUSES, _MAX_CODE = "initContainerStatuses", 255
_PHASE = re.compile(r"^[ \t]*phase:(.*)$", re.MULTILINE)
_CODE = re.compile(r"xitCode(?::| :=)[ \t]*([0-9]+)")
_CONDITION = re.compile(r"^[ \t]*- ", re.MULTILINE)
_IS_READY = (
    re.compile(r'^[ \t]*type:[ \t]*"?Ready"?[ \t]*$', re.MULTILINE),
    re.compile(r'^[ \t]*status:[ \t]*"?True"?[ \t]*$', re.MULTILINE),
)


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of a Stage; any other field is one that hollow nodes do not read."""


class _From(_Part, frozen=True):
    expression_from: str


class _Selector(_Part, frozen=True):
    match_labels: dict[str, str] = {}
    match_annotations: dict[str, str] = {}
    match_expressions: tuple[StageMatch, ...] = ()


_Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_NS // 10**6)]


class _Delay(_Part, frozen=True):
    duration_milliseconds: _Milliseconds = 0
    duration_from: _From | None = None
    jitter_duration_milliseconds: _Milliseconds | None = None
    jitter_duration_from: _From | None = None


class _Next(_Part, frozen=True):
    delete: bool = False
    event: dict[str, str] = {}
    status_template: str = ""


class _Spec(_Part, frozen=True):
    resource_ref: dict[str, str]
    selector: _Selector
    next: _Next
    weight: Annotated[int, msgspec.Meta(ge=0, le=MAX_WEIGHT)] = 0
    weight_from: _From | None = None
    delay: _Delay = _Delay()
    immediate_next_stage: bool = False


class _Stage(msgspec.Struct, frozen=True):
    spec: _Spec


def pod_stage(document: Mapping[str, Any]) -> PodStage | None:
    """What a Stage says of containers; None: nothing that hollow nodes do not do anyway.

    Errors:  InputError with a field that has no equal here.
    Follows: kwok v0.7, kustomize/stage: its Stages of pods and nodes, and those of the same form.
    Departs: steps follow each other as in a kubelet, and the restartPolicy decides what follows an end.
    """
    name, spec = str(document["metadata"].get("name")), document.get("spec")
    reference = spec.get("resourceRef") if isinstance(spec, dict) else None
    kind = reference.get("kind") if isinstance(reference, dict) else None
    if kind == "Node" and name in _NODE_STAGES:
        return None
    if kind != "Pod":
        raise _unread("resourceRef.kind", kind, "only Stages of pods are read")
    try:
        return _read_stage(name, decode(document, _Stage).spec)
    except msgspec.ValidationError as error:
        raise InputError([decoding_fault(error)]) from None


def _unread(path: str, value: object, rule: str) -> InputError:
    return InputError([Fault(path=f"spec.{path}", value=value, rule=rule)])


def _read_stage(name: str, spec: _Spec) -> PodStage | None:
    is_deleted, deletes = _IS_DELETED in spec.selector.match_expressions, spec.next.delete
    if is_deleted and deletes:
        return None
    if is_deleted or deletes:
        raise _unread("next.delete", deletes, "only pods with a deletionTimestamp are deleted")
    before, keys, matches = _selection(spec.selector)
    step, exit_code = _step(before, keys, spec.next.status_template)
    if not step:
        return None
    delay = spec.delay
    return PodStage(
        name=name,
        step=step,
        matches=matches,
        delay=_number(name, "delay", delay.duration_milliseconds, delay.duration_from),
        jitter=_number(name, "jitter-delay", delay.jitter_duration_milliseconds, delay.jitter_duration_from),
        weight=_number(name, "weight", spec.weight, spec.weight_from),
        exit_code=exit_code,
    )


def _selection(selector: _Selector) -> tuple[str, str, tuple[StageMatch, ...]]:
    """The phase of the pods that are selected, the keys by which they are, and what is asked of their metadata."""
    matches = [
        StageMatch(key=f'.metadata.{kind}["{key}"]', operator="In", values=(value,))
        for kind, texts in (("labels", selector.match_labels), ("annotations", selector.match_annotations))
        for key, value in texts.items()
    ]
    before, keys = "Pending", ""
    for index, expression in enumerate(selector.match_expressions):
        key, path = "".join(expression.key.split()), f"selector.matchExpressions[{index}]"
        keys += f"{key}\n"
        if key == _PHASE_KEY and expression.operator == "In" and len(expression.values) == 1:
            before = expression.values[0]
        elif key == OWNER_KEY or MAP_KEY.fullmatch(key):
            matches.append(replace(expression, key=key))
        elif expression != _IS_LIVE and not _PROGRESS_KEY.fullmatch(key):
            raise _unread(path, expression.key, "hollow nodes do not select pods by it")
    return before, keys, tuple(matches)


def _step(before: str, keys: str, template: str) -> tuple[str, int]:
    """The step to which a Stage belongs, and the exit code at its end; no step: a kubelet does it anyway."""
    path, phases = "next.statusTemplate", [text.strip(" \t\"'") for text in _PHASE.findall(template)]
    after = phases[-1] if phases else before
    step = _STEPS.get((before, after), "")
    if not template or not step:
        raise _unread(path, template or None, f"no step of a kubelet's from the phase {before} to {after}")
    if step == "create" and _INIT_STATUSES in keys:
        # An init container begins, or ends.
        return ("init" if ".state.running." in keys else ""), 0
    if step == "create" and not phases:
        raise _unread(path, template, "it has no phase, so it is no step of a kubelet's")
    if step == "init" and _INIT_STATUSES not in template:
        raise _unread(path, template, "only init containers fail before the pod runs")
    if step == "ready" and not any(
        all(part.search(item) for part in _IS_READY) for item in _CONDITION.split(template)
    ):
        raise _unread(path, template, "of conditions, only a Ready that becomes True is read")
    codes = (
        [code for code in map(saturated_int, _CODE.findall(template)) if code] if after == "Failed" else [0]
    )
    code = codes[0] if codes else 1
    if code > _MAX_CODE:
        raise _unread(path, code, f"an exit code is at most {_MAX_CODE}")
    return step, code


def _number(name: str, field: str, number: int | None, source: _From | None) -> StageNumber:
    """A number of a Stage, or of the annotation that it names; without one of that which Stages of kwok name."""
    mapping = MAP_KEY.fullmatch(source.expression_from.strip()) if source is not None else None
    if source is not None and (mapping is None or mapping[1] != "annotations"):
        raise _unread(_SOURCES[field], source.expression_from, "only annotations of the pod are read")
    annotation = mapping[2] if mapping is not None else KWOK_STAGE.format(name, field)
    return StageNumber(number if number is None or field == "weight" else number * 10**6, annotation)
