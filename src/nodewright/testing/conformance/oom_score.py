"""Family oom-score: oom_score_adj of each container."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.requests import is_critical, is_node_critical, oom_score_adjs
from nodewright.model.objects import Pod
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """Each container's score, and whether the pod is critical."""
    del machines
    pod = decode(question["pod"], Pod)
    return {
        "oomScoreAdj": oom_score_adjs(pod, question["memoryCapacity"]),
        "critical": is_critical(pod),
        "nodeCritical": is_node_critical(pod),
    }
