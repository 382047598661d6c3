"""The socket on which device plugins register. gRPC is imported for the first plugin only.

Without it, an agent without device plugins needs a third less memory.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from nodewright.agent.devices.protocols import RegisterPlugin
from nodewright.model.errors import HostError

SOCKET_NAME, INNER_SOCKET_NAME = "kubelet.sock", ".nodewright.sock"
"""The socket that plugins connect to, and the gRPC server's socket behind it."""
_MAX_CONNECTIONS = 128
_CHUNK_BYTES = 1 << 16
_YIELDS_BEFORE_CANCEL = 5
_MAX_PATH_LENGTH = 107


class RegistrationBackend(Protocol):
    """The gRPC server behind the socket."""

    async def stop(self, grace: float | None) -> None:
        """Stops the server."""


class RegistrationServer:
    """Serves registration in a directory of plugin sockets; ``register`` gets each registration.

    Connections are forwarded to a gRPC server that is started for the first of them.
    """

    def __init__(self, directory: Path, register: RegisterPlugin) -> None:
        self.directory, self._register = directory, register
        self._listener: asyncio.Server | None = None
        self._server: RegistrationBackend | None = None
        self._start_lock = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts to listen; removes old sockets in the directory, so that running plugins notice and register again.

        Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Start; devicemanager/manager.go,
            CleanupPluginDirectory.
        Errors:  HostError; also where another process listens there, such as a kubelet.
        """
        path = self.directory / SOCKET_NAME
        if len(os.fsencode(self.directory / INNER_SOCKET_NAME)) > _MAX_PATH_LENGTH:
            raise HostError("listen", str(path), "the path is too long for a socket")
        try:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            if _is_listening(path):
                raise HostError("listen", str(path), "a kubelet or another agent listens there")
            remove_sockets(self.directory)
            self._listener = await asyncio.start_unix_server(self._accept, path)
        except OSError as error:
            raise HostError("listen", str(path), error.strerror or str(error)) from None

    async def stop(self) -> None:
        """Stops listening and closes all connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            # Connections that were just accepted need a turn of the event loop before they can be cancelled.
            for _ in range(_YIELDS_BEFORE_CANCEL):
                await asyncio.sleep(0)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        # After the connections: one of them may just have started the server.
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        if listener is not None:
            for name in (SOCKET_NAME, INNER_SOCKET_NAME):
                (self.directory / name).unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener is None or len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._forward(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards data in both directions until one side closes."""
        try:
            await self._start_service()
            # If the server is stopping, the connection is closed, too.
            with suppress(OSError):
                from_server, to_server = await asyncio.open_unix_connection(
                    self.directory / INNER_SOCKET_NAME
                )
                try:
                    await _run_until_first(_copy(reader, to_server), _copy(from_server, writer))
                finally:
                    await _close_writer(to_server)
        finally:
            await _close_writer(writer)

    async def _start_service(self) -> None:
        async with self._start_lock:
            if self._server is None:
                from nodewright.agent.devices.plugin_client import start_registration_service  # noqa: PLC0415 - 24 MiB, if nobody comes

                self._server = await start_registration_service(
                    self.directory / INNER_SOCKET_NAME, self.directory, self._register
                )


async def _run_until_first(*operations: Coroutine[Any, Any, None]) -> None:
    """Runs operations until the first one ends, and cancels the others."""
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()


async def _close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def remove_sockets(directory: Path) -> None:
    """Removes all sockets in the directory; other files stay."""
    for path in directory.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def _is_listening(path: Path) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
