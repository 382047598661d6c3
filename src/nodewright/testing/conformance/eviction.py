"""Family eviction: thresholds, ranking, admission under pressure, and the manager over time."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.eviction.eviction_manager import begin_pass, finish_pass
from nodewright.engine.core.eviction.eviction_ranking import ActivePod, ranked_pods, stats_by_uid
from nodewright.engine.core.eviction.eviction_state import (
    Eviction,
    EvictionObservation,
    EvictionPass,
    EvictionState,
    pressure_refusal,
)
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig, NodeFilesystems
from nodewright.engine.core.requests.effective_resources import RequestRules
from nodewright.model.kubernetes.eviction_thresholds import (
    SIGNAL_RESOURCES,
    EvictionSettings,
    NodeCondition,
    Signal,
    Threshold,
    ThresholdValue,
    parse_thresholds,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import PodStats, StatsSummary
from nodewright.model.reasons.eviction import EVICTED_REASON, NodeRanShort
from nodewright.model.releases.feature_gates import FeatureGates, gates_set
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.duration import Duration


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The answer for the question's kind."""
    kinds = {"rank": _rank, "admit": _admit, "synchronize": _synchronize}
    if question["kind"] == "parse":
        return _parse(question)
    settings = question.get("featureGates") or (question.get("kubeletConfiguration") or {}).get(
        "featureGates"
    )
    return kinds[question["kind"]](question, gates_set(settings or {}, release))


# ---------------------------------------------------------------- parse


def _parse(question: dict[str, Any]) -> Any:
    parsed = _thresholds(question["kubeletConfiguration"])
    if parsed.faults:
        return {"error": parsed.faults[0].text}
    # An empty list was left out when it was recorded.
    return {"thresholds": [_plain(threshold) for threshold in parsed.thresholds]} if parsed.thresholds else {}


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


def _rank(question: dict[str, Any], gates: FeatureGates) -> Any:
    pods = _active_pods(question, gates)
    stats = stats_by_uid(StatsSummary(pods=decode(question.get("podStats") or [], tuple[PodStats, ...])))
    ranked = ranked_pods(Signal(question["signal"]), _filesystems(question), pods, stats)
    return {"order": [candidate.active_pod.uid for candidate in ranked]}


def _active_pods(question: Mapping[str, Any], gates: FeatureGates) -> tuple[ActivePod, ...]:
    rules = RequestRules.of(gates)
    return tuple(ActivePod.of(decode(pod, Pod), rules) for pod in question["pods"] or ())


def _filesystems(question: Mapping[str, Any]) -> NodeFilesystems:
    return NodeFilesystems(
        dedicated_image_fs=bool(question.get("dedicatedImageFs")),
        dedicated_container_fs=bool(question.get("dedicatedContainerFs")),
    )


def _admit(question: dict[str, Any], gates: FeatureGates) -> Any:
    conditions = tuple(map(NodeCondition, question.get("nodeConditions") or ()))
    return _verdict(conditions, question["pod"], gates)


def _verdict(conditions: tuple[NodeCondition, ...], pod: Any, gates: FeatureGates) -> dict[str, Any]:
    refused = pressure_refusal(
        conditions,
        decode(pod, Pod),
        comparisons=gates["TaintTolerationComparisonOperators"],
        pod_level=gates.pod_level_qos,
    )
    if refused is None:
        return {"admitted": True}
    return {"admitted": False, "reason": EVICTED_REASON, "message": refused.kubelet().message}


# ---------------------------------------------------------------- synchronize


def _synchronize(question: dict[str, Any], gates: FeatureGates) -> Any:
    rules = _config(question["kubeletConfiguration"], gates)
    claims = _active_pods(question, gates)
    state, now_s, answered = EvictionState(), 0, []
    for tick in question["ticks"] or ():
        now_s += tick["advanceSeconds"]
        usage = decode(tick["summary"], StatsSummary)
        after = decode(tick["summaryAfterGC"], StatsSummary) if tick.get("summaryAfterGC") else usage
        situation = begin_pass(
            rules,
            state,
            EvictionObservation(usage=usage, active_pods=claims, filesystems=_filesystems(question)),
            now_s,
        )
        result = finish_pass(rules, situation, after)
        action = _action(result)
        entry: dict[str, Any] = {
            "thresholdsMet": [_plain(threshold) for threshold in result.state.thresholds_met],
            "nodeConditions": list(result.state.conditions),
            "action": action,
        }
        others = (
            _action(finish_pass(rules, situation.with_target(target), after))
            for target in result.other_targets
        )
        alternatives = _different(action, others)
        if alternatives:
            entry["alternatives"] = alternatives
        if "admit" in tick:
            entry["admit"] = [_verdict(result.state.conditions, pod, gates) for pod in tick["admit"] or ()]
        answered.append(entry)
        state, evicted_uids = result.state, {eviction.active_pod.uid for eviction in result.evictions}
        claims = tuple(claim for claim in claims if claim.uid not in evicted_uids)
    return {"ticks": answered}


def _config(config: Mapping[str, Any], gates: FeatureGates) -> EvictionConfig:
    return EvictionConfig(
        thresholds=_thresholds(config).thresholds,
        pressure_transition_period=Duration.parse(config.get("evictionPressureTransitionPeriod") or "0"),
        max_pod_grace_period_s=config.get("evictionMaxPodGracePeriod") or 0,
        local_storage_isolation=bool(config.get("localStorageCapacityIsolation")),
        names_pod_level=gates["PodLevelResources"] and gates.rules.eviction_names_pod_level,
        overwrites_grace_period=gates["AllowOverwriteTerminationGracePeriodSeconds"],
    )


def _action(result: EvictionPass) -> dict[str, Any]:
    action: dict[str, Any] = {
        "gc": list(result.reclaimed),
        "evicted": [_evicted(eviction) for eviction in result.evictions],
        "returnedPods": [eviction.active_pod.uid for eviction in result.evictions],
    }
    if result.target is not None:
        action["reclaiming"] = SIGNAL_RESOURCES[result.target.signal]
    return action


def _evicted(eviction: Eviction) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uid": eviction.active_pod.uid,
        "gracePeriodSeconds": eviction.grace_period_s,
        "phase": "Failed",
        "reason": EVICTED_REASON,
        "message": eviction.because.kubelet().message,
        "disruptionTarget": eviction.is_disruption,
    }
    notes = eviction.because.annotations() if isinstance(eviction.because, NodeRanShort) else {}
    return {**entry, "annotations": notes} if notes else entry


def _different(action: dict[str, Any], others: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The other actions, each once."""
    actions = [action]
    for other in others:
        if other not in actions:
            actions.append(other)
    return actions[1:]
