"""A fleet run as a self-contained HTML page: use over time, node shapes, fragmentation, reasons."""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from nodewright.documents.output.html_page import (
    PLOT_STYLE,
    WIDTH,
    PageOrigin,
    PlotCurve,
    PlotGrid,
    PlotWindow,
    curve_legend,
    html_page,
    html_table,
    plot,
    quarter_ticks,
    round_time_ticks,
    svg_element,
)
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.fleet.capacity import total_capacity
from nodewright.fleet.fleet_summary import FleetSummary
from nodewright.fleet.report.fleet_page import HEAT_STYLE, heat_sections
from nodewright.fleet.report.fleet_text import (
    filter_rejection_text,
    percent_text,
    placement_reason_text,
    reason_text,
    short_name,
)
from nodewright.fleet.simulation.outcomes import FleetPodRecord, FleetResult, PodOutcome
from nodewright.fleet.workload import duration_text
from nodewright.model.kubernetes.resource_names import PODS, readable_amount, resource_sort_key

_ONE = 10**6
"""The plotted amount that stands for a share of 1."""
_ROWS = 4
_MOST_POINTS = 1500
_BAR, _BAR_LABEL, _BAR_NUMBER = 20, 90, 190


class ShareCurve(msgspec.Struct, frozen=True):
    """A share over time that is constant between points.

    Units: points in seconds and in parts of 1.
    """

    name: str
    style: str
    points: Sequence[tuple[float, float]]


class SplitBar(msgspec.Struct, frozen=True):
    """An amount with two parts, and its text."""

    name: str
    first: int
    second: int
    text: str


def shares_svg(label: str, shares: Sequence[ShareCurve], *, most: int | None = None) -> str:
    """The curves from 0 to 1 over their whole time; ``most`` is the number that 1 stands for, None: 100 %."""
    times = [round(at_s * 10**9) for share in shares for at_s, _ in share.points]
    window = PlotWindow(min(times, default=0), max(times, default=0), _ONE)
    curves = [
        PlotCurve(
            share.name,
            share.style,
            [(round(at_s * 10**9), round(part * _ONE)) for at_s, part in _steps(_thinned(share.points))],
        )
        for share in shares
    ]
    grid = PlotGrid(
        times=round_time_ticks(window, lambda at_ns: duration_text(at_ns / 10**9)),
        amounts=quarter_ticks(
            window, lambda row: f"{100 * row // _ROWS} %" if most is None else f"{most * row // _ROWS:,}"
        ),
    )
    return plot(label, window, grid, curves)


def bars_svg(label: str, bars: Sequence[SplitBar], whole: int) -> str:
    """A stacked bar for each amount, all on one scale: ``whole`` is the full width."""
    height = len(bars) * (_BAR + 6) + 6
    inside = WIDTH - _BAR_LABEL - _BAR_NUMBER
    parts = [
        f'<rect class="rest" x="{_BAR_LABEL}" y="0" width="{inside}" height="{height}"/>',
    ]
    for index, bar in enumerate(bars):
        y = 6 + index * (_BAR + 6)
        first, second = (inside * part / max(whole, 1) for part in (bar.first, bar.second))
        parts.append(
            f'<text class="end" x="{_BAR_LABEL - 8}" y="{y + 14}">{escape(bar.name)}</text>'
            f'<rect class="bar" x="{_BAR_LABEL}" y="{y}" width="{first:.1f}" height="{_BAR}"/>'
            f'<rect class="lost" x="{_BAR_LABEL + first:.1f}" y="{y}" width="{second:.1f}" height="{_BAR}"/>'
            f'<text x="{WIDTH - _BAR_NUMBER + 8}" y="{y + 14}">{escape(bar.text)}</text>'
        )
    return svg_element(label, height, parts)


def axis_top(most: int) -> int:
    """A number of at least ``most`` with round quarters.

    >>> [axis_top(most) for most in (0, 3, 24, 37, 1234)]
    [4, 4, 24, 40, 1600]
    """
    unit = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if _ROWS * factor * unit >= most:
                return _ROWS * factor * unit
        unit *= 10


def _steps(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The corners of a curve that is constant between points."""
    last = None
    for at, share in points:
        if last is not None:
            yield at, last
        yield at, share
        last = share


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most as many points as are visible, including the last."""
    step = -(-len(points) // _MOST_POINTS)
    return points if step <= 1 else [*points[::step], points[-1]]


BAR_STYLE = """
.bar { fill: var(--c0) } .lost { fill: var(--c1) } .rest { fill: var(--panel) } .pending td:last-child { min-width: 18rem }
.pending td:first-child { white-space: nowrap }
"""
_CURVES = 4
_MOST_ROWS = 20
_MOST_PENDING = 100
SEED = ("Seed", "none: the simulation draws no random numbers")


def fleet_page(
    summary: FleetSummary, result: FleetResult, notes: Sequence[str] = (), origin: PageOrigin | None = None
) -> str:
    """The run as one HTML document without scripts and external resources.

    ``notes`` are the assumptions and ``origin`` is what made the page, both shown at the end.
    """
    title = f"{summary.nodes:,} nodes, {summary.pods:,} pods"
    outcomes = ", ".join(f"{count:,} {outcome.value}" for outcome, count in summary.outcomes.items())
    incomplete = "" if summary.complete else " The run was interrupted; these are partial results."
    subtitle = f"{escape(outcomes)}; {duration_text(summary.ended_s)} of virtual time.{incomplete}"
    return html_page(
        title=title,
        heading=title,
        header=[f'<div class="soft">{subtitle}</div>'],
        sections=[
            *_pending(result),
            *heat_sections(result, plotted_resources(summary)),
            *_over_time(summary),
            *_usage(summary),
            *_shapes(summary),
            *_fragments(summary),
            *_reasons(summary),
            *_times(summary, result),
            *(f'<p class="soft">{escape(note)}</p>' for note in notes),
        ],
        style=f"{PLOT_STYLE}{BAR_STYLE}{HEAT_STYLE}",
        footer="" if origin is None else origin.footer([SEED]),
    )


def plotted_resources(summary: FleetSummary) -> list[str]:
    """The resources that pods requested, at most four, in the usual order."""
    return [
        name
        for name in sorted(summary.resource_use, key=resource_sort_key)
        if summary.resource_use[name].most and summary.resource_use[name].allocatable and name != PODS
    ][:_CURVES]


def _pending(result: FleetResult) -> Iterator[str]:
    """The pods that are not on a node at the end, by name, with the reason."""
    records = [
        record
        for record in result.pods
        if record.outcome not in (PodOutcome.RUNNING, PodOutcome.ENDED, PodOutcome.NOT_ARRIVED)
    ]
    if not records:
        return
    rows = [
        (record.pod.full_name, record.outcome.value, _requests(record), placement_reason_text(record))
        for record in records[:_MOST_PENDING]
    ]
    yield f"<h2>Pods without a node: {len(records):,}</h2>"
    yield f'<div class="pending">{html_table(("Pod", "State", "Requests", "Reason"), rows)}</div>'
    if len(records) > _MOST_PENDING:
        yield f'<p class="soft">and {len(records) - _MOST_PENDING:,} more; -o wide lists all.</p>'


def _requests(record: FleetPodRecord) -> str:
    requests = scheduler_requests(record.pod.pod)
    return ", ".join(
        f"{short_name(name)} {readable_amount(name, requests[name])}"
        for name in sorted(requests, key=resource_sort_key)
        if requests[name] and name != PODS
    )


def _over_time(summary: FleetSummary) -> Iterator[str]:
    samples = summary.samples
    if len(samples) < 2:
        return
    lines = [
        ShareCurve(
            short_name(name),
            f"c{at}",
            [
                (sample.at_s, sample.requested.get(name, 0) / summary.resource_use[name].allocatable)
                for sample in samples
            ],
        )
        for at, name in enumerate(plotted_resources(summary))
    ]
    yield "<h2>Requested share of allocatable</h2>"
    yield f'<div class="scroll">{shares_svg("requested of allocatable, over time", lines)}</div>'
    yield _legend(lines)
    most = axis_top(max(max(sample.running, sample.waiting) for sample in samples))
    pods = [
        ShareCurve("running", "c0", [(sample.at_s, sample.running / most) for sample in samples]),
        ShareCurve("waiting", "c1", [(sample.at_s, sample.waiting / most) for sample in samples]),
    ]
    yield "<h2>Pods</h2>"
    yield f'<div class="scroll">{shares_svg("pods over time", pods, most=most)}</div>'
    yield _legend(pods)


def _legend(shares: Sequence[ShareCurve]) -> str:
    return curve_legend([(share.name, share.style) for share in shares])


def _usage(summary: FleetSummary) -> Iterator[str]:
    rows = [
        (
            short_name(name),
            readable_amount(name, usage.allocatable),
            percent_text(usage.at_end, usage.allocatable),
            percent_text(usage.mean, usage.allocatable),
            percent_text(usage.most, usage.allocatable),
        )
        for name in sorted(summary.resource_use, key=resource_sort_key)
        if (usage := summary.resource_use[name]).allocatable and name != PODS
    ]
    yield "<h2>Usage</h2>"
    yield html_table(("Resource", "Allocatable", "At end", "Mean", "Max"), rows, numbers=4)


def _shapes(summary: FleetSummary) -> Iterator[str]:
    rows = [
        (
            shape.shape,
            f"{shape.nodes:,}",
            f"{shape.placed:,}",
            f"{shape.pods:,}",
            percent_text(shape.requested.get("cpu", 0), shape.allocatable.get("cpu", 0)),
            percent_text(shape.requested.get("memory", 0), shape.allocatable.get("memory", 0)),
            f"{shape.refused:,}",
        )
        for shape in summary.shapes
    ]
    yield "<h2>Node shapes</h2>"
    headers = ("Shape", "Nodes", "Placed", "Pods at end", "CPU", "Memory", "Refused")
    yield html_table(headers, rows, numbers=6)
    if summary.probe is not None:
        whole = total_capacity(summary.probe)
        yield (
            f"<p>{whole.admitted:,} more pods like the probe fit. By free amounts it would be "
            f"{whole.by_free_amounts:,}: {whole.stranded:,} are stranded.</p>"
        )


def _fragments(summary: FleetSummary) -> Iterator[str]:
    if not summary.fragments:
        return
    bars = [
        SplitBar(
            "1 CPU" if fragment.cpus == 1 else f"{fragment.cpus} CPUs",
            fragment.by_numa * fragment.cpus,
            (fragment.by_node - fragment.by_numa) * fragment.cpus,
            f"{fragment.by_numa:,} + {fragment.by_node - fragment.by_numa:,} pods",
        )
        for fragment in summary.fragments
    ]
    yield "<h2>Fragmentation of free CPUs</h2>"
    yield (
        f'<p class="soft">{summary.free_cpus:,} CPUs are free for exclusive allocation: the full width. The bars show how '
        "many of them pods with so many CPUs could use:</p>"
    )
    label = "free CPUs that pods with so many CPUs could use"
    yield f'<div class="scroll">{bars_svg(label, bars, summary.free_cpus)}</div>'
    entries = "".join(
        f'<li><svg width="14" height="10" aria-hidden="true"><rect class="{style}" width="14" height="10"/></svg>{name}</li>'
        for style, name in (
            ("bar", "in single NUMA nodes"),
            ("lost", "only across NUMA nodes"),
            ("rest", "not usable by pods of this size"),
        )
    )
    yield f'<ul class="legend">{entries}</ul>'


def _reasons(summary: FleetSummary) -> Iterator[str]:
    if summary.filter_rejections:
        waiting = [
            (filter_rejection_text(rejection), f"{count:,}")
            for rejection, count in summary.filter_rejections[:_MOST_ROWS]
        ]
        yield "<h2>Why pods wait</h2>"
        yield html_table(("Scheduler filter, for one of the pods", "Pods"), waiting, numbers=1)
    if summary.refusals:
        rows = [
            (refusal.shape, reason_text(refusal.reason), f"{refusal.count:,}")
            for refusal in summary.refusals[:_MOST_ROWS]
        ]
        yield "<h2>Refusals by kubelets</h2>"
        yield html_table(("Shape", "Example", "Count"), rows, numbers=1)


def _times(summary: FleetSummary, result: FleetResult) -> Iterator[str]:
    time = summary.time_to_place
    yield "<h2>Time to place</h2>"
    yield (
        f"<p>{time.immediately:,} of {time.pods:,} pods were placed immediately; half within "
        f"{duration_text(time.median_s)}, 95 % within {duration_text(time.p95_s)}, all within {duration_text(time.longest_s)}.</p>"
    )
    yield (
        f'<p class="soft">{result.placements:,} placements; {result.steps:,} decisions by nodes were computed, '
        f"and {result.cached_steps:,} taken from nodes in equal states.</p>"
    )
