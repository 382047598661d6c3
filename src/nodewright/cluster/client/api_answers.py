"""Errors of one line from the answers of API servers, proxies and other web servers."""

import os
import re
import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.model.errors import JSON_ERRORS

# Bounded, because a page of nothing but starts would be searched in quadratic time.
_TITLE = re.compile(r"<title[^<>]{0,100}>([^<]{0,300})", re.IGNORECASE)
MAX_ANSWER_BYTES = 512 << 20
"""Limit for the body of an answer, unpacked: a page of a list has tens of megabytes."""
MAX_TEXT_LENGTH = 300
_MAX_PAGE_BYTES = 10_000


class StatusObject(msgspec.Struct, frozen=True):
    """The object in which an API server states an error."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class AnswerHead(Protocol):
    """Status and headers of an answer, of whichever client."""

    @property
    def status(self) -> int:
        """The number."""

    @property
    def reason(self) -> str | None:
        """The text after it."""

    @property
    def content_type(self) -> str:
        """The type of the body, without parameters."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By name; `Location` and `Retry-After` are read."""


def answer_error(verb: str, path: str, response: "AnswerHead", body: bytes) -> ApiError:
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
    elif text := " ".join(body[:MAX_TEXT_LENGTH].decode("utf-8", "replace").split()):
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


def _phrase(number: int, reason: str | None) -> str:
    try:
        return HTTPStatus(number).phrase
    except ValueError:
        return reason or ""


def _seconds(text: str) -> float | None:
    # As client-go: only a number of seconds, not a date.
    return float(text) if text.isdecimal() and len(text) < 10 else None


def connection_text(error: Exception) -> str:
    """What is wrong with a connection."""
    match error:
        case ssl.SSLCertVerificationError():
            return certificate_text(error)
        case ssl.SSLError():
            return tls_text(error)
        case OSError():
            return system_text(error)
        case _:
            return str(error) or type(error).__name__


def certificate_text(error: Exception) -> str:
    """Why the server's certificate is not accepted."""
    text = getattr(error, "verify_message", "") or str(error)
    return f"the server's certificate is not accepted: {text}; see certificate-authority in the kubeconfig"


def tls_text(error: OSError) -> str:
    """Why there is no TLS."""
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "the server does not speak TLS; is its URL http://?"
    return f"TLS failed: {reason.replace('_', ' ').lower()}"


def system_text(error: OSError) -> str:
    """The error of the operating system."""
    if isinstance(error, socket.gaierror):
        return f"no such host: {error.strerror}"
    text = error.strerror or str(error)
    # asyncio's text repeats the address, which the error names already.
    return (
        text if error.errno is None or "Connect call failed" not in text else os.strerror(error.errno).lower()
    )
