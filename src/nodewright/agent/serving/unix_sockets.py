"""Unix sockets of servers: preparing and removing paths, and starting a server at the first connection."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from nodewright.model.errors import HostError

_MAX_PATH_BYTES = 107


def prepare_socket_path(path: Path, option: str) -> None:
    """Creates the directory of a socket, and removes the stale socket of a killed agent.

    ``option`` is the command line option for the path.
    Errors: HostError if another process listens there, the path is too long, or the path is not accessible.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise HostError("listen on", str(path), f"socket paths have at most {_MAX_PATH_BYTES} bytes")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                return
    except OSError as error:
        raise HostError("listen on", str(path), error.strerror or str(error)) from None
    raise HostError(
        "listen on", str(path), f"another agent listens there; specify another path with {option}"
    )


def remove_socket(path: Path) -> None:
    """Removes a socket, if it exists."""
    path.unlink(missing_ok=True)


ServerFactory = Callable[[Path], AbstractAsyncContextManager[None]]
"""Returns a server that listens on a path inside its context. Loading it may take long, so it is done in a thread."""

MAX_CONNECTIONS = 100
"""Each takes three descriptors of the agent."""
_CHUNK_BYTES = 1 << 16
_ACCEPT_ITERATIONS = 5
"""Iterations of the event loop after which an accepted connection has its task."""


@asynccontextmanager
async def serve_on_demand(path: Path, option: str, load: Callable[[], ServerFactory]) -> AsyncIterator[None]:
    """Forwards connections to a server that is started by the first one, on a socket in the same directory.

    Errors: HostError if another process listens there, or the socket cannot be created; ``option`` is the command
        line option for the path.
    """
    inner = path.with_name(f".{path.name}")
    prepare_socket_path(path, option)
    prepare_socket_path(inner, option)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise HostError("listen on", str(path), error.strerror or str(error)) from None
    finally:
        os.umask(old)
    async with AsyncExitStack() as stack:
        forwarder = _OnDemandServer(inner, load, stack)
        server = await asyncio.start_unix_server(forwarder.accept_connection, sock=listener)
        try:
            yield
        finally:
            # asyncio forgets connections that arrive while a server closes: stop accepting, end the connections,
            # then close the server.
            asyncio.get_running_loop().remove_reader(listener)
            await forwarder.close()
            server.close()
            remove_socket(path)


class _OnDemandServer:
    """Forwards connections to a server that it starts when needed."""

    def __init__(self, inner: Path, load: Callable[[], ServerFactory], stack: AsyncExitStack) -> None:
        self._inner, self._load, self._stack = inner, load, stack
        self._start_lock = asyncio.Lock()
        self._has_started = False
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards a new connection; closes it if there are too many."""
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._forward(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._close_connection)

    def _close_connection(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()

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
