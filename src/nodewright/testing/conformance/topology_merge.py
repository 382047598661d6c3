"""Family topology-merge: a single merge of a topology manager."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.topology.hint_merge import merged_hint
from nodewright.engine.core.topology.manager_config import topology_manager
from nodewright.model.hardware import NUMANode
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint, HintList, Offer
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The merged hint and whether it admits, or the error at start."""
    manager = topology_manager(
        question["policy"],
        question["scope"],
        question.get("policyOptions") or {},
        [decode(node, NUMANode) for node in question["topology"]],
        gates=question_gates(question, release),
    )
    if isinstance(manager, Refused):
        return {"error": kubelet_text(manager.because[0]).message}
    offers = [provider_offer(str(at), hints) for at, hints in enumerate(question["providers"] or ())]
    merged = merged_hint(manager.value, offers)
    return {"hint": plain_hint(merged.hint), "admit": merged.admit}


def provider_offer(provider: str, hints: Mapping[str, Any] | None) -> Offer:
    """A provider's hints, from plain JSON."""
    if hints is None:
        return Offer(provider, None)
    return Offer(
        provider, {name: None if entries is None else _list(entries) for name, entries in hints.items()}
    )


def read_hint(plain: Mapping[str, Any]) -> Hint:
    """A hint from plain JSON."""
    nodes = plain["numaNodeAffinity"]
    return Hint(None if nodes is None else NUMASet.from_ids(nodes), plain["preferred"])


def plain_hint(hint: Hint) -> dict[str, Any]:
    """A hint as plain JSON."""
    return {
        "numaNodeAffinity": None if hint.numa is None else list(hint.numa),
        "preferred": hint.preferred,
    }


def _list(entries: list[Mapping[str, Any]]) -> HintList:
    return HintList(tuple(map(read_hint, entries)))
