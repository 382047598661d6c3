"""The report of a timeline: all moments with their numbers, the curves of the plot, the advice.

Units: nanoseconds in moments; seconds and bytes in the lines.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.engine.node.node_config import NodeConfig
from nodewright.predict.node_report.report_parts import NodeOfReport, node_of_report
from nodewright.predict.timeline.pressure_simulation import ThresholdAdvice
from nodewright.predict.timeline.timeline_model import EvictionBegun, Moment, Timeline
from nodewright.predict.timeline.timeline_report import (
    MODEL,
    TimelineReport,
    first_victim_text,
    moment_sentence,
)
from nodewright.predict.timeline.usage_forecast import Assumptions, Growth


class ReportedTimelineMoment(Report, frozen=True, kw_only=True):
    """Something that happens, with its time and a sentence."""

    merged: ClassVar = frozenset({"moment"})
    moment: Moment
    at_seconds: float
    text: str
    message: str | UnsetType = UNSET
    """The kubelet's message for an evicted pod."""


class RunReport(Report, frozen=True, kw_only=True):
    """What happens under an eviction policy."""

    policy: str
    about: str
    first: str
    """Which pod is evicted or killed first."""
    lost: bool
    """Whether memory ran out before eviction freed enough."""
    looks: int
    """Number of checks by the policy."""
    crossed_seconds: float | None
    """When a threshold is crossed for the first time; null: never."""
    lowest_available_bytes: int
    lost_cpu_seconds: float
    """CPU time lost by evictions and kills."""
    beyond_need_bytes: int
    """Memory freed beyond what the thresholds required."""
    evicted: tuple[str, ...]
    killed: tuple[str, ...]
    """Pods of processes that the kernel's OOM killer ended."""
    moments: tuple[ReportedTimelineMoment, ...]
    available: tuple[tuple[float, int], ...]
    """Memory available on the node, as corners of a curve: seconds and bytes."""


class TriedThresholdReport(Report, frozen=True, kw_only=True):
    """A threshold that was tried."""

    threshold_bytes: int
    lost: bool
    lowest_available_bytes: int


class AdviceReport(Report, frozen=True, kw_only=True):
    """The advised `evictionHard` for memory.available, with the runs that support it."""

    policy: str
    threshold_bytes: int | None
    """0: no threshold is needed; null: none is sufficient."""
    now_bytes: int
    step_bytes: int
    kubelet_configuration: Mapping[str, Mapping[str, str]]
    """The fields to set; empty: none."""
    reserved_bytes: int | None
    """The sum of kubeReserved and systemReserved to set; null: the present sum is sufficient, or no sum is."""
    won: RunReport | None
    """The worst run with the advised threshold."""
    lost: RunReport | None
    """The run with one step less in which the kernel was first."""
    tried: tuple[TriedThresholdReport, ...]


class EvictionTimelineReport(ReportDocument, frozen=True, kw_only=True):
    """Memory growth against eviction and the OOM killer: `nodewright evict --timeline`."""

    kind: Literal["EvictionTimeline"] = "EvictionTimeline"
    node: NodeOfReport
    duration_seconds: float
    assumptions: Assumptions
    growth: tuple[Growth, ...]
    runs: tuple[RunReport, ...]
    """The first is the main run; the others are compared with it."""
    advice: AdviceReport | None
    model: str
    """What the simulation assumes."""
    not_simulated: tuple[str, ...] = ("nodefs", "imagefs", "containerfs", "inodes", "pid")
    """Signals that are not simulated."""
    warnings: tuple[str, ...]


def timeline_report(
    report: TimelineReport, config: NodeConfig, *, warnings: Sequence[str] = ()
) -> EvictionTimelineReport:
    """The report of all runs and the advice."""
    setup = report.setup
    return EvictionTimelineReport(
        node=node_of_report(config),
        duration_seconds=setup.duration_ns / 10**9,
        assumptions=setup.assumptions,
        growth=setup.growth,
        runs=tuple(map(_run, report.runs)),
        advice=None if report.advice is None else _advice(report.advice),
        model=MODEL,
        warnings=tuple(warnings),
    )


def _run(run: Timeline) -> RunReport:
    crossed = run.first_crossing_ns
    return RunReport(
        policy=run.policy,
        about=run.about,
        first=first_victim_text(run),
        lost=run.is_lost,
        looks=run.check_count,
        crossed_seconds=None if crossed is None else crossed / 10**9,
        lowest_available_bytes=run.lowest_available_bytes,
        lost_cpu_seconds=run.lost_cpu_s,
        beyond_need_bytes=run.beyond_need_bytes,
        evicted=tuple(eviction.pod for eviction in run.evictions),
        killed=tuple(kill.pod for kill in run.kernel_kills),
        moments=tuple(map(_moment, run.moments)),
        available=tuple((at_ns / 10**9, amount) for at_ns, amount in run.available),
    )


def _moment(moment: Moment) -> ReportedTimelineMoment:
    return ReportedTimelineMoment(
        moment=moment,
        at_seconds=moment.at_ns / 10**9,
        text=moment_sentence(moment),
        message=moment.because.kubelet().message if isinstance(moment, EvictionBegun) else UNSET,
    )


def _advice(advice: ThresholdAdvice) -> AdviceReport:
    amount = advice.threshold_bytes
    return AdviceReport(
        policy=advice.policy,
        threshold_bytes=amount,
        now_bytes=advice.current_bytes,
        step_bytes=advice.step_bytes,
        kubelet_configuration={"evictionHard": {"memory.available": str(amount)}} if amount else {},
        reserved_bytes=advice.reserved_bytes,
        won=None if advice.winning_run is None else _run(advice.winning_run),
        lost=None if advice.losing_run is None else _run(advice.losing_run),
        tried=tuple(
            TriedThresholdReport(
                threshold_bytes=candidate.threshold_bytes,
                lost=candidate.is_lost,
                lowest_available_bytes=candidate.worst_run.lowest_available_bytes,
            )
            for candidate in advice.tried
        ),
    )
