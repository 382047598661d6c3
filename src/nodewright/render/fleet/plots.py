"""Shares over time and side by side as drawings (SVG)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil

from nodewright.render.fleet.words import seconds

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 14, 30
_TICKS = 8
_DAY_S = 86_400
_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY_S * days for days in (1, 2, 5, 10, 20, 50, 100)),
)
"""Spans that are round to people."""
_ROWS = 4
_MOST_POINTS = 1500
_BAR, _BAR_LABEL, _BAR_NUMBER = 20, 90, 190


@dataclass(frozen=True, slots=True)
class Line:
    """A share over time, which stays as it is until the next point.

    Units: points in seconds, and in parts of 1.
    """

    name: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Bar:
    """A count that has two parts."""

    name: str
    first: int
    second: int


def lines_svg(label: str, lines: Sequence[Line], *, most: int | None = None) -> str:
    """The lines, from nothing to one, over all the time that they have; ``most`` is how many one stands for, if not 100 %."""
    times = [at for line in lines for at, _ in line.points]
    start_s, end_s = min(times), max(times)
    span_s = (end_s - start_s) or 1
    inside = WIDTH - LEFT - RIGHT

    def x(at_s: float) -> float:
        return LEFT + inside * (at_s - start_s) / span_s

    parts = [_head(label, HEIGHT), *_rows(most), *_times(start_s, end_s, x)]
    for line in lines:
        points = " ".join(f"{x(at):.1f},{_y(share):.1f}" for at, share in _steps(_thinned(line.points)))
        parts.append(
            f'<polyline class="curve {line.style}" points="{points}"><title>{escape(line.name)}</title></polyline>'
        )
    return "".join([*parts, "</svg>"])


def bars_svg(label: str, bars: Sequence[Bar]) -> str:
    """The bars below one another, each as long as the page, divided by its parts."""
    height = len(bars) * (_BAR + 6) + 6
    inside = WIDTH - _BAR_LABEL - _BAR_NUMBER
    parts = [_head(label, height)]
    for at, bar in enumerate(bars):
        y = 6 + at * (_BAR + 6)
        whole = bar.first + bar.second
        first = inside * bar.first / whole if whole else 0
        parts.append(
            f'<text class="end" x="{_BAR_LABEL - 8}" y="{y + 14}">{escape(bar.name)}</text>'
            f'<rect class="bar" x="{_BAR_LABEL}" y="{y}" width="{first:.1f}" height="{_BAR}"/>'
            f'<rect class="lost" x="{_BAR_LABEL + first:.1f}" y="{y}" width="{inside - first if whole else 0:.1f}" '
            f'height="{_BAR}"/>'
            f'<text x="{WIDTH - _BAR_NUMBER + 8}" y="{y + 14}">{bar.first:,} + {bar.second:,}</text>'
        )
    return "".join([*parts, "</svg>"])


def _head(label: str, height: int) -> str:
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">'
    )


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(share, 0.0), 1.0)


def _rows(most: int | None) -> Iterator[str]:
    for row in range(_ROWS + 1):
        y = _y(row / _ROWS)
        text = f"{100 * row // _ROWS} %" if most is None else f"{most * row // _ROWS:,}"
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 3.5:.1f}">{text}</text>'


def _times(start_s: float, end_s: float, x: Callable[[float], float]) -> Iterator[str]:
    """A line at each round time."""
    span_s = end_s - start_s
    days = _DAY_S * max(ceil(span_s / (_TICKS * _DAY_S)), 1)
    step = next((one for one in _STEPS_S if span_s / one <= _TICKS), days)
    for tick in range(ceil(start_s / step), int(end_s // step) + 1):
        at = x(tick * step)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="middle" x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}">{seconds(tick * step)}</text>'


def round_top(most: int) -> int:
    """A number not below this one whose quarters are whole and easy to read.

    >>> [round_top(most) for most in (0, 3, 24, 37, 1234)]
    [4, 4, 24, 40, 1600]
    """
    unit = 1
    while True:
        for factor in (1, 2, 3, 4, 5, 6, 8):
            if _ROWS * factor * unit >= most:
                return _ROWS * factor * unit
        unit *= 10


def _steps(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The corners of a line that stays as it is from point to point."""
    last = None
    for at, share in points:
        if last is not None:
            yield at, last
        yield at, share
        last = share


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """No more points than can be seen, the last among them."""
    step = -(-len(points) // _MOST_POINTS)
    return points if step <= 1 else [*points[::step], points[-1]]
