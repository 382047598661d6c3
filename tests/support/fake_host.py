"""A node's memory, disks and files that are what a test says."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from nodewright.agent.host.ports import THRESHOLD_NOTIFICATION
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import NodeStats, PodReference, PodStats
from nodewright.testing.usage import a_reading

T = TypeVar("T")


async def run_inline(doing: Callable[[], T], /) -> T:
    """Do it here and now."""
    return doing()


class FakeMemoryReadings:
    """Returns the values that were set with `show`."""

    def __init__(self) -> None:
        self._use = a_reading().node
        self.filesystems = NodeFilesystems()
        self.error = ""
        self.reads = 0

    def set_readings(self, **signals: str) -> None:
        """From now on there is so much, as `a_reading` takes it."""
        self._use = a_reading(at_s=None, **signals).node

    def node_stats(self) -> NodeStats:
        """Memory and processes."""
        self.reads += 1
        if self.error:
            raise HostError("read", "/proc/meminfo", self.error)
        return replace(self._use, fs=None, runtime=None)

    def filesystem_stats(self) -> tuple[NodeStats, NodeFilesystems]:
        """The disks."""
        return NodeStats(fs=self._use.fs, runtime=self._use.runtime), self.filesystems


class FakeLocalStorage:
    """Pods hold what they are said to, by uid."""

    def __init__(self) -> None:
        self.uses: dict[str, PodStats] = {}

    def pod_usage(self, pod: Pod) -> PodStats:
        """What it was said to hold."""
        return self.uses.get(pod.uid, PodStats(pod_ref=PodReference(uid=pod.uid)))


class FakePressureEvents:
    """An alarm that the test triggers."""

    def __init__(self) -> None:
        self.threshold_bytes: int | None = None
        self._rings: asyncio.Queue[str] = asyncio.Queue()

    def trigger(self, name: str = THRESHOLD_NOTIFICATION) -> None:
        """Now."""
        self._rings.put_nowait(name)

    def set_threshold(self, threshold_bytes: int | None) -> None:
        """Triggers the alarm at this number of bytes, if it is armed."""
        self.threshold_bytes = threshold_bytes

    async def wait(self) -> str:
        """Wait for it."""
        return await self._rings.get()

    def close(self) -> None:
        """There is nothing to close."""
