"""A disk that is a dictionary: what was not synced is lost with the power; and one that takes its time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from nodewright.cluster.tasks.timing import Clock, elapsed_s

T = TypeVar("T")


class SlowDisk:
    """Delays operations outside the loop, until the test ends the delays."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.hurry = asyncio.Event()

    async def __call__(self, doing: Callable[[], T], /) -> T:
        """It takes as long as it takes."""
        await elapsed_s(self.clock, self.hurry.wait(), self.seconds)
        return doing()


class FakeDisk:
    """Files by name; `files` is what is there, `safe` what a power failure leaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """What a file holds."""
        return self.files.get(name)

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The files right in a folder."""
        return tuple(sorted(file for file in self.files if file.rpartition("/")[0] == folder))

    def write(self, name: str, content: bytes) -> None:
        """The file holds this."""
        self.files[name] = content

    def write_at(self, name: str, at: int, content: bytes) -> None:
        """The file holds this from that byte on."""
        self.files[name] = self.files.get(name, b"")[:at] + content

    def rename(self, name: str, to: str) -> None:
        """The file has another name."""
        if name in self.files:
            self.files[to] = self.files.pop(name)

    def remove(self, name: str) -> None:
        """Removes the file."""
        self.files.pop(name, None)

    def sync(self, name: str = "") -> None:
        """It would outlive a power failure."""
        for text in (name,) if name else {*self.files, *self.synced}:
            if text in self.files:
                self.synced[text] = self.files[text]
            else:
                self.synced.pop(text, None)

    def lose_power(self) -> None:
        """What was not synced is as it was before."""
        self.files = dict(self.synced)
