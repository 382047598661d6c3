"""The socket on which device plugins register; gRPC is loaded when the first one comes, and not before.

It takes a third of what an agent that has nothing to do with devices takes in all.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import Register

NAME, INSIDE = "kubelet.sock", ".nodewright.sock"
"""The socket that plugins know, and the one behind it."""
_MOST_CALLERS = 128
_CHUNK = 1 << 16
_TURNS = 5
_LONGEST_PATH = 107


class Server(Protocol):
    """What has been begun behind the door."""

    async def stop(self, grace: float | None) -> None:
        """Nobody is served any more."""


class Door:
    """Listens in a directory of plugins' sockets; ``register`` hears of each that registers.

    What callers say is passed on to a server that is begun for the first of them.
    """

    def __init__(self, directory: Path, register: Register) -> None:
        self.directory, self._register = directory, register
        self._listener: asyncio.Server | None = None
        self._server: Server | None = None
        self._beginning = asyncio.Lock()
        self._callers: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Take the directory: sockets that are left in it go, so that plugins see that they have to register again.

        Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Start; devicemanager/manager.go,
            CleanupPluginDirectory.
        Errors:  WorldError; also where somebody else, such as a kubelet, listens there.
        """
        place = self.directory / NAME
        if len(os.fsencode(self.directory / INSIDE)) > _LONGEST_PATH:
            raise WorldError("listen", str(place), "the path is too long for a socket")
        try:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            if _is_answered(place):
                raise WorldError("listen", str(place), "a kubelet or another agent listens there")
            remove_sockets(self.directory)
            self._listener = await asyncio.start_unix_server(self._called, place)
        except OSError as error:
            raise WorldError("listen", str(place), error.strerror or str(error)) from None

    async def close(self) -> None:
        """Nobody is heard any more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            # Whoever has just come in is to be seen before he is sent away.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        for task in self._callers:
            task.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)
        # Only now: one of them may just have begun it.
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)
        if listener is not None:
            for name in (NAME, INSIDE):
                (self.directory / name).unlink(missing_ok=True)

    def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._listener is None or len(self._callers) >= _MOST_CALLERS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._callers.add(task)
        task.add_done_callback(self._callers.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All that the caller and the server say to one another, until one of them has nothing more to say."""
        try:
            await self._begin()
            # A server that is just ending hangs up: so do we.
            with suppress(OSError):
                to_us, to_server = await asyncio.open_unix_connection(self.directory / INSIDE)
                try:
                    await _either(_copy(reader, to_server), _copy(to_us, writer))
                finally:
                    await _hung_up(to_server)
        finally:
            await _hung_up(writer)

    async def _begin(self) -> None:
        async with self._beginning:
            if self._server is None:
                from nodewright.world.plugins.server import serve  # noqa: PLC0415 - 24 MiB, if nobody comes

                self._server = await serve(self.directory / INSIDE, self.directory, self._register)


async def _either(*doing: Coroutine[Any, Any, None]) -> None:
    """Come back when one of them has; the others end with it."""
    tasks = [asyncio.ensure_future(one) for one in doing]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()


async def _hung_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def remove_sockets(directory: Path) -> None:
    """No socket is left in the directory; other files stay."""
    for path in directory.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def _is_answered(place: Path) -> bool:
    """Whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1)
        try:
            asking.connect(str(place))
        except OSError:
            return False
        return True
