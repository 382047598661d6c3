"""A proxy from a browser to the dashboard on an agent's Unix socket."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from nodewright.cluster.serving.browser_auth import DASHBOARD_ROOT, SECURITY_HEADERS

_MAX_HEAD_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 16
_FORWARDED_HEADERS = (b"if-none-match",)
_OWN_HEADERS = (b"connection", b"date", b"server")
"""Headers that the proxy's server writes."""
_UNREACHABLE = "The agent does not respond; the page continues when it is running again.\n"


class AgentProxy:
    """Forwards requests for the dashboard to the agent's socket, and streams the responses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends all open responses, for example event streams."""
        self._closed.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards a request."""
        if not (scope["path"] == DASHBOARD_ROOT or scope["path"].startswith(f"{DASHBOARD_ROOT}/")):
            await PlainTextResponse(
                "not found: this server has only the dashboard\n", 404, headers=SECURITY_HEADERS
            )(scope, receive, send)
            return
        try:
            reader, writer = await asyncio.open_unix_connection(os.fspath(self._path), limit=_MAX_HEAD_BYTES)
        except OSError:
            await PlainTextResponse(_UNREACHABLE, 502, headers=SECURITY_HEADERS)(scope, receive, send)
            return
        forwarding = asyncio.create_task(self._forward(scope, send, reader, writer))
        others = {
            asyncio.create_task(_wait_for_disconnect(receive)),
            asyncio.create_task(self._closed.wait()),
        }
        try:
            await asyncio.wait({forwarding, *others}, return_when=asyncio.FIRST_COMPLETED)
            if self._closed.is_set() and not forwarding.done():
                reader.feed_eof()
                await forwarding
        finally:
            for task in (forwarding, *others):
                task.cancel()
            await asyncio.gather(forwarding, *others, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _forward(
        self, scope: Scope, send: Send, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        raw = scope.get("raw_path") or scope["path"].encode()
        # In HTTP/1.0 a response ends with the connection, so there are no chunks to decode.
        head = [b"%s %s HTTP/1.0" % (scope["method"].encode(), raw), b"Host: localhost"]
        head += [b"%s: %s" % (name, value) for name, value in scope["headers"] if name in _FORWARDED_HEADERS]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n")
        await writer.drain()
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        pairs = [line.partition(b":") for line in lines]
        headers = [
            (name.lower(), value.strip()) for name, _, value in pairs if name.lower() not in _OWN_HEADERS
        ]
        await send({"type": "http.response.start", "status": int(status.split()[1]), "headers": headers})
        while chunk := await reader.read(_CHUNK_BYTES):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
