"""Self-contained HTML pages: their skeleton and styles, tables, and plots of time series as SVG with legends."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from html import escape
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.printable import printable_text

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5c6370; --line: #c9ced6; --panel: #f5f6f8;
  --yes: #17683a; --no: #b3261e; --warn: #8a5300; --light: 78%; --text: #16181b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181c; --soft: #a0a7b3; --line: #3d434d;
  --panel: #1f2228; --yes: #6fcf97; --no: #ff8a80; --warn: #f2b35c; --light: 38%; --text: #f2f4f6; } }
* { box-sizing: border-box } body { margin: 0 auto; padding: 1.5rem; max-width: 1140px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem } .soft { color: var(--soft) }
.scroll { overflow-x: auto } svg { display: block; max-width: 100%; height: auto }
svg text { font: 10px ui-monospace, monospace; fill: var(--ink) } svg .title { fill: var(--soft) }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0 }
.yes { color: var(--yes) } .no { color: var(--no) } .warning { color: var(--warn) }
:focus-visible { outline: 2px solid hsl(212 80% 55%); outline-offset: 2px }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: .6rem; color: var(--soft); font-size: .85rem }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: 0 }
footer dd { margin: 0; overflow-wrap: anywhere }
@media print { body { max-width: none } }
"""

TABLE_STYLE = """
table { border-collapse: collapse } td, th { text-align: left; padding: .15rem .9rem .15rem 0; vertical-align: top }
caption { text-align: left; color: var(--soft) } summary { cursor: pointer }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
"""

PLOT_STYLE = (
    TABLE_STYLE
    + """
:root { --c0: #1f5fbf; --c1: #b3541e; --c2: #17683a; --c3: #7a3fa0 } @media (prefers-color-scheme: dark) { :root {
  --c0: #7fb0ff; --c1: #f2a46b; --c2: #6fcf97; --c3: #c79bf0 } }
.grid { stroke: var(--line); stroke-width: .5 } svg .end { text-anchor: end } svg .middle { text-anchor: middle }
.curve { fill: none; stroke-width: 2 } .c0 { stroke: var(--c0) } .c1 { stroke: var(--c1); stroke-dasharray: 7 3 }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3 } .c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3 }
.scroll > svg { width: 100%; min-width: 720px } .scroll > svg text { font-size: 12px }
.legend svg { display: inline-block; vertical-align: middle; margin-right: .4em }
"""
)


class PageOrigin(msgspec.Struct, frozen=True):
    """What made a page, so that a reader can make it again."""

    command: str
    version: str
    """The version of nodewright."""
    date: str

    def footer(self, more: Iterable[tuple[str, str]] = ()) -> str:
        """The facts as a footer; ``more`` are further facts, each a name and a text."""
        facts = (("Command", self.command), ("Version", self.version), *more, ("Date", self.date))
        items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts if text)
        return f"<footer><dl>{items}</dl></footer>"


def html_page(
    *,
    title: str,
    heading: str,
    header: Iterable[str],
    sections: Iterable[str],
    style: str = "",
    footer: str = "",
) -> str:
    """A page without scripts and external resources; its policy lets a browser use nothing but its own style.

    ``title`` and ``heading`` are plain text; ``header``, ``sections`` and ``footer`` are HTML; ``style`` adds to the shared style.
    """
    style = printable_text(f"{STYLE}{style}")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style>'
        f"</head><body><header><h1>{escape(heading)}</h1>{''.join(header)}</header><main>"
    )
    return printable_text("\n".join([head, *sections, f"</main>{footer}</body></html>\n"]))


def curve_legend(curves: Iterable[tuple[str, str]], more: Iterable[str] = (), *, label: str = "") -> str:
    """A legend of curves, given as name and CSS class; ``more`` are further HTML entries."""
    entries = [
        f'<svg width="34" height="10" aria-hidden="true"><line class="curve {style}" x1="0" x2="34" y1="5" y2="5"/>'
        f"</svg>{escape(name)}"
        for name, style in curves
    ]
    items = "".join(f"<li>{entry}</li>" for entry in (*entries, *more))
    named = f' aria-label="{escape(label)}"' if label else ""
    return f'<ul class="legend"{named}>{items}</ul>'


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int = 0) -> str:
    """A table of plain text cells; the last ``numbers`` columns are aligned right."""
    first_number = len(headers) - numbers

    def cells(row: Sequence[str], tag: str) -> str:
        styles = (' class="number"' if index >= first_number else "" for index in range(len(row)))
        return "".join(
            f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(row, styles, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells(headers, "th")}</tr>{body}</table></div>'


WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 16, 34
_DAY_S = 86_400
TICK_INTERVALS_S = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 20, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY_S * days for days in (1, 2, 5, 10, 20, 50, 100)),
)
_TICKS = 8
_ROWS = 4

PlotTicks: TypeAlias = Sequence[tuple[int, str]]
"""Values on an axis with their labels."""


class PlotGrid(NamedTuple):
    """The labelled grid lines of a plot."""

    times: PlotTicks
    amounts: PlotTicks


class PlotCurve(msgspec.Struct, frozen=True):
    """A named curve with its CSS class.

    Units: points in nanoseconds and amounts.
    """

    name: str
    style: str
    points: Sequence[tuple[int, int]]


class PlotLevel(msgspec.Struct, frozen=True):
    """An amount drawn as a horizontal line."""

    name: str
    style: str
    amount: int


class PlotMark(msgspec.Struct, frozen=True):
    """An event at a point of a curve."""

    at_ns: int
    amount: int
    style: str
    text: str


class PlotWindow(msgspec.Struct, frozen=True):
    """The visible time range and the largest visible amount."""

    from_ns: int
    to_ns: int
    max_amount: int

    def x(self, at_ns: int) -> float:
        """The horizontal coordinate of a time."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (at_ns - self.from_ns) / max(self.to_ns - self.from_ns, 1)

    def y(self, amount: int) -> float:
        """The vertical coordinate of an amount; zero is at the bottom."""
        inside = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - inside * max(amount, 0) / max(self.max_amount, 1)


def plot(
    label: str,
    window: PlotWindow,
    grid: PlotGrid,
    curves: Sequence[PlotCurve],
    levels: Sequence[PlotLevel] = (),
    marks: Sequence[PlotMark] = (),
) -> str:
    """The drawing as an SVG element."""
    inside = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 1
    parts = [
        *_grid(window, grid),
        *(_level(window, level) for level in levels),
        # The inner element clips curves at the window's edges.
        f'<svg x="{LEFT}" y="{TOP}" width="{inside[0]}" height="{inside[1]}" viewBox="{LEFT} {TOP} {inside[0]} {inside[1]}">',
        *(_curve(window, curve) for curve in curves),
        "</svg>",
        *(_mark(window, mark) for mark in marks if window.from_ns <= mark.at_ns <= window.to_ns),
    ]
    return svg_element(label, HEIGHT, parts)


def svg_element(label: str, height: int, parts: Iterable[str]) -> str:
    """An SVG element of the plots' width with an accessible label."""
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def round_time_ticks(window: PlotWindow, text: Callable[[int], str]) -> PlotTicks:
    """The round times of the window, at most eight; ``text`` labels a time in nanoseconds."""
    span_s = max(window.to_ns - window.from_ns, 1) / 10**9
    days_s = _DAY_S * max(ceil(span_s / (_TICKS * _DAY_S)), 1)
    step_s = next((interval for interval in TICK_INTERVALS_S if span_s / interval <= _TICKS), days_s)
    step_ns = int(step_s * 10**9)
    numbers = range(-(-window.from_ns // step_ns), window.to_ns // step_ns + 1)
    return [(number * step_ns, text(number * step_ns)) for number in numbers]


def memory_ticks(window: PlotWindow) -> PlotTicks:
    """Amounts of memory in steps of a power of two."""
    step_bytes = 1 << max((window.max_amount // _ROWS - 1).bit_length(), 0)
    amounts = range(0, window.max_amount + 1, step_bytes)
    return [(amount, readable_amount("memory", amount)) for amount in amounts]


def quarter_ticks(window: PlotWindow, text: Callable[[int], str]) -> PlotTicks:
    """The quarters of the largest amount; ``text`` labels a number of quarters."""
    return [(window.max_amount * row // _ROWS, text(row)) for row in range(_ROWS + 1)]


def clipped(points: Sequence[tuple[int, int]], window: PlotWindow) -> list[tuple[int, int]]:
    """The part of a curve inside the window, cut at its edges."""
    visible: list[tuple[int, int]] = []
    for start, end in pairwise(points):
        if end[0] < window.from_ns or start[0] > window.to_ns:
            continue
        if not visible:
            visible.append(_between(start, end, max(start[0], window.from_ns)))
        visible.append(_between(start, end, min(end[0], window.to_ns)))
    return visible


def _between(start: tuple[int, int], end: tuple[int, int], at_ns: int) -> tuple[int, int]:
    if end[0] == start[0]:
        return end
    return at_ns, start[1] + (end[1] - start[1]) * (at_ns - start[0]) // (end[0] - start[0])


def _grid(window: PlotWindow, grid: PlotGrid) -> Iterator[str]:
    for amount, text in grid.amounts:
        y = window.y(amount)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 3.5:.1f}">{escape(text)}</text>'
    for at_ns, text in grid.times:
        x = window.x(at_ns)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{escape(text)}</text>'


def _level(window: PlotWindow, level: PlotLevel) -> str:
    y = window.y(level.amount)
    return (
        f'<line class="level {level.style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="end" x="{WIDTH - RIGHT - 4}" y="{y - 4:.1f}">{escape(level.name)}</text>'
    )


def _curve(window: PlotWindow, curve: PlotCurve) -> str:
    points = " ".join(
        f"{window.x(at):.1f},{window.y(amount):.1f}" for at, amount in clipped(curve.points, window)
    )
    return f'<polyline class="curve {curve.style}" points="{points}"><title>{escape(curve.name)}</title></polyline>'


def _mark(window: PlotWindow, mark: PlotMark) -> str:
    x, y = window.x(mark.at_ns), window.y(mark.amount)
    title = f"<title>{escape(mark.text)}</title>"
    if mark.style == "killed":
        return f'<path class="mark killed" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10">{title}</path>'
    return f'<circle class="mark {mark.style}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">{title}</circle>'
