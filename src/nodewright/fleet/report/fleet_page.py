"""A fleet run as a self-contained HTML page: heat maps of nodes, use over time, node shapes, fragmentation, reasons."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

import msgspec

from nodewright.documents.output.html_page import (
    BOTTOM,
    PLOT_STYLE,
    RIGHT,
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
from nodewright.fleet.report.fleet_text import (
    filter_rejection_text,
    percent_text,
    placement_reason_text,
    reason_text,
    short_name,
)
from nodewright.fleet.simulation.outcomes import FleetPodRecord, FleetResult, NodeSample, PodOutcome
from nodewright.fleet.workload import duration_text
from nodewright.model.kubernetes.resource_names import PODS, readable_amount, resource_sort_key
from nodewright.model.printable import counted

SEED = ("Seed", "none: the simulation draws no random numbers")
BAR_STYLE = """
.bar { fill: var(--c0) } .lost { fill: var(--c1) } .rest { fill: var(--panel) } .pending td:last-child { min-width: 18rem }
.pending td:first-child { white-space: nowrap }
"""
HEAT_STYLE = """
.h0 { fill: var(--panel); stroke: var(--line); stroke-width: .5 } path { shape-rendering: crispEdges }
.h1 { fill: hsl(212 75% 91%) } .h2 { fill: hsl(212 75% 82%) } .h3 { fill: hsl(212 72% 73%) } .h4 { fill: hsl(212 68% 64%) }
.h5 { fill: hsl(212 66% 54%) } .h6 { fill: hsl(212 70% 44%) } .h7 { fill: hsl(212 76% 34%) } .h8 { fill: hsl(212 84% 23%) }
@media (prefers-color-scheme: dark) {
.h1 { fill: hsl(212 50% 20%) } .h2 { fill: hsl(212 50% 28%) } .h3 { fill: hsl(212 52% 36%) } .h4 { fill: hsl(212 55% 45%) }
.h5 { fill: hsl(212 62% 54%) } .h6 { fill: hsl(212 72% 64%) } .h7 { fill: hsl(212 82% 75%) } .h8 { fill: hsl(212 92% 88%) } }
"""
HEAT_CLASSES = 8
"""Number of colours above zero."""
_ONE = 10**6
"""The plotted amount that stands for a share of 1."""
_ROWS = 4
_MOST_POINTS = 1500
_BAR, _BAR_LABEL, _BAR_NUMBER = 20, 90, 190
_CURVES = 4
_MOST_ROWS = 20
_MOST_PENDING = 100
_MOST_SINGLE_NODES, _GROUPS = 40, 32
_LEFT, _TOP, _ROW, _LABEL_CHARACTERS = 270, 6, 16, 36
_NS = 10**9


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


class HeatRow(msgspec.Struct, frozen=True):
    """A node, or nodes of one shape that are drawn as their mean."""

    name: str
    nodes: tuple[int, ...]
    """Their numbers."""


def fleet_page(
    summary: FleetSummary, result: FleetResult, notes: Sequence[str] = (), origin: PageOrigin | None = None
) -> str:
    """The run as one HTML document without scripts and external resources.

    ``notes`` are the assumptions and ``origin`` is what made the page, both shown at the end.
    """
    title = f"{counted(summary.nodes, 'node')}, {counted(summary.pods, 'pod')}"
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
            f"<p>{'At most ' * bool(summary.not_counted)}{counted(whole.admitted, 'more pod')} like the probe can be "
            f"placed{' (not counted: ' + ' and '.join(summary.not_counted) + ')' if summary.not_counted else ''}. By free amounts it would be "
            f"{whole.by_free_amounts:,}: {whole.stranded:,} are stranded.</p>"
        )


def _fragments(summary: FleetSummary) -> Iterator[str]:
    if not summary.fragments:
        return
    bars = [
        SplitBar(
            counted(fragment.cpus, "CPU"),
            fragment.by_numa * fragment.cpus,
            (fragment.by_node - fragment.by_numa) * fragment.cpus,
            f"{fragment.by_numa:,} + {counted(fragment.by_node - fragment.by_numa, 'pod')}",
        )
        for fragment in summary.fragments
    ]
    yield "<h2>Fragmentation of free CPUs</h2>"
    yield (
        f'<p class="soft">{counted(summary.free_cpus, "free CPU")} for exclusive allocation: the full width. The bars show how '
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
        "<p>No pod was placed.</p>"
        if not time.pods
        else (
            f"<p>{time.immediately:,} of {counted(time.pods, 'pod')} placed immediately; half within "
            f"{duration_text(time.median_s)}, 95 % within {duration_text(time.p95_s)}, all within {duration_text(time.longest_s)}.</p>"
        )
    )
    yield (
        f'<p class="soft">placements: {result.placements:,}; decisions by nodes: {result.steps:,} computed, '
        f"and {result.cached_steps:,} taken from nodes in equal states.</p>"
    )


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


def heat_sections(result: FleetResult, resources: Sequence[str]) -> Iterator[str]:
    """The maps of these resources with their legend, and the same as a table."""
    samples = result.node_samples
    drawn = [name for name in resources if any(name in sample.shares for sample in samples)]
    if not drawn:
        return
    rows = heat_rows(result)
    capacities = [record.state.config.view.allocatable for record in result.nodes]
    yield "<h2>Nodes</h2>"
    grouped = (
        ""
        if len(rows) == len(result.nodes)
        else f" {counted(len(result.nodes), 'node')} in {counted(len(rows), 'group')} of equal shape and similar load; each row is a mean. A shape is sockets x NUMA nodes of each x cores x threads."
    )
    yield f'<p class="soft">Requested share of allocatable, one scale for all maps.{grouped}</p>{heat_legend()}'
    for name in drawn:
        present = [row for row in rows if any(capacities[node].get(name) for node in row.nodes)]
        without = sum(len(row.nodes) for row in rows if row not in present)
        note = f' <span class="soft">{counted(without, "node")} without it</span>' if without else ""
        yield f"<h3>{escape(short_name(name))}{note}</h3>"
        yield f'<div class="scroll">{heat_map(name, present, result)}</div>'
    yield "<details><summary>The same as a table</summary>"
    headers = ["Nodes", *(f"{short_name(name)} {what}" for name in drawn for what in ("max", "at end"))]
    body = []
    for row in rows:
        cells = [row.name]
        for name in drawn:
            shares = mean_shares(row, samples, name)
            cells += [f"{max(shares):.0f} %", f"{shares[-1]:.0f} %"]
        body.append(cells)
    yield f"{html_table(headers, body, numbers=2 * len(drawn))}</details>"


def heat_map(resource: str, rows: Sequence[HeatRow], result: FleetResult) -> str:
    """The shares of a resource over the whole time as an SVG element."""
    samples = result.node_samples
    # A run of one moment is one column.
    ends = [*(round(sample.at_s * _NS) for sample in samples), max(round(result.ended_s * _NS), 1)]
    window = PlotWindow(0, ends[-1], 1)
    height = _TOP + _ROW * len(rows) + BOTTOM
    parts: list[str] = []
    for at, row in enumerate(rows):
        parts.extend(_row_parts(row, _TOP + at * _ROW, mean_shares(row, samples, resource), ends))
    for at_ns, text in round_time_ticks(window, lambda at_ns: duration_text(at_ns / _NS)):
        x = _x(at_ns, window.to_ns)
        parts.append(f'<text class="middle" x="{x:.1f}" y="{height - BOTTOM + 18}">{escape(text)}</text>')
    return svg_element(f"requested share of {short_name(resource)} by node, over time", height, parts)


def heat_legend() -> str:
    """The colours and their shares."""
    steps = [f"{100 * step / HEAT_CLASSES:g}" for step in range(HEAT_CLASSES + 1)]
    texts = ["0 %", *(f"{low}-{high} %" for low, high in pairwise(steps))]
    entries = "".join(
        f'<li><svg width="14" height="12" aria-hidden="true"><rect class="h{at}" width="14" height="12"/></svg>{text}</li>'
        for at, text in enumerate(texts)
    )
    return f'<ul class="legend" aria-label="requested share">{entries}</ul>'


def heat_rows(result: FleetResult) -> tuple[HeatRow, ...]:
    """The rows of the map: each node, or groups of nodes of one shape with similar load if there are many."""
    count = len(result.nodes)
    if count <= _MOST_SINGLE_NODES:
        return tuple(HeatRow(record.node.name, (at,)) for at, record in enumerate(result.nodes))
    by_shape: dict[str, list[int]] = {}
    for at, record in enumerate(result.nodes):
        by_shape.setdefault(record.node.shape, []).append(at)
    shapes = sorted(by_shape, key=lambda shape: -len(by_shape[shape]))
    if len(shapes) > _GROUPS:
        by_shape["other shapes"] = [at for shape in shapes[_GROUPS:] for at in by_shape[shape]]
        shapes[_GROUPS:] = ["other shapes"]
    size = -(-count // _GROUPS)
    rows = []
    for shape in shapes:
        parts = [*_parts(sorted(by_shape[shape], key=lambda at: (-_load(result, at), at)), size)]
        for part in parts:
            # Parts of one shape differ by their load.
            load = f" at {_mean_load(result, part):.0f} %" if len(parts) > 1 else ""
            rows.append(HeatRow(f"{counted(len(part), 'node')}{load}, {_without_domains(shape)}", part))
    return tuple(rows)


def _mean_load(result: FleetResult, nodes: Sequence[int]) -> float:
    """The mean over time of the largest share of the nodes' resources, in percent."""
    return sum(_load(result, node) for node in nodes) / len(nodes) / max(len(result.node_samples), 1)


def _without_domains(shape: str) -> str:
    return " ".join(map(short_name, shape.split(" ")))


def _parts(nodes: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """The nodes in parts of nearly equal size, at most ``size``."""
    parts = -(-len(nodes) // size)
    for part in range(parts):
        yield tuple(nodes[len(nodes) * part // parts : len(nodes) * (part + 1) // parts])


def _load(result: FleetResult, node: int) -> int:
    """The sum over time of the largest share of a node's resources."""
    return sum(max((shares[node] for shares in s.shares.values()), default=0) for s in result.node_samples)


def mean_shares(row: HeatRow, samples: Sequence[NodeSample], resource: str) -> list[float]:
    """The mean share of the row's nodes in each sample.

    Units: percent.
    """
    means = []
    for sample in samples:
        shares = sample.shares.get(resource)
        means.append(0.0 if shares is None else sum(shares[node] for node in row.nodes) / len(row.nodes))
    return means


def heat_class(percent: float) -> str:
    """The CSS class of a share: one for zero, then steps of an eighth.

    >>> [heat_class(percent) for percent in (0, 1, 12.5, 99, 100)]
    ['h0', 'h1', 'h2', 'h8', 'h8']
    """
    return f"h{1 + min(int(percent * HEAT_CLASSES / 100), HEAT_CLASSES - 1) if percent else 0}"


def _x(at_ns: int, end_ns: int) -> float:
    return _LEFT + (WIDTH - _LEFT - RIGHT) * at_ns / end_ns


def _row_parts(row: HeatRow, y: int, shares: Sequence[float], ends: Sequence[int]) -> Iterator[str]:
    label = row.name if len(row.name) <= _LABEL_CHARACTERS else f"{row.name[: _LABEL_CHARACTERS - 1]}…"
    yield f"<g><title>{escape(row.name)}: at most {max(shares):.0f} %, {shares[-1]:.0f} % at the end</title>"
    yield f'<text class="end" x="{_LEFT - 6}" y="{y + 12}">{escape(label)}</text>'
    yield f'<rect class="h0" x="{_LEFT}" y="{y}" width="{WIDTH - _LEFT - RIGHT}" height="{_ROW - 2}"/>'
    paths: dict[str, list[str]] = {}
    columns = groupby(zip(shares, pairwise(ends), strict=True), key=lambda column: heat_class(column[0]))
    for style, (first, *more) in columns:
        x, end_x = _x(first[1][0], ends[-1]), _x((more or [first])[-1][1][1], ends[-1])
        paths.setdefault(style, []).append(f"M{x:.1f} {y}H{end_x:.1f}v{_ROW - 2}H{x:.1f}z")
    for style, drawn in paths.items():
        if style != "h0":
            yield f'<path class="{style}" d="{"".join(drawn)}"/>'
    yield "</g>"
