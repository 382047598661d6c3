"""A server that is started by the first connection, and the forwarding of connections to it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path

from nodewright.model.errors import HostError

ServerFactory = Callable[[Path], AbstractAsyncContextManager[None]]
"""Returns a server that listens on a path inside its context. Loading it may take long, so it is done in a thread."""

_CHUNK_BYTES = 1 << 16
_ACCEPT_ITERATIONS = 5
"""Iterations of the event loop after which an accepted connection has its task."""


class OnDemandServer:
    """Forwards connections to a server that it starts when needed."""

    def __init__(
        self, inner: Path, load: Callable[[], ServerFactory], stack: AsyncExitStack, max_connections: int
    ) -> None:
        """``load`` returns the server; it runs in a thread, because it may take long."""
        self._inner, self._load, self._stack, self._max_connections = inner, load, stack, max_connections
        self._start_lock = asyncio.Lock()
        self._has_started = False
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards a new connection; at the limit the oldest one gives way, so that silent clients keep nobody out."""
        if len(self._connections) >= self._max_connections:
            oldest = next(iter(self._connections))
            self._close_connection(oldest)
            oldest.cancel()
        task = asyncio.create_task(self._forward(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._close_connection)

    def _close_connection(self, task: asyncio.Task[None]) -> None:
        if (writer := self._connections.pop(task, None)) is not None:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # If the server cannot be started, the connection ends, which clients report as unavailable.
        with suppress(OSError, HostError):
            await self._start()
            server_reader, server_writer = await asyncio.open_unix_connection(self._inner)
            try:
                await forward_both(reader, server_writer, server_reader, writer)
            finally:
                server_writer.close()

    async def close(self) -> None:
        """Ends all connections."""
        for _ in range(_ACCEPT_ITERATIONS):
            await asyncio.sleep(0)
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        for writer in connections.values():
            with suppress(OSError):
                await writer.wait_closed()

    async def _start(self) -> None:
        async with self._start_lock:
            if not self._has_started:
                serve = await asyncio.to_thread(self._load)
                await self._stack.enter_async_context(serve(self._inner))
                self._has_started = True


async def forward_both(
    reader: asyncio.StreamReader,
    server_writer: asyncio.StreamWriter,
    server_reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Forwards data in both directions until one side closes."""
    directions = [
        asyncio.create_task(_copy(reader, server_writer)),
        asyncio.create_task(_copy(server_reader, writer)),
    ]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in directions:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
