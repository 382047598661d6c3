"""Before all routes: who may not is told so, who asks too much or too slowly is let go, and all of it is counted."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from starlette.requests import ClientDisconnect
from starlette.routing import Match

from nodewright.agent.counted import DEFAULT_BOUNDS, Spread
from nodewright.api.access import Access, Stranger, forbidden
from nodewright.api.entries import Entry, Role
from nodewright.values.instant import Instant

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 1 << 20
BODY_WITHIN_S = 30.0
TAKEN_WITHIN_S = 60.0
"""So long one part of an answer may stay with us because nobody takes it."""
PEER = "peer"
"""The key of the client's certificate in the state of a connection."""
HANG_UP = "hang_up"
"""The key of what ends a connection at once."""
_READS = ("GET", "HEAD")
_METHODS = frozenset(["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"])


class Refusals:
    """Tells of each kind of refusal once a minute and source; the rest is only counted."""

    MOST_SOURCES = 1000
    QUIET_S = 60.0

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """By source and kind when it was last told of, and how often it was not since."""
        self.counts = Counter[str]()
        """By the first word of the kind."""

    def refused(self, source: str, kind: str, why: str) -> None:
        """Somebody was refused."""
        self.counts[kind.partition(" ")[0]] += 1
        now_s, key = self._clock(), (source, kind)
        told_s, unsaid = self._told.get(key, (-self.QUIET_S, 0))
        if now_s - told_s < self.QUIET_S:
            self._told[key] = (told_s, unsaid + 1)
            return
        self._told[key] = (now_s, 0)
        self._told.move_to_end(key)
        while len(self._told) > self.MOST_SOURCES:
            self._told.popitem(last=False)
        more = f" (and {unsaid} times since it was last told)" if unsaid else ""
        self._tell(f"{source}: {why}{more}")


class Requests:
    """Counts requests as the kubelet does: by method, path and kind of server."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[str, str, str]]()
        self.inflight = Counter[tuple[str, str, str]]()
        self.spreads: dict[tuple[str, str, str], Spread] = {}

    def begun(self, key: tuple[str, str, str]) -> None:
        """One more that is being answered."""
        self.counts[key] += 1
        self.inflight[key] += 1

    def done(self, key: tuple[str, str, str], took_s: float) -> None:
        """One fewer."""
        self.inflight[key] -= 1
        spread = self.spreads.get(key)
        if spread is None:
            spread = self.spreads[key] = Spread(DEFAULT_BOUNDS)
        spread.add(took_s)


class Guard:
    """An application that lets those through to another who may."""

    def __init__(
        self,
        app: App,
        entries: Sequence[Entry],
        access: Access | None,
        *,
        refusals: Refusals,
        requests: Requests,
        is_fine: bool = True,
    ) -> None:
        """Without ``access`` everybody may; ``is_fine`` is the gate KubeletFineGrainedAuthz."""
        self._app, self._entries, self._access = app, entries, access
        self._refusals, self._requests, self._is_fine = refusals, requests, is_fine
        self._kind = "readwrite" if access is not None else "readonly"
        roots = (getattr(one.route, "path", "").lstrip("/").split("/") for one in entries)
        self._roots = {_root(parts) for parts in roots}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        began_s, path = time.perf_counter(), scope["path"]
        key = self._key(scope)
        self._requests.begun(key)
        try:
            if self._access is not None and not await self._is_let_in(scope, send):
                return
            await self._app(scope, _bounded(receive), _in_time(send))
        except (_NotTakenError, ClientDisconnect):
            why = f"what it sent for {path} was too much, or it took no answer in time"
            self._refusals.refused(_source(scope), "slow", why)
            await _hung_up(scope)
        finally:
            self._requests.done(key, time.perf_counter() - began_s)

    def _key(self, scope: Scope) -> tuple[str, str, str]:
        """What requests are told apart by: few words, whatever is asked for."""
        method, root = scope["method"], _root(scope["path"].lstrip("/").split("/"))
        bucket = root if root in self._roots else "other"
        return method if method in _METHODS else "other", bucket, self._kind

    async def _is_let_in(self, scope: Scope, send: Send) -> bool:
        assert self._access is not None
        source, method, path = _source(scope), scope["method"], scope["path"]
        certificate = scope.get("state", {}).get(PEER)
        person = self._access.who(certificate, _authorization(scope), Instant(time.time_ns()))
        if isinstance(person, Stranger):
            kind = f"unauthorized {person.because}"
            self._refusals.refused(source, kind, f"401 for {method} {path}: {person.because}")
            await _plain(send, 401, "Unauthorized")
            return False
        if not self._access.may(person, self._role(scope)):
            said = forbidden(person, method, path, is_fine=self._is_fine)
            self._refusals.refused(source, f"forbidden {person.name}", f"403 for {path}: {said.strip()}")
            await _plain(send, 403, said)
            return False
        return True

    def _role(self, scope: Scope) -> Role:
        """What the route takes; what is no route takes what its method does."""
        for entry in self._entries:
            if entry.route.matches(scope)[0] is Match.FULL:
                return entry.role
        return Role.READ if scope["method"] in _READS else Role.WRITE


def _root(parts: list[str]) -> str:
    """What requests are told apart by.

    Follows: v1.36, kubelet/server/server.go, getURLRootPath.
    """
    return "/".join(parts[:2]) if parts[0] == "metrics" and len(parts) > 1 else parts[0]


def _source(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "somebody"


def _authorization(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return str(value, "latin-1")
    return ""


def _bounded(receive: Receive) -> Receive:
    """What is sent to us, as long as it is not too much and comes in time; else its sender is gone for us."""
    size, is_whole = 0, False

    async def receiving() -> Message:
        nonlocal size, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        size += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        return message if size <= MOST_BODY_BYTES else {"type": "http.disconnect"}

    return receiving


class _NotTakenError(Exception):
    """Nobody takes what is said."""


def _in_time(send: Send) -> Send:
    """Answers that are taken in time; who takes none holds nothing up."""

    async def sending(message: Message) -> None:
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await send(message)
        except TimeoutError:
            raise _NotTakenError from None

    return sending


async def _hung_up(scope: Scope) -> None:
    """Nothing more is said on this connection."""
    hang_up = scope.get("state", {}).get(HANG_UP)
    if hang_up is not None:
        hang_up()
        # TLS and what is below it learn of it one after the other.
        for _ in range(5):
            await asyncio.sleep(0)


async def _plain(send: Send, code: int, text: str) -> None:
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
