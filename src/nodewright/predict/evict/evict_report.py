"""The report of `evict`: evictions at a given usage, with every key of the ranking."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.documents.output.text_layout import table, wrapped_text
from nodewright.engine.core.eviction.eviction_order import RankChange, RankKey, deciding_key
from nodewright.engine.core.eviction.eviction_policy import ForecastEviction
from nodewright.engine.core.eviction.eviction_ranking import Amount, EvictionCandidate
from nodewright.engine.core.eviction.eviction_state import (
    MetThreshold,
    NodeReclaim,
    StopReason,
    reclaim_steps,
)
from nodewright.engine.core.eviction.eviction_thresholds import (
    SignalObservation,
    signal_observations,
    threshold_amount,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.previews import NodeEvictionForecast
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, NodeCondition, Signal, Threshold
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import (
    INODES,
    PIDS,
    amount_text,
    distinguishable_amounts,
    readable_amount,
)
from nodewright.model.kubernetes.stats_summary import PSIStats
from nodewright.model.printable import counted, printable_line, printable_lines
from nodewright.model.reasons.eviction import EVICTED_REASON, EvictionReason, NodeRanShort
from nodewright.model.values.duration import Duration
from nodewright.predict.evict.kept_pods import kept_pods
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReferencedPod,
    node_of_report,
    referenced_pod,
)
from nodewright.predict.reported import reported


class DedicatedFilesystems(Report, frozen=True, kw_only=True):
    """Which filesystems the node has besides nodefs."""

    dedicated_image_fs: bool
    dedicated_container_fs: bool


class ObservedAmounts(Inlined, frozen=True, kw_only=True):
    """A threshold compared with the usage."""

    available: int
    capacity: int
    amount: int
    """The threshold's amount."""
    relieved_at: int
    """The amount with which the threshold is no longer met, minimum reclaim included."""
    met: bool
    due: bool
    """Whether it has been met for its grace period."""


class ReportedThreshold(Report, frozen=True, kw_only=True):
    """An eviction threshold."""

    signal: Signal
    value: str
    grace_period_seconds: float
    observed: bool
    minimum_reclaim: str | UnsetType = UNSET
    observation: ObservedAmounts | UnsetType = UNSET


class ConditionTaint(Report, frozen=True, kw_only=True):
    """The taint of a node condition."""

    key: str
    effect: str


class TaintingCondition(Report, frozen=True, kw_only=True):
    """A node condition that is true, and its taint."""

    type: NodeCondition
    taint: ConditionTaint


class ReportedReclaim(Report, frozen=True, kw_only=True):
    """What the kubelet removes before it evicts pods."""

    steps: tuple[NodeReclaim, ...]
    was_enough: bool


class ComparedUsage(Inlined, frozen=True, kw_only=True):
    """A pod's usage of the starved resource and what it is compared with."""

    usage: int
    request: float | None
    """null: nothing, as for processes."""
    exceeds: bool
    over: float | None


class RankedPod(Report, frozen=True, kw_only=True):
    """A pod in the order of eviction."""

    rank: int
    pod: ReferencedPod
    qos_class: QOSClass
    priority: int
    critical: bool
    has_stats: bool
    compared: ComparedUsage | UnsetType = UNSET
    before_next_by: str | UnsetType = UNSET
    """The key that decides between it and the next pod; `random`: none does."""


class EvictedStatus(Report, frozen=True, kw_only=True):
    """The status of an evicted pod."""

    phase: Literal["Failed"] = "Failed"
    reason: str = EVICTED_REASON
    message: str


class EvictedEvent(Report, frozen=True, kw_only=True):
    """The event about an evicted pod."""

    type: Literal["Warning"] = "Warning"
    reason: str = EVICTED_REASON
    message: str
    annotations: Mapping[str, str]


class ReportedEviction(Report, frozen=True, kw_only=True):
    """An eviction: its time, the status and event of the pod, and the amount freed."""

    pod: ReferencedPod
    at_seconds: int
    """At the earliest: without termination time."""
    grace_period_seconds: int
    status: EvictedStatus
    disruption_target: bool
    why: str
    because: EvictionReason
    event: EvictedEvent
    frees: int | UnsetType | None = UNSET
    """The increase of the available amount; absent: the pod exceeds a limit."""
    available: int | UnsetType = UNSET
    """The available amount afterwards."""


class ReportedReprieve(Report, frozen=True, kw_only=True):
    """A change of the pod that is evicted first, after which another is first."""

    pod: Pod
    priority: int | UnsetType = UNSET
    """The sufficient priority; absent: it stays."""
    resource: str | UnsetType = UNSET
    """The resource to request more of; absent: the requests stay."""
    request: int | UnsetType = UNSET
    more: int | UnsetType = UNSET
    then_first: Pod
    text: str


class SwapUse(Report, frozen=True, kw_only=True):
    """The node's swap."""

    used: int | None
    available: int | None


class StallShare(Report, frozen=True, kw_only=True):
    """Pressure stall information of the kernel.

    Units: averages over 10, 60 and 300 seconds in percent; total in microseconds.
    """

    total: int
    avg10: float
    avg60: float
    avg300: float


class Stalls(Report, frozen=True, kw_only=True):
    """The share of time in which some, or all, tasks were stalled."""

    some: StallShare
    full: StallShare


class IgnoredUsage(Report, frozen=True, kw_only=True):
    """Values of the usage that eviction does not consider."""

    swap: SwapUse | UnsetType = UNSET
    memory_pressure_stalls: Stalls | UnsetType = UNSET
    io_pressure_stalls: Stalls | UnsetType = UNSET


class EvictionReport(ReportDocument, frozen=True, kw_only=True):
    """Which pods are evicted at a given usage, in which order and why: `nodewright evict`.

    Units: bytes, or numbers of inodes and processes; times in seconds from now.
    """

    kind: Literal["EvictionReport"] = "EvictionReport"
    node: NodeOfReport
    kubelet_defects: KubeletDefects
    filesystems: DedicatedFilesystems
    thresholds: tuple[ReportedThreshold, ...]
    conditions: tuple[TaintingCondition, ...]
    handled_signal: Signal | None
    """The signal of the threshold that the kubelet acts on; null: none."""
    at_random: tuple[Signal, ...]
    """Signals that the kubelet might have picked instead."""
    reclaim_first: ReportedReclaim
    signal: Signal
    """The signal for which pods are ranked."""
    ranking: tuple[RankedPod, ...]
    evictions: tuple[ReportedEviction, ...]
    relieved: bool
    stopped: StopReason | None
    changes: tuple[ReportedReprieve, ...]
    ignored_usage: IgnoredUsage
    warnings: tuple[str, ...]


def eviction_report(forecast: NodeEvictionForecast, *, warnings: Sequence[str] = ()) -> EvictionReport:
    """The report of an eviction forecast."""
    config, outlook = forecast.config, forecast.outlook
    acting, first = outlook.first_acting_pass, outlook.first_pass
    return EvictionReport(
        node=node_of_report(config),
        kubelet_defects=config.parts.defects,
        filesystems=reported(DedicatedFilesystems, forecast.filesystems),
        thresholds=_thresholds(forecast),
        conditions=tuple(
            TaintingCondition(type=condition, taint=reported(ConditionTaint, condition.taint))
            for condition in first.state.conditions
        ),
        handled_signal=None if acting.target is None else acting.target.signal,
        at_random=tuple(target.signal for target in acting.other_targets),
        reclaim_first=ReportedReclaim(
            steps=() if acting.target is None else reclaim_steps(acting.target.signal, forecast.filesystems),
            was_enough=acting.relieved_by_reclaim,
        ),
        signal=forecast.signal,
        ranking=_ranked_pods(forecast.signal, forecast.ranking),
        evictions=tuple(map(_reported_eviction, outlook.evictions)),
        relieved=outlook.is_relieved,
        stopped=first.stopped,
        changes=tuple(map(_reprieve, forecast.reprieves)),
        ignored_usage=_ignored_usage(forecast),
        warnings=tuple(warnings),
    )


def _thresholds(forecast: NodeEvictionForecast) -> tuple[ReportedThreshold, ...]:
    observations = signal_observations(forecast.usage)
    met = {met.threshold: met.is_due for met in forecast.outlook.first_pass.met}
    return tuple(
        ReportedThreshold(
            signal=threshold.signal,
            value=threshold.value.text,
            grace_period_seconds=threshold.grace_period.total_seconds,
            observed=threshold.signal in observations,
            minimum_reclaim=UNSET if threshold.min_reclaim is None else threshold.min_reclaim.text,
            observation=_observed_amounts(threshold, observations[threshold.signal], met)
            if threshold.signal in observations
            else UNSET,
        )
        for threshold in forecast.watched.thresholds
    )


def _observed_amounts(
    threshold: Threshold, observed: SignalObservation, met: Mapping[Threshold, bool]
) -> ObservedAmounts:
    return ObservedAmounts(
        available=observed.available.value(),
        capacity=observed.capacity.value(),
        amount=threshold_amount(threshold, observed.capacity).value(),
        relieved_at=threshold_amount(threshold, observed.capacity, reclaimed=True).value(),
        met=threshold in met,
        due=met.get(threshold, False),
    )


def _ranked_pods(signal: Signal, ranked: Sequence[EvictionCandidate]) -> tuple[RankedPod, ...]:
    keys = [deciding_key(signal, *pair) for pair in pairwise(ranked)]
    deciding: list[str | UnsetType] = ["random" if key is RankKey.LIST_ORDER else key.value for key in keys]
    return tuple(
        RankedPod(
            rank=rank,
            pod=referenced_pod(candidate.active_pod.pod),
            qos_class=qos_class(candidate.active_pod.pod),
            priority=candidate.active_pod.priority,
            critical=candidate.active_pod.is_critical,
            has_stats=candidate.has_stats,
            compared=ComparedUsage(
                usage=candidate.usage,
                request=_number(candidate.request),
                exceeds=candidate.exceeds_request,
                over=_number(candidate.excess),
            )
            if candidate.has_stats
            else UNSET,
            before_next_by=key,
        )
        for rank, (candidate, key) in enumerate(zip(ranked, [*deciding, UNSET], strict=False), 1)
    )


def _reported_eviction(forecast: ForecastEviction) -> ReportedEviction:
    eviction, reason, after = forecast.eviction, forecast.eviction.because, forecast.available_after
    text = reason.kubelet().message
    return ReportedEviction(
        pod=referenced_pod(eviction.active_pod.pod),
        at_seconds=forecast.at_s,
        grace_period_seconds=eviction.termination_s,
        status=EvictedStatus(message=text),
        disruption_target=eviction.is_disruption,
        why=reason.sentence(),
        because=reason,
        event=EvictedEvent(
            message=text, annotations=reason.annotations() if isinstance(reason, NodeRanShort) else {}
        ),
        frees=UNSET if after is None else forecast.freed,
        available=UNSET if after is None else after.value(),
    )


def _reprieve(change: RankChange) -> ReportedReprieve:
    return ReportedReprieve(
        pod=change.active_pod.pod,
        priority=UNSET if change.priority is None else change.priority,
        resource=change.resource or UNSET,
        request=change.request if change.resource else UNSET,
        more=change.request_increase if change.resource else UNSET,
        then_first=change.next_pod.pod,
        text=reprieve_sentence(change),
    )


def _ignored_usage(forecast: NodeEvictionForecast) -> IgnoredUsage:
    node = forecast.usage.node
    swap, memory, io = node.swap, node.memory and node.memory.psi, node.io and node.io.psi
    return IgnoredUsage(
        swap=SwapUse(used=swap.swap_usage_bytes, available=swap.swap_available_bytes) if swap else UNSET,
        memory_pressure_stalls=_stalls(memory) if memory else UNSET,
        io_pressure_stalls=_stalls(io) if io else UNSET,
    )


def _stalls(psi: PSIStats) -> Stalls:
    return Stalls(some=reported(StallShare, psi.some), full=reported(StallShare, psi.full))


def _number(amount: Amount | None) -> float | None:
    return amount if amount is None or isinstance(amount, int) else float(amount)


MAX_SHOWN_PODS = 10
"""Number of evictions shown in detail without `-o wide`."""
_WIDTH = 100
_NOTHING = "-"


def evict_text(forecast: NodeEvictionForecast, *, wide: bool = False) -> str:
    """The signals, the ranking of pods, and the evictions."""
    parts = [
        _signals(forecast),
        printable_lines(_state(forecast)),
        _ranking(forecast, wide=wide),
        printable_lines(_evictions(forecast, wide=wide)),
        printable_lines(_ranking_reasons(forecast)),
        printable_lines(_swap_and_stalls(forecast)) if wide else "",
    ]
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
        return f"For {target_now.signal}, no images or dead containers are removed first: the kubelet evicts pods."
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
    return _NOTHING if eviction is None else eviction_time_text(eviction)


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
    for text in kept_pods(forecast):
        yield from wrapped_text(text, _WIDTH)
    if not evictions:
        if forecast.outlook.first_acting_pass.relieved_by_reclaim:
            return
        if forecast.outlook.first_acting_pass.target is None:
            yield "No pod is evicted."
        else:
            yield f"No pod can be evicted: {_remaining(forecast)}."
        return
    shown = evictions if wide else evictions[:MAX_SHOWN_PODS]
    yield _count(forecast)
    for forecast_eviction in shown:
        eviction = forecast_eviction.eviction
        grace = f"{eviction.termination_s} s to terminate"
        yield f"- {eviction.active_pod.pod.full_name}, {eviction_time_text(forecast_eviction)}, with {grace}{_effect(forecast_eviction)}"
        yield from wrapped_text(f"why: {eviction.because.sentence()}", _WIDTH, "  ")
        yield from wrapped_text(
            f"kubelet: {EVICTED_REASON}: {eviction.because.kubelet().message}", _WIDTH, "  "
        )
    if len(shown) < len(evictions):
        yield f"- and {len(evictions) - len(shown)} more (-o wide)"


def _count(forecast: NodeEvictionForecast) -> str:
    count = len(forecast.outlook.evictions)
    pods = f"{counted(count, 'pod')} {'is' if count == 1 else 'are'}"
    last = forecast.outlook.last_pass
    if forecast.outlook.is_relieved:
        has_min_reclaim = any(threshold.min_reclaim is not None for threshold in forecast.watched.thresholds)
        reclaim = ", minimum reclaim included" if has_min_reclaim else ""
        return f"{pods} evicted; then no threshold is met any more{reclaim}:"
    if last.stopped is not None:
        return f"{pods} evicted before the kubelet's eviction manager stops:"
    signals = ", ".join(dict.fromkeys(met.threshold.signal for met in last.met))
    return f"{pods} evicted, and {signals} is still too low: {_remaining(forecast)}:"


def _remaining(forecast: NodeEvictionForecast) -> str:
    """Why no further pod is evicted."""
    critical = sum(candidate.active_pod.is_critical for candidate in forecast.ranking)
    if not critical:
        return "no pod remains" if forecast.ranking else "the node has none"
    return "all remaining pods are critical" if critical > 1 else "the remaining pod is critical"


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
    verb = "is" if forecast.outlook.evictions else "would be"
    yield from wrapped_text(ranking_sentence(forecast.signal, first, second, verb=verb), _WIDTH)
    for change in forecast.reprieves:
        yield from wrapped_text(f"- {reprieve_sentence(change)}", _WIDTH)


def ranking_sentence(
    signal: Signal, first: EvictionCandidate, second: EvictionCandidate, *, verb: str = "is"
) -> str:
    """Why the first pod is ranked before the second."""
    key = deciding_key(signal, first, second)
    if key is RankKey.EXCESS:
        why = _excess_text(SIGNAL_RESOURCES[signal], int(first.excess), int(second.excess))
    else:
        why = _KEY_SENTENCES[key].format(first.active_pod.priority, second.active_pod.priority)
    return f"{first.active_pod.pod.full_name} {verb} evicted before {second.active_pod.pod.full_name}: {why}."


_KEY_SENTENCES = {
    RankKey.STATS: "it has no stats",
    RankKey.EXCEEDS: "it uses more than it requests, and the other pod does not",
    RankKey.PRIORITY: "its priority is lower, {} and {}",
    RankKey.LIST_ORDER: "they are equal in all keys; in the kubelet either may be the first",
}


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
        more = amount_text(change.resource, change.request_increase)
        request = amount_text(change.resource, change.request)
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
    for name, stats in (("memory", node.memory), ("io", node.io)):
        if stats is not None and (psi := stats.psi) is not None:
            yield (
                f"{name} pressure (PSI): some {psi.some.avg10:g} %, full {psi.full.avg10:g} % of the last 10 s "
                "(not considered by eviction)"
            )
    swapping = [
        (pod.swap.swap_usage_bytes, pod.pod_ref)
        for pod in forecast.usage.pods
        if pod.swap is not None and pod.swap.swap_usage_bytes
    ]
    swapping.sort(key=lambda pod: -pod[0])
    for used_bytes, pod in swapping[:MAX_SHOWN_PODS]:
        yield f"swap of {pod.namespace}/{pod.name}: {readable_amount('memory', used_bytes)}"
