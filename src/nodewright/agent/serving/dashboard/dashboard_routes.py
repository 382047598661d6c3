"""Routes of the dashboard: static files, its content as one document, and changes as a stream.

While no page is open, nothing is computed but the samples of the charts.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from nodewright.cluster.serving.browser_auth import DASHBOARD_ROOT, SECURITY_HEADERS
from nodewright.cluster.serving.routes import NOT_FOUND, AuthorizedRoute, status_response

HEARTBEAT_S = 10.0
"""Period of empty lines in event streams, to notice closed connections."""
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}


class DashboardView(Protocol):
    """The content of a dashboard: sections, and samples for charts."""

    async def sections(self) -> Mapping[str, Any]:
        """The current sections."""

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """The samples since a time (milliseconds since 1970), the oldest first."""

    async def wait_for_change(self) -> bool:
        """Returns when something may have changed, after a second at the latest; False: nothing will change."""

    async def placement_reason(self, key: str) -> Mapping[str, Any] | None:
        """The reasons for a pod's placement, and what would let it in; None: unknown pod."""

    async def eviction_ranking(self) -> Mapping[str, Any] | None:
        """The current eviction ranking; None: the usage is unknown."""


class DashboardRoutes:
    """The routes of a dashboard."""

    def __init__(self, view: DashboardView) -> None:
        self._view = view

    def routes(self) -> list[Route]:
        """All routes; they are read-only."""
        return [
            Route(DASHBOARD_ROOT, self.redirect_to_page),
            Route(f"{DASHBOARD_ROOT}/", self.page),
            Route(f"{DASHBOARD_ROOT}/static/{{name}}", self.static),
            Route(f"{DASHBOARD_ROOT}/document", self.document),
            Route(f"{DASHBOARD_ROOT}/changes", self.changes),
            Route(f"{DASHBOARD_ROOT}/why/{{key:path}}", self.placement_reason),
            Route(f"{DASHBOARD_ROOT}/ranks", self.eviction_ranking),
        ]

    def authorized_routes(self) -> list[AuthorizedRoute]:
        """The routes for a server with authentication."""
        return [AuthorizedRoute(route) for route in self.routes()]

    async def redirect_to_page(self, _request: Request) -> Response:
        """Redirects to the page's directory."""
        return RedirectResponse("dashboard/", 308, headers=SECURITY_HEADERS)

    async def page(self, request: Request) -> Response:
        """The page."""
        return _file(request, "index.html")

    async def static(self, request: Request) -> Response:
        """A static file."""
        return _file(request, request.path_params["name"])

    async def document(self, request: Request) -> Response:
        """The current document; 304 if unchanged."""
        body = _encoded(await self._view.sections())
        return _cached_response(request, body, "application/json")

    async def changes(self, _request: Request) -> Response:
        """The document, then changed sections, as server-sent events."""
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store"}
        return StreamingResponse(self._changes(), media_type="text/event-stream", headers=headers)

    async def placement_reason(self, request: Request) -> Response:
        """The reasons for a pod's placement, computed on request."""
        explanation = await self._view.placement_reason(request.path_params["key"])
        if explanation is None:
            return _not_found("the pod has been removed")
        return _cached_response(request, _encoded(explanation), "application/json")

    async def eviction_ranking(self, request: Request) -> Response:
        """The eviction ranking."""
        ranking = await self._view.eviction_ranking()
        if ranking is None:
            return _not_found("the usage of pods is unknown")
        return _cached_response(request, _encoded(ranking), "application/json")

    async def _changes(self) -> AsyncIterator[bytes]:
        sent: dict[str, bytes] = {}
        sampled_ms, sent_s = 0, asyncio.get_running_loop().time()
        while True:
            parts = list[bytes]()
            for name, section in (await self._view.sections()).items():
                text = _encoded(section)
                if sent.get(name) != text:
                    sent[name] = text
                    parts.append(b'"%s":%s' % (name.encode(), text))
            samples = self._view.samples(sampled_ms)
            if samples:
                sampled_ms = samples[-1]["at"]
                parts.append(b'"samples":' + _encoded(samples))
            now_s = asyncio.get_running_loop().time()
            if parts:
                # The encoder writes no line breaks, so the document is one line of an event.
                yield b"data: {%s}\n\n" % b",".join(parts)
                sent_s = now_s
            elif now_s - sent_s >= HEARTBEAT_S:
                yield b":\n\n"
                sent_s = now_s
            if not await self._view.wait_for_change():
                return


def _not_found(message: str) -> Response:
    response = status_response(NOT_FOUND, message)
    response.headers.update(SECURITY_HEADERS)
    return response


def _file(request: Request, name: str) -> Response:
    content = _static().get(name)
    if content is None:
        return _not_found("file not found")
    return _cached_response(request, content, f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")


@cache
def _static() -> dict[str, bytes]:
    """The static files by name, read at the first request."""
    from importlib.resources import files  # noqa: PLC0415 - memory: few look at the dashboard of an agent

    folder = files("nodewright.agent.serving.dashboard") / "static"
    return {
        file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES
    }


def _cached_response(request: Request, body: bytes, media_type: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**SECURITY_HEADERS, "Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


_encoded = msgspec.json.Encoder().encode
