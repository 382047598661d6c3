"""Errors of one line from the answers of API servers, proxies and other web servers."""

import os
import re
import socket
import ssl
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp
import msgspec

from nodewright.cluster.access import ClusterAccess
from nodewright.cluster.api_error import ApiError
from nodewright.errors import JSON_ERRORS

# Bounded, because a page of nothing but starts would be searched in quadratic time.
_TITLE = re.compile(r"<title[^<>]{0,100}>([^<]{0,300})", re.IGNORECASE)
_MAX_TEXT_LENGTH = 300
_MAX_PAGE_BYTES = 10_000


class StatusObject(msgspec.Struct, frozen=True):
    """The object in which an API server states an error."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


def answer_error(verb: str, path: str, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
    """The error in an answer: its status, and the message of its Status, its title or its text."""
    status = status_of(body)
    number = response.status
    parts = [f"{number} {_phrase(number, response.reason)}".strip()]
    if status is not None and status.message:
        parts.append(status.message)
    elif response.content_type == "text/html" or body.lstrip()[:1] == b"<":
        title = _TITLE.search(body[:_MAX_PAGE_BYTES].decode("utf-8", "replace"))
        page = f"HTML page {' '.join(title.group(1).split())!r}" if title else "an HTML page"
        parts.append(
            f"the answer is {page}, not an API object; is the server's URL that of a Kubernetes API?"
        )
    elif text := " ".join(body[:_MAX_TEXT_LENGTH].decode("utf-8", "replace").split()):
        parts.append(text)
    if 300 <= number < 400:
        parts.append(f"redirects to {response.headers.get('Location', 'nowhere')}, which is not followed")
    if number == 401:
        parts.append("the credentials of the kubeconfig are not accepted or have expired")
    return ApiError(
        verb,
        path,
        ": ".join(parts),
        status=number,
        reason=status.reason if status else "",
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def status_of(body: bytes) -> StatusObject | None:
    """The Status object in a body; None for any other content."""
    try:
        status = msgspec.json.decode(body, type=StatusObject)
    except JSON_ERRORS:
        return None
    return status if status.kind == "Status" else None


def json_error(verb: str, path: str, server: str, error: Exception) -> ApiError:
    """The error of an answer that is not the JSON that was expected."""
    return ApiError(verb, path, f"the answer is not the expected JSON: {error}", status=200, server=server)


def transport_error(verb: str, path: str, access: ClusterAccess, error: Exception) -> ApiError:
    """The error of a request without a complete answer."""
    return ApiError(verb, path, _transport_text(access, error), server=access.server)


def _phrase(number: int, reason: str | None) -> str:
    try:
        return HTTPStatus(number).phrase
    except ValueError:
        return reason or ""


def _seconds(text: str) -> float | None:
    # As client-go: only a number of seconds, not a date.
    return float(text) if text.isdecimal() and len(text) < 10 else None


def _transport_text(access: ClusterAccess, error: Exception) -> str:
    through = f" through the proxy {_address(access.proxy)}" if access.proxy else ""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return _certificate_text(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return _tls_text(error.os_error)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy {_address(access.proxy)} answers {error.status} {error.message}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect{through}: {_system_text(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return f"the server closed the connection without an answer{through}"
        case aiohttp.ClientPayloadError():
            return f"the connection ended in the middle of the answer{through}"
        case aiohttp.ClientResponseError():
            return f"the answer is not HTTP: {' '.join(error.message.split())[:_MAX_TEXT_LENGTH]}"
        case ssl.SSLError():
            return _tls_text(error)
        case OSError():
            return f"{_system_text(error)}{through}"
        case _:
            return str(error) or type(error).__name__


def _address(proxy: str) -> str:
    """The proxy without the password that its URL may have."""
    try:
        return urlsplit(proxy).netloc.rpartition("@")[2]
    except ValueError:
        return "of the environment, which is no URL"


def _certificate_text(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or str(error)
    return f"the server's certificate is not accepted: {text}; see certificate-authority in the kubeconfig"


def _tls_text(error: OSError) -> str:
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "the server does not speak TLS; is its URL http://?"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"


def _system_text(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"no such host: {error.strerror}"
    text = error.strerror or str(error)
    # asyncio's text repeats the address, which the error names already.
    return (
        text if error.errno is None or "Connect call failed" not in text else os.strerror(error.errno).lower()
    )
