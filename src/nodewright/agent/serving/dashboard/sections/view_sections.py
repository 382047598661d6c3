"""All sections of a dashboard: of an agent's state, and of a plan."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.agent.observe.event_recorder import RecordedEvent
from nodewright.agent.serving.api_objects import NodeSystemInfo, node_object
from nodewright.agent.serving.dashboard.view_sections import (
    PlannedPod,
    agent_pods,
    holdings_section,
    machine_section,
    plan_pods,
    pod_marks,
    pods_by_exclusive_use,
    resources_section,
    setup_section,
)
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.predict.admit.admission_report import AdmissionEntry

MAX_EVENTS = 200


def agent_sections(
    state: AgentState,
    records: Sequence[PodRecord],
    marks: Mapping[str, int],
    events: Iterable[RecordedEvent],
    system_info: NodeSystemInfo,
) -> dict[str, Any]:
    """The sections of an agent's dashboard."""
    config = state.node.config
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "AgentView",
            **setup_section(config),
            "version": system_info.kubelet_version,
            "runtime": system_info.container_runtime_version,
            "startedMs": system_info.started_ns // 10**6,
            "takesNoPods": state.shutdown_reason,
        },
        "machine": machine_section(config),
        "holdings": holdings_section(state.node),
        "resources": resources_section(state.node),
        "conditions": node_object(state, system_info)["status"]["conditions"],
        "pods": agent_pods(records, state, marks),
        "events": events_section(events),
    }


def events_section(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """Recent events, the newest first.

    Units: milliseconds since 1970.
    """
    return [
        {
            "number": event.sequence_number,
            "atMs": event.last_timestamp_ns // 10**6,
            "count": event.count,
            "isWarning": event.is_warning,
            "reason": event.reason,
            "message": event.message,
            "namespace": event.namespace if event.name else "",
            "name": event.name,
        }
        for event in list(events)[: -MAX_EVENTS - 1 : -1]
    ]


def pods_to_mark(records: Iterable[PodRecord], state: AgentState) -> list[str]:
    """The pods with marks: those on the node."""
    uids = [
        record.pod.uid for record in records if record.stage not in (PodStage.REJECTED, PodStage.TERMINATED)
    ]
    return pods_by_exclusive_use(uids, state.node)


def plan_sections(
    entries: Sequence[AdmissionEntry],
    before: NodeState,
    after: NodeState,
    *,
    skipped: Mapping[str, int],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """The sections of a plan's dashboard."""
    preempted_by = {victim.uid: entry.pod.full_name for entry in entries for victim in entry.preempted_pods}
    planned = [PlannedPod(entry=entry, preempted_by=preempted_by.get(entry.pod.uid, "")) for entry in entries]
    decision_counts = Counter(entry.decision.value for entry in entries)
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "PlanView",
            **setup_section(after.config),
            "answers": dict(sorted(decision_counts.items())),
            "skipped": dict(skipped),
            "warnings": list(warnings),
        },
        "machine": machine_section(after.config),
        "holdings": holdings_section(after),
        "resources": resources_section(after),
        "conditions": [
            {"type": str(condition), "status": "True", "reason": ""} for condition in after.conditions
        ],
        "pods": plan_pods(planned, before, after, pod_marks(pods_by_exclusive_use(after.pods, after))),
        "events": [],
    }
