"""The pod cards of a dashboard, for an agent and for a plan, and the pods' marks.

A mark is a number that determines a pod's colour, pattern and letters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.output.kubectl_tables import pod_columns
from nodewright.engine.core.requests.integer_requests import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_critical, qos_class
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import Placement, placement_of
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.predict.admit.admission_report import AdmissionEntry
from nodewright.predict.node_report.report_parts import pod_allocations


def pod_marks(uids: Iterable[str], before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The mark of each pod: its previous one, or the smallest free number.

    >>> pod_marks(["a", "b"])
    {'a': 0, 'b': 1}
    >>> pod_marks(["b", "c", "d"], {"a": 0, "b": 1})
    {'b': 1, 'c': 0, 'd': 2}
    """
    previous = before or {}
    unique_uids = list(dict.fromkeys(uids))
    kept = {uid: previous[uid] for uid in unique_uids if uid in previous}
    used, free, marks = set(kept.values()), 0, dict[str, int]()
    for uid in unique_uids:
        if uid not in kept:
            while free in used:
                free += 1
            used.add(free)
        marks[uid] = kept.get(uid, free)
    return marks


def mark_letters(mark: int) -> str:
    """The letters of a mark.

    >>> [mark_letters(mark) for mark in (0, 25, 26, 109)]
    ['A', 'Z', 'AA', 'DF']
    """
    text = ""
    mark += 1
    while mark:
        mark, rest = divmod(mark - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


Tone: TypeAlias = Literal["good", "wait", "bad", "over"]
"""The state of a pod: running, pending, failed, or ended."""

_STAGES: Mapping[PodStage, Tone] = {
    PodStage.ALLOCATING: "wait",
    PodStage.WAITING: "wait",
    PodStage.TERMINATING: "wait",
    PodStage.TERMINATED: "over",
    PodStage.REJECTED: "bad",
}
_DECISIONS: Mapping[Decision, Tone] = {Decision.ADMITTED: "good", Decision.REFUSED: "bad"}
PRE_EXISTING = "there"
"""The stage of pods that were on the node before the plan."""


class PlannedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A decision of a plan, and whether a later pod preempts this one."""

    entry: AdmissionEntry
    preempted_by: str = ""
    """The pod of the plan that preempts it, as namespace/name."""


def agent_pods(
    records: Sequence[PodRecord], state: AgentState, marks: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The cards of an agent's pods."""
    return [_record_card(record, state, marks) for record in records]


def _record_card(record: PodRecord, state: AgentState, marks: Mapping[str, int]) -> dict[str, Any]:
    pod, stage = record.pod, record.stage
    columns = pod_columns(msgspec.structs.replace(pod, status=record.status))
    placement = placement_of(state.node, pod) if pod.uid in state.node.pods else None
    created, started = pod.metadata.creation_timestamp, record.status.start_time
    waits_for = [state.pods[uid].pod.full_name for uid in sorted(record.waits_for) if uid in state.pods]
    return {
        **_card(pod, placement, marks),
        "stage": str(stage),
        "word": columns.status or str(stage).capitalize(),
        "tone": _STAGES.get(stage) or _tone(record, columns.ready, columns.total),
        "ready": f"{columns.ready}/{columns.total}",
        "restarts": columns.restarts,
        "created": str(created) if created is not None else started or None,
        "source": str(record.source),
        "reason": record.status_override.reason if record.status_override is not None else "",
        "message": record.status_override.message if record.status_override is not None else "",
        "waitsFor": waits_for,
        "preempts": [],
        "preemptedBy": "",
        "makesWay": record.is_preempted,
        "asked": stage is not PodStage.TERMINATED,
    }


def _tone(record: PodRecord, ready: int, of: int) -> Tone:
    if record.status.phase == "Failed" or record.container_waiting:
        return "bad"
    if record.status.phase == "Succeeded":
        return "over"
    return "good" if ready == of else "wait"


def plan_pods(
    planned: Sequence[PlannedPod], before: NodeState, after: NodeState, marks: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The cards of a plan's pods, in order; then of the pods that were on the node before."""
    planned_uids = {planned_pod.entry.pod.uid for planned_pod in planned}
    preempted_by = {
        victim.uid: planned_pod.entry.pod.full_name
        for planned_pod in planned
        for victim in planned_pod.entry.preempted_pods
    }
    cards = [_entry_card(planned_pod, after, marks) for planned_pod in planned]
    for uid, pod in before.pods.items():
        if uid not in planned_uids:
            cards.append(_node_pod_card(pod, after, preempted_by.get(uid, ""), marks))
    return cards


def _entry_card(planned: PlannedPod, after: NodeState, marks: Mapping[str, int]) -> dict[str, Any]:
    entry = planned.entry
    is_on_node = entry.pod.uid in after.pods
    tone: Tone = "over" if planned.preempted_by else _DECISIONS.get(entry.decision, "wait")
    return {
        **_card(entry.pod, entry.placement if is_on_node else None, marks),
        "stage": entry.decision.value,
        "word": "preempted" if planned.preempted_by else entry.decision.value,
        "tone": tone,
        "source": entry.origin,
        "reason": entry.kubelet.reason,
        "message": entry.kubelet.message,
        "preempts": [pod.full_name for pod in entry.preempted_pods],
        "preemptedBy": planned.preempted_by,
        "asked": True,
    }


def _node_pod_card(pod: Pod, after: NodeState, preempted_by: str, marks: Mapping[str, int]) -> dict[str, Any]:
    is_on_node = pod.uid in after.pods
    return {
        **_card(pod, placement_of(after, pod) if is_on_node else None, marks),
        "stage": PRE_EXISTING if is_on_node else "gone",
        "word": "preempted" if preempted_by else "on the node",
        "tone": "good" if is_on_node else "over",
        "source": "",
        "reason": "",
        "message": "",
        "preempts": [],
        "preemptedBy": preempted_by,
        "asked": is_on_node,
    }


def _card(pod: Pod, placement: Placement | None, marks: Mapping[str, int]) -> dict[str, Any]:
    """The fields of every card; pods without exclusive resources have no mark."""
    mark = marks.get(pod.uid)
    card: dict[str, Any] = {
        "key": pod.uid,
        "namespace": pod.metadata.namespace or "default",
        "name": pod.metadata.name,
        "qosClass": qos_class(pod).value,
        "priority": pod.spec.priority or 0,
        "isCritical": is_critical(pod),
        "requests": [
            [name, readable_amount(name, amount)]
            for name, amount in sorted(scheduler_requests(pod).items())
            if amount
        ],
        "mark": mark,
        "letters": "" if mark is None else mark_letters(mark),
    }
    if placement is not None and placement.holds_anything:
        card["placement"] = plain_value(pod_allocations(placement))
    return card
