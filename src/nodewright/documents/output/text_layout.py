"""Text layout: aligned columns as kubectl prints them, frames, and blocks side by side."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap

import msgspec

from nodewright.model.printable import printable


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The headers and rows in columns three spaces apart, without trailing blanks, with a newline at the end.

    Line breaks and control characters in cells are printed as escapes.

    >>> print(table(("NAME", "CPU"), [("web", "250m"), ("db", "1")]), end="")
    NAME   CPU
    web    250m
    db     1
    """
    lines = [tuple(headers), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    padded = (
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "".join(f"{line.rstrip()}\n" for line in padded)


class Glyphs(msgspec.Struct, frozen=True):
    """The characters of frames."""

    corners: str
    """Top left, top right, bottom left, bottom right."""
    across: str
    down: str


ASCII = Glyphs("++++", "-", "|")
UNICODE = Glyphs("┌┐└┘", "─", "│")

FRAME = 4
"""Width of a frame's left and right borders with their padding."""
GAP = 1


def boxed(title: str, lines: Sequence[str], inner: int, glyphs: Glyphs) -> list[str]:
    """The lines in a frame of this inner width, widened for longer lines.

    >>> print(*boxed("NUMA 0", ["0-3"], 9, ASCII), sep=chr(10))
    +- NUMA 0 --+
    | 0-3       |
    +-----------+
    """
    inner = max([inner, len(title) + 1, *map(len, lines)])
    top_left, top_right, bottom_left, bottom_right = tuple(glyphs.corners)
    top = f"{top_left}{glyphs.across} {title} ".ljust(inner + 3, glyphs.across) + top_right
    middle = [f"{glyphs.down} {line.ljust(inner)} {glyphs.down}" for line in lines]
    return [top, *middle, f"{bottom_left}{glyphs.across * (inner + 2)}{bottom_right}"]


def side_by_side(blocks: Sequence[Sequence[str]]) -> list[str]:
    """The blocks next to each other, separated by a blank column."""
    widths = [max(map(len, block), default=0) for block in blocks]
    rows = zip_longest(*blocks, fillvalue="")
    gap = " " * GAP
    return [
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def columns_per_row(count: int, block_width: int, width: int) -> int:
    """The number of blocks in each row: as many as fit into the width, in rows of equal length.

    >>> columns_per_row(8, 30, 100), columns_per_row(8, 30, 140), columns_per_row(3, 200, 80), columns_per_row(0, 30, 80)
    (2, 4, 1, 1)
    """
    columns_in_width = max((width + GAP) // (block_width + GAP), 1)
    return next((number for number in range(min(count, columns_in_width), 0, -1) if count % number == 0), 1)


def wrapped_text(text: str, width: int, start: str = "") -> list[str]:
    """The text in lines of the width, words whole; later lines align with the text after the start.

    After a blank start, which indents, later lines are indented by two more.

    >>> wrapped_text("cpu: 2 requested, 1 of 4 left", 24, "- ")
    ['- cpu: 2 requested, 1 of', '  4 left']
    """
    later = " " * len(start) if start.strip() else f"{start}  "
    return wrap(
        printable(text),
        max(width, len(later) + 20),
        initial_indent=start,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def wrapped(parts: Sequence[str], width: int, *, joint: str, indent: int = 0) -> list[str]:
    """The joined parts, wrapped at the width; later lines are indented.

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
