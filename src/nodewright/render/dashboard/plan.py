"""What a plan comes to, for a dashboard: every pod's answer, and the node after all of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.model.profile import API_VERSION
from nodewright.node.state import NodeState
from nodewright.render.admission import Entry
from nodewright.render.dashboard.marks import marks
from nodewright.render.dashboard.node import (
    holders_first,
    holdings_section,
    machine_section,
    resources_section,
    setup_section,
)
from nodewright.render.dashboard.pods import Planned, plan_pods


def plan_sections(
    entries: Sequence[Entry],
    before: NodeState,
    after: NodeState,
    *,
    skipped: Mapping[str, int],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """The sections of a plan's dashboard; each changes on its own."""
    by = {victim.uid: one.pod.full_name for one in entries for victim in one.preempted}
    planned = [Planned(entry=one, preempted_by=by.get(one.pod.uid, "")) for one in entries]
    said = Counter(one.decision.value for one in entries)
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "PlanView",
            **setup_section(after.config),
            "answers": dict(sorted(said.items())),
            "skipped": dict(skipped),
            "warnings": list(warnings),
        },
        "machine": machine_section(after.config),
        "holdings": holdings_section(after),
        "resources": resources_section(after),
        "conditions": [{"type": str(one), "status": "True", "reason": ""} for one in after.conditions],
        "pods": plan_pods(planned, before, after, marks(holders_first(after.pods, after))),
        "events": [],
    }
