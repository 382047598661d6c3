"""The client of an API server, for commands, agent, exporter and extender."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from nodewright.cluster.client.access import ClusterAccess
from nodewright.cluster.client.cluster_api import (
    ApiError,
    PageCount,
    answer_error,
    as_api_error,
    as_object,
    json_error,
    watch_limit_s,
    with_query,
)
from nodewright.cluster.client.http_connections import (
    AnswerHead,
    HTTPConnections,
    WireRequest,
    error_text,
    whole_body,
)
from nodewright.cluster.client.list_watch import ObjectPage, WatchEvent, decode_event, decode_page, lines_of
from nodewright.cluster.client.request_credentials import RepeatedRequest, RequestCredentials
from nodewright.cluster.client.tls import CurrentTLS
from nodewright.documents.output.terminal import print_message
from nodewright.model.errors import JSON_ERRORS, HostError
from nodewright.model.printable import address_text
from nodewright.version import __version__

PAGE_SIZE = 500
MAX_ANSWER_BYTES = 512 << 20
"""Limit for the body of an answer, unpacked: a page of a list has tens of megabytes."""
JSON, STRATEGIC_MERGE = "application/json", "application/strategic-merge-patch+json"
_MAX_REQUESTS = 16
_WATCH_GRACE_S = 30.0
_WARNED = set[str]()
"""Servers whose certificates are not verified: each is named once."""


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request without what the client adds: server, credentials, TLS."""

    verb: str = "GET"
    path: str
    """The path with its query."""
    body: bytes = b""
    content_type: str = JSON
    may_compress: bool = False
    """Whether the server may compress the answer, if the access allows it."""


class ApiClient:
    """A client of one API server; an asynchronous context manager, for one event loop.

    Fulfils `ClusterAPI` and `ClusterReader`. A request that is refused is repeated as `RepeatedRequest` says.
    """

    def __init__(self, access: ClusterAccess, *, max_requests: int = _MAX_REQUESTS) -> None:
        """``max_requests``: how many there are at the same time, without watches."""
        self.access = access
        self._credentials = RequestCredentials(access.credentials, plugin_timeout_s=access.request_timeout)
        self._tls = CurrentTLS(access, self._credentials)
        self._connections = HTTPConnections(
            access.server, self._tls.context, server_name=access.tls.server_name, proxy=access.proxy
        )
        self._connections.on_answer = self._record_answer
        self._slots = asyncio.Semaphore(max_requests)
        self.on_answer: Callable[[str, str, int, float], None] = lambda _verb, _host, _code, _duration_s: None
        """Gets the verb, the host, the status and the duration of each answer; status 0: there was none."""

    async def __aenter__(self) -> Self:
        server = address_text(self.access.server)
        if not self.access.tls.is_verified and server not in _WARNED:
            _WARNED.add(server)
            print_message(f"warning: insecure-skip-tls-verify: the certificate of {server} is not verified")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()

    def _record_answer(self, verb: str, host: str, code: int, duration_s: float) -> None:
        self.on_answer(verb, host, code, duration_s)

    # ------------------------------------------------------------ objects as bytes

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of the answer to a GET.

        Errors: ApiError, also for HTML and for half an answer; HostError for credentials that cannot be read.
        """
        return await self._content(ApiRequest(path=with_query(path, query or {}), may_compress=True))

    async def list_pages(
        self, path: str, *, label_selector: str = "", field_selector: str = "", page_size: int = PAGE_SIZE
    ) -> AsyncIterator[ObjectPage]:
        """The pages of a list; each is requested when the one before has been taken.

        A list that expires between two pages is requested again as a whole; its only page then says `is_restart`
        (`collected_pages` heeds it).

        Errors:  ApiError.
        Follows: v1.36, client-go/tools/pager/pager.go, ListPager.list.
        """
        query = _selectors(label_selector, field_selector)
        token, is_restart = "", False
        count = PageCount(path, self.access.server)
        while True:
            paging = {} if is_restart else {"limit": str(page_size)}
            try:
                body = await self.get(path, query | paging | ({"continue": token} if token else {}))
            except ApiError as error:
                if not error.is_expired or not token:
                    raise
                token, is_restart = "", True
                continue
            try:
                page, token = decode_page(body, is_restart=is_restart)
            except JSON_ERRORS as error:
                raise json_error("GET", path, self.access.server, error) from None
            count.add(token, len(body))
            yield page
            if not token or is_restart:
                return

    async def watch_events(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: int,
    ) -> AsyncGenerator[WatchEvent]:
        """The changes of a collection after a version, and bookmarks, until the server ends the watch.

        Units:  timeout_s in seconds, after which the server ends it; the client ends it half a minute later.
        Errors: ApiError, with status 410 for a version that is too old and 0 for a connection that broke.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        } | _selectors(label_selector, field_selector)
        lines = self._lines(with_query(path, query), self.access.request_timeout, timeout_s + _WATCH_GRACE_S)
        try:
            with self._api_errors("WATCH", path, "no answer in time"):
                async with aclosing(lines):
                    async for line in lines:
                        yield decode_event(line, path)
        except EOFError:
            text = "the connection ended in the middle of an event"
            raise ApiError("WATCH", path, text, server=self.access.server) from None

    # ------------------------------------------------------------ objects as documents

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list."""
        return await self._document(ApiRequest(path=with_query(path, query)))

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object; returns it as stored."""
        return await self._write("POST", path, document)

    async def update(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object; returns it as stored."""
        return await self._write("PUT", path, document)

    async def patch(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a strategic merge patch; returns the object as stored."""
        return await self._write("PATCH", path, document, STRATEGIC_MERGE)

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object."""
        await self._write("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch until the server ends it.

        Errors: ApiError.
        """
        limit_s = watch_limit_s(query)
        lines = self._lines(with_query(path, {**query, "watch": "true"}), limit_s, limit_s)
        try:
            with self._api_errors("WATCH", path, f"no answer within {limit_s:g} s"):
                async with aclosing(lines):
                    async for line in lines:
                        yield as_object(msgspec.json.decode(line))
        except EOFError:
            return  # The server ends a watch in the middle of an event now and then: the next one has it.
        except (TypeError, *JSON_ERRORS) as error:
            raise json_error("WATCH", path, self.access.server, error) from None
        except HostError as error:
            raise as_api_error("WATCH", path, error) from None

    async def _write(
        self, verb: str, path: str, document: Mapping[str, Any], content_type: str = JSON
    ) -> dict[str, Any]:
        body = msgspec.json.encode(document)
        return await self._document(ApiRequest(verb=verb, path=path, body=body, content_type=content_type))

    async def _document(self, request: ApiRequest) -> dict[str, Any]:
        try:
            return as_object(msgspec.json.decode(await self._content(request)))
        except HostError as error:
            raise as_api_error(request.verb, request.path, error) from None
        except (TypeError, *JSON_ERRORS) as error:
            raise json_error(request.verb, request.path, self.access.server, error) from None

    # ------------------------------------------------------------ requests

    async def _content(self, request: ApiRequest) -> bytes:
        """The body of the answer to a request, within the time-out of the access.

        Errors: ApiError; HostError for credentials that cannot be read.
        """
        limit_s = self.access.request_timeout
        await self._credentials.headers()  # A plugin that asks the user has its own time.
        with self._api_errors(request.verb, request.path, f"no answer within {limit_s:g} s"):
            async with (
                asyncio.timeout(limit_s) as limit,
                self._slots,
                self._answer(request, limit) as (head, parts),
            ):
                body = await whole_body(parts, MAX_ANSWER_BYTES)
        if head.content_type == "text/html":
            raise answer_error(request.verb, request.path, head, body)
        return body

    async def _lines(self, path: str, answer_s: float, watch_s: float) -> AsyncGenerator[bytes]:
        """The lines of a watch; no time-out runs while the caller has one of them.

        Errors: EOFError for a stream that ends within a line; otherwise as of `_answer`.
        """
        await self._credentials.headers()  # A plugin that asks the user has its own time.
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(answer_s) as limit:
                _, parts = await stack.enter_async_context(self._answer(ApiRequest(path=path), limit))
            end_s = asyncio.get_running_loop().time() + watch_s
            chunks = await stack.enter_async_context(aclosing(_parts_until(parts, end_s)))
            lines = await stack.enter_async_context(aclosing(lines_of(chunks)))
            async for line in lines:
                yield line

    @asynccontextmanager
    async def _answer(
        self, request: ApiRequest, limit: asyncio.Timeout
    ) -> AsyncIterator[tuple[AnswerHead, AsyncGenerator[bytes]]]:
        """The answer to a request whose status is one of success, and the parts of its body.

        Errors: ApiError for another status; OSError of connections; HostError for credentials.
        """
        repeated = RepeatedRequest(self._credentials, self._tls.expire, limit, self.access.request_timeout)
        while True:
            wire_request = await self._wire_request(request)
            async with self._connections.exchange(wire_request) as (head, parts):
                if head.status < 300:
                    yield head, parts
                    return
                body = await whole_body(parts, MAX_ANSWER_BYTES)
            await repeated.wait(answer_error(request.verb, request.path, head, body))

    async def _wire_request(self, request: ApiRequest) -> WireRequest:
        is_compressed = request.may_compress and self.access.may_compress
        headers = [
            *self._connections.headers,
            ("User-Agent", f"nodewright/{__version__} ({sys.platform})"),
            ("Accept", "application/json, */*"),
            ("Accept-Encoding", "gzip, deflate" if is_compressed else "identity"),
            *await self._credentials.headers(),
        ]
        if request.body:
            headers.append(("Content-Type", request.content_type))
        target = self._connections.target_prefix + request.path
        return WireRequest(verb=request.verb, target=target, headers=headers, body=request.body)

    @contextmanager
    def _api_errors(self, verb: str, path: str, timeout_text: str) -> Iterator[None]:
        """Turns the errors of connections into ApiErrors."""
        try:
            yield
        except TimeoutError:
            raise ApiError(verb, path, timeout_text, server=self.access.server) from None
        except OSError as error:
            raise ApiError(verb, path, error_text(error), server=self.access.server) from None


async def _parts_until(parts: AsyncIterator[bytes], end_s: float) -> AsyncGenerator[bytes]:
    """The parts of a body that come before this time of the event loop.

    Errors: TimeoutError.
    """
    while True:
        try:
            async with asyncio.timeout_at(end_s):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        yield part


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in selectors.items() if value}
