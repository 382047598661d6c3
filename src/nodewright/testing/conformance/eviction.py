"""Family eviction: thresholds, ranking, admission under pressure, and the manager over time."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodewright.core.eviction import (
    Claim,
    Eviction,
    EvictionRules,
    EvictionState,
    Filesystems,
    Observation,
    Pass,
    look,
    ranking,
    refused_under_pressure,
    relieve,
    stats_by_uid,
)
from nodewright.model.eviction_reasons import NodeRanShort
from nodewright.model.objects import Pod
from nodewright.model.pressure import RESOURCES, NodeCondition
from nodewright.model.thresholds import EvictionSettings, Signal, Threshold, ThresholdValue, parse_thresholds
from nodewright.model.usage import PodUse, Usage
from nodewright.render.eviction_messages import EVICTED, annotations, eviction_message
from nodewright.values.duration import Duration
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the kind of question asks for."""
    del machines
    kinds = {"parse": _parse, "rank": _rank, "admit": _admit, "synchronize": _synchronize}
    return kinds[question["kind"]](question)


# ---------------------------------------------------------------- parse


def _parse(question: dict[str, Any]) -> Any:
    found = _thresholds(question["kubeletConfiguration"])
    if found.faults:
        return {"error": found.faults[0].text}
    # An empty list was left out when it was recorded.
    return {"thresholds": [_plain(one) for one in found.thresholds]} if found.thresholds else {}


def _thresholds(config: Mapping[str, Any]) -> Any:
    settings = EvictionSettings(
        hard=config.get("evictionHard") or {},
        soft=config.get("evictionSoft") or {},
        soft_grace_period=config.get("evictionSoftGracePeriod") or {},
        minimum_reclaim=config.get("evictionMinimumReclaim") or {},
    )
    return parse_thresholds(settings, for_pods="pods" in (config.get("enforceNodeAllocatable") or ()))


def _plain(threshold: Threshold) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "signal": threshold.signal.value,
        "value": _value(threshold.value),
        "gracePeriodSeconds": threshold.grace_period.total_seconds,
    }
    if threshold.min_reclaim is not None:
        plain["minReclaim"] = _value(threshold.min_reclaim)
    return plain


def _value(value: ThresholdValue) -> dict[str, Any]:
    if value.quantity is not None:
        return {"quantity": value.quantity.canonical()}
    return {"percentage": value.fraction}


# ---------------------------------------------------------------- rank and admit


def _rank(question: dict[str, Any]) -> Any:
    pods = [Claim.of(decode(one, Pod)) for one in question["pods"] or ()]
    stats = stats_by_uid(Usage(pods=decode(question.get("podStats") or [], tuple[PodUse, ...])))
    ranked = ranking(Signal(question["signal"]), _filesystems(question), pods, stats)
    return {"order": [one.claim.uid for one in ranked]}


def _filesystems(question: Mapping[str, Any]) -> Filesystems:
    return Filesystems(
        dedicated_image_fs=bool(question.get("dedicatedImageFs")),
        dedicated_container_fs=bool(question.get("dedicatedContainerFs")),
    )


def _admit(question: dict[str, Any]) -> Any:
    conditions = tuple(map(NodeCondition, question.get("nodeConditions") or ()))
    return _verdict(conditions, question["pod"])


def _verdict(conditions: tuple[NodeCondition, ...], pod: Any) -> dict[str, Any]:
    refused = refused_under_pressure(conditions, decode(pod, Pod))
    if refused is None:
        return {"admitted": True}
    return {"admitted": False, "reason": EVICTED, "message": eviction_message(refused)}


# ---------------------------------------------------------------- synchronize


def _synchronize(question: dict[str, Any]) -> Any:
    config = question["kubeletConfiguration"]
    rules = EvictionRules(
        thresholds=_thresholds(config).thresholds,
        transition_period=Duration.parse(config.get("evictionPressureTransitionPeriod") or "0"),
        max_pod_grace_period_s=config.get("evictionMaxPodGracePeriod") or 0,
        local_storage_isolation=bool(config.get("localStorageCapacityIsolation")),
    )
    claims = tuple(Claim.of(decode(one, Pod)) for one in question["pods"] or ())
    state, now_s, answered = EvictionState(), 0, []
    for tick in question["ticks"] or ():
        now_s += tick["advanceSeconds"]
        usage = decode(tick["summary"], Usage)
        after = decode(tick["summaryAfterGC"], Usage) if tick.get("summaryAfterGC") else usage
        situation = look(
            rules, state, Observation(usage=usage, claims=claims, filesystems=_filesystems(question)), now_s
        )
        done = relieve(rules, situation, after)
        action = _action(done)
        entry: dict[str, Any] = {
            "thresholdsMet": [_plain(one) for one in done.state.thresholds_met],
            "nodeConditions": list(done.state.conditions),
            "action": action,
        }
        others = (_action(relieve(rules, situation.instead(one), after)) for one in done.others)
        alternatives = _different(action, others)
        if alternatives:
            entry["alternatives"] = alternatives
        if "admit" in tick:
            entry["admit"] = [_verdict(done.state.conditions, one) for one in tick["admit"] or ()]
        answered.append(entry)
        state, gone = done.state, {one.claim.uid for one in done.evictions}
        claims = tuple(one for one in claims if one.uid not in gone)
    return {"ticks": answered}


def _action(done: Pass) -> dict[str, Any]:
    action: dict[str, Any] = {
        "gc": list(done.reclaimed),
        "evicted": [_evicted(one) for one in done.evictions],
        "returnedPods": [one.claim.uid for one in done.evictions],
    }
    if done.target is not None:
        action["reclaiming"] = RESOURCES[done.target.signal]
    return action


def _evicted(eviction: Eviction) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uid": eviction.claim.uid,
        "gracePeriodSeconds": eviction.grace_period_s,
        "phase": "Failed",
        "reason": EVICTED,
        "message": eviction_message(eviction.because),
        "disruptionTarget": eviction.is_disruption,
    }
    notes = annotations(eviction.because) if isinstance(eviction.because, NodeRanShort) else {}
    return {**entry, "annotations": notes} if notes else entry


def _different(action: dict[str, Any], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The other actions, each once."""
    found = [action]
    for other in others:
        if other not in found:
            found.append(other)
    return found[1:]
