"""When the runtime is asked for all containers: after each event, until its state is what the event said."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from nodewright.runtimes.cri import api_pb2 as cri
from nodewright.runtimes.cri import containerd_pb2 as containerd
from nodewright.runtimes.cri import pleg
from nodewright.runtimes.cri.channel import CRIChannel
from nodewright.runtimes.cri.pleg import (
    ContainerEventSource,
    PodLifecycleEventGenerator,
    RelistedState,
    container_change,
)


def an_event(topic: str, container_id: str, id_: str = "") -> containerd.Envelope:
    value = containerd.TaskEvent(container_id=container_id, id=id_).SerializeToString()
    return containerd.Envelope(topic=f"/tasks/{topic}", event=containerd.Event(value=value))


class Runtime(CRIChannel):
    """Shows the end of container `a` in the third list after its event."""

    def __init__(self) -> None:
        super().__init__("/none")
        self.events: asyncio.Queue[object] = asyncio.Queue()
        self.lists = 0
        self.ends_at = 10**9
        self.has_listed_often = asyncio.Event()

    async def stream(self, *_: object) -> AsyncIterator[object]:  # type: ignore[override]  # of one kind only
        while True:
            yield await self.events.get()

    async def relist(self) -> Mapping[str, Sequence[RelistedState]]:
        self.lists += 1
        if self.lists > 3:
            self.has_listed_often.set()
        runs = self.lists < self.ends_at
        return {"pod": [RelistedState("a", 1 if runs else 2, runs)]}


async def changes_after(runtime: Runtime, event: object, wait_s: float) -> int:
    """The number of changes that are seen within a time after an event, besides the first list."""
    generator = PodLifecycleEventGenerator(runtime, runtime.relist, ContainerEventSource.CONTAINERD)
    changes = 0

    async def count() -> None:
        nonlocal changes
        async for _ in generator.changes():
            changes += 1

    task = asyncio.create_task(count())
    await asyncio.sleep(0.01)
    assert (runtime.lists, changes) == (1, 1)
    runtime.events.put_nowait(event)
    try:
        await asyncio.sleep(wait_s)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return changes - 1


def test_lists_follow_each_other_until_the_runtime_shows_what_its_event_said() -> None:
    async def run() -> None:
        runtime = Runtime()
        runtime.ends_at = 4
        assert await changes_after(runtime, an_event("exit", "a", "a"), 0.5) == 1
        assert runtime.lists == 4

    asyncio.run(run())


@pytest.mark.parametrize(
    ("event", "lists"),
    [
        (an_event("start", "a"), 2),
        (an_event("exit", "unknown", "unknown"), 2),
        (an_event("oom", "a"), 2),
        (an_event("exit", "a", "probe"), 1),
    ],
)
def test_an_event_that_agrees_costs_a_list_and_that_of_a_command_none(
    event: containerd.Envelope, lists: int
) -> None:
    async def run() -> None:
        runtime = Runtime()
        assert await changes_after(runtime, event, 0.2) == 0
        assert runtime.lists == lists

    asyncio.run(run())


def test_a_runtime_that_never_shows_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pleg, "_CONFIRMATION_S", 0.1)

    async def run() -> None:
        runtime = Runtime()
        task = asyncio.create_task(changes_after(runtime, an_event("exit", "a", "a"), 60))
        await runtime.has_listed_often.wait()
        before = 0
        while before != runtime.lists:
            before = runtime.lists
            await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_events_of_cri_name_the_state() -> None:
    kinds = (
        (cri.CONTAINER_STARTED_EVENT, True),
        (cri.CONTAINER_STOPPED_EVENT, False),
        (cri.CONTAINER_CREATED_EVENT, None),
    )
    for kind, runs in kinds:
        event = cri.ContainerEventResponse(container_id="a", container_event_type=kind)
        assert container_change(event) == ("a", runs)
    start_with_pid = containerd.Envelope(
        topic="/tasks/start", event=containerd.Event(value=b"\n\x01a\x10\x07")
    )
    assert container_change(start_with_pid) == ("a", True)
    broken = containerd.Envelope(topic="/tasks/start", event=containerd.Event(value=b"\n\xff"))
    assert container_change(broken) == ("", None)
