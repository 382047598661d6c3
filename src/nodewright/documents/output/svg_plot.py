"""Curves over time as an SVG drawing, with threshold lines and event marks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.model.kubernetes.resource_names import readable_amount

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
