"""When something changes in a runtime: told by the runtime where it tells, else found by looking again and again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from enum import StrEnum

from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri import containerd_pb2 as containerd
from nodewright.world.cri.channel import EVENTS, READ_S, Call, Channel
from nodewright.world.errors import WorldError

CONTAINERD_EVENTS = Call(
    "/containerd.services.events.v1.Events/Subscribe",
    containerd.Envelope,
    READ_S,
    containerd.SubscribeRequest,
)
"""containerd's own news, which it has on the same socket."""

LOOK_S, RARE_LOOK_S = 1.0, 10.0
"""How often to look where nobody tells of changes, and where somebody does."""

_AGAIN_S = (0.02, 0.1, 0.5)
"""The runtime learns of an end by the same news as we: what it says right then may be a moment behind."""
_TASKS = 'namespace=="k8s.io",topic~="^/tasks/(start|exit|oom)$"'


class News(StrEnum):
    """Who tells of changes."""

    CRI = "GetContainerEvents"
    CONTAINERD = "containerd"
    NOBODY = ""


Look = Callable[[], Awaitable[Mapping[str, object]]]


class Watch:
    """Tells which pods have changed, by ``look``: what there is of each pod, by its uid."""

    def __init__(self, channel: Channel, look: Look, news: News) -> None:
        self._channel, self._look, self._from = channel, look, news
        self._news = asyncio.Event()
        self._hears = False
        self._owed_s: list[float] = []
        """When to look again after news."""

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod that is not as at the last look; at first, of each that there is.

        Errors: WorldError where the runtime does not answer.
        """
        listener = asyncio.create_task(self._listen())
        known: Mapping[str, object] = {}
        try:
            while True:
                found = await self._look()
                before, known = known, found
                for uid in sorted({*found, *before}):
                    if found.get(uid) != before.get(uid):
                        yield uid
                await self._wait()
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _wait(self) -> None:
        """Until there is news, or it is time to look without any."""
        now_s = asyncio.get_running_loop().time
        left_s = RARE_LOOK_S if self._hears else LOOK_S
        if self._owed_s:
            left_s = max(0.0, self._owed_s.pop(0) - now_s())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), left_s)
        if self._news.is_set():
            self._news.clear()
            self._owed_s = [now_s() + later_s for later_s in _AGAIN_S]

    async def _listen(self) -> None:
        """Set off looks by what is told; while nothing can be heard they are frequent."""
        while self._from is not News.NOBODY:
            self._hears = True
            try:
                async for _ in self._stream():
                    self._news.set()
            except WorldError:
                # `changes` itself finds out, and says, when the runtime does not answer at all.
                pass
            self._hears = False
            self._news.set()
            await asyncio.sleep(LOOK_S)

    def _stream(self) -> AsyncIterator[object]:
        if self._from is News.CRI:
            return self._channel.listen(EVENTS, cri.GetEventsRequest())
        return self._channel.listen(CONTAINERD_EVENTS, containerd.SubscribeRequest(filters=[_TASKS]))
