"""A process that takes memory at an exact rate and writes down when, for races against the agent.

It looks itself whether more is left than a threshold, and writes down when that was so for the last time before it was
asked to end. It is run as a file, by itself, so that it starts fast: `python -I -S grower.py SETTINGS`, JSON.
"""

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

CHUNK = 1 << 20
STEP_S, MOST_STEP_S = 0.002, 0.1
REST_S = 0.3
"""Between what it has from the beginning and growing."""
PRIORITY = -10
"""So that others on the machine do not hold up its growth."""


class Grower:
    """Allocates memory as configured, and logs lines `EVENT SECONDS BYTES`, with seconds on the monotonic clock."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.told = document
        self.log = os.open(document["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.memory = mmap.mmap(-1, document["most_bytes"])
        # Large pages, where there are any: so the rate is kept on slow machines, too.
        self.memory.madvise(mmap.MADV_HUGEPAGE)
        self.page, self.has, self.has_crossed = b"x" * CHUNK, 0, False
        self.enough = (time.monotonic(), 0)
        """When there was enough for the last time, as far as is known, and what it had then."""

    def run(self) -> None:
        """Take what it has from the beginning, then grow, then wait."""
        signal.signal(signal.SIGTERM, self.handle_sigterm)
        os.write(self.log, f"PID {time.monotonic():.6f} {os.getpid()}\n".encode())
        while self.has < self.told["already_bytes"]:
            self.allocate()
        time.sleep(REST_S)
        available = _available(self.told)
        self.read_available(available)
        self.write_line("LOST" if self.has_crossed else "START")
        due, last_s = float(self.has), time.monotonic()
        while self.has < self.told["most_bytes"]:
            now_s = time.monotonic()
            # What holds it up for long is not made up for: it never grows much faster than it is to.
            due += min(now_s - last_s, MOST_STEP_S) * self.told["rate"]
            last_s = now_s
            while self.has + CHUNK <= min(due, self.told["most_bytes"]):
                self.allocate()
                self.read_available(available)
            self.write_line("HAS")
            time.sleep(STEP_S)
        while True:
            time.sleep(1)

    def allocate(self) -> None:
        """A little more."""
        self.memory[self.has : self.has + CHUNK] = self.page
        self.has += CHUNK

    def read_available(self, available: Callable[[], int]) -> None:
        """Is there enough still?"""
        if not self.has_crossed:
            looked_s = time.monotonic()
            self.has_crossed = available() < self.told["threshold_bytes"]
            if not self.has_crossed:
                self.enough = looked_s, self.has

    def handle_sigterm(self, number: int, _: object) -> None:
        """Write it down, and end unless it is stubborn."""
        self.write_line("TERM")
        enough_s, had = self.enough
        os.write(self.log, f"ENOUGH {enough_s:.6f} {had}\n".encode())
        if not self.told["is_stubborn"]:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def write_line(self, what: str) -> None:
        """One line."""
        os.write(self.log, f"{what} {time.monotonic():.6f} {self.has}\n".encode())


def main(text: str) -> None:
    """Grow."""
    os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    Grower(json.loads(text)).run()


def _available(document: dict[str, Any]) -> Callable[[], int]:
    """What is left: of the machine, or of a group's limit. The files are named by the harness."""
    files = {name: os.open(place, os.O_RDONLY) for name, place in document["files"].items()}

    def number(name: str, after: bytes = b"") -> int:
        text = b"\n" + os.pread(files[name], 1 << 16, 0)
        start = text.find(b"\n" + after) + 1 + len(after)
        return int(text[start : start + 30].split()[0])

    def of_group() -> int:
        return number("limit") - number("used") + number("stat", document["inactive"].encode())

    def of_machine() -> int:
        total, idle = number("meminfo", b"MemTotal:"), number("meminfo", b"Inactive(file):")
        if "used" in files:
            return total * 1024 - number("used") + idle * 1024
        return (number("meminfo", b"MemFree:") + idle) * 1024

    return of_group if "limit" in files else of_machine


if __name__ == "__main__":
    main(sys.argv[1])
