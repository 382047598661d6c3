"""A request that switches protocols, passed to another server: afterwards, bytes are copied in both directions."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import h11
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nodewright.agent.host.on_demand_server import forward_both
from nodewright.cluster.client.http_connections import open_connection
from nodewright.cluster.serving.middleware import TAKE_OVER_CONNECTION
from nodewright.cluster.serving.routes import INTERNAL_ERROR, APIError

RESPONSE_TIMEOUT_S = 30.0
_MAX_BODY_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16
_SWITCHING_PROTOCOLS, _FIRST_ERROR = 101, 400
_DROPPED_HEADERS = (b"authorization", b"content-length", b"expect", b"transfer-encoding")
"""Headers that are not passed on: the client's credentials, and the framing of the body."""


def is_upgrade_request(request: Request) -> bool:
    """Whether the client asks for another protocol.

    Follows: v1.36, streaming/pkg/httpstream/httpstream.go, IsUpgradeRequest.
    """
    return any("upgrade" in value.lower() for value in request.headers.getlist("connection"))


def is_websocket_request(request: Request) -> bool:
    """Whether the client asks for a WebSocket.

    Follows: v1.36, streaming/pkg/httpstream/wsstream/conn.go, IsWebSocketRequest.
    """
    return is_upgrade_request(request) and request.headers.get("upgrade", "").lower() == "websocket"


class UpgradeProxy(Response):
    """Passes the request to ``url``, and joins both connections once the server there switches protocols.

    Follows: v1.36, apimachinery/pkg/util/proxy/upgradeaware.go, UpgradeAwareHandler.
    Departs: the server has half a minute to respond, and does not get the client's credentials.
    """

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = urlsplit(url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the request until one side closes its connection.

        Errors: APIError if there is no upgrade.
        """
        request = Request(scope, receive)
        if not is_upgrade_request(request):
            raise APIError(INTERNAL_ERROR, "Upgrade request required")
        message = self._message(request, await request.body())
        async with self._connection() as (server_reader, server_writer):
            answer = await _answer(message, server_reader, server_writer)
            if isinstance(answer, Response):
                await answer(scope, receive, send)
                return
            reader, writer = scope["state"][TAKE_OVER_CONNECTION]()
            try:
                writer.write(answer)
                await forward_both(reader, server_writer, server_reader, writer)
            finally:
                writer.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        is_secure = self._url.scheme == "https"
        port = self._url.port or (443 if is_secure else 80)
        context = ssl.create_default_context() if is_secure else None
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                reader, writer = await open_connection(self._url.hostname or "", port, context)
        except OSError as error:
            reason = error.strerror or str(error) or "timeout"
            raise APIError(INTERNAL_ERROR, f"error dialing backend: {self._url.netloc}: {reason}") from None
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _message(self, request: Request, body: bytes) -> list[h11.Event]:
        target = self._url.path + (f"?{self._url.query}" if self._url.query else "")
        headers = [(name, value) for name, value in request.headers.raw if name not in _DROPPED_HEADERS]
        if body or request.method == "POST":
            headers.append((b"content-length", str(len(body)).encode()))
        if request.client is not None:
            headers.append((b"x-forwarded-for", request.client.host.encode()))
        return [
            h11.Request(method=request.method, target=target, headers=headers),
            *([h11.Data(data=body)] if body else []),
            h11.EndOfMessage(),
        ]


async def _answer(
    message: list[h11.Event], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes | Response:
    """The bytes that the server has sent when it switches protocols; else its response.

    Errors: APIError.
    """
    connection = h11.Connection(h11.CLIENT)
    try:
        async with asyncio.timeout(RESPONSE_TIMEOUT_S):
            for event in message:
                writer.write(connection.send(event) or b"")
            await writer.drain()
            return await _read_answer(connection, reader)
    except (OSError, h11.ProtocolError) as error:
        reason = str(error) or f"no response within {RESPONSE_TIMEOUT_S:g} s"
        raise APIError(INTERNAL_ERROR, f"error sending request: {reason}") from None


async def _read_answer(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes | Response:
    """Errors: OSError; ProtocolError of h11; APIError."""
    received = bytearray()
    response: h11.Response | None = None
    body = bytearray()
    while len(body) <= _MAX_BODY_BYTES:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            chunk = await reader.read(_CHUNK_BYTES)
            if not (received or chunk):
                raise APIError(INTERNAL_ERROR, "error sending request: the server closed the connection")
            received += chunk
            connection.receive_data(chunk)
        elif isinstance(event, h11.InformationalResponse):
            if event.status_code == _SWITCHING_PROTOCOLS:
                return bytes(received)
        elif isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            break
    assert response is not None  # h11 raises an error for an end before a response
    if response.status_code < _FIRST_ERROR:
        raise APIError(INTERNAL_ERROR, f"invalid upgrade response: status code {response.status_code}")
    content_type = next((value for name, value in response.headers if name == b"content-type"), b"text/plain")
    return Response(
        bytes(body[:_MAX_BODY_BYTES]), response.status_code, media_type=content_type.decode("latin-1")
    )
