"""An agent's dashboard passed on from its socket, for a browser, which cannot open it."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from nodewright.api.dashboard import ROOT, SECURITY

_MOST_HEAD = 1 << 16
_PIECE = 1 << 16
_PASSED_ON = (b"if-none-match",)
_OURS = (b"connection", b"date", b"server")
"""Headers that our own server writes."""
_GONE = "The agent does not answer any more; the page goes on when it is back.\n"


class Relay:
    """Passes requests on to the agent behind a socket, of its dashboard alone, and answers as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over = asyncio.Event()

    def close(self) -> None:
        """Nothing is passed on any more: those who follow something are told that there is no more."""
        self._over.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if not (scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/")):
            await PlainTextResponse("there is a dashboard here, and nothing else\n", 404, headers=SECURITY)(
                scope, receive, send
            )
            return
        try:
            reader, writer = await asyncio.open_unix_connection(os.fspath(self._path), limit=_MOST_HEAD)
        except OSError:
            await PlainTextResponse(_GONE, 502, headers=SECURITY)(scope, receive, send)
            return
        passing = asyncio.create_task(self._pass(scope, send, reader, writer))
        others = {asyncio.create_task(_left(receive)), asyncio.create_task(self._over.wait())}
        try:
            await asyncio.wait({passing, *others}, return_when=asyncio.FIRST_COMPLETED)
            if self._over.is_set() and not passing.done():
                reader.feed_eof()
                await passing
        finally:
            for each in (passing, *others):
                each.cancel()
            await asyncio.gather(passing, *others, return_exceptions=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _pass(
        self, scope: Scope, send: Send, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        raw = scope.get("raw_path") or scope["path"].encode()
        # Of this version answers end with the connection: there are no chunks to be put together.
        head = [b"%s %s HTTP/1.0" % (scope["method"].encode(), raw), b"Host: localhost"]
        head += [b"%s: %s" % (name, value) for name, value in scope["headers"] if name in _PASSED_ON]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n")
        await writer.drain()
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
        pairs = [line.partition(b":") for line in lines]
        headers = [(name.lower(), value.strip()) for name, _, value in pairs if name.lower() not in _OURS]
        await send({"type": "http.response.start", "status": int(status.split()[1]), "headers": headers})
        while piece := await reader.read(_PIECE):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    """Come back when nobody waits for the answer any more."""
    while (await receive())["type"] != "http.disconnect":
        pass
