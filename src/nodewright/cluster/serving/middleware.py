"""Middleware before all routes: authenticates and authorizes requests, limits their size and time, and counts them."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from nodewright.cluster.serving.access import (
    AuthorizationError,
    Authorizer,
    Unauthenticated,
    forbidden_text,
    request_attributes,
)
from nodewright.cluster.serving.routes import AccessRole, AuthorizedRoute
from nodewright.documents.output.exposition import DEFAULT_BOUNDS, HistogramBuckets
from nodewright.model.values.instant import Instant

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 1 << 20
BODY_TIMEOUT_S, SEND_TIMEOUT_S = 30.0, 60.0
"""How long the server waits for a client altogether: for a whole body, and for one that does not read its answer."""
MIN_BYTES_A_SECOND = 256 << 10
"""What extends these times: a second for each so many bytes that have passed."""
PEER_CERTIFICATE = "peer"
"""The key of the client's certificate in the state of a connection."""
ABORT_CONNECTION = "hang_up"
"""The key of the function that aborts the connection."""
TAKE_OVER_CONNECTION = "take_over"
"""The key of the function that takes the connection over, after the request is complete; it returns reader and writer."""
_TOO_LARGE = 413
_READS = ("GET", "HEAD")
_METHODS = frozenset(["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"])


class RefusalLog:
    """Logs refusals, at most one per minute for each kind and source; counts all."""

    MAX_SOURCES = 1000
    REPORT_PERIOD_S = 60.0

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._logged: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """By source and kind: the time of the last message, and the number of refusals not logged since."""
        self.counts = Counter[str]()
        """By the first word of the kind."""

    def record(self, source: str, kind: str, why: str) -> None:
        """Records a refusal."""
        self.counts[kind.partition(" ")[0]] += 1
        now_s, key = self._clock(), (source, kind)
        logged_s, suppressed = self._logged.get(key, (-self.REPORT_PERIOD_S, 0))
        if now_s - logged_s < self.REPORT_PERIOD_S:
            self._logged[key] = (logged_s, suppressed + 1)
            return
        self._logged[key] = (now_s, 0)
        self._logged.move_to_end(key)
        while len(self._logged) > self.MAX_SOURCES:
            self._logged.popitem(last=False)
        note = f" (and {suppressed} times since the last message)" if suppressed else ""
        self._log(f"{source}: {why}{note}")


class RequestMetrics:
    """Counts requests as the kubelet does: by method, path and kind of server."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[str, str, str]]()
        self.inflight = Counter[tuple[str, str, str]]()
        self.histograms: dict[tuple[str, str, str], HistogramBuckets] = {}

    def request_started(self, key: tuple[str, str, str]) -> None:
        """Counts a request that starts."""
        self.counts[key] += 1
        self.inflight[key] += 1

    def request_finished(self, key: tuple[str, str, str], duration_s: float) -> None:
        """Counts a request that ends."""
        self.inflight[key] -= 1
        histogram = self.histograms.get(key)
        if histogram is None:
            histogram = self.histograms[key] = HistogramBuckets(DEFAULT_BOUNDS)
        histogram.observe(duration_s)


class AuthMiddleware:
    """Passes authorized requests to an application."""

    def __init__(  # noqa: PLR0913 - each has a default but the first three
        self,
        app: App,
        routes: Sequence[AuthorizedRoute],
        access: Authorizer | None,
        *,
        refusals: RefusalLog,
        requests: RequestMetrics,
        is_fine: bool = True,
        max_body_bytes: int | None = None,
    ) -> None:
        """Without ``access`` every request is allowed; ``is_fine`` is the gate KubeletFineGrainedAuthz.

        ``max_body_bytes`` of None is MAX_BODY_BYTES.
        """
        self._max_body_bytes = max_body_bytes
        self._app, self._routes, self._access = app, routes, access
        self._refusals, self._requests, self._is_fine = refusals, requests, is_fine
        self._kind = "readwrite" if access is not None else "readonly"
        roots = (getattr(entry.route, "path", "").lstrip("/").split("/") for entry in routes)
        self._roots = {_root(parts) for parts in roots}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request."""
        started_s, path = time.perf_counter(), scope["path"]
        key = self._key(scope)
        self._requests.request_started(key)
        try:
            if self._access is not None and not await self._is_allowed(scope, send):
                return
            if not await run_bounded(self._app, scope, receive, send, max_body_bytes=self._max_body_bytes):
                why = f"the request for {path} was too large or too slow, or the response was not received in time"
                self._refusals.record(_source(scope), "slow", why)
        finally:
            self._requests.request_finished(key, time.perf_counter() - started_s)

    def _key(self, scope: Scope) -> tuple[str, str, str]:
        """The labels of the request in metrics: of few values, whatever the request is."""
        method, root = scope["method"], _root(scope["path"].lstrip("/").split("/"))
        bucket = root if root in self._roots else "other"
        return method if method in _METHODS else "other", bucket, self._kind

    async def _is_allowed(self, scope: Scope, send: Send) -> bool:
        assert self._access is not None
        source, method, path = _source(scope), scope["method"], scope["path"]
        certificate = scope.get("state", {}).get(PEER_CERTIFICATE)
        now = Instant(time.time_ns())
        user = await self._access.authenticate(certificate, _authorization(scope), now)
        if isinstance(user, Unauthenticated):
            kind = f"unauthorized {user.reason}"
            self._refusals.record(source, kind, f"401 for {method} {path}: {user.reason}")
            await _send_text(send, 401, "Unauthorized")
            return False
        attributes = request_attributes(method, path, is_fine=self._is_fine)
        try:
            is_authorized = await self._access.is_authorized(user, self._role(scope), attributes)
        except AuthorizationError as error:
            self._refusals.record(source, "undecided", f"500 for {method} {path}: {error}: {error.reason}")
            await _send_text(send, 500, str(error))
            return False
        if not is_authorized:
            text = forbidden_text(user, attributes)
            self._refusals.record(source, f"forbidden {user.name}", f"403 for {path}: {text.strip()}")
            await _send_text(send, 403, text)
            return False
        return True

    def _role(self, scope: Scope) -> AccessRole:
        """The role that the route requires; without a route, the role for the method."""
        for entry in self._routes:
            if entry.route.matches(scope)[0] is Match.FULL:
                return entry.role
        return AccessRole.READ if scope["method"] in _READS else AccessRole.WRITE


def _root(parts: list[str]) -> str:
    """The first part of a path, which is the request's label in metrics.

    Follows: v1.36, kubelet/server/server.go, getURLRootPath.
    """
    return "/".join(parts[:2]) if parts[0] == "metrics" and len(parts) > 1 else parts[0]


def _source(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown client"


def _authorization(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return str(value, "latin-1")
    return ""


async def run_bounded(
    app: App,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    may_pause: bool = False,
    max_body_bytes: int | None = None,
) -> bool:
    """Runs the application with limits for the request's size and time, and for slow readers unless they ``may_pause``.

    False: a limit is exceeded; the connection is closed, without an answer unless the body is too large.
    """
    body = _LimitedBody(receive, MAX_BODY_BYTES if max_body_bytes is None else max_body_bytes)
    try:
        await app(scope, body.receive, send if may_pause else _timed_send(send))
    except (_SendTimeoutError, ClientDisconnect, HTTPException):
        await _abort_connection(scope)
        return False
    return not body.is_too_large


class _LimitedBody:
    """Receives a body; one that is too large is an error of the request, one that is too slow a lost client."""

    def __init__(self, receive: Receive, max_bytes: int) -> None:
        self._receive, self._max_bytes = receive, max_bytes
        self._size, self._is_complete = 0, False
        self._started_s = asyncio.get_running_loop().time()

    @property
    def is_too_large(self) -> bool:
        """Whether more has been received than may be."""
        return self._size > self._max_bytes

    async def receive(self) -> Message:
        """The next part.

        Errors: HTTPException beyond the limit.
        """
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._started_s + allowed_s(BODY_TIMEOUT_S, self._size)):
                message = await self._receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        self._size += len(message.get("body", b""))
        self._is_complete = not message.get("more_body", False)
        if self.is_too_large:
            raise HTTPException(_TOO_LARGE, f"the body is larger than {self._max_bytes} bytes")
        return message


class _SendTimeoutError(Exception):
    """The client does not receive the response."""


def allowed_s(timeout_s: float, size: int) -> float:
    """How long the server waits for a client while so many bytes pass."""
    return timeout_s + size / MIN_BYTES_A_SECOND


def _timed_send(send: Send) -> Send:
    """Sends with a limit for the time that all parts wait for the client, so that slow ones hold nothing up."""
    clock = asyncio.get_running_loop().time
    waited_s, size = 0.0, 0

    async def timed_send(message: Message) -> None:
        nonlocal waited_s, size
        size += len(message.get("body", b""))
        started_s = clock()
        try:
            async with asyncio.timeout(allowed_s(SEND_TIMEOUT_S, size) - waited_s):
                await send(message)
        except TimeoutError:
            raise _SendTimeoutError from None
        waited_s += clock() - started_s

    return timed_send


async def _abort_connection(scope: Scope) -> None:
    """Closes the connection without a response."""
    abort = scope.get("state", {}).get(ABORT_CONNECTION)
    if abort is not None:
        abort()
        # The abort reaches the TLS transport and the socket in successive iterations of the event loop.
        for _ in range(5):
            await asyncio.sleep(0)


async def _send_text(send: Send, code: int, text: str) -> None:
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
