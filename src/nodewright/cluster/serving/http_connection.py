"""One connection of an embedded HTTP server: deadlines of requests, and taking the connection over."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from nodewright.cluster.serving.middleware import ABORT_CONNECTION, PEER_CERTIFICATE, TAKE_OVER_CONNECTION

HEADERS_TIMEOUT_S = 10.0
_STREAM_BUFFER_BYTES = 1 << 16
_KEEPALIVE_S, _KEEPALIVE_PROBES = 15, 9
"""Follows: Go, net/tcpsock.go, KeepAliveConfig."""


class WaitingConnection(Protocol):
    """A connection without a complete handshake or request, which may have to give way to another one."""

    source: str
    """The client's address."""

    def abort(self) -> None:
        """Closes the connection at once."""


class ConnectionOwner(Protocol):
    """The server that a connection belongs to."""

    waiting: dict[WaitingConnection, None]
    """Handshakes, and connections without a complete request, the oldest first."""
    plain_headers: list[tuple[bytes, bytes]]
    """Headers of answers to requests that are no HTTP."""

    def record_refusal(self, source: str, kind: str, why: str) -> None:
        """Records a refused or aborted connection."""

    def connection_closed(self, source: str) -> None:
        """Counts a closed connection."""


class _JoinedResponses(h11.Connection):
    """Returns the head of a response with the first part of its body, which often follows at once: one write for both."""

    def __init__(self, max_incomplete_event_size: int, write_later: Callable[[], object]) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._head, self._write_later = b"", write_later

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

    def attach(self, owner: ConnectionOwner, source: str) -> None:
        """Sets the server that counts the connection and records refusals, and the client's address."""
        self._owner, self.source = owner, source
        self._deadline: asyncio.TimerHandle | None = None
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
        self.conn = self._joined = _JoinedResponses(size, lambda: self.loop.call_soon(self._write_head))
        self._start_deadline()

    def _write_head(self) -> None:
        """Writes the head of a response whose body has not followed."""
        if (head := self._joined.take_head()) and not self.transport.is_closing():
            self.transport.write(head)

    def data_received(self, data: bytes) -> None:
        """Parses data. A request must be complete by its deadline, which partial data does not extend."""
        if self._stream is not None:
            self._stream.data_received(data)
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_deadline()
        else:
            self._cancel_deadline()

    def on_response_complete(self) -> None:
        """Cancels the deadline if the next request is already complete (pipelining)."""
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_deadline()

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The bytes that follow the current request, which is complete, and a writer; HTTP ends here.

        The caller closes the writer. A client that is silent and gone is detected by keep-alives.
        """
        self._write_head()
        reader = asyncio.StreamReader(_STREAM_BUFFER_BYTES)
        self._stream = asyncio.StreamReaderProtocol(reader)
        self._stream.connection_made(self.transport)
        self._cancel_deadline()
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
        """Has writers wait."""
        super().pause_writing()
        if self._stream is not None:
            self._stream.pause_writing()

    def resume_writing(self) -> None:
        """Lets writers continue."""
        super().resume_writing()
        if self._stream is not None:
            self._stream.resume_writing()

    def shutdown(self) -> None:
        """Closes the connection once its response is complete; at once if it has been taken over."""
        if self._stream is not None:
            self.transport.abort()
            return
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the deadline, and counts the closed connection."""
        self._cancel_deadline()
        if self._stream is not None:
            self._stream.connection_lost(exc)
        super().connection_lost(exc)
        self._owner.connection_closed(self.source)

    def send_400_response(self, msg: str) -> None:
        """Records and answers a malformed request."""
        self._owner.record_refusal(self.source, "garbage", "malformed HTTP request")
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"connection", b"close"),
            *self._owner.plain_headers,
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=msg.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._cancel_deadline()
        self.transport.abort()

    def _start_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_TIMEOUT_S, self._abort_slow_request)
            self._owner.waiting[self] = None

    def _cancel_deadline(self) -> None:
        self._owner.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort_slow_request(self) -> None:
        self._cancel_deadline()
        if not self.transport.is_closing():
            self._owner.record_refusal(
                self.source, "slow", f"no complete request within {HEADERS_TIMEOUT_S:g} s"
            )
            self.transport.abort()


def _send_keepalives(connection: socket.socket) -> None:
    """Detects within minutes that the other side of a TCP connection is gone."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
