"""The explanation of a pod, the eviction ranking and cgroup values for a dashboard."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from nodewright.engine.core.eviction.eviction_ranking import EvictionCandidate
from nodewright.engine.node.previews import NodeEvictionForecast
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES
from nodewright.model.kubernetes.resource_names import PIDS, readable_amount
from nodewright.model.reasons.texts import kubelet_text
from nodewright.predict.evict.evict_report import ranking_key_text
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.reason_tree import ReasonBranch, numa_tables, reason_tree
from nodewright.predict.explain.suggestion_text import (
    incomplete_search_text,
    ineffective_text,
    suggestion_text,
)
from nodewright.predict.node_report.cgroup_report import ReportedCgroup
from nodewright.predict.node_report.report_parts import message_origin


def explanation_section(explained: Explanation) -> dict[str, Any]:
    """The node's decision about a pod, its reasons as a tree, and the smallest changes that would let it in."""
    step, counterfactuals = explained.step, explained.counterfactuals
    document: dict[str, Any] = {
        "verdict": step.decision.value if step.decision is not None else "",
        "tree": _branches(reason_tree(explained)),
        "tables": [msgspec.to_builtins(table) for table in numa_tables(explained)],
    }
    if step.decision is Decision.REFUSED:
        text = kubelet_text(step.because[0])
        document |= {
            "speaker": message_origin(step.because[0]),
            "reason": text.reason,
            "message": text.message,
            "fixes": [
                {"kind": suggestion.kind, "text": suggestion_text(suggestion)}
                for suggestion in counterfactuals.suggestions
            ],
            "beside": [
                text
                for text in (ineffective_text(counterfactuals), incomplete_search_text(counterfactuals))
                if text
            ],
        }
    return document


def _branches(branches: Iterable[ReasonBranch]) -> list[dict[str, Any]]:
    return [
        {
            "text": branch.text,
            "tone": branch.tone,
            "detail": branch.is_detail,
            "below": _branches(branch.children),
        }
        for branch in branches
    ]


def eviction_ranking_section(forecast: NodeEvictionForecast) -> dict[str, Any]:
    """The order in which pods are evicted for the signal, and the pods that are evicted at the current usage."""
    ranked = forecast.ranking
    return {
        "signal": str(forecast.signal),
        "pods": [
            _rank(forecast, candidate, next_candidate)
            for candidate, next_candidate in zip(ranked, [*ranked[1:], None], strict=True)
        ],
        "going": [eviction.eviction.active_pod.pod.full_name for eviction in forecast.outlook.evictions],
    }


def _rank(
    forecast: NodeEvictionForecast, candidate: EvictionCandidate, next_candidate: EvictionCandidate | None
) -> dict[str, Any]:
    resource = SIGNAL_RESOURCES[forecast.signal]
    meta = candidate.active_pod.pod.metadata
    return {
        "key": candidate.active_pod.uid,
        "namespace": meta.namespace or "default",
        "name": meta.name,
        "isCritical": candidate.active_pod.is_critical,
        "priority": candidate.active_pod.priority,
        "uses": readable_amount(resource, candidate.usage) if candidate.has_stats else "?",
        "requests": ""
        if resource == PIDS or not candidate.has_stats
        else readable_amount(resource, int(candidate.request or 0)),
        "before": ""
        if next_candidate is None
        else ranking_key_text(forecast.signal, candidate, next_candidate),
    }


def cgroups_section(groups: Sequence[ReportedCgroup]) -> list[dict[str, Any]]:
    """The cgroup values of a pod with their reasons."""
    return [
        {
            "path": group.path,
            "container": group.container or "",
            "files": [[file.file, file.value, file.why] for file in group.files],
        }
        for group in groups
    ]
