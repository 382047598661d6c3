"""The JSON of a journal: its header, its events, and the kubelet's actions."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.documents.output.json_yaml import fact_document, plain_value
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.node.actions import (
    Action,
    DeferResize,
    EvictPod,
    ExitKubelet,
    GetPreferredAllocation,
    MarkResizeInfeasible,
    RecordPodEvent,
    RecordReclaim,
)
from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import JournalHeader
from nodewright.model.reasons.eviction import EVICTED_REASON


def journal_head(node: Mapping[str, Any], release: JournalHeader) -> dict[str, Any]:
    """The Scenario of a journal without its events; ``node`` is the document of a NodeProfile."""
    header = {"nodewright": release.nodewright, "rulesOf": release.rules_of}
    return {"apiVersion": API_VERSION, "kind": "Scenario", "spec": {"journal": header, "node": node}}


def journal_event(event: Mapping[str, Any], actions: Sequence[Action]) -> dict[str, Any]:
    """The JSON of a journal event with its actions."""
    return {**event, "actions": action_documents(actions)}


def resize_event(pod: Pod) -> dict[str, Any]:
    """The JSON of a resize event."""
    return {"resize": plain_value(object_document(pod))}


def arrival_event(pod: Pod) -> dict[str, Any]:
    """The JSON of an add event."""
    return {"add": plain_value(object_document(pod))}


def action_documents(actions: Sequence[Action]) -> list[dict[str, Any]]:
    """The JSON of the kubelet's actions, in order."""
    return [_action_document(action) for action in actions]


def _action_document(action: Action) -> dict[str, Any]:
    document = fact_document(action)
    # The class name is under `action`, because pod events have a `type` of their own.
    fields = document if isinstance(action, RecordPodEvent) else dict(list(document.items())[1:])
    if isinstance(action, EvictPod):
        message = action.because.kubelet().message
        fields["status"] = {"phase": "Failed", "reason": EVICTED_REASON, "message": message}
    if isinstance(action, GetPreferredAllocation):
        fields["question"] = fields.pop("request")
    return {"action": _JOURNAL_NAMES.get(type(action), type(action).__name__), **fields}


_JOURNAL_NAMES: Mapping[type, str] = {
    RecordPodEvent: "RecordEvent",
    RecordReclaim: "AnnounceReclaim",
    GetPreferredAllocation: "AskPlugin",
    ExitKubelet: "EndKubelet",
    DeferResize: "PutOffResize",
    MarkResizeInfeasible: "TurnDownResize",
}
"""Names of actions in the journal format, which stay when a class is renamed."""
