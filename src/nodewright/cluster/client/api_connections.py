"""Connections to an API server, kept open between requests: opening one takes longer than most requests."""

import asyncio
import base64
import socket
import ssl
import time
from asyncio.trsock import TransportSocket
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from urllib.parse import SplitResult, unquote, urlsplit

from nodewright.cluster.client.access import ClusterAccess, proxy_address
from nodewright.cluster.client.http_get import body_parts, join_host_port, response_head
from nodewright.cluster.client.request_credentials import RequestCredentials
from nodewright.cluster.client.tls import CurrentTLS, TLSMaterial

MAX_IDLE_S = 60.0
"""API servers close connections without requests after 90 s."""
_BUFFER_BYTES = 1 << 16


class ApiConnection:
    """One connection; it may be used again once an answer was read to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.tls: TLSMaterial | None = None
        self.is_reused = self.is_at_end = False
        self.used_s = 0.0

    async def start_tls(self, context: ssl.SSLContext, server_name: str) -> None:
        """Continues with TLS.

        A step of its own: a connection that is cancelled before its handshake begins would leave the socket open.
        """
        await self.writer.start_tls(context, server_hostname=server_name)

    async def answer_head(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer, by lower-case name.

        Errors: ValueError for what is no HTTP; OSError, IncompleteReadError and LimitOverrunError of the connection.
        """
        self.writer.write(request)
        return await response_head(self.reader)

    async def body(self, status: int, headers: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """The parts of the body.

        Errors: as of `answer_head`.
        """
        async with aclosing(body_parts(self.reader, headers, status)) as parts:
            async for part in parts:
                yield part
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while (await self.reader.readuntil(b"\n")).strip():
                pass  # Headers may follow the last chunk.
        elif "content-length" not in headers and status not in (204, 304):
            return  # The end of the connection was the end of the body.
        self.is_at_end = headers.get("connection", "").lower() != "close"

    async def is_silent(self) -> bool:
        """Whether the connection is open and nothing has come that was not asked for."""
        try:
            async with asyncio.timeout(0):
                await self.reader.read(1)
        except TimeoutError:
            return not self.writer.is_closing()
        except OSError:
            pass
        return False

    def abort(self) -> None:
        """Closes the connection at once."""
        self.writer.transport.abort()


class ApiConnections:
    """The connections of one client of an API server, opened as its access says: through a proxy, with TLS."""

    def __init__(self, access: ClusterAccess, credentials: RequestCredentials) -> None:
        self._access, self._server = access, urlsplit(access.server)
        self._proxy = urlsplit(access.proxy) if access.proxy else None
        self._tls = CurrentTLS(access, credentials) if self._server.scheme == "https" else None
        self._idle: list[ApiConnection] = []
        host, port = self._server.hostname or "", self._server.port
        self.host_header = join_host_port(host, port) if port else host
        """The server as requests name it."""
        origin = f"{self._server.scheme}://{self._server.netloc}" if self._proxy and self._tls is None else ""
        self.target_prefix = origin + self._server.path.rstrip("/")
        """What precedes the path in a request: a proxy needs the whole URL of a server without TLS."""

    def proxy_headers(self) -> list[tuple[str, str]]:
        """The headers of a request that the proxy itself reads."""
        if self._proxy is None or self._tls is not None or self._proxy.username is None:
            return []
        return [("Proxy-Authorization", _basic_authorization(self._proxy))]

    def expire(self) -> bool:
        """Makes the next request read certificates again; False where they cannot change."""
        return self._tls is not None and self._tls.expire()

    async def take(self) -> ApiConnection:
        """A connection for a request: one that is idle, or a new one.

        Errors: OSError, ValueError, EOFError and LimitOverrunError of the connection; HostError for certificates.
        """
        context = await self._tls.context() if self._tls is not None else None
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
        return await self._opened(context)

    def put(self, connection: ApiConnection) -> None:
        """Keeps a connection for later requests if its last answer was read to the end; closes it otherwise."""
        if not connection.is_at_end:
            connection.abort()
            return
        connection.used_s = time.monotonic()
        connection.is_reused = connection.is_at_end = False
        self._idle.append(connection)

    def close(self) -> None:
        """Closes the idle connections: all, because a server that has lost one has mostly lost the others."""
        while self._idle:
            self._idle.pop().abort()

    async def _opened(self, context: TLSMaterial | None) -> ApiConnection:
        first = self._proxy or self._server
        port = first.port or (443 if first.scheme == "https" else 80)
        reader, writer = await asyncio.open_connection(first.hostname, port, limit=_BUFFER_BYTES)
        connection = ApiConnection(reader, writer)
        try:
            set_keepalive(writer.get_extra_info("socket"))
            if self._proxy is not None:
                await self._pass_proxy(connection, self._proxy)
            if context is not None:
                name = self._access.tls.server_name or self._server.hostname or ""
                await connection.start_tls(context, name)
        except BaseException:
            connection.abort()
            raise
        connection.tls = context
        return connection

    async def _pass_proxy(self, connection: ApiConnection, proxy: SplitResult) -> None:
        if proxy.scheme == "https":
            await connection.start_tls(ssl.create_default_context(), proxy.hostname or "")
        if self._tls is None:
            return
        address = join_host_port(self._server.hostname or "", self._server.port or 443)
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if proxy.username is not None:
            lines.append(f"Proxy-Authorization: {_basic_authorization(proxy)}")
        status, _ = await connection.answer_head("\r\n".join((*lines, "", "")).encode())
        if status != 200:
            raise OSError(f"the proxy {proxy_address(self._access.proxy)} answers {status}")


def _basic_authorization(proxy: SplitResult) -> str:
    pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def set_keepalive(connection: socket.socket | TransportSocket) -> None:
    """Makes a connection notice within about a minute that its peer is gone, also under an idle watch."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Not on every system.
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
