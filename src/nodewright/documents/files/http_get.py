"""HTTP GET as the kubelet's probes use it: no proxy, no certificate verification, a limited body."""

import asyncio
import os
import re
import socket
import ssl
import sys
from asyncio import StreamReader
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec.structs import replace

from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.golang import quoted

MAX_BODY_BYTES = 10 * 1024
_MAX_REDIRECTS, _MAX_HEADER_BYTES, _PART_BYTES = 10, 64 * 1024, 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_LENGTH, _CHUNK_SIZE = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9A-Fa-f]{1,15}")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_UNESCAPED = "/?:@!$&'()*+,;=%~-._[]"


class HTTPRequest(msgspec.Struct, frozen=True):
    """A GET request."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_http_get_action(cls, action: Mapping[str, Any], host: str, purpose: str) -> "HTTPRequest":
        """The request of an `httpGet` action, with the kubelet's default headers.

        Follows: v1.36, pkg/probe/http/request.go, NewRequestForHTTPGetAction.
        """
        headers = [
            (header.get("name") or "", header.get("value") or "")
            for header in action.get("httpHeaders") or ()
        ]
        value_of_name = {name.lower(): value for name, value in reversed(headers)}
        if "user-agent" not in value_of_name:
            headers.append(("User-Agent", f"kube-{purpose}/{NEWEST.name}"))
        if "accept" not in value_of_name:
            headers.append(("Accept", "*/*"))
        elif not value_of_name["accept"]:
            headers = [header for header in headers if header[0].lower() != "accept"]
        path = _path(action.get("path") or "")
        scheme = str(action.get("scheme") or "http").lower()
        return cls(scheme, action.get("host") or host, int(action["port"]), path, tuple(headers))

    @classmethod
    def from_url(cls, url: str, headers: Mapping[str, str]) -> "HTTPRequest":
        """The request of a URL.

        Errors: ValueError for a text that is no URL with a host.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a URL begins with http:// or https:// and names a host")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(parts.scheme, parts.hostname, port, path, tuple(headers.items()))

    @property
    def url(self) -> str:
        """The URL as Go prints it."""
        return f"{self.scheme}://{join_host_port(self.host, self.port)}{self.path}"

    def unencrypted(self) -> "HTTPRequest":
        """The request over plain HTTP, without the Authorization header."""
        headers = tuple(header for header in self.headers if header[0].lower() != "authorization")
        return replace(self, scheme="http", headers=headers)

    def redirected(self, location: str) -> "HTTPRequest | None":
        """The request that a redirect leads to; None if it leads to another host, which is not followed.

        Errors: ValueError for a location that is no URL.
        """
        parts = urlsplit(urljoin(self.url, location))
        if parts.scheme not in ("http", "https") or parts.hostname != self.host.lower():
            return None
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return replace(self, scheme=parts.scheme, port=port, path=_path(path))

    def encoded(self) -> bytes:
        """The bytes of the request."""
        host_header = next((value for name, value in self.headers if name.lower() == "host"), "")
        lines = [
            f"GET {self.path or '/'} HTTP/1.1",
            f"Host: {host_header or join_host_port(self.host, self.port)}",
        ]
        lines += [f"{name}: {value}" for name, value in self.headers if name.lower() != "host"]
        return "\r\n".join((*lines, "Connection: close", "", "")).encode(errors="replace")


class HTTPResponse(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes
    location: str = ""


class HTTPFailure(msgspec.Struct, frozen=True):
    """Why there is no response, as Go's error text."""

    error: str
    is_in_body: bool = False
    """Whether the failure happened after the headers of a response were read."""

    def text(self, request: HTTPRequest) -> str:
        """The error as Go's HTTP client prints it."""
        return f'Get "{request.url}": {self.error}'


async def http_get(
    request: HTTPRequest,
    timeout_s: float,
    max_body: int = MAX_BODY_BYTES,
    context: ssl.SSLContext | None = None,
) -> HTTPResponse | HTTPFailure:
    """The response to a GET, after redirects to the same host; ``context`` verifies certificates, by default none.

    Follows: v1.36, pkg/probe/http/http.go, DoHTTPProbe and RedirectChecker.
    """
    for name, value in request.headers:
        if not _HEADER_VALUE.fullmatch(value):
            return HTTPFailure(f"net/http: invalid header field value for {quoted(name)}")
    progress = _ResponseProgress()
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_MAX_REDIRECTS):
                response = await _single_response(request, progress, max_body, context)
                if (
                    isinstance(response, HTTPFailure)
                    or response.status not in _REDIRECTS
                    or not response.location
                ):
                    return response
                try:
                    redirect = request.redirected(response.location)
                except ValueError as fault:
                    return HTTPFailure(
                        f"failed to parse Location header {quoted(response.location)}: {fault}"
                    )
                if redirect is None:
                    return response
                request = redirect
    except TimeoutError:
        if progress.is_in_body:
            error = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
            return HTTPFailure(error, is_in_body=True)
        return HTTPFailure("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
    return HTTPFailure(f"stopped after {_MAX_REDIRECTS} redirects")


class _ResponseProgress:
    is_in_body = False


async def _single_response(
    request: HTTPRequest, progress: _ResponseProgress, max_body: int, context: ssl.SSLContext | None
) -> HTTPResponse | HTTPFailure:
    """The response to one request."""
    progress.is_in_body = False
    context = (context or _unverified_context()) if request.scheme == "https" else None
    try:
        reader, writer = await open_connection(request.host, request.port, context, limit=_MAX_HEADER_BYTES)
    except ssl.SSLError as error:
        return HTTPFailure(_tls_error(error))
    except OSError as error:
        return HTTPFailure(dial_error(request.host, request.port, error))
    except (ValueError, OverflowError):
        # A host that cannot be encoded, or a port beyond 65535.
        return HTTPFailure(f"dial tcp: lookup {join_host_port(request.host, request.port)}: no such host")
    try:
        writer.write(request.encoded())
        await writer.drain()
        return await _read_response(reader, progress, max_body)
    except asyncio.IncompleteReadError as error:
        return HTTPFailure("unexpected EOF" if error.partial else "EOF", is_in_body=progress.is_in_body)
    except (asyncio.LimitOverrunError, ValueError) as error:
        broken = f"net/http: HTTP/1.x transport connection broken: {error}"
        return HTTPFailure(broken, is_in_body=progress.is_in_body)
    except OSError as error:
        return HTTPFailure(f"read tcp: read: {_errno_text(error)}", is_in_body=progress.is_in_body)
    finally:
        writer.transport.abort()


async def open_connection(
    host: str, port: int, context: ssl.SSLContext | None, *, limit: int = _PART_BYTES
) -> tuple[StreamReader, asyncio.StreamWriter]:
    """A connection, with TLS where there is a context; ``limit``: bytes that are buffered.

    TLS is a step of its own: a connection that is cancelled before its handshake begins would leave the socket open.

    Errors: OSError, ValueError and OverflowError of `asyncio.open_connection`.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    try:
        if context is not None:
            await writer.start_tls(context, server_hostname=host)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _read_response(reader: StreamReader, progress: _ResponseProgress, max_body: int) -> HTTPResponse:
    """The final response."""
    status, headers = await response_head(reader)
    progress.is_in_body = True
    body = b""
    async with aclosing(body_parts(reader, headers, status, max_body)) as parts:
        async for part in parts:
            body += part
    return HTTPResponse(status, body, headers.get("location", ""))


async def response_head(reader: StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers, by lower-case name, of the final response, after informational (1xx) ones.

    Errors: ValueError for what is no HTTP; OSError and IncompleteReadError of the connection.
    """
    status, headers = 100, dict[str, str]()
    while status // 100 == 1:
        status_line = (await reader.readuntil(b"\n")).strip()
        match = _STATUS.fullmatch(status_line)
        if match is None:
            raise ValueError(f'malformed HTTP response "{status_line.decode(errors="replace")}"')
        status = int(match[1])
        headers = await _headers(reader)
    return status, headers


async def _headers(reader: StreamReader) -> dict[str, str]:
    """The headers by lower-case name; of repeated ones the first."""
    headers: dict[str, str] = {}
    size = 0
    while line := (await reader.readuntil(b"\n")).strip():
        size += len(line)
        if size > _MAX_HEADER_BYTES:
            raise ValueError("net/http: server response headers exceeded 65536 bytes; aborted")
        name, _, value = line.decode("latin-1").partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    return headers


async def body_parts(
    reader: StreamReader, headers: Mapping[str, str], status: int, max_bytes: int = sys.maxsize
) -> AsyncGenerator[bytes]:
    """The body as it arrives, at most ``max_bytes`` of it.

    Errors: ValueError for what is no HTTP; OSError and IncompleteReadError of the connection.
    """
    if status in (204, 304):
        return
    length = headers.get("content-length")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := _size(
            _CHUNK_SIZE, (await reader.readuntil(b"\n")).partition(b";")[0].decode("latin-1"), 16
        ):
            async for part in _exactly(reader, min(size, max_bytes)):
                yield part
            max_bytes -= size
            if max_bytes <= 0:
                return
            await reader.readuntil(b"\n")
    elif length is not None:
        async for part in _exactly(reader, min(_size(_LENGTH, length, 10), max_bytes)):
            yield part
    else:
        while max_bytes > 0 and (part := await reader.read(min(max_bytes, _PART_BYTES))):
            max_bytes -= len(part)
            yield part


def _size(pattern: re.Pattern[str], text: str, base: int) -> int:
    """The number in a header or before a chunk; Python alone would take signs and underscores.

    Errors: ValueError.
    """
    if not pattern.fullmatch(text.strip()):
        raise ValueError(f"invalid length {text.strip()!r}")
    return int(text, base)


async def _exactly(reader: StreamReader, count: int) -> AsyncGenerator[bytes]:
    """So many bytes, in parts.

    Errors: IncompleteReadError.
    """
    left = count
    while left > 0:
        part = await reader.read(min(left, _PART_BYTES))
        if not part:
            raise asyncio.IncompleteReadError(b" " * (count - left), count)
        left -= len(part)
        yield part


# ---------------------------------------------------------------- Go's error texts


def join_host_port(host: str, port: int) -> str:
    """Host and port as an address, with IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial_error(host: str, port: int, error: OSError) -> str:
    """The error of a failed connection as Go prints it."""
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    return f"dial tcp {join_host_port(host, port)}: connect: {_errno_text(error)}"


def _errno_text(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _tls_error(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "http: server gave HTTP response to HTTPS client"
    return f"remote error: tls: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _unverified_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _path(path: str) -> str:
    """The path of a request line: absolute, escaped, without fragment."""
    path = quote(path.partition("#")[0], safe=_UNESCAPED)
    return path if not path or path.startswith(("/", "?")) else f"/{path}"
