"""How reports name the custom policies of a node; every report of such a node does."""

from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.printable import printable_lines
from nodewright.model.reasons.cpu import PickerRefuses
from nodewright.model.reasons.pod_creation import APIServerRefusal
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.topology import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.values.custom_policy import CustomPolicy


def policy_notice(policy: CustomPolicy) -> str:
    """A sentence that names the custom policy and what it does."""
    summary = f": {policy.description.rstrip('.')}" if policy.description else ""
    return f"{policy.kind} {policy.name} decides in the kubelet's place{summary}"


def policy_notices(config: NodeConfig) -> str:
    """A line for each custom policy; empty if there are none."""
    return printable_lines(policy_notice(policy) for policy in config.parts.policies.configured)


def message_origin(reason: Reason) -> str:
    """The origin of a message: `kubelet`, `API server`, or `not the kubelet` if a custom policy decided."""
    match reason:
        case APIServerRefusal():
            return "API server"
        case PodUnfit() | PickerRefuses():
            return "not the kubelet"
        case NoCommonNUMA(merged=HintsMerged(policy=name, judged_by=JudgedBy(policy=judge))) if name == judge:
            return "not the kubelet"
        case _:
            return "kubelet"
