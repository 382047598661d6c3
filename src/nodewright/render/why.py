"""Why a pod that an agent knows is where it is: the decision, what it holds, what its groups are set to."""

from collections.abc import Sequence
from typing import Any

import msgspec

from nodewright.agent.values import PodRecord, Stage
from nodewright.core.cgroups.plan import Group
from nodewright.node.explanation import Explanation
from nodewright.node.placement import placement_of
from nodewright.node.state import NodeState
from nodewright.render.cgroups import group_document, group_text
from nodewright.render.explain import Told, explanation_text
from nodewright.render.placement import placement_document, placement_texts
from nodewright.render.sentences import sentence

DECISIONS = {
    Stage.ALLOCATING: "taken, and waits for the plugins of its devices",
    Stage.WAITING: "taken, and waits until others are gone",
    Stage.ACTIVE: "taken",
    Stage.ENDING: "taken, and is ending",
    Stage.ENDED: "taken, and has ended",
    Stage.REFUSED: "refused",
}
"""What was decided on a pod, by how far it has come."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is made from."""

    record: PodRecord
    node: NodeState
    waits_for: Sequence[str]
    """Who has to be gone first, as namespace/name."""
    groups: Sequence[Group]
    """Of the pod and its containers; empty where it has none any more."""
    explained: Explanation | None
    """What the node would say to it now, on top of all others; None: it was not asked again."""


def why_document(found: Evidence, *, width: int = 100) -> dict[str, Any]:
    """All of it, as facts and (`text`) in words."""
    record, version = found.record, found.node.config.facts.cgroup_version
    document: dict[str, Any] = {
        "decision": DECISIONS[record.stage],
        "because": [sentence(one) for one in record.because],
    }
    if record.override is not None:
        document["kubelet"] = {"reason": record.override.reason, "message": record.override.message}
    if found.waits_for:
        document["waitsFor"] = list(found.waits_for)
    if record.pod.uid in found.node.pods:
        document["placement"] = placement_document(placement_of(found.node, record.pod))
    document["cgroups"] = [group_document(one, version) for one in found.groups]
    document["text"] = _text(found, width)
    return document


def _text(found: Evidence, width: int) -> str:
    """The same for people."""
    record = found.record
    lines = [f"decision: {DECISIONS[record.stage]}"]
    if record.override is not None:
        lines.append(f"kubelet:  {record.override.reason}: {record.override.message}")
    lines += [f"because:  {sentence(one)}" for one in record.because]
    lines += [f"waits for {one} to be gone" for one in found.waits_for]
    parts = ["".join(f"{line}\n" for line in lines)]
    if found.explained is not None:
        now = explanation_text([Told(explained=found.explained)], width=width)
        parts.append(f"On the node as it is now:\n{now}")
    if record.pod.uid in found.node.pods:
        parts += placement_texts(
            [(record.pod, placement_of(found.node, record.pod))], found.node, wide=False
        )[:1]
    parts += [group_text(one) for one in found.groups]
    return "\n".join(parts)
