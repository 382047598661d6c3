"""Exec and attach by WebSocket for runtimes without a streaming server: each message begins with its channel's number.

Follows: v1.36, streaming/pkg/httpstream/wsstream/conn.go; cri-streaming/pkg/streaming/remotecommand/websocket.go.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.events import Request as WebSocketRequest
from wsproto.utilities import LocalProtocolError, ProtocolError

from nodewright.agent.host.ports import STDOUT, ProcessSession
from nodewright.agent.serving.upgrade_proxy import is_websocket_request
from nodewright.cluster.serving.middleware import TAKE_OVER_CONNECTION
from nodewright.cluster.serving.routes import BAD_REQUEST, INTERNAL_ERROR, APIError
from nodewright.documents.formats.decode import examined
from nodewright.model.errors import JSON_ERRORS, HostError

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
PING_PERIOD_S = 30.0
_STDIN, _ERROR, _RESIZE, _CLOSE = 0, 3, 4, 255
_CHUNK_BYTES = 1 << 16
_MAX_CONTROL_BYTES = 4096
_QUEUED_MESSAGES = 16
_MAX_SIZE = (1 << 16) - 1
_NO_WEBSOCKET = (
    "this container is a plain process, whose streams need a WebSocket with one of the protocols {protocols}: "
    "clients of Kubernetes 1.31 and newer use them (kubectl with KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true)"
)


class ChannelStreams(Response):
    """Joins a WebSocket client with the streams of a process, until one of them ends."""

    def __init__(self, session: AbstractAsyncContextManager[ProcessSession]) -> None:
        super().__init__()
        self._session = session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the request.

        Errors: APIError if it cannot be served.
        """
        del send  # the connection is taken over
        request = Request(scope, receive)
        connection, protocol = _accepted(request)
        await request.body()
        try:
            async with self._session as session:
                reader, writer = scope["state"][TAKE_OVER_CONNECTION]()
                conversation = _Conversation(connection, protocol, reader, writer, session)
                try:
                    await conversation.run()
                finally:
                    writer.close()
        except HostError as error:
            raise APIError(INTERNAL_ERROR, error.error) from None


def _accepted(request: Request) -> tuple[WSConnection, str]:
    """The connection and the protocol that the client prefers.

    Errors: APIError.
    """
    offered = [
        name.strip()
        for value in request.headers.getlist("sec-websocket-protocol")
        for name in value.split(",")
    ]
    protocol = next((name for name in offered if name in PROTOCOLS), None)
    if not is_websocket_request(request) or protocol is None:
        raise APIError(BAD_REQUEST, _NO_WEBSOCKET.format(protocols=", ".join(PROTOCOLS)))
    connection = WSConnection(ConnectionType.SERVER)
    try:
        connection.initiate_upgrade_connection(request.headers.raw, request.url.path)
        event = next(connection.events())
    except (ProtocolError, StopIteration) as error:
        raise APIError(BAD_REQUEST, f"no WebSocket handshake: {error}") from None
    assert isinstance(event, WebSocketRequest)
    return connection, protocol


class _Conversation:
    """A client and a process. Output waits for the client, and input for the process."""

    def __init__(
        self,
        connection: WSConnection,
        protocol: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        session: ProcessSession,
    ) -> None:
        self._connection, self._protocol, self._session = connection, protocol, session
        self._reader, self._writer = reader, writer
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_MESSAGES)
        self._message = bytearray()
        """A message about the terminal or a stream that is not complete yet."""
        self._channel: int | None = None
        """The channel of the message that is being received."""

    async def run(self) -> None:
        """Copies until the process ends or the client leaves."""
        self._write(AcceptConnection(subprotocol=self._protocol))
        # The first message shows the client that the streams are open.
        self._write(BytesMessage(bytes([STDOUT])))
        output = asyncio.ensure_future(self._session.copy_output(self._send))
        others = [asyncio.ensure_future(task) for task in (self._receive(), self._feed(), self._ping())]
        try:
            await asyncio.wait((output, others[0]), return_when=asyncio.FIRST_COMPLETED)
            if output.done():
                await self._end(output)
        except OSError:
            # The client has left.
            pass
        finally:
            for task in (output, *others):
                task.cancel()
            await asyncio.gather(output, *others, return_exceptions=True)

    async def _end(self, output: asyncio.Future[int]) -> None:
        try:
            status = _status(output.result())
        except HostError as error:
            status = _failure(error.error)
        self._write(BytesMessage(bytes([_ERROR]) + status))
        self._write(CloseConnection(code=1000))
        await self._writer.drain()

    async def _send(self, number: int, data: bytes) -> None:
        self._write(BytesMessage(bytes([number]) + data))
        await self._writer.drain()

    def _write(self, event: Event) -> None:
        """Errors: OSError where the client has left."""
        if self._writer.is_closing():
            raise ConnectionResetError
        try:
            self._writer.write(self._connection.send(event))
        except LocalProtocolError:
            # A close, of the client or of a frame that broke the protocol, has been answered already.
            raise ConnectionResetError from None

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_PERIOD_S)
            self._write(Ping())

    async def _receive(self) -> None:
        """Takes messages until the client closes the connection, or breaks the protocol."""
        with suppress(OSError, ProtocolError):
            async for event in self._events():
                if isinstance(event, Ping):
                    self._write(event.response())
                elif isinstance(event, CloseConnection):
                    self._write(event.response())
                    return
                elif isinstance(event, BytesMessage | TextMessage):
                    data = event.data
                    await self._take(
                        data.encode() if isinstance(data, str) else bytes(data),
                        is_end=event.message_finished,
                    )

    async def _events(self) -> AsyncIterator[Event]:
        while True:
            for event in self._connection.events():
                yield event
            chunk = await self._reader.read(_CHUNK_BYTES)
            if not chunk:
                return
            self._connection.receive_data(chunk)

    async def _take(self, data: bytes, *, is_end: bool) -> None:
        """Takes a part of a message."""
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == _STDIN:
            if data:
                await self._input.put(data)
        elif len(self._message) + len(data) <= _MAX_CONTROL_BYTES:
            self._message += data
        if is_end:
            await self._end_message(self._channel, bytes(self._message))
            self._channel = None
            self._message.clear()

    async def _end_message(self, channel: int | None, message: bytes) -> None:
        if channel == _RESIZE:
            with suppress(*JSON_ERRORS):
                size = msgspec.json.decode(message, type=examined(_TerminalSize))
                self._session.resize(min(size.width, _MAX_SIZE), min(size.height, _MAX_SIZE))
        elif channel == _CLOSE and self._protocol == PROTOCOLS[0] and message[:1] == bytes([_STDIN]):
            await self._input.put(None)

    async def _feed(self) -> None:
        """Passes the input on, apart from the messages that follow it."""
        while True:
            data = await self._input.get()
            if data is None:
                self._session.close_stdin()
            else:
                await self._session.write(data)


class _TerminalSize(msgspec.Struct, frozen=True, rename={"width": "Width", "height": "Height"}):
    """Columns and rows."""

    width: Annotated[int, msgspec.Meta(ge=0)] = 0
    height: Annotated[int, msgspec.Meta(ge=0)] = 0


def _status(code: int) -> bytes:
    """The Status object of an ended process.

    Follows: v1.36, cri-streaming/pkg/streaming/remotecommand/exec.go, ServeExec.
    """
    if code == 0:
        return msgspec.json.encode({"metadata": {}, "status": "Success"})
    return msgspec.json.encode(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: exit code {code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        }
    )


def _failure(message: str) -> bytes:
    return msgspec.json.encode(
        {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    )
