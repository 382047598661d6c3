"""The client of an API server: requests, pages of lists, and errors of one line."""

import asyncio
import platform
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from nodewright.cluster.client.access import ClusterAccess
from nodewright.cluster.client.cluster_api import MAX_ANSWER_BYTES, ApiError, answer_error, json_error
from nodewright.cluster.client.http_connections import set_keepalive
from nodewright.cluster.client.list_watch import ObjectPage, WatchEvent, decode_event, decode_page, lines_of
from nodewright.cluster.client.request_credentials import RepeatedRequest, RequestCredentials
from nodewright.cluster.client.tls import CurrentTLS
from nodewright.cluster.client.transport_errors import transport_error
from nodewright.cluster.client.writes import WriteKind
from nodewright.model.errors import JSON_ERRORS
from nodewright.version import __version__

PAGE_SIZE = 500
_MAX_CONNECTIONS = 32
_WATCH_GRACE_S = 30.0


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request without what the client adds: server, credentials, TLS."""

    verb: str
    path: str
    """The path with its query."""
    body: bytes = b""
    content_type: str = ""


class ApiClient:
    """A client of one API server; an asynchronous context manager, for one event loop.

    ``max_connections``: 0 for any number.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        self.access = access
        self._max_connections = max_connections
        self._credentials = RequestCredentials(access.credentials, plugin_timeout_s=access.request_timeout)
        self._tls = CurrentTLS(access, self._credentials, clock)
        self._open_session: aiohttp.ClientSession | None = None
        self._host = access.server.rpartition("://")[2].partition("/")[0]
        self.on_answer: Callable[[str, str, int, float], None] = lambda _verb, _host, _code, _duration_s: None
        """Gets the verb, the host, the status and the duration of each answer; status 0: there was none."""

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._max_connections, socket_factory=_keepalive_socket)
        headers = {"User-Agent": f"nodewright/{__version__} ({platform.system().lower()})"}
        headers["Accept"] = "application/json, */*"
        if not self.access.may_compress:
            headers["Accept-Encoding"] = "identity"
        self._open_session = aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=aiohttp.ClientTimeout(total=None, sock_connect=None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open_session is not None:
            await self._open_session.close()
            self._open_session = None

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The body of the answer to a GET.

        Errors: ApiError, also for HTML and for half an answer; HostError for credentials that cannot be read.
        """
        return await self.send(ApiRequest(verb="GET", path=_with_query(path, query or {})))

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
        token, previous, is_restart = "", "", False
        while True:
            paging = {} if is_restart else {"limit": str(page_size)}
            request = ApiRequest(
                verb="GET", path=_with_query(path, query | paging | ({"continue": token} if token else {}))
            )
            try:
                body = await self.send(request)
            except ApiError as error:
                if not error.is_expired or not token:
                    raise
                token, is_restart = "", True
                continue
            try:
                page, token = decode_page(body, is_restart=is_restart)
            except JSON_ERRORS as error:
                raise json_error(request.verb, path, self.access.server, error) from None
            if token and token == previous:
                text = "the list has no end: two pages name the same next page"
                raise ApiError(request.verb, path, text, server=self.access.server)
            previous = token
            yield page
            if not token or is_restart:
                return

    async def watch(
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
        request = ApiRequest(verb="GET", path=_with_query(path, query))
        await self._credentials.headers()  # A plugin that asks the user has its own time.
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.access.request_timeout) as limit:
                    response = await stack.enter_async_context(self.response(request, limit))
                end_s = asyncio.get_running_loop().time() + timeout_s + _WATCH_GRACE_S
                chunks = await stack.enter_async_context(aclosing(_chunks(response, end_s)))
                lines = await stack.enter_async_context(aclosing(lines_of(chunks)))
                async for line in lines:
                    yield decode_event(line, path)
        except TimeoutError:
            raise ApiError("WATCH", path, "no answer in time", server=self.access.server) from None
        except (aiohttp.ClientError, OSError) as error:
            raise transport_error("WATCH", path, self.access, error) from None
        except EOFError:
            text = "the connection ended in the middle of an event"
            raise ApiError("WATCH", path, text, server=self.access.server) from None

    async def write(self, kind: WriteKind, path: str, document: Any) -> msgspec.Raw:
        """Sends a document; the object as the server stores it.

        A write that must find a certain version has `metadata.resourceVersion` or `metadata.uid` in its document, one
        that deletes has `delete_options`; the server answers 409 if the object is another.

        Errors: ApiError.
        """
        verb, content_type = kind.value
        body = msgspec.json.encode(document)
        request = ApiRequest(verb=verb, path=path, body=body, content_type=content_type)
        return msgspec.Raw(await self.send(request))

    async def send(self, request: ApiRequest) -> bytes:
        """The body of the answer to a request, within the time-out of the access.

        Errors: ApiError; HostError for credentials that cannot be read.
        """
        await self._credentials.headers()  # A plugin that asks the user has its own time.
        try:
            async with (
                asyncio.timeout(self.access.request_timeout) as limit,
                self.response(request, limit) as response,
            ):
                body = await _bounded_body(response)
        except TimeoutError:
            text = f"no answer within {self.access.request_timeout:g} s"
            raise ApiError(request.verb, request.path, text, server=self.access.server) from None
        except (aiohttp.ClientError, OSError) as error:
            raise transport_error(request.verb, request.path, self.access, error) from None
        if response.content_type == "text/html":
            raise answer_error(request.verb, request.path, response, body)
        return body

    @asynccontextmanager
    async def response(
        self, request: ApiRequest, limit: asyncio.Timeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request whose status is one of success; its body is not read yet.

        One that is refused is repeated as `RepeatedRequest` says.

        Errors: ApiError; aiohttp.ClientError and OSError from connections; HostError for credentials.
        """
        repeated = RepeatedRequest(self._credentials, self._tls.expire, limit, self.access.request_timeout)
        while True:
            response = await self._sent(request)
            try:
                if response.status < 300:
                    yield response
                    return
                error = answer_error(request.verb, request.path, response, await _bounded_body(response))
            finally:
                _end(response)
            await repeated.wait(error)

    async def _sent(self, request: ApiRequest) -> aiohttp.ClientResponse:
        started_s, code = time.monotonic(), 0
        try:
            response = await self._sent_once(request)
            code = response.status
        finally:
            self.on_answer(request.verb, self._host, code, time.monotonic() - started_s)
        return response

    async def _sent_once(self, request: ApiRequest) -> aiohttp.ClientResponse:
        assert self._open_session is not None, "the client is an asynchronous context manager"
        headers = await self._credentials.headers()
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        is_secure = self.access.server.startswith("https://")
        try:
            return await self._open_session.request(
                request.verb,
                URL(f"{self.access.server}{request.path}", encoded=True),
                headers=headers,
                data=request.body or None,
                ssl=await self._tls.context() if is_secure else True,
                server_hostname=self.access.tls.server_name or None,
                proxy=self.access.proxy or None,
                allow_redirects=False,
            )
        except aiohttp.ClientError:
            raise  # Some are ValueErrors as well.
        except ValueError as error:  # a header that cannot be sent, a URL that is none
            raise ApiError(request.verb, request.path, str(error), server=self.access.server) from None


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """The body of the answer.

    Errors: OSError for one that is larger than any list; aiohttp.ClientError.
    """
    chunks: list[bytes] = []
    total = 0
    while chunk := await response.content.readany():
        chunks.append(chunk)
        total += len(chunk)
        if total > MAX_ANSWER_BYTES:
            raise OSError(f"the answer has more than {MAX_ANSWER_BYTES} bytes, which is the limit")
    return b"".join(chunks)


def _end(response: aiohttp.ClientResponse) -> None:
    """Returns the connection; one whose answer was not read to its end is closed at once, without a TLS farewell."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.release()


async def _chunks(response: aiohttp.ClientResponse, end_s: float) -> AsyncGenerator[bytes]:
    """The chunks of the body; no time-out runs while the caller has one of them."""
    while True:
        async with asyncio.timeout_at(end_s):
            chunk = await response.content.readany()
        if not chunk:
            return
        yield chunk


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in selectors.items() if value}


def _with_query(path: str, query: Mapping[str, str]) -> str:
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"


def _keepalive_socket(address: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    set_keepalive(connection)
    return connection
