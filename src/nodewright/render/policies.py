"""Policies that are not the kubelet's: every answer of a node that has some says so."""

from collections.abc import Sequence
from typing import Any

from nodewright.model.cpu_reasons import PickerRefuses
from nodewright.model.policies import Policy
from nodewright.model.reasons import Reason
from nodewright.model.topology_reasons import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.node.config import NodeConfig


def not_the_kubelets(policy: Policy) -> str:
    """Which policy decides in the kubelet's place, and what it does."""
    about = f": {policy.about.rstrip('.')}" if policy.about else ""
    return f"{policy.kind} {policy.name} decides in the kubelet's place{about}"


def policies_text(config: NodeConfig) -> str:
    """A paragraph about the policies that are not the kubelet's; nothing where there are none."""
    return "".join(f"{not_the_kubelets(one)}\n" for one in config.parts.policies.chosen)


def policies_document(config: NodeConfig) -> dict[str, Any]:
    """The same as a member of a report; none where there are none."""
    chosen: Sequence[Policy] = config.parts.policies.chosen
    found = [{"kind": one.kind, "name": one.name, "about": one.about} for one in chosen]
    return {"policiesNotTheKubelets": found} if found else {}


def speaker(reason: Reason) -> str:
    """Whose words a message is: the kubelet's, or not, where a policy decides in its place."""
    match reason:
        case PodUnfit() | PickerRefuses():
            return "not the kubelet"
        case NoCommonNUMA(merged=HintsMerged(policy=name, judged_by=JudgedBy(policy=judge))) if name == judge:
            return "not the kubelet"
        case _:
            return "kubelet"
