"""The report of a timeline: all moments with their numbers, the curves of the plot, the advice.

Units: nanoseconds in moments; seconds and bytes in the lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import ClassVar, Literal, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.printable import counted, printable, printable_lines
from nodewright.model.values.duration import Duration
from nodewright.predict.node_report.report_parts import NodeOfReport, node_of_report
from nodewright.predict.reported import reported
from nodewright.predict.timeline.pressure_simulation import ThresholdAdvice
from nodewright.predict.timeline.timeline_model import (
    ConditionsChanged,
    Deadlocked,
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    LimitScope,
    Moment,
    NobodyToEvict,
    Noticed,
    Recovered,
    Restarted,
    ThresholdCrossed,
    Timeline,
    TimelineSetup,
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


class SimulatedTimelines(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated timelines of one setup, as they are reported."""

    setup: TimelineSetup
    runs: tuple[Timeline, ...]
    """The first is the main run; the others are compared with it."""
    advice: ThresholdAdvice | None = None
    is_full: bool = True
    """Whether the text includes the moments of the first run."""


def timeline_report(
    report: SimulatedTimelines, config: NodeConfig, *, warnings: Sequence[str] = ()
) -> EvictionTimelineReport:
    """The report of all runs and the advice."""
    setup = report.setup
    return reported(
        EvictionTimelineReport,
        setup,
        node=node_of_report(config),
        duration_seconds=setup.duration_ns / 10**9,
        runs=tuple(map(_run, report.runs)),
        advice=None if report.advice is None else _advice(report.advice),
        model=MODEL,
        warnings=tuple(warnings),
    )


def _run(run: Timeline) -> RunReport:
    crossed = run.first_crossing_ns
    return reported(
        RunReport,
        run,
        first=first_victim_text(run),
        lost=run.is_lost,
        looks=run.check_count,
        crossed_seconds=None if crossed is None else crossed / 10**9,
        lost_cpu_seconds=run.lost_cpu_s,
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
    return reported(
        AdviceReport,
        advice,
        now_bytes=advice.current_bytes,
        kubelet_configuration={"evictionHard": {"memory.available": str(amount)}} if amount else {},
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


WIDTH = 80
MILLISECOND_NS = 1_000_000
_SYSTEM_PROCESS = "a process outside pods"
_SCOPES = {
    LimitScope.NODE: "the node has no memory left",
    LimitScope.PODS: "all pods together are at their limit",
    LimitScope.POD: "the pod is at its limit",
    LimitScope.CONTAINER: "the container is at its limit",
}
MODEL = (
    "Thresholds, ranking, grace periods and the eviction loop follow the kubelet's source. Linear growth, "
    "measurement and termination times, restarts without usage, the memory that the kernel keeps free, and the choice "
    "of the OOM killer (a container counts as one process) are modelled. Disks, inodes and PIDs are not simulated."
)


def timeline_text(report: SimulatedTimelines) -> str:
    """The moments of the first run and its outcome, the comparison of runs, and the advice."""
    first = report.runs[0]
    parts = [_moments(first)] if report.is_full and first.moments else []
    parts.append(_paragraph(outcome_sentence(first)))
    if len(report.runs) > 1:
        parts.append(_comparison(report.runs))
    if report.advice is not None:
        parts.append("".join(map(_paragraph, advice_sentences(report.advice))))
    return "\n".join((*parts, _paragraph(MODEL)))


def timeline_evicted_names(report: SimulatedTimelines) -> str:
    """The pods that the first run evicts, in this order, one per line, in kubectl's notation."""
    return printable_lines(f"pod/{eviction.pod.rpartition('/')[2]}" for eviction in report.runs[0].evictions)


def time_text(nanoseconds: int) -> str:
    """A time or a duration, to the millisecond.

    >>> time_text(697_750_000_060), time_text(0), time_text(400)
    ('11m37.75s', '0s', '0s')
    """
    return str(Duration(nanoseconds // MILLISECOND_NS * MILLISECOND_NS))


# ---------------------------------------------------------------- moments


def _moments(run: Timeline) -> str:
    starts = [time_text(moment.at_ns) for moment in run.moments]
    width = max(len("TIME"), *map(len, starts)) + 3
    lines = [f"{'TIME':{width}}EVENT"]
    for start, moment in zip(starts, run.moments, strict=True):
        text = wrap(printable(moment_sentence(moment)), WIDTH - width)
        lines += [f"{start:{width}}{text[0]}", *(" " * width + continuation for continuation in text[1:])]
    return printable_lines(lines)


def moment_sentence(moment: Moment) -> str:
    """The moment as a sentence."""
    match moment:
        case ThresholdCrossed(signal=signal, threshold_bytes=amount, grace_ns=grace):
            soft = f" (counts after {Duration(grace)})" if grace else ""
            return f"{signal} falls below {_bytes(amount)}{soft}"
        case Noticed(signal=signal, available_bytes=left, threshold_bytes=amount, late_ns=late):
            shown = f"just below {_bytes(left)}" if _bytes(left) == _bytes(amount) else f"{_bytes(left)}"
            return f"detected {time_text(late)} later: {signal} is {shown}"
        case Recovered(signal=signal, available_bytes=left):
            return f"{signal} is {_bytes(left)}: the threshold is no longer met"
        case ConditionsChanged(conditions=conditions):
            names = " and ".join(conditions)
            return f"the node reports {names}" if names else "the node reports no pressure"
        case EvictionBegun():
            return _eviction_begun(moment)
        case EvictionDone():
            return _eviction_done(moment)
        case NobodyToEvict(signal=signal):
            return f"{signal} is too low, but no pod may be evicted"
        case KernelKilled():
            return _kernel_killed(moment)
        case Deadlocked(scope=scope):
            return f"{_SCOPES[scope]}, but the kernel may not kill any process"
        case Restarted(pod=pod, container=container):
            return f"{pod}: {container} is restarted"
        case _:
            assert_never(moment)


def _eviction_begun(moment: EvictionBegun) -> str:
    measured = (
        f"; last measured: {_bytes(moment.seen_bytes)}" if moment.seen_bytes != moment.used_bytes else ""
    )
    skipped = f"; skipped as critical: {', '.join(moment.critical_passed)}" if moment.critical_passed else ""
    window = time_text(moment.ends_ns - moment.at_ns)
    grace = (
        ""
        if moment.ends_ns - moment.at_ns == moment.grace_period_s * 10**9
        else f", terminates within {window}"
    )
    return (
        f"{moment.pod} is evicted: grace period {moment.grace_period_s}s{grace}; it uses "
        f"{_bytes(moment.used_bytes)}{measured}{skipped}"
    )


def _eviction_done(moment: EvictionDone) -> str:
    beyond = f", {_bytes(moment.beyond_need_bytes)} beyond need" if moment.beyond_need_bytes else ""
    return f"{moment.pod} has terminated: {_bytes(moment.freed_bytes)} freed{beyond}; {_cpu_time(moment.lost_cpu_s)} lost"


def _kernel_killed(moment: KernelKilled) -> str:
    victim = f"{moment.container} of {moment.pod}" if moment.pod else _SYSTEM_PROCESS
    limit = "" if moment.scope is LimitScope.NODE else f" of {_bytes(moment.limit_bytes)}"
    whole_group = " with all its processes" if moment.as_a_whole else ""
    restart = "" if moment.restarts_ns is None else f"; restarts at {time_text(moment.restarts_ns)}"
    return (
        f"THE KERNEL kills {victim}{whole_group}: {_SCOPES[moment.scope]}{limit}; it uses {_bytes(moment.used_bytes)}, "
        f"oom_score_adj {moment.oom_score_adj}{restart}"
    )


def outcome_sentence(run: Timeline) -> str:
    """Whether eviction or the kernel was first, as a sentence."""
    crossed = run.first_crossing_ns
    race_lost = next((kill for kill in run.kernel_kills if kill.is_race_lost), None)
    within = f"within {Duration(run.duration_ns)}"
    own_limit_kills = [kill for kill in run.kernel_kills if not kill.is_race_lost]
    if race_lost is not None:
        late = (
            "before any threshold was crossed"
            if crossed is None or crossed > race_lost.at_ns
            else (f"{time_text(race_lost.at_ns - crossed)} after the threshold was crossed")
        )
        return f"The kernel is first: at {time_text(race_lost.at_ns)}, {late}. Policy: {run.policy}, {counted(run.check_count, 'check')}."
    if run.is_lost:
        return "Memory runs out, but the kernel may not kill any process."
    if own_limit_kills:
        names = ", ".join(sorted({kill.pod for kill in own_limit_kills}))
        return f"Containers reach their own limits ({names}), which no threshold prevents; otherwise memory lasts {within}."
    if crossed is None:
        return f"No threshold is crossed {within}; the minimum available is {_bytes(run.lowest_available_bytes)}."
    if not run.evictions:
        return f"A threshold is crossed, and no pod has terminated {within}."
    first = run.evictions[0]
    return (
        f"Eviction is first: {first.pod} has terminated {time_text(first.at_ns - crossed)} after the threshold was crossed, "
        f"with {_bytes(run.lowest_available_bytes)} left at the minimum. Policy: {run.policy}, {counted(run.check_count, 'check')}."
    )


# ---------------------------------------------------------------- comparison


def _comparison(runs: Sequence[Timeline]) -> str:
    headers = ("POLICY", "FIRST", "DETECTED", "MINIMUM", "EVICTED", "KILLED", "LOST", "EXCESS", "CHECKS")
    rows = [
        (
            run.policy,
            first_victim_text(run),
            _detected_after(run),
            _bytes(run.lowest_available_bytes),
            str(len(run.evictions)),
            str(len(run.kernel_kills)),
            _cpu_time(run.lost_cpu_s).removesuffix(" of CPU"),
            _bytes(run.beyond_need_bytes),
            str(run.check_count),
        )
        for run in runs
    ]
    victims = [f"{run.policy}: {_victims(run)}." for run in runs if run.evictions or run.kernel_kills]
    about = "".join(_paragraph(f"{run.policy}: {run.about}") for run in runs if run.about)
    return (
        _narrow(table(headers, rows))
        + "\n"
        + "".join(map(_paragraph, victims))
        + ("\n" if victims else "")
        + about
    )


def _narrow(text: str) -> str:
    """The table; its columns are two spaces apart if it is too wide otherwise."""
    if max(map(len, text.splitlines())) <= WIDTH:
        return text
    lines = text.splitlines()
    longest = max(map(len, lines))
    padded = [line.ljust(longest) for line in lines]
    blank = [all(line[at] == " " for line in padded) for at in range(longest)]
    kept = [at for at in range(longest) if not (blank[at] and at >= 1 and blank[at - 1])]
    return "".join("".join(line[at] for at in kept).rstrip() + "\n" for line in padded)


def first_victim_text(run: Timeline) -> str:
    """Which was first: `kernel`, `eviction` or `-`."""
    if run.is_lost:
        return "kernel"
    return "eviction" if run.evictions else "-"


def _detected_after(run: Timeline) -> str:
    """Time from the first crossing to its detection; `-`: none before the kernel acted, or no crossing."""
    for moment in run.moments:
        if isinstance(moment, Noticed):
            return time_text(moment.late_ns)
        if isinstance(moment, KernelKilled) and moment.is_race_lost:
            break
    return "-"


def _victims(run: Timeline) -> str:
    victims = []
    for moment in run.moments:
        if isinstance(moment, EvictionDone):
            victims.append(f"{moment.pod} evicted at {time_text(moment.at_ns)}")
        elif isinstance(moment, KernelKilled):
            victims.append(f"{moment.pod or _SYSTEM_PROCESS} killed at {time_text(moment.at_ns)}")
    rest = f" and {len(victims) - 4} more" if len(victims) > 4 else ""
    return ", ".join(victims[:4]) + rest


# ---------------------------------------------------------------- advice


def advice_sentences(advice: ThresholdAdvice) -> Iterator[str]:
    """The advice and the runs that support it, as sentences."""
    step = _bytes(advice.step_bytes)
    if advice.threshold_bytes is None:
        yield f"No threshold on memory.available prevents OOM kills with the policy {advice.policy}: even all memory available at the start is too little."
    elif advice.threshold_bytes == 0:
        yield "No threshold on memory.available is needed: the kernel does not kill without one."
    else:
        amount = _exact(advice.threshold_bytes)
        yield f"evictionHard: memory.available: {amount} prevents OOM kills with the policy {advice.policy}."
        change = advice.threshold_bytes - advice.current_bytes
        if advice.current_bytes and change:
            effect = f"shrinks by {_exact(change)}" if change > 0 else f"grows by {_exact(-change)}"
            yield f"At present it is {_exact(advice.current_bytes)}; memory that pods can request {effect}."
        if advice.winning_run is not None:
            yield f"With it: {_run_summary(advice.winning_run)}."
        if advice.losing_run is not None:
            yield f"With {_exact(advice.threshold_bytes - advice.step_bytes)}, one step of {step} less: {_run_summary(advice.losing_run)}."
    if advice.reserved_bytes is not None:
        yield (
            f"Reserve {_exact(advice.reserved_bytes)} (systemReserved and kubeReserved together): if eviction fails, "
            "pods then reach their common limit before the node runs out of memory."
        )


def _run_summary(run: Timeline) -> str:
    race_lost = next((kill for kill in run.kernel_kills if kill.is_race_lost), None)
    if race_lost is not None:
        victim = f"{race_lost.container} of {race_lost.pod}" if race_lost.pod else _SYSTEM_PROCESS
        return f"the kernel kills {victim} at {time_text(race_lost.at_ns)}"
    if run.evictions:
        first = run.evictions[0]
        return (
            f"{first.pod} has terminated at {time_text(first.at_ns)}, with {_bytes(run.lowest_available_bytes)} left at "
            "the minimum"
        )
    return f"{_bytes(run.lowest_available_bytes)} left at the minimum"


# ---------------------------------------------------------------- amounts


def _bytes(amount: int) -> str:
    return readable_amount("memory", amount)


def _exact(amount: int) -> str:
    """In whole Mi if it is that, for configurations; else readable."""
    return _bytes(amount) if amount % (1 << 20) else f"{amount >> 20}Mi"


def _cpu_time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f}s of CPU"
    return f"{seconds / 60:.0f}m of CPU" if seconds < 7200 else f"{seconds / 3600:.1f}h of CPU"


def _paragraph(text: str) -> str:
    return printable_lines(wrap(printable(text), WIDTH))
