"""Reports of sweeps over settings as text, documents and a page; of the smallest number of nodes that holds a workload."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Literal

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
from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.fleet.fleet_summary import FleetSummary
from nodewright.fleet.minimise import MinimumNodes
from nodewright.fleet.report.fleet_page import BAR_STYLE, SEED, ShareCurve, axis_top, shares_svg
from nodewright.fleet.report.fleet_report import (
    FleetAssumptions,
    ReportedCapacity,
    RunStatistics,
    run_statistics,
)
from nodewright.fleet.report.fleet_text import not_counted_text, percent_text, short_name
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.sweep_runs import SweepPoint
from nodewright.fleet.workload import FleetNode, duration_text
from nodewright.model.kubernetes.resource_names import CPU, PODS, resource_sort_key
from nodewright.model.printable import counted
from nodewright.model.reasons.reason import kubelet_text

_SIZES = (8, 16, 32)
_WIDE = 120
_CURVES = 4
"""Runs whose curves are drawn in one plot: as many as there are line styles."""
_BAR, _LABEL, _NUMBER = 16, 16, 110
SweepSummaries = Sequence[tuple[SweepPoint, FleetSummary]]


def sweep_text(swept: SweepSummaries, *, columns: int) -> str:
    """One row per combination: outcomes, refusals, waiting times and remaining capacity.

    Narrow terminals get fewer columns.
    """
    is_wide = columns >= _WIDE
    outcomes = [
        outcome for outcome in PodOutcome if any(summary.outcomes.get(outcome) for _, summary in swept)
    ]
    sizes = [size for size in _SIZES if all(_fragment(summary, size) is not None for _, summary in swept)][
        :is_wide
    ]
    headers = [
        *(outcome.value.upper() for outcome in outcomes),
        "REFUSALS",
        *(["CPU", "P95 WAIT"] if is_wide else []),
        *(f"{size} CPUS ON A NUMA NODE" for size in sizes),
        *(["CAPACITY", "STRANDED"] if swept and swept[0][1].probe is not None else []),
        "SETTINGS",
    ]
    rows = []
    for point, summary in swept:
        cpu_usage = summary.resource_use.get(CPU)
        row = [f"{summary.outcomes.get(outcome, 0):,}" for outcome in outcomes]
        row.append(f"{sum(refusal.count for refusal in summary.refusals):,}")
        if is_wide:
            row.append(percent_text(cpu_usage.mean, cpu_usage.allocatable) if cpu_usage is not None else "-")
            row.append(duration_text(summary.time_to_place.p95_s))
        row += [f"{_fragment(summary, size):,}" for size in sizes]
        if summary.remaining_capacity is not None:
            row += [f"{summary.remaining_capacity.admitted:,}", f"{summary.remaining_capacity.stranded:,}"]
        rows.append((*row, point.name))
    not_counted = not_counted_text(swept[0][1].not_counted) if swept else ""
    return table(headers, rows) + not_counted + _reasons(swept)


def _fragment(summary: FleetSummary, size: int) -> int | None:
    return next((fragment.by_numa for fragment in summary.fragments if fragment.cpus == size), None)


def _reasons(swept: SweepSummaries) -> str:
    """The kubelets' reasons for refusals, with their number by settings; empty: none."""
    counts: dict[str, list[int]] = {}
    for at, (_, summary) in enumerate(swept):
        for refusal in summary.refusals:
            reason = kubelet_text(refusal.reason).reason
            counts.setdefault(reason, [0] * len(swept))[at] += refusal.count
    if not counts:
        return ""
    rows = [
        (reason, f"{counts_by_point[at]:,}", swept[at][0].name)
        for reason, counts_by_point in counts.items()
        for at in range(len(swept))
        if counts_by_point[at]
    ]
    return "\n" + table(("KUBELET REASON", "COUNT", "SETTINGS"), rows)


class SweepRunReport(Report, frozen=True, kw_only=True):
    """The statistics of a run with these settings."""

    settings: Mapping[str, Any]
    statistics: RunStatistics


class SweepReport(ReportDocument, frozen=True, kw_only=True):
    """Runs with different settings: `nodewright fleet run --sweep`."""

    kind: Literal["SweepReport"] = "SweepReport"
    sweep: tuple[SweepRunReport, ...]
    warnings: tuple[str, ...]
    complete: bool
    assumed: FleetAssumptions


def sweep_runs_report(swept: SweepSummaries) -> tuple[SweepRunReport, ...]:
    """The statistics of the runs."""
    return tuple(
        SweepRunReport(settings=point.labels, statistics=run_statistics(summary)) for point, summary in swept
    )


class PodCapacityReport(Report, frozen=True, kw_only=True):
    """How many more of a pod fit with these settings."""

    pod: str
    settings: Mapping[str, Any]
    capacity: ReportedCapacity
    not_counted: tuple[str, ...]
    """Constraints of the pod on other pods, for which fewer may fit."""


class FleetCapacityReport(ReportDocument, frozen=True, kw_only=True):
    """How many more pods fit into a fleet: `nodewright fleet capacity`."""

    kind: Literal["FleetCapacityReport"] = "FleetCapacityReport"
    capacity: tuple[PodCapacityReport, ...]
    complete: bool


class NodesOfKind(Report, frozen=True, kw_only=True):
    """A number of equal nodes."""

    name: str
    shape: str
    nodes: int


class MinimumNodesReport(ReportDocument, frozen=True, kw_only=True):
    """The smallest number of nodes that holds a workload: `nodewright fleet minimise`."""

    kind: Literal["MinimumNodesReport"] = "MinimumNodesReport"
    nodes: int | None
    """null: no sufficient number was found."""
    bound: int
    """Fewer nodes cannot hold the workload."""
    proved: bool
    complete: bool
    bound_by: Literal["linear program", "amounts"]
    runs: int
    kinds: tuple[NodesOfKind, ...]


def minimum_nodes_text(summary: MinimumNodes, kinds: Sequence[FleetNode], *, exact: bool, most: int) -> str:
    """The nodes by kind, the lower bound, and whether the number is proved minimal."""
    if not summary.counts and not summary.is_complete:
        return f"interrupted after {counted(summary.runs, 'run')}: no sufficient number was found; fewer than {summary.bound:,} cannot hold the workload\n"
    if not summary.counts:
        return f"no number of these nodes up to {most:,} of a kind holds the workload\n"
    rows = [
        (str(count), kind.name, kind.shape)
        for count, kind in zip(summary.counts, kinds, strict=True)
        if count
    ]
    text = table(("NODES", "KIND", "SHAPE"), rows)
    if not summary.is_complete:
        text = f"interrupted after {counted(summary.runs, 'run')}: this is the best result until then\n{text}"
    if summary.is_proved_minimal:
        return f"{text}\n{counted(summary.nodes, 'node')} for the workload, proved minimal\n"
    bound_source = (
        "the linear program over whole loads of nodes"
        if exact
        else "sums and large pods; --exact gives a sharper bound"
    )
    return (
        f"{text}\n{counted(summary.nodes, 'node')} for the workload; fewer than {summary.bound:,} cannot ({bound_source}); "
        "nothing is proved for numbers in between\n"
    )


def minimum_nodes_report(
    summary: MinimumNodes, kinds: Sequence[FleetNode], *, exact: bool
) -> MinimumNodesReport:
    """The report of the same."""
    return MinimumNodesReport(
        nodes=summary.nodes if summary.counts else None,
        bound=summary.bound,
        proved=summary.is_proved_minimal,
        complete=summary.is_complete,
        bound_by="linear program" if exact else "amounts",
        runs=summary.runs,
        kinds=tuple(
            NodesOfKind(name=kind.name, shape=kind.shape, nodes=count)
            for kind, count in zip(kinds, summary.counts, strict=False)
            if count
        ),
    )


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
    title = f"{counted(len(swept), 'run')} of a fleet"
    complete = sum(summary.complete for _, summary in swept)
    state = (
        ""
        if complete == run_count
        else f'<p class="warning">Interrupted: complete runs: {complete} of {run_count}.</p>'
    )
    fleets = sorted(
        {f"{counted(summary.nodes, 'node')}, {counted(summary.pods, 'pod')}" for _, summary in swept}
    )
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
