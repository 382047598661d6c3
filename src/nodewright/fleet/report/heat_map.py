"""A heat map of a fleet: the requested share of each node, or of groups of nodes, over time."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

import msgspec

from nodewright.documents.output.html_page import (
    BOTTOM,
    RIGHT,
    WIDTH,
    PlotWindow,
    html_table,
    round_time_ticks,
    svg_element,
)
from nodewright.fleet.report.fleet_text import short_name
from nodewright.fleet.simulation.outcomes import FleetResult, NodeSample
from nodewright.fleet.workload import duration_text

HEAT_CLASSES = 8
"""Number of colours above zero."""
HEAT_STYLE = """
.h0 { fill: var(--panel); stroke: var(--line); stroke-width: .5 } path { shape-rendering: crispEdges }
.h1 { fill: hsl(212 75% 91%) } .h2 { fill: hsl(212 75% 82%) } .h3 { fill: hsl(212 72% 73%) } .h4 { fill: hsl(212 68% 64%) }
.h5 { fill: hsl(212 66% 54%) } .h6 { fill: hsl(212 70% 44%) } .h7 { fill: hsl(212 76% 34%) } .h8 { fill: hsl(212 84% 23%) }
@media (prefers-color-scheme: dark) {
.h1 { fill: hsl(212 50% 20%) } .h2 { fill: hsl(212 50% 28%) } .h3 { fill: hsl(212 52% 36%) } .h4 { fill: hsl(212 55% 45%) }
.h5 { fill: hsl(212 62% 54%) } .h6 { fill: hsl(212 72% 64%) } .h7 { fill: hsl(212 82% 75%) } .h8 { fill: hsl(212 92% 88%) } }
"""
_MOST_SINGLE_NODES, _GROUPS = 40, 32
_LEFT, _TOP, _ROW, _LABEL_CHARACTERS = 200, 6, 16, 26
_NS = 10**9


class HeatRow(msgspec.Struct, frozen=True):
    """A node, or nodes of one shape that are drawn as their mean."""

    name: str
    nodes: tuple[int, ...]
    """Their numbers."""


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
    return tuple(
        HeatRow(f"{len(part)} nodes {shape}", part)
        for shape in shapes
        for part in _parts(sorted(by_shape[shape], key=lambda at: (-_load(result, at), at)), size)
    )


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


def heat_legend() -> str:
    """The colours and their shares."""
    steps = [f"{100 * step / HEAT_CLASSES:g}" for step in range(HEAT_CLASSES + 1)]
    texts = ["0 %", *(f"{low}-{high} %" for low, high in pairwise(steps))]
    entries = "".join(
        f'<li><svg width="14" height="12" aria-hidden="true"><rect class="h{at}" width="14" height="12"/></svg>{text}</li>'
        for at, text in enumerate(texts)
    )
    return f'<ul class="legend" aria-label="requested share">{entries}</ul>'


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
        else f" {len(result.nodes):,} nodes in {len(rows)} groups of equal shape and similar load; each row is a mean."
    )
    yield f'<p class="soft">Requested share of allocatable, one scale for all maps.{grouped}</p>{heat_legend()}'
    for name in drawn:
        owners = [row for row in rows if any(capacities[node].get(name) for node in row.nodes)]
        without = sum(len(row.nodes) for row in rows if row not in owners)
        note = f' <span class="soft">{without:,} nodes have none</span>' if without else ""
        yield f"<h3>{escape(short_name(name))}{note}</h3>"
        yield f'<div class="scroll">{heat_map(name, owners, result)}</div>'
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
