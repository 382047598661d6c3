"""Who would be evicted, as a document with every key that decides."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.core.eviction import (
    Candidate,
    Departure,
    Key,
    Reprieve,
    decided_by,
    observations,
    reclaimable,
    target,
)
from nodewright.core.requests import qos_class
from nodewright.model.eviction_reasons import NodeRanShort
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.model.thresholds import Signal
from nodewright.node.forecast import Forecast
from nodewright.render.documents import fact_document, plain
from nodewright.render.evict import reprieve_sentence
from nodewright.render.eviction_messages import EVICTED, annotations, eviction_message
from nodewright.render.eviction_sentences import eviction_sentence
from nodewright.render.policies import policies_document


def evict_document(found: Forecast, *, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The forecast as one document.

    Units: bytes, or pieces of inodes and processes; times in seconds from now.
    """
    config, outlook = found.config, found.outlook
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionReport",
        "node": config.facts.name,
        "kubernetesVersion": config.release.release.text,
        "rulesOf": config.release.rules_of,
        **policies_document(config),
        "kubeletDefects": config.parts.defects.value,
        "filesystems": {
            "dedicatedImageFs": found.filesystems.dedicated_image_fs,
            "dedicatedContainerFs": found.filesystems.dedicated_container_fs,
        },
        "thresholds": _thresholds(found),
        "conditions": [
            {"type": condition.value, "taint": {"key": condition.taint.key, "effect": condition.taint.effect}}
            for condition in outlook.first.state.conditions
        ],
        "takenUp": None if outlook.deciding.target is None else outlook.deciding.target.signal.value,
        "atRandom": [one.signal.value for one in outlook.deciding.others],
        "reclaimFirst": _reclaim(found),
        "signal": found.signal.value,
        "ranking": _ranking(found.signal, found.ranking),
        "evictions": [departure_document(one) for one in outlook.departures],
        "relieved": outlook.is_relieved,
        "stopped": None if outlook.first.stopped is None else fact_document(outlook.first.stopped),
        "changes": [_reprieve(one) for one in found.reprieves],
        "notLookedAt": _not_looked_at(found),
        "warnings": list(warnings),
    }


def _thresholds(found: Forecast) -> list[dict[str, Any]]:
    seen, met = observations(found.usage), found.outlook.first.met
    entries = []
    for threshold in found.watched.thresholds:
        entry: dict[str, Any] = {
            "signal": threshold.signal.value,
            "value": threshold.value.text,
            "gracePeriodSeconds": threshold.grace_period.total_seconds,
            "observed": threshold.signal in seen,
        }
        if threshold.min_reclaim is not None:
            entry["minimumReclaim"] = threshold.min_reclaim.text
        observed = seen.get(threshold.signal)
        if observed is not None:
            this = next((one for one in met if one.threshold == threshold), None)
            entry |= {
                "available": observed.available.value(),
                "capacity": observed.capacity.value(),
                "amount": target(threshold, observed.capacity).value(),
                "relievedAt": target(threshold, observed.capacity, reclaimed=True).value(),
                "met": this is not None,
                "due": this is not None and this.is_due,
            }
        entries.append(entry)
    return entries


def _reclaim(found: Forecast) -> dict[str, Any]:
    short = found.outlook.deciding.target
    steps = () if short is None else reclaimable(short.signal, found.filesystems)
    return {"steps": [one.value for one in steps], "wasEnough": found.outlook.deciding.was_enough}


def _ranking(signal: Signal, ranked: Sequence[Candidate]) -> list[dict[str, Any]]:
    entries = []
    for number, one in enumerate(ranked):
        entry: dict[str, Any] = {
            "rank": number + 1,
            **named(one.claim.pod),
            "qosClass": qos_class(one.claim.pod).value,
            "priority": one.claim.priority,
            "critical": one.claim.critical,
            "hasStats": one.has_stats,
        }
        if one.has_stats:
            entry |= {"usage": one.usage, "request": _number(one.request), "exceeds": one.exceeds}
            entry["over"] = _number(one.over)
        if number + 1 < len(ranked):
            key = decided_by(signal, one, ranked[number + 1])
            entry["beforeNextBy"] = "random" if key is Key.PLACE else key.value
        entries.append(entry)
    return entries


def departure_document(one: Departure) -> dict[str, Any]:
    """A pod that goes: when, with what status, and what that brings."""
    eviction, reason = one.eviction, one.eviction.because
    text = eviction_message(reason)
    entry: dict[str, Any] = {
        **named(eviction.claim.pod),
        "atSeconds": one.at_s,
        "gracePeriodSeconds": eviction.grace_period_s,
        "status": {"phase": "Failed", "reason": EVICTED, "message": text},
        "disruptionTarget": eviction.is_disruption,
        "why": eviction_sentence(reason),
        "because": fact_document(reason),
    }
    notes: Mapping[str, str] = annotations(reason) if isinstance(reason, NodeRanShort) else {}
    entry["event"] = {"type": "Warning", "reason": EVICTED, "message": text, "annotations": dict(notes)}
    if one.left is not None:
        entry |= {"frees": one.freed, "available": one.left.value()}
    return entry


def _reprieve(one: Reprieve) -> dict[str, Any]:
    change: dict[str, Any] = {} if one.priority is None else {"priority": one.priority}
    if one.resource:
        change |= {"resource": one.resource, "request": one.request, "more": one.more}
    return {
        "pod": named(one.claim.pod),
        **change,
        "thenFirst": named(one.instead.pod),
        "text": reprieve_sentence(one),
    }


def _not_looked_at(found: Forecast) -> dict[str, Any]:
    """What a reading has, and eviction does not decide by."""
    node = found.usage.node
    entry: dict[str, Any] = {}
    if node.swap is not None:
        entry["swap"] = {"used": node.swap.swap_usage_bytes, "available": node.swap.swap_available_bytes}
    if node.memory is not None and node.memory.psi is not None:
        entry["memoryPressureStalls"] = _without_type(node.memory.psi)
    if node.io is not None and node.io.psi is not None:
        entry["ioPressureStalls"] = _without_type(node.io.psi)
    return entry


def _without_type(stalls: Any) -> dict[str, Any]:
    return {
        share: {name: value for name, value in plain(getattr(stalls, share)).items() if name != "type"}
        for share in ("some", "full")
    }


def _number(amount: Any) -> int | float | None:
    if amount is None or isinstance(amount, int):
        return amount
    return float(amount)


def named(pod: Pod) -> dict[str, str]:
    """The pod as documents refer to it."""
    return {"namespace": pod.metadata.namespace or "default", "name": pod.metadata.name, "uid": pod.uid}
