"""May this pod run on this node? The kubelet's predicates, with every reason and not only the first."""

from nodewright.core.predicates.judge import Judgement, NodeView, Rules, alternatives, judge
from nodewright.core.predicates.room import NOBODY, Others, host_ports, others_of

__all__ = [
    "NOBODY",
    "Judgement",
    "NodeView",
    "Others",
    "Rules",
    "alternatives",
    "host_ports",
    "judge",
    "others_of",
]
