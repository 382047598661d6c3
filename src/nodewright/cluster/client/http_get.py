"""HTTP GET as the kubelet's probes use it: no proxy, redirects to the same host, Go's error texts, a limited body."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.http_connections import (
    ClientConnection,
    ConnectionEndedError,
    InvalidAnswerError,
    InvalidRequestError,
    WireRequest,
    join_host_port,
    open_connection,
)
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.golang import quoted

MAX_BODY_BYTES = 10 * 1024
_MAX_REDIRECTS = 10
_PUBLIC_HEADERS = ("user-agent", "accept")
_REDIRECTS = (301, 302, 303, 307, 308)
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
        return cls(parts.scheme, parts.hostname, port, _path(path), tuple(headers.items()))

    @property
    def url(self) -> str:
        """The URL as Go prints it."""
        return f"{self.scheme}://{join_host_port(self.host, self.port)}{self.path}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return self.scheme, self.host, self.port

    def unencrypted(self) -> "HTTPRequest":
        """The request over plain HTTP, without the Authorization header."""
        headers = tuple(header for header in self.headers if header[0].lower() != "authorization")
        return replace(self, scheme="http", headers=headers)

    def redirected(self, location: str) -> "HTTPRequest | None":
        """The request that a redirect leads to; None if it leads to another host, which is not followed.

        Another scheme or port of the host gets none of the headers that the request was made with but the client's name.

        Errors: ValueError for a location that is no URL.
        """
        parts = urlsplit(urljoin(self.url, location))
        if parts.scheme not in ("http", "https") or parts.hostname != self.host.lower():
            return None
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        headers = self.headers
        if (parts.scheme, port) != (self.scheme, self.port):
            headers = tuple(header for header in headers if header[0].lower() in _PUBLIC_HEADERS)
        return replace(self, scheme=parts.scheme, port=port, path=_path(path), headers=headers)

    def on_the_wire(self) -> WireRequest:
        """The request with the headers that every request has."""
        host = next((value for name, value in self.headers if name.lower() == "host"), "")
        headers = [("Host", host or join_host_port(self.host, self.port))]
        headers += [(name, value) for name, value in self.headers if name.lower() != "host"]
        return WireRequest(target=self.path or "/", headers=(*headers, ("Connection", "close")))


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

    With a context only redirects to the same scheme and port are followed: no other server is to be believed.

    Follows: v1.36, pkg/probe/http/http.go, DoHTTPProbe and RedirectChecker.
    Departs: another scheme or port of the host does not get the headers of the request.
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
                if redirect is None or (context is not None and redirect.origin != request.origin):
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
        connection = ClientConnection(*await open_connection(request.host, request.port, context))
    except ssl.SSLError as error:
        return HTTPFailure(_tls_error(error))
    except OSError as error:
        return HTTPFailure(dial_error(request.host, request.port, error))
    except (ValueError, OverflowError):
        # A host that cannot be encoded, or a port beyond 65535.
        return HTTPFailure(f"dial tcp: lookup {join_host_port(request.host, request.port)}: no such host")
    try:
        return await _read_response(connection, request, progress, max_body)
    except OSError as error:
        return HTTPFailure(_response_error(error), is_in_body=progress.is_in_body)
    finally:
        connection.abort()


async def _read_response(
    connection: ClientConnection, request: HTTPRequest, progress: _ResponseProgress, max_body: int
) -> HTTPResponse:
    """The final response; its body is cut off at the limit."""
    head = await connection.head(request.on_the_wire())
    progress.is_in_body = True
    body = b""
    async with aclosing(connection.body()) as parts:
        async for part in parts:
            body += part
            if len(body) >= max_body:
                break
    return HTTPResponse(head.status, body[:max_body], head.headers.get("location", ""))


# ---------------------------------------------------------------- Go's error texts


def dial_error(host: str, port: int, error: OSError) -> str:
    """The error of a failed connection as Go prints it."""
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    return f"dial tcp {join_host_port(host, port)}: connect: {_errno_text(error)}"


def _response_error(error: OSError) -> str:
    """The error of a request without a whole response."""
    match error:
        case ConnectionEndedError():
            return "unexpected EOF" if error.has_begun else "EOF"
        case InvalidAnswerError():
            return f"net/http: HTTP/1.x transport connection broken: {error.fault}"
        case InvalidRequestError():
            return f"net/http: {error}"
        case _:
            return f"read tcp: read: {_errno_text(error)}"


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
