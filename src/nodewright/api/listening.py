"""Servers inside a program that has other things to do: they leave signals alone, and those who misbehave outside."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nodewright.api.guard import HANG_UP, PEER, App, Refusals
from nodewright.world.errors import WorldError

Context: TypeAlias = Callable[[], ssl.SSLContext]
"""How to talk to who comes now."""
HANDSHAKE_WITHIN_S = 10.0
HEADERS_WITHIN_S = 10.0
MOST_HEADER_BYTES = 64 << 10
MOST_CONNECTIONS, MOST_OF_ONE = 500, 200
_BACKLOG = 256
_REST_S = 0.1
"""When there are no more file descriptors, others may give some back by then."""


class QuietServer(uvicorn.Server):
    """A server that leaves signals to the agent, and says when it is there."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up, self.is_over = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        """Wait for the end, where others look ten times a second whether it has come."""
        await self.is_over.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        """Answer those who come to a socket, while this is entered."""
        task = asyncio.create_task(self.serve(sockets=[listener]))
        try:
            await self.is_up.wait()
            yield
        finally:
            self.should_exit = True
            self.is_over.set()
            await task
            listener.close()


def quiet_config(app: Any) -> uvicorn.Config:
    """The configuration of a quiet server."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        timeout_graceful_shutdown=1,
    )


class Place(NamedTuple):
    """Where to listen."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@asynccontextmanager
async def front(app: App, place: Place, context: Context | None, refusals: Refusals) -> AsyncIterator[Place]:
    """An application for the network, over TLS with a ``context``; gives the place, with the port if it was 0.

    Errors: WorldError where nobody can listen there.
    """
    listener = _listener(place)
    found = Place(place.address, listener.getsockname()[1])
    async with _Front(app, context, refusals).running(listener):
        yield found


class _Front(QuietServer):
    """Shakes hands before it takes anybody in: who cannot is told of, with his address."""

    def __init__(self, app: App, context: Context | None, refusals: Refusals) -> None:
        config = quiet_config(app)
        config.h11_max_incomplete_event_size = MOST_HEADER_BYTES
        super().__init__(config)
        self._context, self._refusals = context, refusals
        self._accepting: list[asyncio.Task[None]] = []
        self._entering: set[asyncio.Task[None]] = set()
        self._of_each = Counter[str]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        self.servers = []
        self._accepting = [asyncio.create_task(self._accept(one)) for one in sockets or ()]
        self.started = True
        self.is_up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nobody in any more, and let those go who are in."""
        for task in (*self._accepting, *self._entering):
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                self._refusals.refused(
                    "the machine", "accept", f"no connection can be taken: {error.strerror}"
                )
                await asyncio.sleep(_REST_S)
                continue
            source = str(address[0])
            taken = sum(self._of_each.values())
            if taken >= MOST_CONNECTIONS or self._of_each[source] >= MOST_OF_ONE:
                connection.close()
                why = f"{self._of_each[source]} connections of this address are open, {taken} in all"
                self._refusals.refused(source, "crowd", why)
                continue
            self._of_each[source] += 1
            task = asyncio.create_task(self._enter(connection, source))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)

    async def _enter(self, connection: socket.socket, source: str) -> None:
        loop = asyncio.get_running_loop()
        context = None if self._context is None else self._context()
        timed = None if context is None else HANDSHAKE_WITHIN_S
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: self._protocol(source), connection, ssl=context, ssl_handshake_timeout=timed
            )
        except OSError as error:
            self.left(source)
            self.refused(source, "handshake", f"no TLS: {_why(error)}")
        except asyncio.CancelledError:
            self.left(source)
            raise

    def _protocol(self, source: str) -> "_Protocol":
        protocol = _Protocol(self.config, self.server_state, {})
        protocol.watched(self, source)
        return protocol

    def refused(self, source: str, kind: str, why: str) -> None:
        """Tell of somebody who was let go."""
        self._refusals.refused(source, kind, why)

    def left(self, source: str) -> None:
        """A connection is over."""
        self._of_each[source] -= 1
        if not self._of_each[source]:
            del self._of_each[source]


class _Protocol(H11Protocol):
    """HTTP/1.1 that knows the client's certificate, and waits for a request only so long."""

    def watched(self, front: _Front, source: str) -> None:
        """Have a server told of it."""
        self._front, self._source = front, source
        self._deadline: asyncio.TimerHandle | None = None
        self.logger = logging.getLogger("nodewright.http")
        # What clients do wrong is told of once; what we do, each time.
        self.logger.setLevel(logging.ERROR)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Somebody is there."""
        self.app_state = {PEER: transport.get_extra_info("peercert"), HANG_UP: transport.abort}
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Somebody says something; each request has to be whole in time, however many bytes come meanwhile."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect()
        else:
            self._heard()

    def on_response_complete(self) -> None:
        """An answer is whole; what came meanwhile is the next request."""
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._heard()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._heard()
        super().connection_lost(exc)
        self._front.left(self._source)

    def send_400_response(self, msg: str) -> None:
        """What was said is no request."""
        self._front.refused(self._source, "garbage", "what it said is no HTTP request")
        super().send_400_response(msg)

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_WITHIN_S, self._late)

    def _heard(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._front.refused(self._source, "slow", f"no whole request within {HEADERS_WITHIN_S:g} s")
            self.transport.abort()


def _listener(place: Place) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6 and place.address == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((place.address, place.port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise WorldError("listen on", str(place), error.strerror or str(error)) from None
    return listener


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error) or "it took too long"
