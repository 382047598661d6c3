"""`ClusterAPI` with the standard library alone, for processes whose memory counts: the HTTP client takes 10 MiB."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from nodewright.cluster.access import ClusterAccess
from nodewright.cluster.api_answers import answer_error, connection_text
from nodewright.cluster.api_error import ApiError
from nodewright.cluster.object_watch import lines_of
from nodewright.cluster.request_credentials import RequestCredentials
from nodewright.cluster.tls import TLSMaterial, tls_context
from nodewright.cluster_node.cluster_api import (
    JSON,
    STRATEGIC_MERGE,
    as_api_error,
    as_object,
    watch_limit_s,
    with_query,
)
from nodewright.errors import JSON_ERRORS, HostError
from nodewright.host.http_get import body_parts, join_host_port, response_head

MAX_ANSWER_BYTES = 64 << 20
_BUFFER_BYTES = 1 << 16
_NO_HTTP = (ValueError, asyncio.LimitOverrunError)


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
    """Fulfils `ClusterAPI`: a connection for each request, without proxies.

    A request that is refused with 401 is sent again with credentials that are read again.
    """

    def __init__(self, access: ClusterAccess) -> None:
        assert not access.proxy
        self._access, self._server = access, urlsplit(access.server)
        self._credentials = RequestCredentials(access.credentials, plugin_timeout_s=access.request_timeout)
        self._tls: TLSMaterial | None = None

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list."""
        return await self._answer("GET", with_query(path, query))

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object; returns it as stored."""
        return await self._answer("POST", path, document)

    async def update(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object; returns it as stored."""
        return await self._answer("PUT", path, document)

    async def patch(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a strategic merge patch; returns the object as stored."""
        return await self._answer("PATCH", path, document, STRATEGIC_MERGE)

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object."""
        await self._answer("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch until the server ends it.

        Errors: ApiError.
        """
        target = with_query(path, {**query, "watch": "true"})
        limit_s = watch_limit_s(query)
        try:
            async with (
                asyncio.timeout(limit_s),
                self._response("GET", target, b"", "") as parts,
                aclosing(lines_of(parts)) as lines,
            ):
                async for line in lines:
                    yield as_object(msgspec.json.decode(line))
        except asyncio.IncompleteReadError as error:
            raise ApiError(
                "WATCH", path, _connection_text(error, limit_s), server=self._access.server
            ) from None
        except EOFError:
            return  # The server ends a watch in the middle of an event now and then: the next one has it.
        except (OSError, TypeError, *_NO_HTTP, *JSON_ERRORS) as error:
            raise ApiError(
                "WATCH", path, _connection_text(error, limit_s), server=self._access.server
            ) from None
        except HostError as error:
            raise as_api_error("WATCH", path, error) from None

    async def _answer(
        self, verb: str, target: str, document: Mapping[str, Any] | None = None, kind: str = JSON
    ) -> dict[str, Any]:
        body = b"" if document is None else msgspec.json.encode(document)
        try:
            async with (
                asyncio.timeout(self._access.request_timeout),
                self._response(verb, target, body, kind if body else "") as parts,
            ):
                content = await _whole(parts)
        except HostError as error:
            raise as_api_error(verb, target, error) from None
        except (OSError, EOFError, *_NO_HTTP) as error:
            text = _connection_text(error, self._access.request_timeout)
            raise ApiError(verb, target, text, server=self._access.server) from None
        try:
            return as_object(msgspec.json.decode(content))
        except (TypeError, *JSON_ERRORS) as error:
            raise ApiError(verb, target, f"the answer is not JSON: {error}") from None

    @asynccontextmanager
    async def _response(
        self, verb: str, target: str, body: bytes, kind: str
    ) -> AsyncIterator[AsyncGenerator[bytes]]:
        """The body of an answer whose status is one of success, in parts.

        Errors: ApiError for another status; OSError, ValueError and IncompleteReadError of the connection; HostError.
        """
        for is_last in (False, True):
            async with self._connection() as (reader, writer):
                writer.write(await self._request(verb, target, body, kind))
                status, headers = await response_head(reader)
                async with aclosing(body_parts(reader, headers, status)) as parts:
                    if status < 300:
                        yield parts
                        return
                    named = {name.title(): text for name, text in headers.items()}
                    error = answer_error(verb, target, PlainAnswer(status, named), await _whole(parts))
            if error.status != 401 or is_last or not self._credentials.expire():
                raise error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        server, is_secure = self._server, self._server.scheme == "https"
        if is_secure:
            pair = await self._credentials.client_certificate()
            self._tls = tls_context(self._access.tls, pair, self._tls)
        name = (self._access.tls.server_name or None) if is_secure else None
        port = server.port or (443 if is_secure else 80)
        # TLS is a step of its own: one that is cancelled before its handshake begins would leave the socket open.
        reader, writer = await asyncio.open_connection(server.hostname, port, limit=_BUFFER_BYTES)
        try:
            if self._tls is not None:
                await writer.start_tls(self._tls, server_hostname=name or server.hostname)
            yield reader, writer
        finally:
            writer.transport.abort()

    async def _request(self, verb: str, target: str, body: bytes, kind: str) -> bytes:
        host, port = self._server.hostname or "", self._server.port
        lines = [
            f"{verb} {self._server.path.rstrip('/')}{target} HTTP/1.1",
            f"Host: {join_host_port(host, port) if port else host}",
            "User-Agent: nodewright",
            "Accept: application/json",
            "Connection: close",
            *(f"{name}: {text}" for name, text in await self._credentials.headers()),
        ]
        if kind:
            lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has a line break")
        return "\r\n".join((*lines, "", "")).encode() + body


async def _whole(parts: AsyncGenerator[bytes]) -> bytes:
    """The body of an answer.

    Errors: OSError for one that is larger than any that is expected.
    """
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise OSError(f"the answer has more than {MAX_ANSWER_BYTES} bytes, which is the limit")
    return bytes(body)


def _connection_text(error: Exception, limit_s: float) -> str:
    """What is wrong with a connection."""
    match error:
        case TimeoutError():
            return f"no answer within {limit_s:g} s"
        case EOFError():
            return "the connection ended before the end of the answer"
        case OSError():
            return connection_text(error)
        case _:
            return f"the answer is not HTTP: {error}"
