"""Family predicates: whether a pod fits a node with other pods."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.predicates.predicate_check import (
    NodeView,
    PredicateRules,
    alternative_failures,
    check_predicates,
    node_usage,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import NodeUnavailable, kubelet_text
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import plain_failure, question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The verdict with the kubelet's text, all failures, and alternative texts."""
    rules = PredicateRules.of(question_gates(question, release))
    cached = NodeView.of(decode(question["node"], APINode)).as_cached_by_kubelet()
    fresh = question.get("freshNode")
    error = question.get("nodeError")
    result = check_predicates(
        decode(question["pod"], Pod),
        NodeUnavailable(error=error) if error else cached,
        node_usage((decode(pod, Pod) for pod in question.get("otherPods") or ()), rules.no_usage),
        fresh=NodeView.of(decode(fresh, APINode)) if fresh else cached,
        rules=rules,
        plugin_error=question.get("pluginError") or "",
    )
    answered: dict[str, Any] = {
        "admitted": not isinstance(result.verdict, Refused),
        "reasons": [plain_failure(failure) for failure in result.failures],
    }
    if isinstance(result.verdict, Refused):
        answered.update(kubelet_text(result.verdict.because[0])._asdict())
        others = alternative_failures(result.failures)
        if others:
            answered["alternatives"] = [kubelet_text(other)._asdict() for other in others]
    if result.refetched:
        answered["synchronousFetch"] = True
    return answered
