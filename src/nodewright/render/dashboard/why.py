"""Why a pod is where it is, and what would let it in, for a dashboard: sentences as a tree."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.core.eviction import Candidate
from nodewright.model.pressure import RESOURCES
from nodewright.model.resource_names import PIDS
from nodewright.node.explanation import Explanation
from nodewright.node.forecast import Forecast
from nodewright.node.step import Decision
from nodewright.render.amounts import readable
from nodewright.render.evict import why_before
from nodewright.render.messages import message
from nodewright.render.policies import speaker
from nodewright.render.reasoning import Branch, reasoning
from nodewright.render.suggestions import cut_text, suggestion_text, vain_text


def explained_section(explained: Explanation) -> dict[str, Any]:
    """What the node says to the pod, why, and the smallest changes that would let it in."""
    taken, others = explained.step, explained.others
    document: dict[str, Any] = {
        "verdict": taken.decision.value if taken.decision is not None else "",
        "tree": _branches(reasoning(explained)),
    }
    if taken.decision is Decision.REFUSED:
        said = message(taken.because[0])
        document |= {
            "speaker": speaker(taken.because[0]),
            "reason": said.reason,
            "message": said.message,
            "fixes": [{"kind": one.kind, "text": suggestion_text(one)} for one in others.suggestions],
            "beside": [text for text in (vain_text(others), cut_text(others)) if text],
        }
    return document


def _branches(found: Iterable[Branch]) -> list[dict[str, Any]]:
    return [
        {"text": one.text, "tone": one.tone, "detail": one.is_detail, "below": _branches(one.below)}
        for one in found
    ]


def ranks_section(found: Forecast) -> dict[str, Any]:
    """In which order pods would go, were what they are ranked for to run short now."""
    ranked = found.ranking
    return {
        "signal": str(found.signal),
        "pods": [_rank(found, one, later) for one, later in zip(ranked, [*ranked[1:], None], strict=True)],
        "going": [one.eviction.claim.pod.full_name for one in found.outlook.departures],
    }


def _rank(found: Forecast, one: Candidate, later: Candidate | None) -> dict[str, Any]:
    resource = RESOURCES[found.signal]
    meta = one.claim.pod.metadata
    return {
        "key": one.claim.uid,
        "namespace": meta.namespace or "default",
        "name": meta.name,
        "isCritical": one.claim.critical,
        "priority": one.claim.priority,
        "uses": readable(resource, one.usage) if one.has_stats else "?",
        "requests": ""
        if resource == PIDS or not one.has_stats
        else readable(resource, int(one.request or 0)),
        "before": "" if later is None else why_before(found.signal, one, later),
    }


def cgroups_section(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the groups of a pod are set to, and why; ``groups`` as `group_document` has them."""
    return [
        {
            "path": group["path"],
            "container": group.get("container", ""),
            "files": [[one["file"], one["value"], one["why"]] for one in group["files"]],
        }
        for group in groups
    ]
