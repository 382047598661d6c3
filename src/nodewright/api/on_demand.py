"""Servers that cost nothing until somebody asks: the first who connects has them begin."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from nodewright.api.sockets import clear_place, leave_place
from nodewright.world.errors import WorldError

Begin = Callable[[Path], AbstractAsyncContextManager[None]]
"""A server that listens at a place while it is entered; to ask for it may take long, and is done beside the loop."""

_PIECE = 1 << 16
_TURNS = 5
"""Of the loop, until whoever has just come stands inside and can be sent away."""


@asynccontextmanager
async def serving_on_demand(path: Path, option: str, load: Callable[[], Begin]) -> AsyncIterator[None]:
    """Whoever connects is passed on to a server that begins with the first of them; it listens right beside.

    Errors: WorldError where somebody listens there, or the socket cannot be made; ``option`` names the place.
    """
    inner = path.with_name(f".{path.name}")
    clear_place(path, option)
    clear_place(inner, option)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise WorldError("listen on", str(path), error.strerror or str(error)) from None
    finally:
        os.umask(old)
    async with AsyncExitStack() as stack:
        door = _Door(inner, load, stack)
        server = await asyncio.start_unix_server(door.met, sock=listener)
        try:
            yield
        finally:
            # A server that is closed while somebody comes in forgets him: nobody new, then those, then the server.
            asyncio.get_running_loop().remove_reader(listener)
            await door.close()
            server.close()
            leave_place(path)


class _Door:
    """Passes on who comes."""

    def __init__(self, inner: Path, load: Callable[[], Begin], stack: AsyncExitStack) -> None:
        self._inner, self._load, self._stack = inner, load, stack
        self._beginning = asyncio.Lock()
        self._has_begun = False
        self._guests: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody has connected."""
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._guests[task] = writer
        task.add_done_callback(self._gone)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._guests.pop(task).close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever is not let in sees his connection end, and is told by what he asks with that nobody answers.
        with suppress(OSError, WorldError):
            await self._begin()
            back, to = await asyncio.open_unix_connection(self._inner)
            try:
                await _passed(reader, to, back, writer)
            finally:
                to.close()

    async def close(self) -> None:
        """Everybody leaves."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        guests = dict(self._guests)
        for each in guests:
            each.cancel()
        await asyncio.gather(*guests, return_exceptions=True)
        for writer in guests.values():
            with suppress(OSError):
                await writer.wait_closed()

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._has_begun:
                begin = await asyncio.to_thread(self._load)
                await self._stack.enter_async_context(begin(self._inner))
                self._has_begun = True


async def _passed(
    reader: asyncio.StreamReader,
    to: asyncio.StreamWriter,
    back: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Pass on what both say until one of them has nothing more to say."""
    pumps = [asyncio.create_task(_pumped(reader, to)), asyncio.create_task(_pumped(back, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
