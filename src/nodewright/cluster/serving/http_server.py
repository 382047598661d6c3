"""HTTP servers that leave signals to their process, and limit connections, handshakes and the time of requests.

One connection comes first: deadlines of requests, and taking the connection over. Then the servers.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nodewright.cluster.serving.middleware import (
    ABORT_CONNECTION,
    PEER_CERTIFICATE,
    SEND_TIMEOUT_S,
    TAKE_OVER_CONNECTION,
    App,
    Receive,
    RefusalLog,
    Scope,
    Send,
    allowed_s,
    run_bounded,
)
from nodewright.documents.output.terminal import print_log_line
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.values.golang import is_number_of_digits

HEADERS_TIMEOUT_S = 10.0
MAX_UNREAD_BYTES, _LINGER_S = 256 << 10, 0.5
"""What is read of the body of a request that has been answered, and how long a client then has to read the answer.

Follows: Go, net/http/server.go, maxPostHandlerReadBytes, rstAvoidanceDelay.
"""
FREE_CHUNKS, MIN_CHUNK_BYTES = 1024, 64
"""Chunks of a body that may be of any size, and the size that those of a body with more have at least on average."""
_STREAM_BUFFER_BYTES = 1 << 16
_KEEPALIVE_S, _KEEPALIVE_PROBES = 15, 9
"""Follows: Go, net/tcpsock.go, KeepAliveConfig."""


class WaitingConnection(Protocol):
    """A connection that waits for its client, and may have to give way to another one.

    It has no complete handshake or request (headers and body), is idle, or its client does not read.
    """

    source: str
    """The client's address."""

    def abort(self) -> None:
        """Closes the connection at once."""


class _Messages(h11.Connection):
    """Refuses more than h11 does, and returns the head of a response with the first part of its body: one write for both."""

    def __init__(self, max_incomplete_event_size: int, write_later: Callable[[], object]) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._head, self._write_later = b"", write_later
        self.fault = HTTPStatus.BAD_REQUEST
        """The status of the answer to a malformed request."""
        self._chunks = self._chunk_bytes = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """What has been received.

        Errors:  RemoteProtocolError.
        Follows: Go, net/http/transfer.go, parseContentLength: lengths have 63 bits.
        Departs: a body of many tiny chunks is malformed: h11 takes 14 us for each, in which nothing else is done.
        """
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.fault = HTTPStatus(error.error_status_hint)
            raise
        if isinstance(event, h11.Request):
            self._chunks = self._chunk_bytes = 0
            if int(dict(event.headers).get(b"content-length", b"0")) >> 63:
                raise h11.RemoteProtocolError("bad Content-Length")
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._chunk_bytes += len(event.data)
            if self._chunks > max(FREE_CHUNKS, self._chunk_bytes // MIN_CHUNK_BYTES):
                raise h11.RemoteProtocolError("chunks are too small")
        return event

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override] # h11 overloads it for one event
        """The bytes of an event, after a head that has not been written; those of a head follow later."""
        output = super().send(event)
        if isinstance(event, h11.Response):
            self._head = output or b""
            self._write_later()
            return b""
        return output if not self._head else self.take_head() + (output or b"")

    def take_head(self) -> bytes:
        """The head that has not been written; empty: there is none."""
        head, self._head = self._head, b""
        return head


class HTTPConnection(H11Protocol):
    """HTTP/1.1 with the client's certificate in the request state, and a deadline for each request.

    A request that switches protocols may take the connection over: it then reads and writes the connection's bytes.
    """

    def attach(self, owner: "_NetworkServer", source: str) -> None:
        """Sets the server that counts the connection and records refusals, and the client's address."""
        self._owner, self.source = owner, source
        self._deadline: asyncio.TimerHandle | None = None
        """When the headers must be complete."""
        self._read_deadline: asyncio.TimerHandle | None = None
        """When the client must have read the answer."""
        self._unread = 0
        """Bytes of the body that have come since the request was answered."""
        self._stream: asyncio.StreamReaderProtocol | None = None
        """What reads the bytes of a connection that has been taken over."""
        self.logger = logging.getLogger("nodewright.http")
        # Faults of clients are recorded by the refusal log; our own are always logged.
        self.logger.setLevel(logging.ERROR)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Starts the deadline of the first request."""
        self.app_state = {
            PEER_CERTIFICATE: transport.get_extra_info("peercert"),
            ABORT_CONNECTION: transport.abort,
            TAKE_OVER_CONNECTION: self.take_over,
        }
        super().connection_made(transport)
        size = self.config.h11_max_incomplete_event_size
        assert size is not None
        self.conn = self._messages = _Messages(size, lambda: self.loop.call_soon(self._write_head))
        self._start_deadline()

    def _write_head(self) -> None:
        """Writes the head of a response whose body has not followed."""
        if (head := self._messages.take_head()) and not self.transport.is_closing():
            self.transport.write(head)

    def data_received(self, data: bytes) -> None:
        """Parses data. Headers must be complete by their deadline, which partial data does not extend."""
        if self._stream is not None:
            self._stream.data_received(data)
            return
        if not self.transport.get_write_buffer_size():
            self._cancel_read_deadline()
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()
            self._unread = self._unread + len(data) if self.conn.their_state is h11.SEND_BODY else 0
            if self._unread > MAX_UNREAD_BYTES:
                self._linger()
        else:
            self._request_started()

    def on_response_complete(self) -> None:
        """Starts the deadline by which the client must have read the answer; the connection may give way again."""
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._request_started()  # the next request has come already (pipelining)
            return
        self._owner.waiting[self] = None
        unread = self.transport.get_write_buffer_size()
        if unread and self._read_deadline is None and not self._owner.readers_may_pause:
            self._read_deadline = self.loop.call_later(allowed_s(SEND_TIMEOUT_S, unread), self._abort_unread)

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The bytes that follow the current request, which is complete, and a writer; HTTP ends here.

        The caller closes the writer. A client that is silent and gone is detected by keep-alives.
        """
        self._write_head()
        reader = asyncio.StreamReader(_STREAM_BUFFER_BYTES)
        self._stream = asyncio.StreamReaderProtocol(reader)
        self._stream.connection_made(self.transport)
        self._request_started()
        following, _ = self.conn.trailing_data
        reader.feed_data(following)
        if self.cycle.disconnected:
            self._stream.connection_lost(None)
        # The request needs no response of the server.
        self.cycle.disconnected = True
        _send_keepalives(self.transport.get_extra_info("socket"))
        self.flow.read_paused = False
        self.transport.resume_reading()
        return reader, asyncio.StreamWriter(self.transport, self._stream, reader, self.loop)

    def eof_received(self) -> None:
        """Ends the reader of a connection that has been taken over."""
        if self._stream is not None:
            self._stream.eof_received()

    def pause_writing(self) -> None:
        """Has writers wait; a client that does not read may have to give way."""
        super().pause_writing()
        self._owner.waiting[self] = None
        if self._stream is not None:
            self._stream.pause_writing()

    def resume_writing(self) -> None:
        """Lets writers continue."""
        super().resume_writing()
        if self.cycle is not None and not self.cycle.response_complete:
            self._owner.waiting.pop(self, None)
        if self._stream is not None:
            self._stream.resume_writing()

    def shutdown(self) -> None:
        """Closes the connection once its response is complete; at once if it has been taken over."""
        if self._stream is not None:
            self.transport.abort()
            return
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the deadlines, and counts the closed connection."""
        self._cancel_deadlines()
        if self._stream is not None:
            self._stream.connection_lost(exc)
        super().connection_lost(exc)
        self._owner.connection_closed(self.source)

    def send_400_response(self, msg: str) -> None:
        """Records and answers a malformed request; a response that has begun is cut off."""
        self._owner.record_refusal(self.source, "garbage", "malformed HTTP request")
        if self.cycle is not None and not self.cycle.response_complete:
            # The headers were in order: the application has the request, and would answer it as well.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.abort()
            return
        fault = self._messages.fault
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"connection", b"close"),
            *self._owner.plain_headers,
        ]
        for event in (
            h11.Response(status_code=fault, headers=headers, reason=fault.phrase.encode()),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._cancel_deadlines()
        self.transport.abort()

    def _linger(self) -> None:
        """Reads no more, and closes the connection once its client could read the answer."""
        self.transport.pause_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.abort)

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_TIMEOUT_S, self._abort_slow_request)
        self._owner.waiting[self] = None

    def _request_started(self) -> None:
        """Ends the deadline of the headers; the connection gives way to others until the body is complete."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.conn.their_state is h11.SEND_BODY:
            self._owner.waiting[self] = None
        else:
            self._owner.waiting.pop(self, None)

    def _cancel_read_deadline(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None

    def _cancel_deadlines(self) -> None:
        self._cancel_read_deadline()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._owner.waiting.pop(self, None)

    def _abort_slow_request(self) -> None:
        if not self.transport.is_closing():
            why = f"no complete request within {HEADERS_TIMEOUT_S:g} s"
            self._owner.record_refusal(self.source, "slow", why)
            self.abort()

    def _abort_unread(self) -> None:
        self._read_deadline = None
        if self.transport.get_write_buffer_size():
            self._owner.record_refusal(self.source, "slow", "the response was not received in time")
            self.abort()


def _send_keepalives(connection: socket.socket) -> None:
    """Detects within minutes that the other side of a TCP connection is gone."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


TLSContextSource: TypeAlias = Callable[[], ssl.SSLContext]
"""Returns the TLS context for a new connection."""
# ---------------------------------------------------------------- servers

HANDSHAKE_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 64 << 10
MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 500, 200
_MIN_CONNECTIONS = 8
LISTEN_BACKLOG = 256
_ACCEPT_RETRY_S = 0.1
"""Pause after a failed accept: file descriptors may be available again by then."""


class EmbeddedServer(uvicorn.Server):
    """A server that leaves signals to the agent, and signals when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started, self.has_stopped = asyncio.Event(), asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to serve."""
        await super().startup(sockets)
        self.has_started.set()

    async def main_loop(self) -> None:
        """Waits for the end; uvicorn polls ten times a second."""
        await self.has_stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures no signals."""
        yield

    @asynccontextmanager
    async def running(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serves a socket inside this context.

        Errors: those of a server that does not start, before the context; of one that fails later, after it.
        """
        with contextlib.closing(listener):
            task = asyncio.create_task(self.serve(sockets=[listener]))
            task.add_done_callback(lambda _: self.has_started.set())  # a server that fails never sets it
            try:
                await self.has_started.wait()
                if task.done():
                    await task
                yield
            finally:
                self.should_exit = True
                self.has_stopped.set()
                await task


def embedded_config(app: Any) -> uvicorn.Config:
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
        # No proxy is in front of these servers: a client must not name its own address or scheme.
        proxy_headers=False,
    )


class ListenAddress(NamedTuple):
    """An address and port to listen on."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """The address and port of `--listen`.

        Errors: InputError.
        """
        host, _, port = text.rpartition(":")
        if not host or not (is_number_of_digits(port) and int(port[:6]) <= 65535):
            raise InputError([Fault(source="--listen", value=text, rule="must be ADDRESS:PORT")])
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@asynccontextmanager
async def serve_network(
    app: App,
    address: ListenAddress,
    context: TLSContextSource | None,
    refusals: RefusalLog,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[ListenAddress]:
    """Serves an application on the network, over TLS with a ``context``; yields the address with the actual port.

    ``headers`` are those of answers to requests that are no HTTP; the application writes its own.

    Errors: HostError if the address cannot be listened on.
    """
    listener = _listener(address)
    bound = ListenAddress(address.address, listener.getsockname()[1])
    server = _NetworkServer(app, context, refusals)
    server.plain_headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    async with server.running(listener):
        yield bound


@asynccontextmanager
async def serve_unix_socket(app: App, listener: socket.socket, refusals: RefusalLog) -> AsyncIterator[None]:
    """Serves an application on a listening Unix socket, with the limits of the network; a user counts as an address."""

    async def bounded_app(scope: Scope, receive: Receive, send: Send) -> None:
        # A reader of logs may pause for as long as it likes.
        if not await run_bounded(app, scope, receive, send, may_pause=True):
            refusals.record("a client", "slow", f"the request for {scope['path']} was too large or too slow")

    listener.setblocking(False)
    server = _NetworkServer(bounded_app, None, refusals)
    server.readers_may_pause = True
    async with server.running(listener):
        yield


def connection_limit() -> int:
    """The number of connections that are served at once: a quarter of the descriptors, which the process needs as well."""
    try:
        import resource  # noqa: PLC0415 - absent on Windows
    except ModuleNotFoundError:
        return MAX_CONNECTIONS
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(min(MAX_CONNECTIONS, soft_limit // 4), _MIN_CONNECTIONS)


class LineLogHandler(logging.Handler):
    """Writes a record of Python's log, with its traceback, as one line of stderr, which never waits for a reader."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the record."""
        print_log_line(self.format(record))


def log_to_stderr() -> None:
    """Sends Python's log, where libraries report faults, to stderr; nothing waits for the reader."""
    logging.basicConfig(format="%(levelname)s: %(message)s", handlers=[LineLogHandler()])


class _Handshake:
    """A connection whose TLS handshake is not complete."""

    def __init__(self, source: str, task: asyncio.Task[None]) -> None:
        self.source, self._task = source, task

    def abort(self) -> None:
        """Closes the connection."""
        self._task.cancel()


class _NetworkServer(EmbeddedServer):
    """A server that limits connections per client, and records failed handshakes with the client's address.

    At the limit, a new connection replaces the one that has waited longest for its client.
    """

    def __init__(self, app: App, context: TLSContextSource | None, refusals: RefusalLog) -> None:
        config = embedded_config(app)
        config.h11_max_incomplete_event_size = MAX_HEADER_BYTES
        super().__init__(config)
        self._context, self._refusals = context, refusals
        self._accept_tasks: list[asyncio.Task[None]] = []
        self._handshake_tasks: set[asyncio.Task[None]] = set()
        self._connection_counts = Counter[str]()
        """By client address."""
        self.waiting: dict[WaitingConnection, None] = {}
        """Handshakes, and connections that wait for their clients, the oldest first."""
        self.readers_may_pause = False
        self.plain_headers: list[tuple[bytes, bytes]] = []
        """Headers of answers to requests that are no HTTP."""
        self._max_connections = connection_limit()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept connections."""
        self.servers = []
        self._accept_tasks = [asyncio.create_task(self._accept(listener)) for listener in sockets or ()]
        self.started = True
        self.has_started.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops accepting connections, and closes the open ones."""
        for task in (*self._accept_tasks, *self._handshake_tasks):
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                self._refusals.record(
                    "the machine", "accept", f"cannot accept a connection: {error.strerror}"
                )
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            source = _user(connection) if connection.family == socket.AF_UNIX else str(address[0])
            total = sum(self._connection_counts.values())
            count = self._connection_counts[source]
            is_full = total >= self._max_connections
            if is_full or count >= MAX_CONNECTIONS_PER_ADDRESS:
                self._refusals.record(
                    source, "crowd", f"{count} connections of this client are open, {total} in total"
                )
                replaced = self._replaceable(source if not is_full else None)
                if replaced is None:
                    connection.close()
                    continue
                self.waiting.pop(replaced, None)
                replaced.abort()
            self._connection_counts[source] += 1
            task = asyncio.create_task(self._connect(connection, source))
            self._handshake_tasks.add(task)
            task.add_done_callback(self._handshake_tasks.discard)

    def _replaceable(self, source: str | None) -> WaitingConnection | None:
        """The connection, of this source if there is one, that has waited longest for its client, or that is closing."""
        connections = self.server_state.connections
        closing = (
            protocol
            for protocol in connections
            if isinstance(protocol, HTTPConnection) and protocol.transport.is_closing()
        )
        candidates = (held for held in chain(self.waiting, closing) if source in (None, held.source))
        return next(candidates, None)

    async def _connect(self, connection: socket.socket, source: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        handshake = _Handshake(source, task)
        self.waiting[handshake] = None
        try:
            await self._connect_waiting(connection, source)
        finally:
            self.waiting.pop(handshake, None)

    async def _connect_waiting(self, connection: socket.socket, source: str) -> None:
        loop = asyncio.get_running_loop()
        context = None if self._context is None else self._context()
        timeout_s = None if context is None else HANDSHAKE_TIMEOUT_S
        try:
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(
                lambda: self._protocol(source), connection, ssl=context, ssl_handshake_timeout=timeout_s
            )
        except OSError as error:
            self.connection_closed(source)
            self.record_refusal(source, "handshake", f"TLS handshake failed: {_error_text(error)}")
        except asyncio.CancelledError:
            self.connection_closed(source)
            raise

    def _protocol(self, source: str) -> HTTPConnection:
        protocol = HTTPConnection(self.config, self.server_state, {})
        protocol.attach(self, source)
        return protocol

    def record_refusal(self, source: str, kind: str, why: str) -> None:
        """Records a refused or aborted connection."""
        self._refusals.record(source, kind, why)

    def connection_closed(self, source: str) -> None:
        """Counts a closed connection."""
        self._connection_counts[source] -= 1
        if not self._connection_counts[source]:
            del self._connection_counts[source]


def _listener(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6 and address.address == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address.address, address.port))
        listener.listen(LISTEN_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise HostError("listen on", str(address), error.strerror or str(error)) from None
    return listener


def _user(connection: socket.socket) -> str:
    """The user at the other end of a Unix socket."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"user {user}"


def _error_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error) or "timeout"
