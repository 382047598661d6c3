"""Frames around lines of text, side by side where the width allows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of frames."""

    corners: str
    """Top left, top right, bottom left, bottom right."""
    across: str
    down: str


ASCII = Glyphs("++++", "-", "|")
UNICODE = Glyphs("┌┐└┘", "─", "│")

FRAME = 4
"""Columns that a frame takes."""
GAP = 1


def framed(title: str, lines: Sequence[str], inner: int, glyphs: Glyphs) -> list[str]:
    """The lines in a frame of this inner width, which is widened for lines that do not fit.

    >>> print(*framed("NUMA 0", ["0-3"], 9, ASCII), sep=chr(10))
    +- NUMA 0 --+
    | 0-3       |
    +-----------+
    """
    inner = max([inner, len(title) + 1, *map(len, lines)])
    top_left, top_right, bottom_left, bottom_right = tuple(glyphs.corners)
    top = f"{top_left}{glyphs.across} {title} ".ljust(inner + 3, glyphs.across) + top_right
    middle = [f"{glyphs.down} {line.ljust(inner)} {glyphs.down}" for line in lines]
    return [top, *middle, f"{bottom_left}{glyphs.across * (inner + 2)}{bottom_right}"]


def beside(blocks: Sequence[Sequence[str]]) -> list[str]:
    """The blocks next to each other, a blank column between them."""
    widths = [max(map(len, block), default=0) for block in blocks]
    rows = zip_longest(*blocks, fillvalue="")
    gap = " " * GAP
    return [
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def columns(count: int, wanted: int, width: int) -> int:
    """How many of `count` blocks of the wanted width go side by side: as many as fit, in rows of equal length.

    >>> columns(8, 30, 100), columns(8, 30, 140), columns(3, 200, 80), columns(0, 30, 80)
    (2, 4, 1, 1)
    """
    fitting = max((width + GAP) // (wanted + GAP), 1)
    return next((number for number in range(min(count, fitting), 0, -1) if count % number == 0), 1)


def wrapped(parts: Sequence[str], width: int, *, joint: str, indent: int = 0) -> list[str]:
    """The parts joined, in lines that are as long as the width allows; later lines are indented.

    >>> wrapped(["0-3", "8-11", "16-19"], 10, joint=",", indent=2)
    ['0-3,8-11,', '  16-19']
    """
    lines, line = [], ""
    for place, part in enumerate(parts):
        piece = part if place == len(parts) - 1 else part + joint
        if line.strip() and len(line) + len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = " " * indent
        line += piece
    return [*lines, line]
