"""Runs a command in a process of its own with bounds on its memory and its CPU time."""

import gc
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nodewright.cli.app import COMMANDS, load_command, run

MAX_BYTES = 1 << 30
MAX_CPU_S = 20
TRACEBACK = 70
"""Exit code of a command that raised what it should not."""


class LimitedRun(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    """Exit code; negative for a signal: -24 is SIGXCPU."""
    output: str
    max_bytes: int
    """The memory beside that of the process that forked it."""

    @property
    def is_bounded(self) -> bool:
        """Whether it answered within the bounds and without a traceback."""
        return 0 <= self.code < TRACEBACK and self.max_bytes <= MAX_BYTES


@cache
def _import_commands() -> None:
    """Imports all commands once, in the parent of all forks."""
    for name in COMMANDS:
        load_command(name)


def run_limited(arguments: Sequence[str], output: Path) -> LimitedRun:
    """The outcome of a command in a fork of this process; its output goes through the file."""
    _import_commands()
    pid = os.fork()
    if pid == 0:
        code = TRACEBACK
        try:
            # The objects of thousands of tests are none of the command's: its collections would search them all.
            gc.freeze()
            descriptor = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
            resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_S, MAX_CPU_S + 1))
            resource.setrlimit(resource.RLIMIT_AS, (3 * MAX_BYTES, 3 * MAX_BYTES))
            code = run(arguments)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - a fork of the tests must not go on
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    own_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    _, status, usage = os.wait4(pid, 0)
    text = output.read_text("utf-8", "replace")
    # What the tests before have left is the fork's, too.
    return LimitedRun(os.waitstatus_to_exitcode(status), text, (usage.ru_maxrss << 10) - own_bytes)
