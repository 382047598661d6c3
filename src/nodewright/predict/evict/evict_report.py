"""The report of `evict`: evictions at a given usage, with every key of the ranking."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument
from nodewright.engine.core.eviction.eviction_forecast import ForecastEviction
from nodewright.engine.core.eviction.eviction_order import RankChange, RankKey, deciding_key
from nodewright.engine.core.eviction.eviction_ranking import Amount, EvictionCandidate
from nodewright.engine.core.eviction.eviction_state import NodeReclaim, StopReason, reclaim_steps
from nodewright.engine.core.eviction.eviction_thresholds import (
    SignalObservation,
    signal_observations,
    threshold_amount,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.node_config import KubeletDefects
from nodewright.engine.node.previews import NodeEvictionForecast
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal, Threshold
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import PSIStats
from nodewright.model.reasons.eviction import EVICTED_REASON, EvictionReason, NodeRanShort
from nodewright.predict.evict.evict_report import reprieve_sentence
from nodewright.predict.node_report.report_parts import (
    NodeOfReport,
    ReferencedPod,
    node_of_report,
    referenced_pod,
)


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
        filesystems=DedicatedFilesystems(
            dedicated_image_fs=forecast.filesystems.dedicated_image_fs,
            dedicated_container_fs=forecast.filesystems.dedicated_container_fs,
        ),
        thresholds=_thresholds(forecast),
        conditions=tuple(
            TaintingCondition(
                type=condition, taint=ConditionTaint(key=condition.taint.key, effect=condition.taint.effect)
            )
            for condition in first.state.conditions
        ),
        handled_signal=None if acting.target is None else acting.target.signal,
        at_random=tuple(target.signal for target in acting.other_targets),
        reclaim_first=ReportedReclaim(
            steps=() if acting.target is None else reclaim_steps(acting.target.signal, forecast.filesystems),
            was_enough=acting.relieved_by_reclaim,
        ),
        signal=forecast.signal,
        ranking=_ranking(forecast.signal, forecast.ranking),
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


def _ranking(signal: Signal, ranked: Sequence[EvictionCandidate]) -> tuple[RankedPod, ...]:
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
        grace_period_seconds=eviction.grace_period_s,
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
    some, full = (
        StallShare(total=share.total, avg10=share.avg10, avg60=share.avg60, avg300=share.avg300)
        for share in (psi.some, psi.full)
    )
    return Stalls(some=some, full=full)


def _number(amount: Amount | None) -> float | None:
    return amount if amount is None or isinstance(amount, int) else float(amount)
