"""A node's memory, disks and files that are what a test says."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from nodewright.core.eviction import Filesystems
from nodewright.model.objects import Pod
from nodewright.model.usage import NodeUse, PodReference, PodUse
from nodewright.testing.usage import a_reading
from nodewright.world.errors import WorldError
from nodewright.world.ports import THRESHOLD

T = TypeVar("T")


async def at_once(doing: Callable[[], T], /) -> T:
    """Do it here and now."""
    return doing()


class FakeGauges:
    """Shows what `show` was told."""

    def __init__(self) -> None:
        self._use = a_reading().node
        self.filesystems = Filesystems()
        self.error = ""
        self.reads = 0

    def show(self, **signals: str) -> None:
        """From now on there is so much, as `a_reading` takes it."""
        self._use = a_reading(at_s=None, **signals).node

    def now(self) -> NodeUse:
        """Memory and processes."""
        self.reads += 1
        if self.error:
            raise WorldError("read", "/proc/meminfo", self.error)
        return replace(self._use, fs=None, runtime=None)

    def disks(self) -> tuple[NodeUse, Filesystems]:
        """The disks."""
        return NodeUse(fs=self._use.fs, runtime=self._use.runtime), self.filesystems


class FakeStorage:
    """Pods hold what they are said to, by uid."""

    def __init__(self) -> None:
        self.uses: dict[str, PodUse] = {}

    def of(self, pod: Pod) -> PodUse:
        """What it was said to hold."""
        return self.uses.get(pod.uid, PodUse(pod_ref=PodReference(uid=pod.uid)))


class FakeAlarms:
    """Rings when it is told to."""

    def __init__(self) -> None:
        self.threshold_bytes: int | None = None
        self._rings: asyncio.Queue[str] = asyncio.Queue()

    def rings(self, name: str = THRESHOLD) -> None:
        """Now."""
        self._rings.put_nowait(name)

    def arm(self, threshold_bytes: int | None) -> None:
        """Ring at so many bytes, if somebody cared."""
        self.threshold_bytes = threshold_bytes

    async def ring(self) -> str:
        """Wait for it."""
        return await self._rings.get()

    def close(self) -> None:
        """There is nothing to close."""
