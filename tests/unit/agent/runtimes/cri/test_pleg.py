"""When the runtime is asked for all containers: after each event, until its state is what the event said."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri import containerd_pb2 as containerd
from nodewright.agent.runtimes.cri import pleg
from nodewright.agent.runtimes.cri.channel import CRIChannel
from nodewright.agent.runtimes.cri.pleg import (
    ContainerEventSource,
    PodLifecycleEventGenerator,
    RelistedState,
    container_change,
    pause_after,
)


def an_event(topic: str, container_id: str, id_: str = "") -> containerd.Envelope:
    value = containerd.TaskEvent(container_id=container_id, id=id_).SerializeToString()
    return containerd.Envelope(topic=f"/tasks/{topic}", event=containerd.Event(value=value))


class Runtime(CRIChannel):
    """Shows the end of container `a` from a certain list on."""

    def __init__(self, ends_at: int = 10**9) -> None:
        super().__init__("/none")
        self.events: asyncio.Queue[object] = asyncio.Queue()
        self.lists, self._ends_at = 0, ends_at
        self._has_listed = asyncio.Condition()

    async def stream(self, *_: object) -> AsyncIterator[object]:  # type: ignore[override]  # of one kind only
        while True:
            yield await self.events.get()

    async def relist(self) -> Mapping[str, Sequence[RelistedState]]:
        async with self._has_listed:
            self.lists += 1
            self._has_listed.notify_all()
        runs = self.lists < self._ends_at
        return {"pod": [RelistedState("a", 1 if runs else 2, runs)]}

    async def listed(self, times: int) -> None:
        """Returns once there were so many lists."""
        async with self._has_listed:
            await self._has_listed.wait_for(lambda: self.lists >= times)


@asynccontextmanager
async def followed(runtime: Runtime) -> AsyncIterator[list[str]]:
    """The changes that are seen while the runtime is followed, from after the first list."""
    generator = PodLifecycleEventGenerator(runtime, runtime.relist, ContainerEventSource.CONTAINERD)
    changes: list[str] = []
    has_changed = asyncio.Event()

    async def collect() -> None:
        async for uid in generator.changes():
            changes.append(uid)
            has_changed.set()

    task = asyncio.create_task(collect())
    await has_changed.wait()
    changes.clear()
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(test: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_lists_follow_each_other_until_the_runtime_shows_what_its_event_said() -> None:
    async def test() -> None:
        runtime = Runtime(ends_at=4)
        async with followed(runtime) as changes:
            runtime.events.put_nowait(an_event("exit", "a", "a"))
            await runtime.listed(4)
            await asyncio.sleep(0.1)
            assert (runtime.lists, changes) == (4, ["pod"])

    run(test())


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
    async def test() -> None:
        runtime = Runtime()
        async with followed(runtime) as changes:
            runtime.events.put_nowait(event)
            await runtime.listed(lists)
            await asyncio.sleep(0.1)
            assert (runtime.lists, changes) == (lists, [])

    run(test())


def test_a_runtime_that_never_shows_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pleg, "_CONFIRMATION_S", 0.1)

    async def test() -> None:
        runtime, before = Runtime(), 0
        async with followed(runtime):
            runtime.events.put_nowait(an_event("exit", "a", "a"))
            await runtime.listed(4)
            while before != runtime.lists:
                before = runtime.lists
                await asyncio.sleep(0.2)

    run(test())


@pytest.mark.parametrize(
    ("relist_s", "listed", "pause_s"),
    [(0.005, 400, 0.0), (0.02, 400, 0.08), (1.0, 400, 0.2), (1.0, 20, 0.0), (0.0, 0, 0.0)],
)
def test_long_lists_of_many_pods_are_followed_by_a_pause_and_those_that_wait_for_others_are_not(
    relist_s: float, listed: int, pause_s: float
) -> None:
    assert pause_after(relist_s, listed) == pytest.approx(pause_s)


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


@pytest.mark.parametrize("turns", range(8))
def test_a_cancellation_at_the_moment_of_an_event_ends_it(turns: int) -> None:
    """Turns of the event loop between both: before Python 3.12, `asyncio.wait_for` loses some of them."""

    async def run() -> None:
        runtime = Runtime()
        generator = PodLifecycleEventGenerator(runtime, runtime.relist, ContainerEventSource.CONTAINERD)

        async def collect() -> None:
            async for _ in generator.changes():
                pass

        task = asyncio.create_task(collect())
        await runtime.listed(1)
        await asyncio.sleep(0.05)
        runtime.events.put_nowait(an_event("oom", "a"))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        _, pending = await asyncio.wait([task], timeout=30)
        assert not pending

    asyncio.run(run())
