"""A WebSocket client of exec and attach: messages that begin with the number of their channel."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.kubelet_api import HTTPSAgent
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
)

STDIN, ERROR, RESIZE, CLOSE = 0, 3, 4, 255


class ChannelClient:
    """One connection; ``received`` are the contents of the channels so far."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._connection = WSConnection(ConnectionType.CLIENT)
        self.received: dict[int, bytes] = {}
        self.protocol, self.refusal = "", ""
        self.is_closed = False
        self._channel: int | None = None
        self.pongs = 0

    async def open(self, path: str, protocols: list[str], token: str) -> None:
        """Sends the handshake, and waits for its answer."""
        headers = [(b"authorization", f"Bearer {token}".encode())]
        self._send(Request(host="node1", target=path, subprotocols=protocols, extra_headers=headers))
        while not (self.protocol or self.refusal or self.is_closed):
            await self._receive()

    def write(self, channel: int, data: bytes) -> None:
        """Sends a message."""
        self._send(BytesMessage(bytes([channel]) + data))

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes, which need not be a frame."""
        self._writer.write(data)

    def ping(self) -> None:
        """Sends a ping."""
        self._send(Ping(b"x"))

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal."""
        self.write(RESIZE, json.dumps({"Width": width, "Height": height}).encode())

    async def until(self, channel: int, text: bytes) -> bytes:
        """What the channel has received, once it contains the text."""
        while text not in self.received.get(channel, b""):
            assert not self.is_closed, self.received
            await self._receive()
        return self.received[channel]

    async def status(self) -> dict[str, Any]:
        """The Status at the end."""
        while not self.is_closed:
            await self._receive()
        status: dict[str, Any] = json.loads(self.received[ERROR])
        return status

    async def _receive(self) -> None:
        data = await self._reader.read(1 << 16)
        if not data:
            self.is_closed = True
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            self._take(event)

    def _take(self, event: Event) -> None:
        if isinstance(event, AcceptConnection):
            self.protocol = event.subprotocol or "none"
        elif isinstance(event, RejectConnection):
            self.refusal = str(event.status_code)
        elif isinstance(event, RejectData):
            self.refusal += f" {event.data.decode()}"
        elif isinstance(event, Pong):
            self.pongs += 1
        elif isinstance(event, CloseConnection):
            self.is_closed = True
        elif isinstance(event, BytesMessage):
            data = bytes(event.data)
            if self._channel is None:
                self._channel, data = data[0], data[1:]
            self.received[self._channel] = self.received.get(self._channel, b"") + data
            if event.message_finished:
                self._channel = None

    def _send(self, event: Event) -> None:
        self._writer.write(self._connection.send(event))

    def abort(self) -> None:
        """Closes the connection at once."""
        self._writer.transport.abort()


@asynccontextmanager
async def channels(
    node: HTTPSAgent,
    path: str,
    *protocols: str,
    token: str = "writes",  # noqa: S107 - of a test
) -> AsyncIterator[ChannelClient]:
    """A client whose handshake has been answered."""
    address = node.places[0]
    reader, writer = await asyncio.open_connection(address.address, address.port, ssl=node.client())
    client = ChannelClient(reader, writer)
    try:
        async with asyncio.timeout(30):
            await client.open(path, list(protocols or ("v5.channel.k8s.io",)), token)
            yield client
    finally:
        writer.close()
