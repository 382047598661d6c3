"""Pod lifecycle events: from the runtime's event stream where it has one, otherwise from periodic relists."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum

from nodewright.errors import HostError
from nodewright.runtimes.cri import api_pb2 as cri
from nodewright.runtimes.cri import containerd_pb2 as containerd
from nodewright.runtimes.cri.channel import GET_CONTAINER_EVENTS, READ_TIMEOUT_S, CRIChannel, RuntimeCall

CONTAINERD_EVENTS = RuntimeCall(
    "/containerd.services.events.v1.Events/Subscribe",
    containerd.Envelope,
    READ_TIMEOUT_S,
    containerd.SubscribeRequest,
)
"""containerd's own event stream, on the same socket."""

RELIST_PERIOD_S, EVENTED_RELIST_PERIOD_S = 1.0, 10.0
"""Relist periods without and with an event stream."""

_RELIST_DELAYS_S = (0.02, 0.1, 0.5)
"""Delays of relists after an event: the runtime's own state may be a moment behind its events."""
_TASK_EVENTS = 'namespace=="k8s.io",topic~="^/tasks/(start|exit|oom)$"'


class ContainerEventSource(StrEnum):
    """The event stream that is used."""

    CRI = "GetContainerEvents"
    CONTAINERD = "containerd"
    NONE = ""


Relist = Callable[[], Awaitable[Mapping[str, object]]]


class PodLifecycleEventGenerator:
    """Reports which pods have changed, by ``relist``: the state of each pod, by uid."""

    def __init__(self, channel: CRIChannel, relist: Relist, event_source: ContainerEventSource) -> None:
        self._channel, self._relist, self._event_source = channel, relist, event_source
        self._has_event = asyncio.Event()
        self._is_streaming = False
        self._relist_times_s: list[float] = []
        """When to relist after an event."""
        self.on_relist: Callable[[float, float, float | None], None] = ignore_relist
        """Gets the time of each relist (since 1970), its duration, and the time since the one before, if any."""
        self._relisted_s: float | None = None

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod that has changed since the last relist; at first, of every pod.

        Errors: HostError where the runtime does not answer.
        """
        listener = asyncio.create_task(self._stream_events())
        latest: Mapping[str, object] = {}
        try:
            while True:
                current = await self._timed_relist()
                previous, latest = latest, current
                for uid in sorted({*current, *previous}):
                    if current.get(uid) != previous.get(uid):
                        yield uid
                await self._wait_for_event()
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _timed_relist(self) -> Mapping[str, object]:
        """A relist, reported also where it fails.

        Follows: v1.36, kubelet/pleg/generic.go, Relist.
        """
        at_s, started_s, before_s = time.time(), time.monotonic(), self._relisted_s
        self._relisted_s = started_s
        try:
            return await self._relist()
        finally:
            interval_s = started_s - before_s if before_s is not None else None
            self.on_relist(at_s, time.monotonic() - started_s, interval_s)

    async def _wait_for_event(self) -> None:
        """Waits for an event, or for the next relist."""
        now_s = asyncio.get_running_loop().time
        left_s = EVENTED_RELIST_PERIOD_S if self._is_streaming else RELIST_PERIOD_S
        if self._relist_times_s:
            left_s = max(0.0, self._relist_times_s.pop(0) - now_s())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_event.wait(), left_s)
        if self._has_event.is_set():
            self._has_event.clear()
            self._relist_times_s = [now_s() + delay_s for delay_s in _RELIST_DELAYS_S]

    async def _stream_events(self) -> None:
        """Triggers relists by events; without a stream relists are frequent."""
        while self._event_source is not ContainerEventSource.NONE:
            self._is_streaming = True
            try:
                async for _ in self._stream():
                    self._has_event.set()
            except HostError:
                # If the runtime does not answer at all, `changes` reports it.
                pass
            self._is_streaming = False
            self._has_event.set()
            await asyncio.sleep(RELIST_PERIOD_S)

    def _stream(self) -> AsyncIterator[object]:
        if self._event_source is ContainerEventSource.CRI:
            return self._channel.stream(GET_CONTAINER_EVENTS, cri.GetEventsRequest())
        return self._channel.stream(CONTAINERD_EVENTS, containerd.SubscribeRequest(filters=[_TASK_EVENTS]))


def ignore_relist(_at_s: float, _duration_s: float, _interval_s: float | None) -> None:
    """What happens to relists that nobody counts."""
