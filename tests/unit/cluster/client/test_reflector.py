"""A reflector goes on where its watch broke off: what is deleted does not appear again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import MemoryCluster

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector

PODS = "/api/v1/pods"


def event(kind: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"uid": "web", "resourceVersion": str(version)}}}


class BrokenWatches(MemoryCluster):
    """Watches that end with an error after their events, as a connection that is reset."""

    def __init__(self, clock: FakeClock, *watches: list[dict[str, Any]]) -> None:
        super().__init__(clock)
        self.watches, self.versions = list(watches), list[str]()

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of the next watch, and its end."""
        self.versions.append(query["resourceVersion"])
        for each in self.watches.pop(0) if self.watches else ():
            yield each
        raise ApiError("WATCH", path, "connection reset")


def test_a_watch_that_breaks_off_is_resumed_after_its_last_event() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        cluster = BrokenWatches(clock, [event("ADDED", 5), event("DELETED", 7)], [event("BOOKMARK", 9)])
        reflector = Reflector(cluster, PODS, "", clock)
        task = asyncio.create_task(reflector.run())
        for _ in range(3):
            await settle()
            await clock.advance(2)
        await settle()
        task.cancel()
        assert cluster.versions[:3] == ["0", "7", "9"]
        assert reflector.objects == {}

    asyncio.run(scenario())
