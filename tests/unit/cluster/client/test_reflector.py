"""A reflector goes on where its watch broke off, after a pause, and without the objects that cannot be read."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import MemoryCluster

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector
from nodewright.model.kubernetes.recorded_events import RecordEvent

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


class EndingWatches(MemoryCluster):
    """Watches that end in one way as soon as they have begun; lists and watches are counted."""

    def __init__(self, clock: FakeClock, end: str) -> None:
        super().__init__(clock)
        self.end, self.calls = end, list[str]()

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """A list."""
        self.calls.append("list")
        if self.end == "expired list":
            raise ApiError("GET", path, "too old", status=410)
        return await super().read(path, query)

    async def watch(self, path: str, _query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """A watch that ends."""
        self.calls.append("watch")
        if self.end == "event, then expired":
            yield event("ADDED", 5)
        if self.end.endswith("expired"):
            raise ApiError("WATCH", path, "too old", status=410)
        if self.end == "error event":
            yield {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
        if self.end == "malformed error":
            yield {"type": "ERROR", "object": {"code": "x", "message": 5}}


@pytest.mark.parametrize(
    "end",
    ["expired", "event, then expired", "error event", "malformed error", "closed", "expired list"],
)
def test_whatever_ends_at_once_is_tried_again_with_growing_pauses(end: str) -> None:
    async def scenario() -> list[int]:
        clock = FakeClock()
        cluster = EndingWatches(clock, end)
        task = asyncio.create_task(Reflector(cluster, PODS, "", clock).run())
        calls = []
        for _ in range(3):
            await settle()
            await clock.advance(40)
            calls.append(len(cluster.calls))
            cluster.calls.clear()
        task.cancel()
        return calls

    first, second, third = asyncio.run(scenario())
    assert 2 <= first <= 14
    assert second <= 4
    assert 1 <= third <= 4


def readable(name: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"uid": name, "name": name, "resourceVersion": str(version)}}


UNREADABLE: list[Any] = [
    5,
    None,
    "x",
    [],
    {},
    {"metadata": 5},
    {"metadata": {"uid": 5}},
    {"metadata": {"uid": ""}},
    {"metadata": {"uid": "bad", "labels": [1]}},
    {"metadata": {"uid": "bad", "annotations": {"a": 1}}},
    {"metadata": {"uid": "bad", "resourceVersion": 5}},
    {"metadata": {"uid": "bad"}, "spec": 5},
    {"metadata": {"uid": "bad"}, "status": "x"},
    {"metadata": {"uid": "refused"}},
]


def only_those_that_are_not_refused(document: dict[str, Any]) -> dict[str, Any]:
    if document["metadata"]["uid"] == "refused":
        raise KeyError("refused")
    return document


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_an_object_that_cannot_be_read_concerns_no_other(unreadable: Any) -> None:
    class Cluster(BrokenWatches):
        async def read(self, _path: str, _query: Mapping[str, str]) -> dict[str, Any]:
            return {"metadata": {"resourceVersion": "1"}, "items": [readable("a"), unreadable, readable("b")]}

    async def scenario() -> None:
        clock, events = FakeClock(), list[RecordEvent]()
        watch = [{"type": "ADDED", "object": each} for each in (unreadable, unreadable, readable("c", 7))]
        cluster = Cluster(clock, watch)
        reflector = Reflector(cluster, PODS, "", clock)
        reflector.reduce, reflector.record_event = only_those_that_are_not_refused, events.append
        task = asyncio.create_task(reflector.run())
        await settle()
        assert sorted(reflector.objects) == ["a", "b", "c"]
        assert not task.done()
        assert reflector.unreadable == 3
        assert [each.reason for each in events if each.is_warning] == [
            "ObjectNotRead",
            "APIServerUnavailable",
        ]
        await clock.advance(2)
        await settle()
        assert cluster.versions[:2] == ["1", "7"]
        task.cancel()

    asyncio.run(scenario())


def test_an_object_that_can_no_longer_be_read_stays_as_it_was() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        changed = {"metadata": {"uid": "a", "resourceVersion": "3"}, "spec": 5}
        watch = [{"type": "ADDED", "object": readable("a", 2)}, {"type": "MODIFIED", "object": changed}]
        gone = [{"type": "DELETED", "object": {"metadata": {"uid": "a"}, "spec": 5}}]
        reflector = Reflector(BrokenWatches(clock, watch, gone), PODS, "", clock)
        task = asyncio.create_task(reflector.run())
        await settle()
        assert reflector.objects == {"a": readable("a", 2)}
        await clock.advance(2)
        await settle()
        assert reflector.objects == {}
        task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("answer", [{"items": 5}, {"metadata": []}, {"metadata": {"continue": 5}}])
def test_an_answer_that_is_no_list_is_tried_again(answer: dict[str, Any]) -> None:
    class Cluster(MemoryCluster):
        async def read(self, path: str, _query: Mapping[str, str]) -> dict[str, Any]:
            self.reads.append(path)
            return answer

    async def scenario() -> None:
        clock = FakeClock()
        cluster = Cluster(clock)
        reflector = Reflector(cluster, PODS, "", clock)
        task = asyncio.create_task(reflector.run())
        await settle()
        await clock.advance(2)
        await settle()
        assert (len(cluster.reads), task.done(), reflector.has_listed) == (2, False, False)
        task.cancel()

    asyncio.run(scenario())
