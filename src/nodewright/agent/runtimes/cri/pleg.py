"""Pod lifecycle events: from the runtime's event stream where it has one, otherwise from periodic relists."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri import containerd_pb2 as containerd
from nodewright.agent.runtimes.cri.channel import (
    GET_CONTAINER_EVENTS,
    READ_TIMEOUT_S,
    CRIChannel,
    RuntimeCall,
)
from nodewright.model.errors import HostError

CONTAINERD_EVENTS = RuntimeCall(
    containerd.SubscribeRequest, containerd.Envelope, READ_TIMEOUT_S, "/containerd.services.events.v1.Events/"
)
"""containerd's own event stream, on the same socket."""

RELIST_PERIOD_S, EVENTED_RELIST_PERIOD_S = 1.0, 10.0
"""Relist periods without and with an event stream."""

_FIRST_DELAY_S, _LAST_DELAY_S, _CONFIRMATION_S = 0.005, 0.02, 1.0
"""Pauses between relists until the runtime's state is what its events say, and how long that is waited for."""
_LONG_RELIST_S, _PAUSE_FACTOR, _MAX_PAUSE_S = 0.01, 4, 0.2
"""From which time on a relist is followed by a pause, as a multiple of the time that it took."""
_LISTED_S = 0.0002
"""What each sandbox and container adds to a relist at most: what lasts longer waits for others, and needs no pause."""
_START, _EXIT = "/tasks/start", "/tasks/exit"
_TASK_EVENTS = 'namespace=="k8s.io",topic~="^/tasks/(start|exit|oom)$"'


class ContainerEventSource(StrEnum):
    """The event stream that is used."""

    CRI = "GetContainerEvents"
    CONTAINERD = "containerd"
    NONE = ""


class RelistedState(NamedTuple):
    """The state of a sandbox or container in a list."""

    id: str
    state: int
    runs: bool


Relist = Callable[[], Awaitable[Mapping[str, Sequence[RelistedState]]]]


class PodLifecycleEventGenerator:
    """Reports which pods have changed, by ``relist``: the state of each pod, by uid.

    The runtime's own state may be a moment behind its events: relists follow each other until it has caught up.
    """

    def __init__(self, channel: CRIChannel, relist: Relist, event_source: ContainerEventSource) -> None:
        self._channel, self._relist, self._event_source = channel, relist, event_source
        self._has_event = asyncio.Event()
        self._is_streaming = False
        self._unconfirmed: dict[str, bool] = {}
        """By id of a sandbox or container whether it runs, as events say and lists do not."""
        self._delay_s = self._confirmed_until_s = 0.0
        self._relist_s = 0.0
        """How long the last relist took."""
        self.on_relist: Callable[[float, float, float | None], None] = ignore_relist
        """Gets the time of each relist (since 1970), its duration, and the time since the one before, if any."""
        self._relisted_s: float | None = None

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod that has changed since the last relist; at first, of every pod.

        Errors: HostError where the runtime does not answer.
        """
        listener = asyncio.create_task(self._stream_events())
        latest: Mapping[str, Sequence[RelistedState]] = {}
        try:
            while True:
                current = await self._timed_relist()
                self._confirm(current)
                previous, latest = latest, current
                for uid in sorted({*current, *previous}):
                    if current.get(uid) != previous.get(uid):
                        yield uid
                await self._wait_for_event(sum(map(len, current.values())))
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _timed_relist(self) -> Mapping[str, Sequence[RelistedState]]:
        """A relist, reported also where it fails.

        Follows: v1.36, kubelet/pleg/generic.go, Relist.
        """
        at_s, started_s, before_s = time.time(), time.monotonic(), self._relisted_s
        self._relisted_s = started_s
        try:
            return await self._relist()
        finally:
            interval_s = started_s - before_s if before_s is not None else None
            self._relist_s = time.monotonic() - started_s
            self.on_relist(at_s, self._relist_s, interval_s)

    def _confirm(self, current: Mapping[str, Sequence[RelistedState]]) -> None:
        """Forgets the events that the list agrees with, and those of containers that are not listed.

        Those belong to another owner, or to a sandbox that is being started, whose state the start reports.
        """
        if self._unconfirmed:
            runs = {each.id: each.runs for states in current.values() for each in states}
            self._unconfirmed = {
                id_: expected
                for id_, expected in self._unconfirmed.items()
                if runs.get(id_, expected) != expected
            }

    async def _wait_for_event(self, listed: int) -> None:
        """Waits for an event, or for the next relist; ``listed``: how many sandboxes and containers the last one had."""
        pause_s = pause_after(self._relist_s, listed)
        await asyncio.sleep(pause_s)
        now_s = asyncio.get_running_loop().time
        left_s = EVENTED_RELIST_PERIOD_S if self._is_streaming else RELIST_PERIOD_S
        if self._unconfirmed:
            left_s = max(self._delay_s - pause_s, 0.0)
            self._delay_s = min(2 * self._delay_s, _LAST_DELAY_S)
            if now_s() > self._confirmed_until_s:
                self._unconfirmed = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._has_event.wait()
        self._has_event.clear()

    async def _stream_events(self) -> None:
        """Triggers relists by events; without a stream relists are frequent."""
        while self._event_source is not ContainerEventSource.NONE:
            self._is_streaming = True
            try:
                async for event in self._stream():
                    if self._note(event):
                        self._has_event.set()
            except HostError:
                # If the runtime does not answer at all, `changes` reports it.
                pass
            self._is_streaming = False
            self._has_event.set()
            await asyncio.sleep(RELIST_PERIOD_S)

    def _note(self, event: object) -> bool:
        """Notes what an event says of a container; whether it may be news."""
        change = container_change(event)
        if change is None:
            return False
        id_, runs = change
        if runs is not None:
            self._unconfirmed[id_] = runs
            self._delay_s = _FIRST_DELAY_S
            self._confirmed_until_s = asyncio.get_running_loop().time() + _CONFIRMATION_S
        return True

    def _stream(self) -> AsyncIterator[object]:
        if self._event_source is ContainerEventSource.CRI:
            return self._channel.stream(GET_CONTAINER_EVENTS, cri.GetEventsRequest())
        return self._channel.stream(CONTAINERD_EVENTS, containerd.SubscribeRequest(filters=[_TASK_EVENTS]))


def container_change(event: object) -> tuple[str, bool | None] | None:
    """The sandbox or container that an event is about, and whether it runs now (None: unknown); None: about a command.

    >>> start = containerd.TaskEvent(container_id="a").SerializeToString()
    >>> container_change(containerd.Envelope(topic="/tasks/start", event=containerd.Event(value=start)))
    ('a', True)
    >>> probe = containerd.TaskEvent(container_id="a", id="probe").SerializeToString()
    >>> container_change(containerd.Envelope(topic="/tasks/exit", event=containerd.Event(value=probe)))
    """
    if isinstance(event, cri.ContainerEventResponse):
        runs = {cri.CONTAINER_STARTED_EVENT: True, cri.CONTAINER_STOPPED_EVENT: False}
        return event.container_id, runs.get(event.container_event_type)
    assert isinstance(event, containerd.Envelope)
    try:
        task = containerd.TaskEvent.FromString(event.event.value)
    except DecodeError:
        return "", None
    if event.topic == _EXIT:
        return None if task.id not in ("", task.container_id) else (task.container_id, False)
    return task.container_id, True if event.topic == _START and task.container_id else None


def ignore_relist(_at_s: float, _duration_s: float, _interval_s: float | None) -> None:
    """Ignores relists: no metrics are kept."""


def pause_after(relist_s: float, listed: int) -> float:
    """How long no relist follows one that took so long: those of many pods leave time, and events together cost one.

    Units: seconds.
    """
    relist_s = min(relist_s, _LISTED_S * listed)
    return min(_PAUSE_FACTOR * relist_s, _MAX_PAUSE_S) if relist_s > _LONG_RELIST_S else 0.0
