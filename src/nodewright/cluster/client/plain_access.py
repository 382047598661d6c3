"""`ClusterAPI` with the standard library alone, for processes whose memory counts: an HTTP client takes 10 MiB."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import msgspec

from nodewright.cluster.client.access import ClusterAccess, proxy_address
from nodewright.cluster.client.cluster_api import (
    JSON,
    MAX_ANSWER_BYTES,
    STRATEGIC_MERGE,
    ApiError,
    answer_error,
    as_api_error,
    as_object,
    connection_text,
    watch_limit_s,
    with_query,
)
from nodewright.cluster.client.http_connections import ApiConnection, ApiConnections
from nodewright.cluster.client.list_watch import lines_of
from nodewright.cluster.client.request_credentials import RepeatedRequest, RequestCredentials
from nodewright.model.errors import JSON_ERRORS, HostError

_MAX_REQUESTS = 16
"""Requests at the same time, without watches."""
_NO_ANSWER = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class PlainRequest(msgspec.Struct, frozen=True):
    """A request without what the client adds."""

    verb: str
    target: str
    """The path with its query."""
    body: bytes = b""
    content_type: str = JSON


class PlainAnswer(msgspec.Struct, frozen=True):
    """Status and headers of an answer."""

    status: int
    headers: Mapping[str, str]
    """By name as `Retry-After` is written."""
    reason: str | None = None

    @property
    def content_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip()


class PlainAccess:
    """Fulfils `ClusterAPI`; an asynchronous context manager, which closes idle connections at its end.

    A request that is refused is repeated as `RepeatedRequest` says.
    """

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._credentials = RequestCredentials(access.credentials, plugin_timeout_s=access.request_timeout)
        self._connections = ApiConnections(access, self._credentials)
        self._slots = asyncio.Semaphore(_MAX_REQUESTS)
        self.on_answer: Callable[[str, str, int, float], None] = lambda _verb, _host, _code, _duration_s: None
        """Gets the verb, the host, the status and the duration of each answer; status 0: there was none."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connections.close()

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list."""
        return await self._answer(PlainRequest("GET", with_query(path, query)))

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
        request = PlainRequest("GET", with_query(path, {**query, "watch": "true"}))
        limit_s = watch_limit_s(query)
        try:
            async with (
                asyncio.timeout(limit_s) as limit,
                self._response(request, limit) as parts,
                aclosing(lines_of(parts)) as lines,
            ):
                async for line in lines:
                    yield as_object(msgspec.json.decode(line))
        except asyncio.IncompleteReadError as error:
            raise self._error("WATCH", path, self._text(error, limit_s)) from None
        except EOFError:
            return  # The server ends a watch in the middle of an event now and then: the next one has it.
        except (*_NO_ANSWER, TypeError, *JSON_ERRORS) as error:
            raise self._error("WATCH", path, self._text(error, limit_s)) from None
        except HostError as error:
            raise as_api_error("WATCH", path, error) from None

    async def _write(
        self, verb: str, path: str, document: Mapping[str, Any], content_type: str = JSON
    ) -> dict[str, Any]:
        return await self._answer(PlainRequest(verb, path, msgspec.json.encode(document), content_type))

    async def _answer(self, request: PlainRequest) -> dict[str, Any]:
        limit_s = self._access.request_timeout
        try:
            await self._credentials.headers()  # A plugin that asks the user has its own time.
            async with (
                asyncio.timeout(limit_s) as limit,
                self._slots,
                self._response(request, limit) as parts,
            ):
                content = await _whole(parts)
        except HostError as error:
            raise as_api_error(request.verb, request.target, error) from None
        except _NO_ANSWER as error:
            raise self._error(request.verb, request.target, self._text(error, limit_s)) from None
        try:
            return as_object(msgspec.json.decode(content))
        except (TypeError, *JSON_ERRORS) as error:
            raise ApiError(request.verb, request.target, f"the answer is not JSON: {error}") from None

    @asynccontextmanager
    async def _response(
        self, request: PlainRequest, limit: asyncio.Timeout
    ) -> AsyncIterator[AsyncGenerator[bytes]]:
        """The body of an answer whose status is one of success, in parts.

        Errors: ApiError for another status; HostError; those of `_NO_ANSWER` for connections.
        """
        repeated = RepeatedRequest(
            self._credentials, self._connections.expire, limit, self._access.request_timeout
        )
        while True:
            async with self._exchange(request) as (answer, parts):
                if answer.status < 300:
                    yield parts
                    return
                error = answer_error(request.verb, request.target, answer, await _whole(parts))
            await repeated.wait(error)

    @asynccontextmanager
    async def _exchange(
        self, request: PlainRequest
    ) -> AsyncIterator[tuple[PlainAnswer, AsyncGenerator[bytes]]]:
        """An answer and the parts of its body; the connection is kept if the body is read to its end."""
        connection, answer, headers = await self._sent(request)
        try:
            async with aclosing(connection.body(answer.status, headers)) as parts:
                yield answer, parts
        finally:
            self._connections.put(connection)

    async def _sent(self, request: PlainRequest) -> tuple[ApiConnection, PlainAnswer, dict[str, str]]:
        started_s, code = time.monotonic(), 0
        try:
            while True:
                content = await self._encoded(request)
                connection = await self._connections.take()
                try:
                    code, headers = await connection.answer_head(content)
                except BaseException as error:
                    connection.abort()
                    self._connections.close()
                    # The server may have closed it at this moment; a read is harmless, whatever became of it.
                    is_closed = isinstance(error, ConnectionError | asyncio.IncompleteReadError)
                    if is_closed and connection.is_reused and request.verb == "GET":
                        continue
                    raise
                answer = PlainAnswer(code, {name.title(): text for name, text in headers.items()})
                return connection, answer, headers
        finally:
            host = self._connections.host_header
            self.on_answer(request.verb, host, code, time.monotonic() - started_s)

    async def _encoded(self, request: PlainRequest) -> bytes:
        """The bytes of a request.

        Errors: ValueError, HostError.
        """
        lines = [
            f"{request.verb} {self._connections.target_prefix}{request.target} HTTP/1.1",
            f"Host: {self._connections.host_header}",
            "User-Agent: nodewright",
            "Accept: application/json",
            *(f"{name}: {text}" for name, text in self._connections.proxy_headers()),
            *(f"{name}: {text}" for name, text in await self._credentials.headers()),
        ]
        if request.body:
            lines += [f"Content-Type: {request.content_type}", f"Content-Length: {len(request.body)}"]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has a line break")
        return "\r\n".join((*lines, "", "")).encode() + request.body

    def _error(self, verb: str, target: str, text: str) -> ApiError:
        return ApiError(verb, target, text, server=self._access.server)

    def _text(self, error: Exception, limit_s: float) -> str:
        """What is wrong with a connection."""
        match error:
            case TimeoutError():
                return f"no answer within {limit_s:g} s"
            case EOFError():
                return "the connection ended before the end of the answer"
            case OSError():
                proxy = self._access.proxy
                return connection_text(error) + (
                    f" through the proxy {proxy_address(proxy)}" if proxy else ""
                )
            case _:
                return f"the answer is not HTTP: {error}"


async def _whole(parts: AsyncGenerator[bytes]) -> bytes:
    """The body of an answer.

    Errors: OSError for one that is larger than any list.
    """
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise OSError(f"the answer has more than {MAX_ANSWER_BYTES} bytes, which is the limit")
    return bytes(body)
