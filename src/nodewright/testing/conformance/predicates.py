"""Family predicates: may the pod run on the node beside the others?"""

from collections.abc import Mapping
from typing import Any

from nodewright.core.predicates import NodeView, alternatives, judge, others_of
from nodewright.model.objects import Node, Pod
from nodewright.model.reasons import NodeUnavailable
from nodewright.model.verdict import Refused
from nodewright.render.messages import message
from nodewright.testing.conformance.failures import plain_failure
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The verdict in the kubelet's words, all the failures, and what it could have said instead."""
    del machines
    cached = NodeView.of(decode(question["node"], Node)).seen_by_kubelet()
    fresh = question.get("freshNode")
    error = question.get("nodeError")
    found = judge(
        decode(question["pod"], Pod),
        NodeUnavailable(error=error) if error else cached,
        others_of(decode(pod, Pod) for pod in question.get("otherPods") or ()),
        fresh=NodeView.of(decode(fresh, Node)) if fresh else cached,
        plugin_error=question.get("pluginError") or "",
    )
    answered: dict[str, Any] = {
        "admitted": not isinstance(found.verdict, Refused),
        "reasons": [plain_failure(failure) for failure in found.failures],
    }
    if isinstance(found.verdict, Refused):
        answered.update(message(found.verdict.because[0])._asdict())
        others = alternatives(found.failures)
        if others:
            answered["alternatives"] = [message(other)._asdict() for other in others]
    if found.refetched:
        answered["synchronousFetch"] = True
    return answered
