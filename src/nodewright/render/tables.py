"""Aligned columns as kubectl prints them."""

from collections.abc import Iterable, Sequence


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows below their headers, columns three spaces apart, no trailing blanks, one newline at the end.

    >>> print(table(("NAME", "CPU"), [("web", "250m"), ("db", "1")]), end="")
    NAME   CPU
    web    250m
    db     1
    """
    lines = [tuple(headers), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    padded = (
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
    )
    return "".join(f"{line.rstrip()}\n" for line in padded)
