"""The runs of a sweep as a self-contained HTML page for comparison: a table of metrics, and a chart for each."""

from collections.abc import Callable, Iterator, Sequence
from html import escape

import msgspec

from nodewright.documents.output.html_page import (
    PLOT_STYLE,
    WIDTH,
    PageOrigin,
    curve_legend,
    html_page,
    html_table,
    svg_element,
)
from nodewright.fleet.fleet_summary import FleetSummary
from nodewright.fleet.report.fleet_page import BAR_STYLE, SEED, ShareCurve, axis_top, shares_svg
from nodewright.fleet.report.fleet_text import percent_text, short_name
from nodewright.fleet.report.sweep_report import SweepSummaries
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.workload import duration_text
from nodewright.model.kubernetes.resource_names import PODS, resource_sort_key

_CURVES = 4
"""Runs whose curves are drawn in one plot: as many as there are line styles."""
_BAR, _LABEL, _NUMBER = 16, 16, 110


class Metric(msgspec.Struct, frozen=True):
    """A number of each run; its text is shown."""

    name: str
    value: Callable[[FleetSummary], float]
    text: Callable[[float], str]
    whole: float = 0
    """The largest possible value, if there is one: the full width of its chart."""


def sweep_page(
    swept: SweepSummaries, *, run_count: int, notes: Sequence[str] = (), origin: PageOrigin | None = None
) -> str:
    """The runs side by side as one HTML document without scripts and external resources.

    ``run_count`` is the number of planned runs, ``notes`` are the assumptions.
    """
    title = f"{len(swept):,} {'run' if len(swept) == 1 else 'runs'} of a fleet"
    complete = sum(summary.complete for _, summary in swept)
    state = (
        ""
        if complete == run_count
        else f'<p class="warning">Interrupted: {complete} of {run_count} runs are complete.</p>'
    )
    fleets = sorted({f"{summary.nodes:,} nodes, {summary.pods:,} pods" for _, summary in swept})
    return html_page(
        title=title,
        heading=title,
        header=[f'<div class="soft">{escape("; ".join(fleets))}</div>{state}'],
        sections=[
            *(_comparison(swept) if swept else ()),
            *(f'<p class="soft">{escape(note)}</p>' for note in notes),
        ],
        style=f"{PLOT_STYLE}{BAR_STYLE}",
        footer="" if origin is None else origin.footer([SEED]),
    )


def _comparison(swept: SweepSummaries) -> Iterator[str]:
    metrics = sweep_metrics([summary for _, summary in swept])
    rows = [
        [point.name, *(metric.text(metric.value(summary)) for metric in metrics)] for point, summary in swept
    ]
    headers = ["Settings", *(metric.name for metric in metrics)]
    yield f"<h2>Metrics</h2>{html_table(headers, rows, numbers=len(metrics))}"
    yield from _curves(swept)
    yield '<h2>Metric by metric</h2><p class="soft">All runs of a chart are on one scale that begins at zero.</p>'
    for metric in metrics:
        values = [(point.name, metric.value(summary)) for point, summary in swept]
        if any(value for _, value in values):
            yield f'<h3>{escape(metric.name)}</h3><div class="scroll">{metric_bars(metric, values)}</div>'


def sweep_metrics(summaries: Sequence[FleetSummary]) -> list[Metric]:
    """The metrics of these runs: outcomes, refusals, mean usage, waiting time and remaining capacity."""

    def number(value: float) -> str:
        return f"{value:,.0f}"

    def outcome_metric(outcome: PodOutcome) -> Metric:
        return Metric(
            f"Pods {outcome.value}", lambda summary: float(summary.outcomes.get(outcome, 0)), number
        )

    def usage_metric(name: str) -> Metric:
        return Metric(
            f"{short_name(name)}, mean",
            lambda summary: _mean_share(summary, name),
            lambda share: percent_text(share, 1),
            whole=1,
        )

    metrics = [
        outcome_metric(outcome)
        for outcome in PodOutcome
        if any(summary.outcomes.get(outcome) for summary in summaries)
    ]
    metrics.append(
        Metric("Refusals", lambda summary: float(sum(each.count for each in summary.refusals)), number)
    )
    names = {name for summary in summaries for name in summary.resource_use if name != PODS}
    metrics += [
        usage_metric(name)
        for name in sorted(names, key=resource_sort_key)
        if any(_mean_share(summary, name) for summary in summaries)
    ]
    metrics.append(Metric("95 % placed within", lambda summary: summary.time_to_place.p95_s, duration_text))
    if all(summary.remaining_capacity is not None for summary in summaries):
        metrics.append(Metric("More pods like the probe", _probe_pods, number))
    return metrics


def _mean_share(summary: FleetSummary, name: str) -> float:
    usage = summary.resource_use.get(name)
    return usage.mean / usage.allocatable if usage is not None and usage.allocatable else 0.0


def _probe_pods(summary: FleetSummary) -> float:
    capacity = summary.remaining_capacity
    assert capacity is not None
    return float(capacity.admitted)


def metric_bars(metric: Metric, values: Sequence[tuple[str, float]]) -> str:
    """A bar for each run, with the run's name above it and the value beside it."""
    largest = max(metric.whole, *(value for _, value in values))
    inside = WIDTH - _NUMBER
    parts = []
    for at, (name, value) in enumerate(values):
        y = at * (_LABEL + _BAR + 6)
        width = inside * value / largest if largest else 0
        parts.append(
            f'<text x="0" y="{y + 12}">{escape(name)}</text>'
            f'<rect class="rest" x="0" y="{y + _LABEL}" width="{inside}" height="{_BAR}"/>'
            f'<rect class="bar" x="0" y="{y + _LABEL}" width="{width:.1f}" height="{_BAR}"/>'
            f'<text x="{inside + 8}" y="{y + _LABEL + 12}">{escape(metric.text(value))}</text>'
        )
    return svg_element(f"{metric.name}, by run", len(values) * (_LABEL + _BAR + 6), parts)


def _curves(swept: SweepSummaries) -> Iterator[str]:
    """CPU and pending pods over time, where there are few enough runs to tell their lines apart."""
    if len(swept) > _CURVES or any(len(summary.samples) < 2 for _, summary in swept):
        return
    shares = [
        ShareCurve(
            point.name,
            f"c{at}",
            [
                (
                    sample.at_s,
                    sample.requested.get("cpu", 0) / max(summary.resource_use["cpu"].allocatable, 1),
                )
                for sample in summary.samples
            ],
        )
        for at, (point, summary) in enumerate(swept)
        if "cpu" in summary.resource_use
    ]
    most = axis_top(max(sample.waiting for _, summary in swept for sample in summary.samples))
    waiting = [
        ShareCurve(point.name, f"c{at}", [(sample.at_s, sample.waiting / most) for sample in summary.samples])
        for at, (point, summary) in enumerate(swept)
    ]
    legend = curve_legend([(curve.name, curve.style) for curve in waiting])
    yield f'<h2>Requested share of CPUs</h2><div class="scroll">{shares_svg("requested share of CPUs", shares)}</div>{legend}'
    drawing = shares_svg("waiting pods over time", waiting, most=most)
    yield f'<h2>Waiting pods</h2><div class="scroll">{drawing}</div>{legend}'
