"""Shares over time and side by side as drawings (SVG)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from nodewright.render.fleet.words import seconds

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 14, 30
_TICKS = 6
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


def lines_svg(label: str, lines: Sequence[Line]) -> str:
    """The lines, from nothing to one, over all the time that they have."""
    times = [at for line in lines for at, _ in line.points]
    start_s, end_s = min(times), max(times)
    span_s = (end_s - start_s) or 1
    inside = WIDTH - LEFT - RIGHT

    def x(at_s: float) -> float:
        return LEFT + inside * (at_s - start_s) / span_s

    parts = [_head(label, HEIGHT), *_grid(start_s, span_s, inside)]
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


def _grid(start_s: float, span_s: float, inside: int) -> Iterator[str]:
    for row in range(_ROWS + 1):
        y = _y(row / _ROWS)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 3.5:.1f}">{100 * row // _ROWS} %</text>'
    for tick in range(_TICKS + 1):
        x = LEFT + inside * tick / _TICKS
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        text = seconds(start_s + span_s * tick / _TICKS)
        yield f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{text}</text>'


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
