"""The reasons for a pod's placement: the agent's decision, the pod's allocations, and its cgroup values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.documents.output.json_yaml import plain_value
from nodewright.engine.core.cgroups.cgroup_plan import PlannedCgroup
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import placement_of
from nodewright.model.printable import printable_lines
from nodewright.model.reasons.texts import sentence

if TYPE_CHECKING:
    from nodewright.predict.explain.explanation import Explanation

STAGE_TEXTS = {
    PodStage.ALLOCATING: "admitted, waiting for its device plugins",
    PodStage.WAITING: "admitted, waiting for other pods to end",
    PodStage.ACTIVE: "admitted",
    PodStage.TERMINATING: "admitted, terminating",
    PodStage.TERMINATED: "admitted, terminated",
    PodStage.REJECTED: "refused",
}
"""The decision about a pod, by its stage."""


class PlacementEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The facts behind a pod's placement."""

    record: PodRecord
    node: NodeState
    waits_for: Sequence[str]
    """The pods that must end first, as namespace/name."""
    cgroups: Sequence[PlannedCgroup]
    """The cgroups of the pod and its containers; empty if they have been removed."""
    explanation: "Explanation | None"
    """The node's decision in its current state, in addition to all other pods; None: not evaluated again."""


def placement_reason_document(evidence: PlacementEvidence, *, width: int = 100) -> dict[str, Any]:
    """The facts, and (`text`) their description."""
    from nodewright.predict.node_report.cgroup_report import reported_cgroup  # noqa: PLC0415 - see agent_view.py
    from nodewright.predict.node_report.report_parts import pod_allocations  # noqa: PLC0415 - as above

    record, version = evidence.record, evidence.node.config.facts.cgroup_version
    document: dict[str, Any] = {
        "decision": STAGE_TEXTS[record.stage],
        "because": [sentence(reason) for reason in record.because],
    }
    if record.status_override is not None:
        document["kubelet"] = {
            "reason": record.status_override.reason,
            "message": record.status_override.message,
        }
    if evidence.waits_for:
        document["waitsFor"] = list(evidence.waits_for)
    if record.pod.uid in evidence.node.pods:
        document["placement"] = plain_value(pod_allocations(placement_of(evidence.node, record.pod)))
    document["cgroups"] = [plain_value(reported_cgroup(cgroup, version)) for cgroup in evidence.cgroups]
    document["text"] = _text(evidence, width)
    return document


def _text(evidence: PlacementEvidence, width: int) -> str:
    from nodewright.predict.explain.explanation_report import PodExplanation, explanation_text  # noqa: PLC0415 - as above
    from nodewright.predict.node_report.cgroup_report import group_text  # noqa: PLC0415 - as above
    from nodewright.predict.node_report.report_parts import placement_tables  # noqa: PLC0415 - as above

    record = evidence.record
    lines = [f"decision: {STAGE_TEXTS[record.stage]}"]
    if record.status_override is not None:
        lines.append(f"kubelet:  {record.status_override.reason}: {record.status_override.message}")
    lines += [f"because:  {sentence(reason)}" for reason in record.because]
    lines += [f"waits for {pod} to end" for pod in evidence.waits_for]
    parts = [printable_lines(lines)]
    if evidence.explanation is not None:
        now = explanation_text([PodExplanation(explanation=evidence.explanation)], width=width)
        parts.append(f"On the node in its current state:\n{now}")
    if record.pod.uid in evidence.node.pods:
        parts += placement_tables(
            [(record.pod, placement_of(evidence.node, record.pod))], evidence.node, wide=False
        )[:1]
    parts += [group_text(cgroup) for cgroup in evidence.cgroups]
    return "\n".join(parts)
