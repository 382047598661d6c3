"""One HTTP request as a kubelet makes it: no proxy, no trust in certificates, a short look at the body."""

import asyncio
import os
import re
import socket
import ssl
from asyncio import StreamReader
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

MAX_BODY = 10 * 1024
_MOST_REDIRECTS, _MOST_HEAD = 10, 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_VERSION = "1.36"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_CLEAN = "/?:@!$&'()*+,;=%~-._[]"


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for."""

    scheme: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, told: Mapping[str, Any], host: str, purpose: str) -> "Request":
        """The request of an `httpGet`, with the headers that it does not name itself.

        Follows: v1.36, pkg/probe/http/request.go, NewRequestForHTTPGetAction.
        """
        headers = [(one["name"], one.get("value") or "") for one in told.get("httpHeaders") or ()]
        named = {name.lower(): value for name, value in reversed(headers)}
        if "user-agent" not in named:
            headers.append(("User-Agent", f"kube-{purpose}/{_VERSION}"))
        if "accept" not in named:
            headers.append(("Accept", "*/*"))
        elif not named["accept"]:
            headers = [one for one in headers if one[0].lower() != "accept"]
        path = _path(told.get("path") or "")
        scheme = str(told.get("scheme") or "http").lower()
        return cls(scheme, told.get("host") or host, int(told["port"]), path, tuple(headers))

    @property
    def url(self) -> str:
        """As Go prints it."""
        return f"{self.scheme}://{joined(self.host, self.port)}{self.path}"

    def unencrypted(self) -> "Request":
        """The same without encryption, and without what must not be sent so."""
        kept = tuple(one for one in self.headers if one[0].lower() != "authorization")
        return replace(self, scheme="http", headers=kept)

    def redirected(self, location: str) -> "Request | None":
        """The request that an answer leads to; None: it leads to another host, which nobody is asked."""
        parts = urlsplit(urljoin(self.url, location))
        if parts.scheme not in ("http", "https") or parts.hostname != self.host.lower():
            return None
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return replace(self, scheme=parts.scheme, port=port, path=_path(path))

    def text(self) -> bytes:
        """What is sent."""
        own_host = next((value for name, value in self.headers if name.lower() == "host"), "")
        lines = [f"GET {self.path or '/'} HTTP/1.1", f"Host: {own_host or joined(self.host, self.port)}"]
        lines += [f"{name}: {value}" for name, value in self.headers if name.lower() != "host"]
        return "\r\n".join((*lines, "Connection: close", "", "")).encode(errors="replace")


@dataclass(frozen=True, slots=True)
class HTTPAnswer:
    """What came back."""

    status: int
    body: bytes
    location: str = ""


@dataclass(frozen=True, slots=True)
class HTTPFailure:
    """Why nothing did, in Go's words."""

    error: str
    is_in_body: bool = False
    """The head of an answer was there already."""

    def text(self, request: Request) -> str:
        """As Go's client says it."""
        return f'Get "{request.url}": {self.error}'


async def http_get(
    request: Request, timeout_s: float, max_body: int = MAX_BODY, context: ssl.SSLContext | None = None
) -> HTTPAnswer | HTTPFailure:
    """What a GET gave, after redirects to the same host; ``context`` says whose certificates count, all by default.

    Follows: v1.36, pkg/probe/http/http.go, DoHTTPProbe and RedirectChecker.
    """
    progress = _Progress()
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_MOST_REDIRECTS):
                found = await _asked(request, progress, max_body, context)
                if isinstance(found, HTTPFailure) or found.status not in _REDIRECTS or not found.location:
                    return found
                following = request.redirected(found.location)
                if following is None:
                    return found
                request = following
    except TimeoutError:
        if progress.is_in_body:
            what = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
            return HTTPFailure(what, is_in_body=True)
        return HTTPFailure("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
    return HTTPFailure(f"stopped after {_MOST_REDIRECTS} redirects")


class _Progress:
    is_in_body = False


async def _asked(
    request: Request, progress: _Progress, max_body: int, context: ssl.SSLContext | None
) -> HTTPAnswer | HTTPFailure:
    """One request and its answer."""
    progress.is_in_body = False
    context = (context or _trusting()) if request.scheme == "https" else None
    try:
        reader, writer = await asyncio.open_connection(
            request.host, request.port, ssl=context, limit=_MOST_HEAD
        )
    except ssl.SSLError as error:
        return HTTPFailure(_tls_error(error))
    except OSError as error:
        return HTTPFailure(dial_error(request.host, request.port, error))
    try:
        writer.write(request.text())
        await writer.drain()
        return await _answer(reader, progress, max_body)
    except asyncio.IncompleteReadError as error:
        return HTTPFailure("unexpected EOF" if error.partial else "EOF", is_in_body=progress.is_in_body)
    except (asyncio.LimitOverrunError, ValueError) as error:
        what = f"net/http: HTTP/1.x transport connection broken: {error}"
        return HTTPFailure(what, is_in_body=progress.is_in_body)
    except OSError as error:
        return HTTPFailure(f"read tcp: read: {_words(error)}", is_in_body=progress.is_in_body)
    finally:
        writer.transport.abort()


async def _answer(reader: StreamReader, progress: _Progress, max_body: int) -> HTTPAnswer:
    """The answer itself; those that only announce it come before."""
    status, headers = 100, dict[str, str]()
    while status // 100 == 1:
        first = (await reader.readuntil(b"\n")).strip()
        found = _STATUS.fullmatch(first)
        if found is None:
            raise ValueError(f'malformed HTTP response "{first.decode(errors="replace")}"')
        status = int(found[1])
        headers = await _headers(reader)
    progress.is_in_body = True
    body = await _body(reader, headers, status, max_body)
    return HTTPAnswer(status, body, headers.get("location", ""))


async def _headers(reader: StreamReader) -> dict[str, str]:
    """The fields of a head, each as it was said first."""
    found: dict[str, str] = {}
    size = 0
    while line := (await reader.readuntil(b"\n")).strip():
        size += len(line)
        if size > _MOST_HEAD:
            raise ValueError("net/http: server response headers exceeded 65536 bytes; aborted")
        name, _, value = line.decode("latin-1").partition(":")
        found.setdefault(name.strip().lower(), value.strip())
    return found


async def _body(reader: StreamReader, headers: Mapping[str, str], status: int, most: int) -> bytes:
    """As much of the body as somebody looks at."""
    if status in (204, 304):
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader, most)
    length = headers.get("content-length")
    if length is None:
        return await _up_to(reader, most)
    wanted = min(int(length), most)
    return await reader.readexactly(wanted)


async def _up_to(reader: StreamReader, most: int) -> bytes:
    """All that comes until the other side is done."""
    found = b""
    while len(found) < most and (more := await reader.read(most - len(found))):
        found += more
    return found


async def _chunks(reader: StreamReader, most: int) -> bytes:
    found = b""
    while len(found) < most:
        size = int((await reader.readuntil(b"\n")).partition(b";")[0], 16)
        if size == 0:
            break
        found += await reader.readexactly(min(size, most - len(found)))
        if len(found) < most:
            await reader.readuntil(b"\n")
    return found


# ---------------------------------------------------------------- in Go's words


def joined(host: str, port: int) -> str:
    """Host and port as an address; those of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dial_error(host: str, port: int, error: OSError) -> str:
    """Why nobody could be reached, as Go says it."""
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {host}: no such host"
    return f"dial tcp {joined(host, port)}: connect: {_words(error)}"


def _words(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _tls_error(error: ssl.SSLError) -> str:
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "http: server gave HTTP response to HTTPS client"
    return f"remote error: tls: {(error.reason or str(error)).replace('_', ' ').lower()}"


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _path(path: str) -> str:
    """The path as it is sent: from the root, what cannot be sent as it is escaped, no fragment."""
    path = quote(path.partition("#")[0], safe=_CLEAN)
    return path if not path or path.startswith(("/", "?")) else f"/{path}"
