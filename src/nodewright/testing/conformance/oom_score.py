"""Family oom-score: oom_score_adj of each container."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.requests.oom_adjust import oom_score_adjs
from nodewright.engine.core.requests.qos_and_priority import is_critical, is_node_critical
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """Each container's score, and whether the pod is critical."""
    gates = question_gates(question, release)
    pod = decode(question["pod"], Pod)
    return {
        "oomScoreAdj": oom_score_adjs(pod, question["memoryCapacity"], gates),
        "critical": is_critical(pod),
        "nodeCritical": is_node_critical(pod),
    }
