"""The pods of a dashboard: a card each, for those of an agent and those of a plan."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from nodewright.agent.values import Mind, PodRecord, Stage
from nodewright.core.requests import is_critical, qos_class, scheduler_requests
from nodewright.model.objects import Pod
from nodewright.node.placement import Placement, placement_of
from nodewright.node.state import NodeState
from nodewright.node.step import Decision
from nodewright.render.admission import Entry
from nodewright.render.amounts import readable
from nodewright.render.dashboard.marks import letters
from nodewright.render.placement import placement_document
from nodewright.render.pod_rows import told_of

Tone: TypeAlias = Literal["good", "wait", "bad", "over"]
"""How it goes: well, not yet, badly, or it is all over."""

_STAGES: Mapping[Stage, Tone] = {
    Stage.ALLOCATING: "wait",
    Stage.WAITING: "wait",
    Stage.ENDING: "wait",
    Stage.ENDED: "over",
    Stage.REFUSED: "bad",
}
_DECISIONS: Mapping[Decision, Tone] = {Decision.ADMITTED: "good", Decision.REFUSED: "bad"}
THERE = "there"
"""What a plan says of pods that the node had before."""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of a plan, and what became of the pod after it."""

    entry: Entry
    preempted_by: str = ""
    """The pod of the plan that it has to make way for, as namespace/name."""


def agent_pods(records: Sequence[PodRecord], mind: Mind, marked: Mapping[str, int]) -> list[dict[str, Any]]:
    """The pods that an agent knows."""
    return [_of_record(one, mind, marked) for one in records]


def _of_record(record: PodRecord, mind: Mind, marked: Mapping[str, int]) -> dict[str, Any]:
    pod, stage = record.pod, record.stage
    told = told_of(msgspec.structs.replace(pod, status=record.status))
    placed = placement_of(mind.node, pod) if pod.uid in mind.node.pods else None
    created, started = pod.metadata.creation_timestamp, record.status.start_time
    waits = [mind.pods[uid].pod.full_name for uid in sorted(record.waits_for) if uid in mind.pods]
    return {
        **_card(pod, placed, marked),
        "stage": str(stage),
        "word": told.word or str(stage).capitalize(),
        "tone": _STAGES.get(stage) or _tone(record, told.ready, told.of),
        "ready": f"{told.ready}/{told.of}",
        "restarts": told.restarts,
        "created": str(created) if created is not None else started or None,
        "source": str(record.source),
        "reason": record.override.reason if record.override is not None else "",
        "message": record.override.message if record.override is not None else "",
        "waitsFor": waits,
        "preempts": [],
        "preemptedBy": "",
        "makesWay": record.makes_way,
        "asked": stage is not Stage.ENDED,
    }


def _tone(record: PodRecord, ready: int, of: int) -> Tone:
    if record.status.phase == "Failed" or record.held_back:
        return "bad"
    if record.status.phase == "Succeeded":
        return "over"
    return "good" if ready == of else "wait"


def plan_pods(
    planned: Sequence[Planned], before: NodeState, after: NodeState, marked: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The pods of a plan, in order; then those that the node had ``before``."""
    mine = {one.entry.pod.uid for one in planned}
    gone = {victim.uid: one.entry.pod.full_name for one in planned for victim in one.entry.preempted}
    found = [_of_entry(one, after, marked) for one in planned]
    for uid, pod in before.pods.items():
        if uid not in mine:
            found.append(_of_node(pod, after, gone.get(uid, ""), marked))
    return found


def _of_entry(planned: Planned, after: NodeState, marked: Mapping[str, int]) -> dict[str, Any]:
    entry = planned.entry
    is_there = entry.pod.uid in after.pods
    said: Tone = "over" if planned.preempted_by else _DECISIONS.get(entry.decision, "wait")
    return {
        **_card(entry.pod, entry.placement if is_there else None, marked),
        "stage": entry.decision.value,
        "word": "preempted" if planned.preempted_by else entry.decision.value,
        "tone": said,
        "source": entry.origin,
        "reason": entry.kubelet.reason,
        "message": entry.kubelet.message,
        "preempts": [one.full_name for one in entry.preempted],
        "preemptedBy": planned.preempted_by,
        "asked": True,
    }


def _of_node(pod: Pod, after: NodeState, preempted_by: str, marked: Mapping[str, int]) -> dict[str, Any]:
    is_there = pod.uid in after.pods
    return {
        **_card(pod, placement_of(after, pod) if is_there else None, marked),
        "stage": THERE if is_there else "gone",
        "word": "preempted" if preempted_by else "on the node",
        "tone": "good" if is_there else "over",
        "source": "",
        "reason": "",
        "message": "",
        "preempts": [],
        "preemptedBy": preempted_by,
        "asked": is_there,
    }


def _card(pod: Pod, placed: Placement | None, marked: Mapping[str, int]) -> dict[str, Any]:
    """What is told of every pod; one that holds nothing has no mark."""
    mark = marked.get(pod.uid)
    card: dict[str, Any] = {
        "key": pod.uid,
        "namespace": pod.metadata.namespace or "default",
        "name": pod.metadata.name,
        "qosClass": qos_class(pod).value,
        "priority": pod.spec.priority or 0,
        "isCritical": is_critical(pod),
        "requests": [
            [name, readable(name, amount)]
            for name, amount in sorted(scheduler_requests(pod).items())
            if amount
        ],
        "mark": mark,
        "letters": "" if mark is None else letters(mark),
    }
    if placed is not None and placed.holds_anything:
        card["placement"] = placement_document(placed)
    return card
