"""The progress line of commands that read or judge many objects; on terminals only."""

import sys
import time
from types import TracebackType
from typing import Self

from nodewright.documents.output.terminal import clear_progress, show_progress, terminal_columns

_INTERVAL_S = 0.1
_DELAY_S = 0.5
"""What takes less has no progress line."""


class ReadProgressLine:
    """A line on stderr that is replaced as the work proceeds, and removed at its end."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next_s = time.monotonic() + _DELAY_S
        self._is_dirty = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_dirty:
            clear_progress()

    def show(self, text: str) -> None:
        """Shows the text, unless another one was shown a moment ago."""
        if not self._is_shown or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _INTERVAL_S
        self._is_dirty = True
        show_progress(text[: terminal_columns() - 1])  # a line that wraps is not erased
