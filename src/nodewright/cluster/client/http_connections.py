"""HTTP/1.1 for all that this program asks of servers: connections that are kept open, with TLS and through proxies.

The library h11 reads and writes the protocol, asyncio's streams carry the bytes. Nothing here follows a redirect, and
every error is an `HTTPError` or another OSError.
"""

import asyncio
import base64
import os
import re
import socket
import ssl
import time
import zlib
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

import h11
import msgspec

from nodewright.cluster.client.access import proxy_address, url_rule

MAX_IDLE_S = 60.0
"""API servers close connections without requests after 90 s."""
MAX_HEAD_BYTES = 64 << 10
_READ_BYTES = 256 << 10
"""What is read at once: as much as asyncio takes from a socket."""
_UNPACKED_BYTES = 1 << 20
"""How much of a compressed body is unpacked at once."""

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?", re.DOTALL)

TLSSource: TypeAlias = Callable[[], Awaitable[ssl.SSLContext]]
"""Returns the TLS context of a request; another one if certificates have changed."""


class HTTPError(OSError):
    """A request without a complete answer in HTTP; the text says why."""


class UnreachableError(HTTPError):
    """There is no connection: nothing was sent."""


class InvalidRequestError(HTTPError):
    """A request that HTTP cannot express: nothing was sent."""


class InvalidAnswerError(HTTPError):
    """The answer is not HTTP; `fault` says what is wrong."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"the answer is not HTTP: {fault}")
        self.fault = fault


class ConnectionEndedError(HTTPError):
    """The connection ended before the end of the answer, or before its beginning."""

    def __init__(self, *, has_begun: bool) -> None:
        super().__init__(
            "the connection ended in the middle of the answer"
            if has_begun
            else "the server closed the connection without an answer"
        )
        self.has_begun = has_begun


class OversizedAnswerError(HTTPError):
    """The body has more bytes than its reader takes."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the answer has more than {max_bytes} bytes, which is the limit")


class WireRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is sent."""

    verb: str = "GET"
    target: str
    """The path with its query."""
    headers: Sequence[tuple[str, str]]
    """With `Host`."""
    body: bytes = b""

    def encoded(self, protocol: h11.Connection) -> bytes:
        """The bytes of the request.

        Errors: InvalidRequestError, whose text has no value of a header, because it may be a secret.
        """
        headers = (*self.headers, *((("Content-Length", str(len(self.body))),) if self.body else ()))
        try:
            # h11 does not check its own headers again.
            checked = _checked_headers(headers)
            head = protocol.send(h11.Request(method=self.verb, target=self.target, headers=checked))
            body = protocol.send(h11.Data(data=self.body)) if self.body else b""
            return head + body + protocol.send(h11.EndOfMessage())
        except (h11.LocalProtocolError, UnicodeEncodeError):
            text = "the path or a header of the request has a character that HTTP does not allow"
            raise InvalidRequestError(text) from None


@lru_cache(512)
def _checked_headers(headers: tuple[tuple[str, str], ...]) -> Any:
    """The headers as h11 has them; the many requests of an agent have the same ones.

    Errors: LocalProtocolError; UnicodeEncodeError.
    """
    encoded = [(name.encode(), value.strip(" \t").encode()) for name, value in headers]
    return h11.Request(method="GET", target="/", headers=encoded).headers


class AnswerHead(msgspec.Struct, frozen=True):
    """Status and headers of an answer."""

    status: int
    reason: str = ""
    headers: Mapping[str, str] = {}
    """By lower-case name; of repeated ones the first."""

    @property
    def content_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()


class ClientConnection:
    """One connection; it may be used again once an answer was read to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._protocol = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)
        self._has_begun = self._has_ended = self._may_reuse = False
        self._chunks: _ChunkedBody | None = None
        self.tls: ssl.SSLContext | None = None
        self.is_reused = self.is_at_end = False
        self.used_s = 0.0

    async def start_tls(self, context: ssl.SSLContext, server_name: str) -> None:
        """Continues with TLS, and with the protocol from its beginning.

        A step of its own: a connection that is cancelled before its handshake begins would leave the socket open.
        """
        await self.writer.start_tls(context, server_hostname=server_name)
        self._protocol = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)

    async def head(self, request: WireRequest) -> AnswerHead:
        """Sends the request; status and headers of the final answer, after informational (1xx) ones.

        Errors: HTTPError; OSError of the connection.
        """
        self._has_begun = self.is_at_end = False
        self.writer.write(request.encoded(self._protocol))
        event = await self._event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._event()
        if not isinstance(event, h11.Response):
            raise ConnectionEndedError(has_begun=self._has_begun)
        headers: dict[str, str] = {}
        for name, value in event.headers:
            headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._chunks = _ChunkedBody() if is_chunked and event.status_code not in (204, 304) else None
        self._may_reuse = event.http_version == b"1.1" and headers.get("connection", "").lower() != "close"
        return AnswerHead(event.status_code, bytes(event.reason).decode("latin-1"), headers)

    async def body(self) -> AsyncGenerator[bytes]:
        """The parts of the body as they arrive.

        Errors: as of `head`.
        """
        if self._chunks is not None:
            async for part in self._chunked(self._chunks):
                yield part
            return
        while isinstance(event := await self._event(), h11.Data):
            yield event.data
        following, _ = self._protocol.trailing_data
        if self._protocol.their_state is h11.DONE and self._protocol.our_state is h11.DONE and not following:
            self._protocol.start_next_cycle()
            self.is_at_end = True

    async def _chunked(self, chunks: "_ChunkedBody") -> AsyncGenerator[bytes]:
        """The parts of a body in chunks, read from the stream beside h11: `_ChunkedBody` says why."""
        content, _ = self._protocol.trailing_data
        while True:
            if part := chunks.feed(content):
                yield part
            if chunks.is_at_end:
                break
            content = await self._reader.read(_READ_BYTES)
            if not content:
                raise ConnectionEndedError(has_begun=True)
        self._protocol = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)
        self.is_at_end = self._may_reuse and not chunks.rest

    async def is_silent(self) -> bool:
        """Whether the connection is open and nothing has come that was not asked for."""
        for _ in range(2):  # The event loop passes on what has arrived.
            await asyncio.sleep(0)
        read = self._reader.read(1)
        try:
            # A read that would wait is given up: with a time-out of zero, each request would take a tenth longer.
            read.send(None)
        except (StopIteration, OSError):
            return False
        read.close()
        return not self.writer.is_closing()

    def abort(self) -> None:
        """Closes the connection at once."""
        self.writer.transport.abort()

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event of the protocol."""
        try:
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                content = await self._reader.read(_READ_BYTES)
                if not self._has_begun and content:
                    self._has_begun = True
                    _check_start(content)
                self._has_ended = not content
                self._protocol.receive_data(content)
        except h11.RemoteProtocolError as error:
            if self._has_ended:
                raise ConnectionEndedError(has_begun=self._has_begun) from None
            raise InvalidAnswerError(str(error)) from None
        return event


class _ChunkedBody:
    """The content of a body in chunks.

    h11 takes 25 µs for each chunk, and API servers send a list in chunks of one object, or of 2 KiB if it is
    compressed: a list of 400 MB would take half as long again. This is the only part of HTTP that is read beside h11.
    """

    def __init__(self) -> None:
        self.rest = b""
        """What has arrived and is not read yet; at the end, what follows the body."""
        self.is_at_end = False
        self._left = 0
        """Bytes of the current chunk that have not arrived."""
        self._is_in_chunk = self._is_in_trailer = False

    def feed(self, content: bytes) -> bytes:
        """The part of the body in what has arrived.

        Errors: InvalidAnswerError.
        """
        content, position, parts = self.rest + content, 0, []
        while not self.is_at_end:
            if self._left:
                part = content[position : position + self._left]
                if not part:
                    break
                parts.append(part)
                position += len(part)
                self._left -= len(part)
                continue
            end = content.find(b"\r\n", position)
            if end < 0:
                break
            self._take_line(content[position:end])
            position = end + 2
        self.rest = content[position:]
        if not self.is_at_end and len(self.rest) > MAX_HEAD_BYTES:
            raise InvalidAnswerError("the line before a chunk is too long")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        if self._is_in_trailer:
            self.is_at_end = not line
        elif self._is_in_chunk and not line:
            self._is_in_chunk = False
        elif (match := _CHUNK_SIZE.fullmatch(line)) is not None and not self._is_in_chunk:
            self._left = int(match[1], 16)
            self._is_in_chunk, self._is_in_trailer = self._left > 0, self._left == 0
        else:
            raise InvalidAnswerError(f"illegal chunk header: {line[:100]!r}")


def _check_start(content: bytes) -> None:
    """Notices at the first bytes what is no HTTP: h11 would wait for the end of headers.

    Errors: InvalidAnswerError with Go's text.
    """
    if not content.startswith(b"HTTP/"[: len(content)]):
        line = content.partition(b"\n")[0][:200].strip().decode(errors="replace")
        raise InvalidAnswerError(f'malformed HTTP response "{line}"')


class HTTPConnections:
    """The connections to one server: opened as needed, kept while idle."""

    def __init__(
        self, server: str, tls: TLSSource | None = None, *, server_name: str = "", proxy: str = ""
    ) -> None:
        """``tls`` is for servers whose URL is https; ``server_name``: the name in the server's certificate.

        Errors: ValueError for a server that is no URL.
        """
        try:
            self._server = urlsplit(server)
            port = self._server.port
        except ValueError as error:
            raise ValueError(url_rule(server, error)) from None
        if self._server.scheme not in ("http", "https") or not self._server.hostname:
            raise ValueError("a URL begins with http:// or https:// and names a host")
        self._proxy = urlsplit(proxy) if proxy else None
        self._through = f" through the proxy {proxy_address(proxy)}" if proxy else ""
        self._tls = tls if self._server.scheme == "https" else None
        host = self._server.hostname
        self._server_name = server_name or host
        self._idle: list[ClientConnection] = []
        self.on_answer: Callable[[str, str, int, float], None] = lambda _verb, _host, _code, _duration_s: None
        """Gets the verb, the host, the status and the duration of each answer; status 0: there was none."""
        self.host_header = join_host_port(host, port) if port else host
        """The server as requests name it."""
        is_forwarded = self._proxy is not None and self._tls is None
        origin = f"{self._server.scheme}://{self._server.netloc.rpartition('@')[2]}" if is_forwarded else ""
        self.target_prefix = origin + self._server.path.rstrip("/")
        """What precedes the path in a request: a proxy needs the whole URL of a server without TLS."""
        self.headers = [("Host", self.host_header)]
        """The headers that depend on the connection only: of the server, and of a proxy that reads the request."""
        if is_forwarded:
            self.headers += _proxy_authorization(self._proxy)

    @asynccontextmanager
    async def exchange(self, request: WireRequest) -> AsyncIterator[tuple[AnswerHead, AsyncGenerator[bytes]]]:
        """The answer to a request, and the parts of its body, unpacked.

        The connection is kept if the body is read to its end, and closed otherwise.

        Errors: HTTPError; other OSErrors of the connection; HostError for certificates.
        """
        connection, head = await self._sent(request)
        try:
            async with aclosing(connection.body()) as body:
                encoding = head.headers.get("content-encoding", "identity").lower()
                if encoding == "identity":
                    yield head, body
                else:
                    async with aclosing(_unpacked(body, encoding)) as parts:
                        yield head, parts
        except HTTPError as error:
            raise self._named(error) from None
        finally:
            self._put(connection)

    def close(self) -> None:
        """Closes the idle connections: all, because a server that has lost one has mostly lost the others."""
        while self._idle:
            self._idle.pop().abort()

    async def _sent(self, request: WireRequest) -> tuple[ClientConnection, AnswerHead]:
        started_s, code = time.monotonic(), 0
        try:
            while True:
                connection = await self._take()
                try:
                    head = await connection.head(request)
                except OSError as error:
                    self._abandon(connection)
                    # The server may have closed it at this moment; a read is harmless, whatever became of it.
                    is_closed = isinstance(error, ConnectionError | ConnectionEndedError)
                    if is_closed and connection.is_reused and request.verb == "GET":
                        continue
                    raise self._named(error) from None
                except BaseException:
                    self._abandon(connection)
                    raise
                code = head.status
                return connection, head
        finally:
            self.on_answer(request.verb, self.host_header, code, time.monotonic() - started_s)

    def _abandon(self, connection: ClientConnection) -> None:
        connection.abort()
        self.close()

    def _named(self, error: OSError) -> OSError:
        """The error; one of the connection itself names the proxy."""
        if self._through and isinstance(error, ConnectionEndedError | ConnectionError):
            return HTTPError(f"{error_text(error)}{self._through}")
        return error

    async def _take(self) -> ClientConnection:
        """A connection for a request: one that is idle, or a new one."""
        context = await self._tls() if self._tls is not None else None
        while self._idle:
            connection = self._idle.pop()
            is_fresh = connection.tls is context and time.monotonic() - connection.used_s < MAX_IDLE_S
            try:
                connection.is_reused = is_fresh and await connection.is_silent()
            finally:
                if not connection.is_reused:
                    connection.abort()
            if connection.is_reused:
                return connection
        try:
            return await self._opened(context)
        except (HTTPError, ssl.SSLError):
            raise
        except (OSError, ValueError, OverflowError) as error:
            raise UnreachableError(f"cannot connect: {error_text(error)}{self._through}") from None

    def _put(self, connection: ClientConnection) -> None:
        if not connection.is_at_end:
            connection.abort()
            return
        connection.used_s = time.monotonic()
        connection.is_reused = connection.is_at_end = False
        self._idle.append(connection)

    async def _opened(self, context: ssl.SSLContext | None) -> ClientConnection:
        first = self._proxy or self._server
        port = first.port or (443 if first.scheme == "https" else 80)
        reader, writer = await open_connection(first.hostname or "", port)
        connection = ClientConnection(reader, writer)
        try:
            set_keepalive(writer.get_extra_info("socket"))
            if self._proxy is not None:
                await self._pass_proxy(connection, self._proxy)
            if context is not None:
                await connection.start_tls(context, self._server_name)
        except BaseException:
            connection.abort()
            raise
        connection.tls = context
        return connection

    async def _pass_proxy(self, connection: ClientConnection, proxy: SplitResult) -> None:
        if proxy.scheme == "https":
            await connection.start_tls(ssl.create_default_context(), proxy.hostname or "")
        if self._tls is None:
            return
        address = join_host_port(self._server.hostname or "", self._server.port or 443)
        headers = [("Host", address), *_proxy_authorization(proxy)]
        head = await connection.head(WireRequest(verb="CONNECT", target=address, headers=headers))
        if head.status != 200:
            place = self._through.removeprefix(" through ")
            raise UnreachableError(f"{place} answers {head.status} {head.reason}".rstrip())


async def open_connection(
    host: str, port: int, context: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, with TLS where there is a context.

    TLS is a step of its own: a connection that is cancelled before its handshake begins would leave the socket open.

    Errors: OSError, ValueError and OverflowError of `asyncio.open_connection`.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=_READ_BYTES)
    try:
        if context is not None:
            await writer.start_tls(context, server_hostname=host)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def whole_body(parts: AsyncGenerator[bytes], max_bytes: int) -> bytes:
    """The parts as one.

    Errors: OversizedAnswerError.
    """
    received, size = list[bytes](), 0
    async for part in parts:
        received.append(part)
        size += len(part)
        if size > max_bytes:
            raise OversizedAnswerError(max_bytes)
    return b"".join(received)


async def _unpacked(parts: AsyncGenerator[bytes], encoding: str) -> AsyncGenerator[bytes]:
    """The content of a compressed body, in parts of bounded size.

    Errors: HTTPError.
    """
    if encoding not in ("gzip", "deflate"):
        raise InvalidAnswerError(f"its encoding is {encoding!r}, which was not asked for")
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # with the header of gzip or of zlib
    try:
        async for part in parts:
            rest: bytes = part
            while rest:
                yield unpacker.decompress(rest, _UNPACKED_BYTES)
                rest = unpacker.unconsumed_tail
    except zlib.error as error:
        raise InvalidAnswerError(f"its content is not {encoding}: {error}") from None
    if not unpacker.eof:
        raise ConnectionEndedError(has_begun=True)


def error_text(error: BaseException) -> str:
    """What is wrong with a connection, in one line."""
    match error:
        case ssl.SSLCertVerificationError():
            text = error.verify_message or str(error)
            return f"the server's certificate is not accepted: {text}; see certificate-authority in the kubeconfig"
        case ssl.SSLError():
            reason = str(error.reason or error.strerror or error)
            if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
                return "the server does not speak TLS; is its URL http://?"
            return f"TLS failed: {reason.replace('_', ' ').lower()}"
        case socket.gaierror():
            return f"no such host: {error.strerror}"
        case OSError() if error.errno is not None and "Connect call failed" in str(error.strerror):
            return os.strerror(error.errno).lower()  # asyncio's text repeats the address.
        case OSError():
            return error.strerror or str(error) or type(error).__name__
        case _:
            return str(error) or type(error).__name__


def join_host_port(host: str, port: int) -> str:
    """Host and port as an address, with IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _proxy_authorization(proxy: SplitResult | None) -> list[tuple[str, str]]:
    if proxy is None or proxy.username is None:
        return []
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [("Proxy-Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]


def set_keepalive(connection: socket.socket | TransportSocket) -> None:
    """Makes a connection notice within about a minute that its peer is gone, also under an idle watch."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Not on every system.
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
