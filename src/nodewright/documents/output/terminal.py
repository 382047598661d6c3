"""Writing to stdout and stderr: the only place in the package that prints text.

Everything passes `printable_text`, on terminals, in pipes and in files alike, so that no text of an input reaches a
terminal or a CI runner raw. Only the progress line, which is ours, has control characters.
"""

import os
import re
import select
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from nodewright.documents.files.regular_files import waiting
from nodewright.model.errors import shortened
from nodewright.model.patterns import lazy_pattern
from nodewright.model.printable import printable, printable_text

if TYPE_CHECKING:
    from nodewright.documents.output.ci_formats import WorkflowCommand


_MAX_MESSAGE_LENGTH = 10_000
_ERASE_LINE = "\r\x1b[K"
_MAX_LOG_BYTES = select.PIPE_BUF
"""A pipe that is ready for writing takes this much at once."""


def print_text(text: str, *, to_stderr: bool = False) -> None:
    """Prints text that has its own line breaks, such as a report."""
    stream = sys.stderr if to_stderr else sys.stdout
    _write(_with_colours(printable_text(text), stream), stream)


def print_line(line: str) -> None:
    """Prints one line on stdout."""
    print_text(f"{printable(line)}\n")


def print_workflow_commands(commands: "Iterable[WorkflowCommand]") -> None:
    """Prints commands for GitHub Actions on stdout: the only lines that CI runners may obey."""
    for command in commands:
        _write(f"{command}\n", sys.stdout)


def print_message(message: str) -> None:
    """Prints a message on stderr, in one line; of one that is very long, its beginning and its end."""
    print_text(f"{printable(shortened(message, _MAX_MESSAGE_LENGTH))}\n", to_stderr=True)


waiting.report = print_message


def print_log_line(line: str) -> None:
    """Prints a line on stderr, or nothing if that fails or would block: a server does not wait for a reader."""
    line = printable_text(printable(line))
    data = line.encode("utf-8", "replace")
    if len(data) >= _MAX_LOG_BYTES:
        line = data[: _MAX_LOG_BYTES - 4].decode("utf-8", "ignore") + "..."
    try:
        if _is_ready(sys.stderr):
            _write(f"{line}\n", sys.stderr)
    except (OSError, ValueError):  # full, closed
        return


def set_colour_mode(mode: "ColourMode") -> None:
    """Decides when text has colours; machine-readable formats set NEVER."""
    _colour_mode[0] = mode


def _with_colours(text: str, stream: TextIO) -> str:
    """The escaped text with colours where people read it."""
    return coloured(text) if has_colours(_colour_mode[0], stream) else text


def terminal_columns(fallback: int = 80) -> int:
    """The columns of the terminal: COLUMNS of the environment, or those of stdout; `fallback` if it is no terminal.

    As shutil.get_terminal_size, which takes long to import.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or fallback  # type: ignore[union-attr]  # None raises as well
    except (AttributeError, ValueError, OSError):  # closed, detached or not a terminal
        return fallback


def show_progress(line: str) -> None:
    """Replaces the progress line on stderr; for terminals only."""
    _write(_ERASE_LINE + printable_text(printable(line)), sys.stderr)


def clear_progress() -> None:
    """Removes the progress line."""
    _write(_ERASE_LINE, sys.stderr)


def _write(text: str, stream: TextIO) -> None:
    if not text.isascii():
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Without an errno: at EPIPE click ends the process with 1.
        raise BrokenPipeError("the reader has closed the pipe") from None


def _is_ready(stream: TextIO) -> bool:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream in memory
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))


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


_colour_mode = [ColourMode.AUTO]


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


YES, ERROR, USAGE, NO, UNSCHEDULABLE = 0, 1, 2, 3, 4
INTERRUPTED = 130
