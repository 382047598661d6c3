"""Colours of terminals: only on terminals, and only in text that was escaped before.

Severities, verdicts and headers have colours, nothing else; `NO_COLOR` turns them off (no-color.org).
"""

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TextIO

from nodewright.model.patterns import lazy_pattern

_RED, _GREEN, _YELLOW, _CYAN, _BOLD = "31", "32", "33", "36", "1"
_BY_WORD = {
    "error": _RED,
    "Error": _RED,
    "refused": _RED,
    "rejected": _RED,
    "Infeasible": _RED,
    "warning": _YELLOW,
    "undecided": _YELLOW,
    "Deferred": _YELLOW,
    "info": _CYAN,
    "admitted": _GREEN,
    "Done": _GREEN,
}
_VERDICTS = "admitted|refused|rejected|undecided|Deferred|Infeasible|Done"
_WORDS = lazy_pattern(
    r"^(?P<message>error|Error|warning)(?=: )"
    r"|(?<=\d: )(?P<severity>error|warning|info)(?=: )"
    rf"|(?<=: )(?P<verdict>{_VERDICTS})(?= now\b| \(|$)"
    rf"|(?<=   )(?P<cell>{_VERDICTS})(?=   |$)"
    r"|(?P<header>^[A-Z][A-Z0-9_]*(?: [A-Z0-9_]+)*(?: {2,}[A-Z][A-Z0-9_]*(?: [A-Z0-9_]+)*)+$)",
    re.MULTILINE,
)
_DIFF_LINES = lazy_pattern(r"^(?:(?P<old>-.*)|(?P<new>\+.*)|(?P<place>@@.*))$", re.MULTILINE)


class ColourMode(StrEnum):
    """When text has colours."""

    AUTO = "auto"
    """On terminals, unless the environment says no."""
    ALWAYS = "always"
    NEVER = "never"


def has_colours(mode: ColourMode, stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether text on the stream has colours."""
    if mode is not ColourMode.AUTO:
        return mode is ColourMode.ALWAYS
    if environment.get("NO_COLOR") or environment.get("TERM", "") in ("", "dumb"):
        return False
    return stream.isatty()


def coloured(text: str) -> str:
    r"""The text with colours; without them it is the same.

    >>> coloured("shop/web: refused (OutOfcpu)")
    'shop/web: \x1b[31mrefused\x1b[0m (OutOfcpu)'
    """
    if text.startswith(("{", "[", "apiVersion:")):
        return text  # a document for machines
    if text.startswith("--- ") and "\n+++ " in text:
        return _DIFF_LINES.sub(_coloured_diff_line, text)
    return _WORDS.sub(_coloured_word, text)


def _coloured_word(match: re.Match[str]) -> str:
    colour = _BOLD if match["header"] else _BY_WORD[match.group()]
    return f"\x1b[{colour}m{match.group()}\x1b[0m"


def _coloured_diff_line(match: re.Match[str]) -> str:
    colour = _RED if match["old"] else _GREEN if match["new"] else _CYAN
    return f"\x1b[{colour}m{match.group()}\x1b[0m"
