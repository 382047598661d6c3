"""What an agent is at a moment, for a dashboard."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.agent.happenings import Happening
from nodewright.agent.values import Mind, PodRecord, Stage
from nodewright.model.profile import API_VERSION
from nodewright.render.dashboard.node import (
    holders_first,
    holdings_section,
    machine_section,
    resources_section,
    setup_section,
)
from nodewright.render.dashboard.pods import agent_pods
from nodewright.render.running import NodeSheet, node_object

MOST_EVENTS = 200


def agent_sections(
    mind: Mind,
    records: Sequence[PodRecord],
    marked: Mapping[str, int],
    events: Iterable[Happening],
    sheet: NodeSheet,
) -> dict[str, Any]:
    """The sections of an agent's dashboard; each changes on its own."""
    config = mind.node.config
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "AgentView",
            **setup_section(config),
            "version": sheet.version,
            "runtime": sheet.runtime,
            "startedMs": sheet.started_ns // 10**6,
            "takesNoPods": mind.takes_no_pods,
        },
        "machine": machine_section(config),
        "holdings": holdings_section(mind.node),
        "resources": resources_section(mind.node),
        "conditions": node_object(mind, sheet)["status"]["conditions"],
        "pods": agent_pods(records, mind, marked),
        "events": events_section(events),
    }


def events_section(events: Iterable[Happening]) -> list[dict[str, Any]]:
    """What happened lately, the newest first.

    Units: milliseconds since 1970.
    """
    return [
        {
            "number": one.number,
            "atMs": one.last_ns // 10**6,
            "count": one.count,
            "isWarning": one.is_warning,
            "reason": one.reason,
            "message": one.message,
            "namespace": one.namespace if one.name else "",
            "name": one.name,
        }
        for one in list(events)[: -MOST_EVENTS - 1 : -1]
    ]


def to_mark(records: Iterable[PodRecord], mind: Mind) -> list[str]:
    """The pods that get a mark: those that are on the node."""
    there = [one.pod.uid for one in records if one.stage not in (Stage.REFUSED, Stage.ENDED)]
    return holders_first(there, mind.node)
