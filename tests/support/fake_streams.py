"""A streaming server of a container runtime, and a client that switches protocols through the kubelet's API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from tests.support.kubelet_api import HTTPSAgent

from nodewright.agent.host.ports import StreamRequest

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo/1\r\n\r\n"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "echo/1"}
Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Switches protocols, and sends back what it receives."""
    writer.write(SWITCHING)
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()


class FakeStreamingServer:
    """The server of a runtime, for `async with`; ``talk`` is the conversation after a request's head."""

    def __init__(self, talk: Talk = echo) -> None:
        self._talk = talk
        self.requests: list[StreamRequest] = []
        """What the agent asked the runtime for."""
        self.heads: list[str] = []
        """The heads of the requests that reached the server, and how many conversations have ended."""
        self.ended = asyncio.Event()

    async def streaming_url(self, request: StreamRequest) -> str:
        """The URL of this server."""
        self.requests.append(request)
        return f"http://127.0.0.1:{self.port}/token/{len(self.requests)}?of=runtime"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves inside this context."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await self._talk(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def upgraded(
    node: HTTPSAgent, path: str, *, following: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which a request to switch protocols has been sent, with the bytes that follow it."""
    address = node.places[0]
    reader, writer = await asyncio.open_connection(address.address, address.port, ssl=node.client())
    headers = {
        "Host": "node1",
        "Authorization": "Bearer writes",
        "X-Stream-Protocol-Version": "v4",
        **UPGRADE,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + following)
    try:
        async with asyncio.timeout(20):
            yield reader, writer
    finally:
        writer.close()
