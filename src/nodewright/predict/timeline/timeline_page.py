"""Timelines as a self-contained HTML page: plots, a comparison of policies, the advice and the moments."""

from collections.abc import Iterator, Sequence
from html import escape

from msgspec.structs import replace

from nodewright.documents.output.html_page import (
    PLOT_STYLE,
    PageOrigin,
    PlotCurve,
    PlotGrid,
    PlotLevel,
    PlotMark,
    PlotWindow,
    clipped,
    curve_legend,
    html_page,
    memory_ticks,
    plot,
    round_time_ticks,
)
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.values.duration import Duration
from nodewright.predict.timeline.pressure_simulation import ThresholdAdvice
from nodewright.predict.timeline.timeline_model import (
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    ThresholdCrossed,
    Timeline,
)
from nodewright.predict.timeline.timeline_report import (
    MODEL,
    SimulatedTimelines,
    advice_sentences,
    first_victim_text,
    moment_sentence,
    outcome_sentence,
    time_text,
)

_MARGIN_NS = 10**9
_STYLE = """
.level { stroke-dasharray: 6 4; stroke: var(--warn); stroke-width: 1.2 }
.mark { fill: var(--paper); stroke: var(--ink); stroke-width: 2 } .mark.killed { stroke: var(--no); fill: none;
  stroke-width: 3 } .mark.done { fill: var(--yes); stroke: var(--yes) }
td:first-child { white-space: nowrap; font-family: ui-monospace, monospace; font-size: .85rem }
"""


def timeline_page(report: SimulatedTimelines, config: NodeConfig, origin: PageOrigin | None = None) -> str:
    """The timelines as one HTML document without scripts and external resources."""
    name, release = config.facts.name, config.release.release.text
    sections = [*_runs(report)]
    if report.advice is not None:
        sections += _advice(report.advice)
    first = report.runs[0]
    sections += [f"<h2>Moments: {escape(first.policy)}</h2>", _moments(first)]
    sections.append(f'<p class="soft">{escape(MODEL)}</p>')
    subtitle = f"Kubernetes {escape(release)}; memory.available over {time_text(report.setup.duration_ns)}"
    return html_page(
        title=f"{name}: memory over time",
        heading=name,
        header=[f'<div class="soft">{subtitle}</div>'],
        sections=sections,
        style=f"{PLOT_STYLE}{_STYLE}",
        footer="" if origin is None else origin.footer(),
    )


def _runs(report: SimulatedTimelines) -> Iterator[str]:
    runs = report.runs
    style = "no" if runs[0].is_lost else "yes"
    yield f'<p class="{style}">{escape(outcome_sentence(runs[0]))}</p>'
    levels = _levels(runs)
    curves = [PlotCurve(run.policy, f"c{at % 3}", run.available) for at, run in enumerate(runs)]
    window = _crossing_window(runs, levels)
    if window is not None:
        yield "<h2>Around the threshold</h2>"
        yield _plot_html("memory.available while the threshold is crossed", window, curves, levels, runs)
    whole = (0, max(run.duration_ns for run in runs))
    most = max(amount for run in runs for _, amount in run.available)
    yield "<h2>Whole duration</h2>"
    yield _plot_html(
        "memory.available from the start to the end",
        PlotWindow(*whole, most * 21 // 20),
        curves,
        levels,
        runs,
    )
    yield _legend([(run.policy, f"c{at % 3}") for at, run in enumerate(runs)])
    if len(runs) > 1:
        yield _side_by_side(runs)


def _plot_html(
    label: str,
    window: PlotWindow,
    curves: Sequence[PlotCurve],
    levels: Sequence[PlotLevel],
    runs: Sequence[Timeline],
) -> str:
    marks = [mark for run in runs for mark in _marks(run)]
    grid = PlotGrid(round_time_ticks(window, lambda at_ns: str(Duration(at_ns))), memory_ticks(window))
    return f'<div class="scroll">{plot(label, window, grid, curves, levels, marks)}</div>'


def _crossing_window(runs: Sequence[Timeline], levels: Sequence[PlotLevel]) -> PlotWindow | None:
    """The window from just before the first crossing until a pod or process has ended in every run."""
    crossings = [run.first_crossing_ns for run in runs if run.first_crossing_ns is not None]
    if not crossings:
        return None
    ends = [
        next(
            (moment.at_ns for moment in run.moments if isinstance(moment, EvictionDone | KernelKilled)), None
        )
        for run in runs
    ]
    start = min(crossings)
    end = max([at_ns for at_ns in ends if at_ns is not None], default=start + _MARGIN_NS)
    margin_ns = max((end - start) // 4, _MARGIN_NS // 5)
    window = PlotWindow(max(start - margin_ns, 0), end + margin_ns, 1)
    starts = [clipped(run.available, window)[:1] for run in runs]
    # Memory available after the first termination is irrelevant here: twice the threshold is enough.
    tops = [*(points[0][1] for points in starts if points), *(2 * level.amount for level in levels)]
    return replace(window, max_amount=max(*tops, 1) * 11 // 10)


def _levels(runs: Sequence[Timeline]) -> list[PlotLevel]:
    crossings = {
        moment.threshold_bytes: moment
        for run in runs
        for moment in run.moments
        if isinstance(moment, ThresholdCrossed) and moment.signal == "memory.available"
    }
    return [
        PlotLevel(f"threshold {readable_amount('memory', amount)}", "", amount)
        for amount in sorted(crossings)
    ]


def _marks(run: Timeline) -> Iterator[PlotMark]:
    for moment in run.moments:
        style = {EvictionBegun: "begun", EvictionDone: "done", KernelKilled: "killed"}.get(type(moment))
        if style is not None:
            text = f"{time_text(moment.at_ns)}, {run.policy}: {moment_sentence(moment)}"
            yield PlotMark(moment.at_ns, _available(run, moment.at_ns), style, text)


def _available(run: Timeline, at_ns: int) -> int:
    """Memory available just before this time."""
    corners = [amount for when, amount in run.available if when == at_ns]
    if corners:
        return corners[0]
    points = clipped(run.available, PlotWindow(at_ns, at_ns, 1))
    return points[0][1] if points else 0


def _legend(legend: Sequence[tuple[str, str]]) -> str:
    marks = ("○ eviction starts", "● evicted pod has terminated", "✕ killed by the kernel")
    return curve_legend(legend, marks, label="lines and marks")


def _side_by_side(runs: Sequence[Timeline]) -> str:
    rows = "".join(
        f"<tr><td>{escape(run.policy)}</td><td>{first_victim_text(run)}</td><td>{readable_amount('memory', run.lowest_available_bytes)}"
        f"</td><td>{len(run.evictions)}</td><td>{len(run.kernel_kills)}</td><td>{run.lost_cpu_s:.0f}</td>"
        f"<td>{readable_amount('memory', run.beyond_need_bytes)}</td><td>{run.check_count}</td></tr>"
        for run in runs
    )
    headers = (
        "policy",
        "first",
        "lowest",
        "evicted",
        "killed",
        "CPU-seconds lost",
        "freed beyond need",
        "checks",
    )
    head = "".join(f"<th>{header}</th>" for header in headers)
    return f'<h2>Comparison of policies</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _moments(run: Timeline) -> str:
    rows = "".join(
        f'<tr><td>{time_text(moment.at_ns)}</td><td class="{"no" if isinstance(moment, KernelKilled) else ""}">'
        f"{escape(moment_sentence(moment))}</td></tr>"
        for moment in run.moments
    )
    return f"<table>{rows}</table>" if rows else "<p>No events.</p>"


def _advice(advice: ThresholdAdvice) -> Iterator[str]:
    yield "<h2>Advice</h2>"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in advice_sentences(advice))
    runs = [run for run in (advice.winning_run, advice.losing_run) if run is not None]
    amount = advice.threshold_bytes
    if not amount:
        return
    levels = [PlotLevel(f"advised {readable_amount('memory', amount)}", "", amount)]
    window = _crossing_window(runs, levels)
    if window is None:
        return
    names = [
        f"with {readable_amount('memory', amount)}",
        f"with {readable_amount('memory', amount - advice.step_bytes)}, one step less",
    ]
    legend = [(name, f"c{at}") for at, name in zip((0, 1), names, strict=True)][: len(runs)]
    curves = [PlotCurve(name, style, run.available) for (name, style), run in zip(legend, runs, strict=True)]
    yield _plot_html(
        "memory.available with the advised threshold, and with one step less", window, curves, levels, runs
    )
    yield _legend(legend)
