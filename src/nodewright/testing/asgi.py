"""Applications asked without a network."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message


class Answer(NamedTuple):
    """What an application says."""

    code: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def ask(
    application: ASGIApp, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Answer:
    """The answer to a request; whoever asks stays until all of it is there."""
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    said: list[Message] = []
    asked: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not asked:
            # Nobody leaves before the end; who waits for it is cancelled then.
            await asyncio.Event().wait()
        return asked.pop()

    async def send(message: Message) -> None:
        said.append(message)

    await application(scope, receive, send)
    start = said[0]
    body = b"".join(one.get("body", b"") for one in said[1:])
    return Answer(start["status"], Headers(raw=start["headers"]), body)
