"""Family topology-merge: one topology manager, asked once to merge."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.topology import merge, topology_manager
from nodewright.model.hints import Hint, HintList, Offer
from nodewright.model.machine import NUMANode
from nodewright.model.verdict import Refused
from nodewright.render.messages import message
from nodewright.values.idset import NUMASet
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The merged hint and whether it admits, or the error at start."""
    del machines
    manager = topology_manager(
        question["policy"],
        question["scope"],
        question.get("policyOptions") or {},
        [decode(node, NUMANode) for node in question["topology"]],
    )
    if isinstance(manager, Refused):
        return {"error": message(manager.because[0]).message}
    offers = [offer(str(at), hints) for at, hints in enumerate(question["providers"] or ())]
    merged = merge(manager.value, offers)
    return {"hint": plain_hint(merged.hint), "admit": merged.admit}


def offer(provider: str, hints: Mapping[str, Any] | None) -> Offer:
    """What a provider answered, from plain JSON."""
    if hints is None:
        return Offer(provider, None)
    return Offer(provider, {name: None if found is None else _list(found) for name, found in hints.items()})


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


def _list(found: list[Mapping[str, Any]]) -> HintList:
    return HintList(tuple(map(read_hint, found)))
