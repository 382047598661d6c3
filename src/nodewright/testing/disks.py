"""A disk that is a dictionary: what was not synced is lost with the power; and one that takes its time."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from nodewright.agent.timing import timed
from nodewright.world.ports import Clock

T = TypeVar("T")


class SlowDisk:
    """Does what is done beside the loop after so long, until it is told to hurry: then at once."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds
        self.hurry = asyncio.Event()

    async def __call__(self, doing: Callable[[], T], /) -> T:
        """It takes as long as it takes."""
        await timed(self.clock, self.hurry.wait(), self.seconds)
        return doing()


class FakeDisk:
    """Files by name; `files` is what is there, `safe` what a power failure leaves."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.safe: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        """What a file holds."""
        return self.files.get(name)

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The files right in a folder."""
        return tuple(sorted(one for one in self.files if one.rpartition("/")[0] == folder))

    def write(self, name: str, content: bytes) -> None:
        """The file holds this."""
        self.files[name] = content

    def put(self, name: str, at: int, content: bytes) -> None:
        """The file holds this from that byte on."""
        self.files[name] = self.files.get(name, b"")[:at] + content

    def rename(self, name: str, to: str) -> None:
        """The file has another name."""
        if name in self.files:
            self.files[to] = self.files.pop(name)

    def remove(self, name: str) -> None:
        """The file is gone."""
        self.files.pop(name, None)

    def sync(self, name: str = "") -> None:
        """It would outlive a power failure."""
        for one in (name,) if name else {*self.files, *self.safe}:
            if one in self.files:
                self.safe[one] = self.files[one]
            else:
                self.safe.pop(one, None)

    def lose_power(self) -> None:
        """What was not synced is as it was before."""
        self.files = dict(self.safe)
