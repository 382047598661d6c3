"""The text and names output of `evict`: signals, the ranking, and the pods that are evicted."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from nodewright.documents.output.text_layout import table
from nodewright.engine.core.eviction.eviction_forecast import ForecastEviction
from nodewright.engine.core.eviction.eviction_order import RankChange, RankKey, deciding_key
from nodewright.engine.core.eviction.eviction_ranking import EvictionCandidate
from nodewright.engine.core.eviction.eviction_state import MetThreshold, reclaim_steps
from nodewright.engine.core.eviction.eviction_thresholds import signal_observations, threshold_amount
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.engine.node.previews import NodeEvictionForecast
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, Signal, Threshold
from nodewright.model.kubernetes.resource_names import (
    INODES,
    PIDS,
    amount_text,
    distinguishable_amounts,
    readable_amount,
)
from nodewright.model.kubernetes.stats_summary import PSIStats
from nodewright.model.printable import printable, printable_line, printable_lines
from nodewright.model.reasons.eviction import EVICTED_REASON
from nodewright.model.values.duration import Duration

MAX_SHOWN_PODS = 10
"""Number of evictions shown in detail without `-o wide`."""
_WIDTH = 100
_NOTHING = "-"


def evict_text(forecast: NodeEvictionForecast, *, wide: bool = False) -> str:
    """The signals, the ranking of pods, and the evictions."""
    parts = [_signals(forecast), _lines(_state(forecast)), _ranking(forecast, wide=wide)]
    parts.append(_lines(_evictions(forecast, wide=wide)))
    parts.append(_lines(_ranking_reasons(forecast)))
    if wide:
        parts.append(_lines(_swap_and_stalls(forecast)))
    return "\n".join(part for part in parts if part)


def evicted_names(forecast: NodeEvictionForecast) -> str:
    """The evicted pods, in this order, one per line, in kubectl's notation."""
    return printable_lines(
        f"pod/{eviction.eviction.active_pod.pod.metadata.name}" for eviction in forecast.outlook.evictions
    )


# ---------------------------------------------------------------- signals and conditions


def _signals(forecast: NodeEvictionForecast) -> str:
    """A table of signals with thresholds."""
    observations, met = signal_observations(forecast.usage), list(forecast.outlook.first_pass.met)
    rows = []
    for threshold in forecast.watched.thresholds:
        observed = observations.get(threshold.signal)
        if observed is None:
            rows.append((threshold.signal.value, "?", "?", threshold_text(threshold), "not observed"))
            continue
        resource = SIGNAL_RESOURCES[threshold.signal]
        amount = threshold_amount(threshold, observed.capacity)
        left, _ = distinguishable_amounts(resource, observed.available.value(), amount.value())
        met_threshold = next((each for each in met if each.threshold == threshold), None)
        rows.append(
            (
                threshold.signal.value,
                left,
                readable_amount(resource, observed.capacity.value()),
                threshold_text(threshold),
                _distance(resource, observed.available.value() - amount.value(), met_threshold),
            )
        )
    return table(("SIGNAL", "AVAILABLE", "CAPACITY", "THRESHOLD", "STATE"), rows) if rows else ""


def threshold_text(threshold: Threshold) -> str:
    """The threshold as configured, with its minimum reclaim and grace period, if any."""
    reclaim = "" if threshold.min_reclaim is None else f" (+{threshold.min_reclaim.text})"
    grace = "" if threshold.is_hard else f" for {threshold.grace_period}"
    return f"<{threshold.value.text}{reclaim}{grace}"


def _distance(resource: str, above: int, met: MetThreshold | None) -> str:
    amount = readable_amount(resource, abs(above))
    if met is None:
        return f"{amount} above"
    if met.is_due:
        return f"met: {amount} short"
    return f"met: {amount} short, counts after {Duration(met.threshold.grace_period.nanoseconds)}"


def _state(forecast: NodeEvictionForecast) -> Iterator[str]:
    first = forecast.outlook.first_pass
    if not forecast.watched.thresholds:
        yield "No thresholds are configured: pods are evicted only for limits on local storage."
    for condition in first.state.conditions:
        taint = condition.taint
        yield f"The node reports {condition} (taint {taint.key}:{taint.effect})."
    if first.stopped is not None:
        yield f"{first.stopped.sentence()}."
    target_now = forecast.outlook.first_acting_pass.target
    if target_now is None:
        return
    yield reclaim_sentence(forecast)
    others = forecast.outlook.first_acting_pass.other_targets
    if others:
        names = ", ".join(other.signal for other in others)
        yield f"The kubelet acts on one of several thresholds at random: {target_now.signal} here, or {names}."


def reclaim_sentence(forecast: NodeEvictionForecast) -> str:
    """What the node reclaims before it evicts pods."""
    target_now = forecast.outlook.first_acting_pass.target
    assert target_now is not None
    steps = [_RECLAIM[step.value] for step in reclaim_steps(target_now.signal, forecast.filesystems)]
    if not steps:
        return f"For {target_now.signal}, nothing can be reclaimed: a pod must be evicted."
    what = " and ".join(steps)
    if forecast.outlook.first_acting_pass.relieved_by_reclaim:
        return f"The node first removes {what}; that is sufficient, no pod is evicted."
    return f"The node first removes {what}; the amount freed is not known here and counts as zero."


_RECLAIM = {"containers": "dead containers", "images": "images that no container uses"}


# ---------------------------------------------------------------- the ranking


def _ranking(forecast: NodeEvictionForecast, *, wide: bool) -> str:
    resource = SIGNAL_RESOURCES[forecast.signal]
    evicted = {eviction.eviction.active_pod.uid: eviction for eviction in forecast.outlook.evictions}
    ranked = forecast.ranking
    rows = []
    for number, candidate in enumerate(ranked if wide else ranked[: 2 * MAX_SHOWN_PODS], 1):
        next_candidate = ranked[number] if number < len(ranked) else None
        rows.append(
            (
                str(number),
                candidate.active_pod.pod.full_name,
                qos_class(candidate.active_pod.pod).value,
                str(candidate.active_pod.priority),
                *_amounts(candidate, resource),
                _eviction_cell(candidate, evicted.get(candidate.active_pod.uid)),
                *((ranking_key_text(forecast.signal, candidate, next_candidate),) if wide else ()),
            )
        )
    if not rows:
        return "The node has no pods.\n"
    hidden = len(ranked) - len(rows)
    rest = printable_line(f"and {hidden} more (-o wide)") if hidden else ""
    headers = ("RANK", "POD", "QOS", "PRIORITY", "USES", "REQUESTS", "EXCEEDS", "OVER", "EVICTED")
    head = printable_line(f"Pods in order of eviction for {forecast.signal}:")
    return f"{head}{table((*headers, *(('BEFORE THE NEXT BY',) if wide else ())), rows)}{rest}"


def _amounts(candidate: EvictionCandidate, resource: str) -> tuple[str, str, str, str]:
    if not candidate.has_stats:
        return "?", "?", "?", "?"
    used = readable_amount(resource, candidate.usage)
    if resource == PIDS:
        return used, _NOTHING, _NOTHING, _NOTHING
    request, excess = int(candidate.request or 0), int(candidate.excess)
    excess_resource = "ephemeral-storage" if resource == INODES else resource
    excess_text = ("-" if excess < 0 else "") + readable_amount(excess_resource, abs(excess))
    # For inodes, the kubelet subtracts a request in bytes: the result is a plain number.
    excess_text = str(excess) if resource == INODES else excess_text
    return used, readable_amount(resource, request), "yes" if candidate.exceeds_request else "no", excess_text


def _eviction_cell(candidate: EvictionCandidate, eviction: ForecastEviction | None) -> str:
    if candidate.active_pod.is_critical:
        return "never: critical"
    if eviction is None:
        return _NOTHING
    return eviction_time_text(eviction)


def eviction_time_text(eviction: ForecastEviction) -> str:
    """The earliest time of the eviction."""
    return "now" if eviction.at_s == 0 else f"from {Duration.seconds(eviction.at_s)} on"


_KEY_TEXTS = {
    RankKey.STATS: "no stats",
    RankKey.EXCEEDS: "exceeds its request",
    RankKey.PRIORITY: "lower priority",
    RankKey.EXCESS: "further over",
    RankKey.LIST_ORDER: "equal: random in the kubelet",
}


def ranking_key_text(
    signal: Signal, candidate: EvictionCandidate, next_candidate: EvictionCandidate | None
) -> str:
    """Why a pod is ranked before the next one."""
    if next_candidate is None:
        return _NOTHING
    key = deciding_key(signal, candidate, next_candidate)
    return "more processes" if key is RankKey.EXCESS and SIGNAL_RESOURCES[signal] == PIDS else _KEY_TEXTS[key]


# ---------------------------------------------------------------- evictions


def _evictions(forecast: NodeEvictionForecast, *, wide: bool) -> Iterator[str]:
    evictions = forecast.outlook.evictions
    if not evictions:
        if forecast.outlook.first_acting_pass.relieved_by_reclaim:
            return
        if forecast.outlook.first_acting_pass.target is None:
            yield "No pod is evicted."
        else:
            yield "No pod can be evicted: all remaining pods are critical."
        return
    shown = evictions if wide else evictions[:MAX_SHOWN_PODS]
    yield _count(forecast)
    for forecast_eviction in shown:
        eviction = forecast_eviction.eviction
        grace = f"{eviction.grace_period_s} s to terminate"
        yield f"- {eviction.active_pod.pod.full_name}, {eviction_time_text(forecast_eviction)}, with {grace}{_effect(forecast_eviction)}"
        yield from _wrapped(f"why: {eviction.because.sentence()}")
        yield from _wrapped(f"kubelet: {EVICTED_REASON}: {eviction.because.kubelet().message}")
    if len(shown) < len(evictions):
        yield f"- and {len(evictions) - len(shown)} more (-o wide)"


def _count(forecast: NodeEvictionForecast) -> str:
    count = len(forecast.outlook.evictions)
    pods = "1 pod is" if count == 1 else f"{count} pods are"
    last = forecast.outlook.last_pass
    if forecast.outlook.is_relieved:
        has_min_reclaim = any(threshold.min_reclaim is not None for threshold in forecast.watched.thresholds)
        reclaim = ", minimum reclaim included" if has_min_reclaim else ""
        return f"{pods} evicted; then no threshold is met any more{reclaim}:"
    if last.stopped is not None:
        return f"{pods} evicted before the kubelet's eviction manager stops:"
    signals = ", ".join(dict.fromkeys(met.threshold.signal for met in last.met))
    return f"{pods} evicted, and {signals} is still too low: all remaining pods are critical:"


def _effect(forecast: ForecastEviction) -> str:
    if forecast.freed is None or forecast.available_after is None or forecast.signal is None:
        return ""
    resource = SIGNAL_RESOURCES[forecast.signal]
    return f": frees {readable_amount(resource, forecast.freed)}, {readable_amount(resource, forecast.available_after.value())} available afterwards"


# ---------------------------------------------------------------- reasons for the ranking


def _ranking_reasons(forecast: NodeEvictionForecast) -> Iterator[str]:
    """Why the first pod is ranked first, and the changes that would put another first."""
    ranked = [candidate for candidate in forecast.ranking if not candidate.active_pod.is_critical]
    if len(ranked) < 2:
        return
    first, second = ranked[:2]
    yield from _wrapped(ranking_sentence(forecast.signal, first, second), indent=0)
    for change in forecast.reprieves:
        yield from _wrapped(f"- {reprieve_sentence(change)}", indent=0)


def ranking_sentence(signal: Signal, first: EvictionCandidate, second: EvictionCandidate) -> str:
    """Why the first pod is ranked before the second."""
    begin = f"{first.active_pod.pod.full_name} is evicted before {second.active_pod.pod.full_name}: "
    match deciding_key(signal, first, second):
        case RankKey.STATS:
            return f"{begin}it has no stats."
        case RankKey.EXCEEDS:
            return f"{begin}it uses more than it requests, and the other pod does not."
        case RankKey.PRIORITY:
            return (
                f"{begin}its priority is lower, {first.active_pod.priority} and {second.active_pod.priority}."
            )
        case RankKey.LIST_ORDER:
            return f"{begin}they are equal in all keys; in the kubelet either may be the first."
        case RankKey.EXCESS:
            return f"{begin}{_excess_text(SIGNAL_RESOURCES[signal], int(first.excess), int(second.excess))}."


def _excess_text(resource: str, first: int, second: int) -> str:
    if resource == PIDS:
        return f"it has more processes, {first} and {second}"
    text, other_text = (
        (str(first), str(second)) if resource == INODES else distinguishable_amounts(resource, first, second)
    )
    return f"its usage minus its request is larger, {text} and {other_text}"


def reprieve_sentence(change: RankChange) -> str:
    """The change of a pod, and the pod that is evicted first with it."""
    name, other = change.active_pod.pod.full_name, change.next_pod.pod.full_name
    changes = []
    if change.resource:
        # Exact, because a rounded amount would not be sufficient.
        more, request = (
            amount_text(change.resource, change.request_increase),
            amount_text(change.resource, change.request),
        )
        changes.append(f"requested {more} more {change.resource} ({request})")
    if change.priority is not None:
        changes.append(f"had priority {change.priority}")
    return f"{other} would be evicted first if {name} {' and '.join(changes)}."


# ---------------------------------------------------------------- values that eviction does not consider


def _swap_and_stalls(forecast: NodeEvictionForecast) -> Iterator[str]:
    """Swap and pressure stall information, which the kubelet's eviction does not consider."""
    node = forecast.usage.node
    if node.swap is not None and node.swap.swap_usage_bytes is not None:
        used, left = node.swap.swap_usage_bytes, node.swap.swap_available_bytes
        free = "" if left is None else f", {readable_amount('memory', left)} left"
        yield f"swap: {readable_amount('memory', used)} used{free} (not considered by eviction)"
    stalls: list[tuple[str, PSIStats | None]] = [
        ("memory", node.memory.psi if node.memory else None),
        ("io", node.io.psi if node.io else None),
    ]
    for name, psi in stalls:
        if psi is not None:
            yield (
                f"{name} pressure (PSI): some {psi.some.avg10:g} %, full {psi.full.avg10:g} % of the last 10 s "
                "(not considered by eviction)"
            )
    swapping = [
        stats for stats in forecast.usage.pods if stats.swap is not None and stats.swap.swap_usage_bytes
    ]
    for stats in sorted(swapping, key=lambda stats: -(stats.swap.swap_usage_bytes or 0 if stats.swap else 0))[
        :MAX_SHOWN_PODS
    ]:
        assert stats.swap is not None
        amount = readable_amount("memory", stats.swap.swap_usage_bytes or 0)
        yield f"swap of {stats.pod_ref.namespace}/{stats.pod_ref.name}: {amount}"


def _wrapped(text: str, indent: int = 2) -> Sequence[str]:
    return wrap(
        printable(text),
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(lines: Iterator[str]) -> str:
    return printable_lines(lines)
