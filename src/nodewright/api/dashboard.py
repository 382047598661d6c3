"""The dashboard over HTTP: a page of plain files, what it shows as one document, and what changes as a stream.

Nothing is made while nobody looks: a view is asked by those who look, and by nobody else.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from nodewright.api.answers import NOT_FOUND, APIError
from nodewright.api.entries import Entry

ROOT = "/dashboard"
HEARTBEAT_S = 10.0
"""A line is sent at least so often, to notice who has left."""
SECURITY = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class View(Protocol):
    """What is shown: sections that change one by one, and points of charts that are added."""

    async def sections(self) -> Mapping[str, Any]:
        """The document as it is now."""

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """The points since a moment (milliseconds since 1970), the oldest first."""

    async def turn(self) -> bool:
        """Come back when something may have changed, after a second at the latest; False: it will not any more."""

    async def why(self, key: str) -> Mapping[str, Any] | None:
        """Why the pod with this key is where it is, and what would let it in; None: there is no such pod."""

    async def ranks(self) -> Mapping[str, Any] | None:
        """In which order pods would be evicted now; None: it is not known what they use."""


class DashboardRoutes:
    """The routes of a dashboard."""

    def __init__(self, view: View) -> None:
        self._view = view

    def routes(self) -> list[Route]:
        """All of them; each only reads."""
        return [
            Route(ROOT, self.enter),
            Route(f"{ROOT}/", self.page),
            Route(f"{ROOT}/static/{{name}}", self.static),
            Route(f"{ROOT}/document", self.document),
            Route(f"{ROOT}/changes", self.changes),
            Route(f"{ROOT}/why/{{key:path}}", self.why),
            Route(f"{ROOT}/ranks", self.ranks),
        ]

    def entries(self) -> list[Entry]:
        """The routes for a server that asks who somebody is."""
        return [Entry(one) for one in self.routes()]

    async def enter(self, _request: Request) -> Response:
        """The page has a folder of its own."""
        return RedirectResponse("dashboard/", 308, headers=SECURITY)

    async def page(self, request: Request) -> Response:
        """The page."""
        return _file(request, "index.html")

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        return _file(request, request.path_params["name"])

    async def document(self, request: Request) -> Response:
        """All that is shown now; unchanged, it is not sent again."""
        body = _encoded(await self._view.sections())
        return _answer(request, body, "application/json")

    async def changes(self, _request: Request) -> Response:
        """All that is shown, then what changes, as events for a browser."""
        headers = {**SECURITY, "Cache-Control": "no-store"}
        return StreamingResponse(self._changes(), media_type="text/event-stream", headers=headers)

    async def why(self, request: Request) -> Response:
        """Why a pod is where it is; asked for when somebody wants to know."""
        found = await self._view.why(request.path_params["key"])
        if found is None:
            raise APIError(NOT_FOUND, "that pod is not there any more")
        return _answer(request, _encoded(found), "application/json")

    async def ranks(self, request: Request) -> Response:
        """Who would go first."""
        found = await self._view.ranks()
        if found is None:
            raise APIError(NOT_FOUND, "it is not known what pods use")
        return _answer(request, _encoded(found), "application/json")

    async def _changes(self) -> AsyncIterator[bytes]:
        shown: dict[str, bytes] = {}
        until_ms, silent_since = 0, asyncio.get_running_loop().time()
        while True:
            parts = list[bytes]()
            for name, section in (await self._view.sections()).items():
                text = _encoded(section)
                if shown.get(name) != text:
                    shown[name] = text
                    parts.append(b'"%s":%s' % (name.encode(), text))
            samples = self._view.samples(until_ms)
            if samples:
                until_ms = samples[-1]["at"]
                parts.append(b'"samples":' + _encoded(samples))
            now = asyncio.get_running_loop().time()
            if parts:
                # JSON has no line breaks of its own: it is one line of an event.
                yield b"data: {%s}\n\n" % b",".join(parts)
                silent_since = now
            elif now - silent_since >= HEARTBEAT_S:
                yield b":\n\n"
                silent_since = now
            if not await self._view.turn():
                return


def _file(request: Request, name: str) -> Response:
    found = _static().get(name)
    if found is None:
        raise APIError(NOT_FOUND, "the dashboard has no such file")
    return _answer(request, found, f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")


@cache
def _static() -> dict[str, bytes]:
    """The files of the page by name; read when somebody looks for the first time."""
    folder = files("nodewright.api") / "static"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _TYPES}


def _answer(request: Request, body: bytes, media_type: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**SECURITY, "Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


_encoded = msgspec.json.Encoder().encode
