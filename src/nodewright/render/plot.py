"""Lines over time as a drawing (SVG): what is left, thresholds, what happens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from nodewright.render.amounts import readable
from nodewright.values.duration import Duration

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 30, 16, 34
NICE_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_TICKS = 8
_ROWS = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with the name it goes by, and the class by which it is drawn.

    Units: points in nanoseconds and bytes.
    """

    name: str
    style: str
    points: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Level:
    """An amount that is drawn right across."""

    name: str
    style: str
    amount_bytes: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happens, on a line."""

    at_ns: int
    amount_bytes: int
    style: str
    text: str


@dataclass(frozen=True, slots=True)
class Window:
    """What is shown of time, and how high."""

    from_ns: int
    to_ns: int
    most_bytes: int

    def x(self, at_ns: int) -> float:
        """Where a moment is drawn."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (at_ns - self.from_ns) / max(self.to_ns - self.from_ns, 1)

    def y(self, amount: int) -> float:
        """Where an amount is drawn; nothing is at the bottom."""
        inside = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - inside * max(amount, 0) / max(self.most_bytes, 1)


def plot(
    label: str, window: Window, curves: Sequence[Curve], levels: Sequence[Level], marks: Sequence[Mark]
) -> str:
    """The drawing."""
    head = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" xmlns="http://www.w3.org/2000/svg">'
    )
    inside = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM + 1
    parts = [
        head,
        *_grid(window),
        *(_level(window, one) for one in levels),
        # What is higher than the window is cut off, not drawn along its edge.
        f'<svg x="{LEFT}" y="{TOP}" width="{inside[0]}" height="{inside[1]}" viewBox="{LEFT} {TOP} {inside[0]} {inside[1]}">',
        *(_curve(window, one) for one in curves),
        "</svg>",
        *(_mark(window, one) for one in marks if window.from_ns <= one.at_ns <= window.to_ns),
        "</svg>",
    ]
    return "".join(parts)


def within(points: Sequence[tuple[int, int]], window: Window) -> list[tuple[int, int]]:
    """The part of a line that the window shows, cut at its edges."""
    found: list[tuple[int, int]] = []
    for start, end in pairwise(points):
        if end[0] < window.from_ns or start[0] > window.to_ns:
            continue
        if not found:
            found.append(_between(start, end, max(start[0], window.from_ns)))
        found.append(_between(start, end, min(end[0], window.to_ns)))
    return found


def _between(start: tuple[int, int], end: tuple[int, int], at_ns: int) -> tuple[int, int]:
    if end[0] == start[0]:
        return end
    return at_ns, start[1] + (end[1] - start[1]) * (at_ns - start[0]) // (end[0] - start[0])


def _grid(window: Window) -> Iterator[str]:
    # Steps are powers of two, as people count memory.
    step_bytes = 1 << max((window.most_bytes // _ROWS - 1).bit_length(), 0)
    for row in range(window.most_bytes // step_bytes + 1):
        y = window.y(row * step_bytes)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        amount = readable("memory", row * step_bytes)
        yield f'<text class="end" x="{LEFT - 6}" y="{y + 3.5:.1f}">{amount}</text>'
    span_s = max(window.to_ns - window.from_ns, 1) / 10**9
    step_ns = int(next((one for one in NICE_S if span_s / one <= _TICKS), span_s / _TICKS) * 10**9)
    for number in range(-(-window.from_ns // step_ns), window.to_ns // step_ns + 1):
        x, text = window.x(number * step_ns), Duration(number * step_ns)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{text}</text>'


def _level(window: Window, level: Level) -> str:
    y = window.y(level.amount_bytes)
    return (
        f'<line class="level {level.style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="end" x="{WIDTH - RIGHT - 4}" y="{y - 4:.1f}">{escape(level.name)}</text>'
    )


def _curve(window: Window, curve: Curve) -> str:
    points = " ".join(
        f"{window.x(at):.1f},{window.y(amount):.1f}" for at, amount in within(curve.points, window)
    )
    return f'<polyline class="curve {curve.style}" points="{points}"><title>{escape(curve.name)}</title></polyline>'


def _mark(window: Window, mark: Mark) -> str:
    x, y = window.x(mark.at_ns), window.y(mark.amount_bytes)
    title = f"<title>{escape(mark.text)}</title>"
    if mark.style == "killed":
        return f'<path class="mark killed" d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10">{title}</path>'
    return f'<circle class="mark {mark.style}" cx="{x:.1f}" cy="{y:.1f}" r="4.5">{title}</circle>'
