"""Scores of nodes of one's own: `nodewright fleet --policies examples/fleet/scorers.py --scores few-pods …`."""

from nodewright.policies import CandidateNode, node_scorer


@node_scorer("few-pods")
def few_pods(candidate: CandidateNode) -> int:
    """Nodes with much of their CPUs left, whatever their memory."""
    has, taken = candidate.allocatable["cpu"], candidate.requested.get("cpu", 0)
    return (has - taken) * 100 // has
