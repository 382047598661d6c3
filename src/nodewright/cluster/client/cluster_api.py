"""What is asked of an API server, in few verbs, and the error of a request that it refuses or does not answer."""

import re
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from nodewright.model.errors import JSON_ERRORS, HostError, shortened
from nodewright.model.printable import address_text, printable

if TYPE_CHECKING:
    from nodewright.cluster.client.http_connections import AnswerHead

_SILENCE_S = 60.0
# Bounded, because a page of nothing but starts would be searched in quadratic time.
_TITLE = re.compile(r"<title[^<>]{0,100}>([^<]{0,300})", re.IGNORECASE)
_MAX_TEXT_LENGTH, _MAX_PAGE_BYTES = 300, 10_000


class ClusterAPI(Protocol):
    """An API server; objects are documents. All operations raise `ApiError`."""

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list."""

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object; returns it as stored."""

    async def update(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object; returns it as stored."""

    async def patch(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a strategic merge patch; returns the object as stored."""

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object."""

    def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch, `{"type": ..., "object": ...}`, until the server ends it."""


class ApiError(HostError):
    """A request that the API server refused or did not answer; its text is one line with verb, path and reason."""

    def __init__(  # noqa: PLR0913 - the facts of an answer
        self,
        verb: str,
        path: str,
        error: str,
        *,
        status: int = 0,
        reason: str = "",
        server: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(verb, printable(f"{address_text(server)}{path}"), printable(shortened(error, 1_000)))
        self.verb, self.path = verb, path
        self.status = status
        """The HTTP status; 0 if no answer was received."""
        self.reason = reason
        """The reason of the API server's Status, e.g. `Forbidden` or `Expired`; empty without a Status."""
        self.retry_after_s = retry_after_s
        """When the server asks for the next attempt, in seconds; None: it does not."""

    @property
    def is_expired(self) -> bool:
        """Whether the resource version or the continue token is too old, so that a new list is needed."""
        return self.status == 410


MAX_PAGES, MAX_LIST_BYTES = 4_000, 8 << 30
"""Limits for a list: two million objects in pages of 500, which is ten times what Kubernetes supports."""


class PageCount:
    """The pages of one list as they are read: a server decides how many there are, so they are counted."""

    def __init__(self, path: str, server: str = "") -> None:
        self._path, self._server = path, server
        self._token, self._pages, self._bytes = "", 0, 0

    def add(self, next_token: str, size: int = 0) -> None:
        """Takes a page of so many bytes, and the token of the next one.

        Errors: ApiError for a list without end.
        """
        self._pages, self._bytes = self._pages + 1, self._bytes + size
        if not next_token:
            return
        text = ""
        if next_token == self._token:
            text = "two pages name the same next page"
        elif self._pages >= MAX_PAGES or self._bytes >= MAX_LIST_BYTES:
            text = f"it has more than {MAX_PAGES} pages or {MAX_LIST_BYTES} bytes, which is the limit"
        if text:
            raise ApiError("GET", self._path, f"the list has no end: {text}", server=self._server)
        self._token = next_token


class StatusObject(msgspec.Struct, frozen=True):
    """The object in which an API server states an error."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


def api_path(root: str, *segments: str) -> str:
    """The path below a root of the API, every segment quoted: all paths with names of others are built here.

    Errors: ApiError with status 404 for a segment that leads elsewhere: an empty one, `.` and `..`.

    >>> api_path("/api/v1", "namespaces", "shop", "pods", "a/b")
    '/api/v1/namespaces/shop/pods/a%2Fb'
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            error = f"{segment!r} is not the name of an object"
            raise ApiError("GET", root, error, status=HTTPStatus.NOT_FOUND, reason="NotFound")
    return "/".join((root, *(quote(segment, safe="") for segment in segments)))


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with these parameters."""
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}"


def watch_limit_s(query: Mapping[str, str]) -> float:
    """How long a watch may last before its connection counts as dead: longer than it was asked for."""
    return float(query.get("timeoutSeconds", "0")) + _SILENCE_S


def as_object(value: Any) -> dict[str, Any]:
    """The value, which is an object.

    Errors: TypeError.
    """
    if not isinstance(value, dict):
        raise TypeError(f"it is no object, but a {type(value).__name__}")
    return value


# ---------------------------------------------------------------- errors


def answer_error(verb: str, path: str, head: "AnswerHead", body: bytes) -> ApiError:
    """The error in an answer: its status, and the message of its Status, its title or its text."""
    status = _status_object(body)
    number = head.status
    parts = [f"{number} {_phrase(number, head.reason)}".strip()]
    if status is not None and status.message:
        parts.append(status.message)
    elif head.content_type == "text/html" or body.lstrip()[:1] == b"<":
        title = _TITLE.search(body[:_MAX_PAGE_BYTES].decode("utf-8", "replace"))
        page = f"HTML page {' '.join(title.group(1).split())!r}" if title else "an HTML page"
        parts.append(
            f"the answer is {page}, not an API object; is the server's URL that of a Kubernetes API?"
        )
    elif text := " ".join(body[:_MAX_TEXT_LENGTH].decode("utf-8", "replace").split()):
        parts.append(text)
    if 300 <= number < 400:
        parts.append(f"redirects to {head.headers.get('location', 'nowhere')}, which is not followed")
    if number == 401:
        parts.append("the credentials of the kubeconfig are not accepted or have expired")
    return ApiError(
        verb,
        path,
        ": ".join(parts),
        status=number,
        reason=status.reason if status else "",
        retry_after_s=_seconds(head.headers.get("retry-after", "")),
    )


def json_error(verb: str, path: str, server: str, error: Exception) -> ApiError:
    """The error of an answer that is not the JSON that was expected."""
    return ApiError(verb, path, f"the answer is not the expected JSON: {error}", status=200, server=server)


def as_api_error(verb: str, path: str, error: HostError) -> ApiError:
    """The error; one of reading credentials, which may be there again later, as one of the request."""
    return error if isinstance(error, ApiError) else ApiError(verb, path, str(error))


def _status_object(body: bytes) -> StatusObject | None:
    """The Status object in a body; None for any other content."""
    try:
        status = msgspec.json.decode(body, type=StatusObject)
    except JSON_ERRORS:
        return None
    return status if status.kind == "Status" else None


def _phrase(number: int, reason: str) -> str:
    try:
        return HTTPStatus(number).phrase
    except ValueError:
        return reason


def _seconds(text: str) -> float | None:
    # As client-go: only a number of seconds, not a date.
    return float(text) if text.isdecimal() and len(text) < 10 else None
