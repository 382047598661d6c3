"""What stderr shows while fleets run: the share of a run, the time left, warnings; and Ctrl-C, which ends the run."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from nodewright.documents.output.terminal import (
    clear_progress,
    print_message,
    show_progress,
    terminal_columns,
)
from nodewright.fleet.capacity import UnschedulablePod, unschedulable_text
from nodewright.fleet.simulation.fleet_simulation import Progress
from nodewright.fleet.workload import duration_text

_MAX_WARNINGS = 20
_PROGRESS_INTERVAL_S = 0.2
_MIN_ELAPSED_S = 2.0
"""Before that, the time left is not estimated."""


def _is_terminal() -> bool:
    return sys.stderr.isatty()


@dataclass(slots=True)
class RunProgress:
    """Progress and warnings on stderr while a fleet runs, and whether the user has interrupted it."""

    is_shown: bool = field(default_factory=_is_terminal)
    expected: int | None = None
    """Number of pods that arrive in a run; None: not known."""
    unschedulable_kinds: int = 0
    """Number of kinds of pods that no node can ever hold."""
    is_interrupted: bool = False
    _run: tuple[str, int, int] = ("", 1, 1)
    """The name of the run, its number and the number of runs."""
    _warned: set[str] = field(default_factory=set)
    _started_s: float = field(default_factory=time.monotonic)
    _last_s: float = 0.0
    _is_dirty: bool = False

    def start_run(self, name: str, number: int, count: int) -> None:
        """Notes which of several runs begins."""
        self._run = (name, number, count)

    def warn_unschedulable(self, unschedulable: UnschedulablePod) -> None:
        """Warns that no node can ever hold a pod: each kind once, and only the first of many kinds."""
        if unschedulable.pod.full_name in self._warned:
            return
        self._warned.add(unschedulable.pod.full_name)
        self.unschedulable_kinds += 1
        if self.unschedulable_kinds <= _MAX_WARNINGS:
            self.clear_progress_line()
            print_message(f"warning: {unschedulable_text(unschedulable)}")
        elif self.unschedulable_kinds == _MAX_WARNINGS + 1:
            print_message("warning: and further kinds of pods that no node can ever hold")

    def show_progress(self, progress: Progress) -> bool:
        """Shows the progress on a terminal; False after Ctrl-C."""
        now_s = time.monotonic()
        if self.is_shown and now_s - self._last_s >= _PROGRESS_INTERVAL_S:
            self._last_s = now_s
            self._show(self.line(progress, now_s - self._started_s))
        return not self.is_interrupted

    def line(self, progress: Progress, elapsed_s: float) -> str:
        """The progress after so many seconds: the run, its share, the time left of all runs, and the counts of pods."""
        name, number, count = self._run
        parts = [f"run {number} of {count}{name and f' ({name})'}"] if count > 1 else []
        if self.expected:
            share = min(progress.arrived / self.expected, 1.0)
            parts.append(f"{share:.0%} of the pods arrived")
            parts += _time_left((number - 1 + share) / count, elapsed_s)
        parts.append(
            f"{duration_text(progress.at_s)} of virtual time: {progress.arrived:,} arrived, "
            f"{progress.running:,} running, {progress.waiting:,} waiting"
        )
        return ", ".join(parts)

    def show_finished_runs(self, number: int, count: int) -> None:
        """Shows on a terminal how many of several concurrent runs are finished."""
        if self.is_shown:
            left = _time_left(number / count, time.monotonic() - self._started_s)
            self._show(", ".join((f"{number} of {count} runs finished", *left)))

    def _show(self, line: str) -> None:
        self._is_dirty = True
        show_progress(line[: terminal_columns() - 1])  # a line that wraps is not erased

    def clear_progress_line(self) -> None:
        """Removes the progress line."""
        if self._is_dirty:
            clear_progress()
            self._is_dirty = False


def _time_left(share: float, elapsed_s: float) -> list[str]:
    if not 0 < share < 1 or elapsed_s < _MIN_ELAPSED_S:
        return []
    return [f"about {duration_text(round(elapsed_s / share - elapsed_s))} left"]


@contextmanager
def interrupts_noted(progress: RunProgress) -> Iterator[None]:
    """Within this context, a first Ctrl-C sets `is_interrupted`; a second one ends the command."""
    previous = signal.getsignal(signal.SIGINT)

    def set_interrupted(number: int, frame: FrameType | None) -> None:
        del number, frame
        progress.is_interrupted = True
        signal.signal(signal.SIGINT, previous)

    is_installed = threading.current_thread() is threading.main_thread() and callable(previous)
    if is_installed:
        signal.signal(signal.SIGINT, set_interrupted)
    try:
        yield
    finally:
        if is_installed:
            signal.signal(signal.SIGINT, previous)
        progress.clear_progress_line()
