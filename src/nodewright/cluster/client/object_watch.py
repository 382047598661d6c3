"""Events of a watch as the API server streams them."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, StatusObject
from nodewright.model.errors import JSON_ERRORS


class VersionedMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object that name one version of it."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _WithMeta(msgspec.Struct, frozen=True):
    metadata: VersionedMeta = VersionedMeta()


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change, or a bookmark: an object that has a resource version only."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: msgspec.Raw


class _StreamedEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class _StreamedStatus(StatusObject, frozen=True):
    details: _StatusDetails = _StatusDetails()


MAX_LINE_BYTES = 64 << 20
"""Objects of an API server have a few megabytes at most."""


class OverlongLineError(OSError):
    """A line of a stream has more bytes than any event."""

    def __init__(self) -> None:
        super().__init__(f"an event has more than {MAX_LINE_BYTES} bytes, which is the limit")


_EVENT_DECODER = msgspec.json.Decoder(_StreamedEvent)
_META_DECODER = msgspec.json.Decoder(_WithMeta)


def metadata_of(content: msgspec.Raw | bytes) -> VersionedMeta:
    """The metadata of an object in JSON.

    Errors: msgspec.DecodeError.
    """
    return _META_DECODER.decode(content).metadata


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The lines of a stream that end with a line break.

    Errors: EOFError for a stream that ends in the middle of a line; OverlongLineError.
    """
    parts: list[bytes] = []
    length = 0
    async for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join((*parts, end))
            parts.clear()
            length = 0
            if line.strip():
                yield line
        if rest:
            parts.append(rest)
            length += len(rest)
            if length > MAX_LINE_BYTES:
                raise OverlongLineError
    if parts:
        raise EOFError


def decode_event(line: bytes, path: str) -> WatchEvent:
    """The event of a line.

    Errors: ApiError for an event with an error and for what is no event.
    """
    try:
        event = _EVENT_DECODER.decode(line)
        if event.type in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            return WatchEvent(kind=event.type, object=event.object)  # type: ignore[arg-type] # just compared
        status = msgspec.json.decode(event.object, type=_StreamedStatus)
    except JSON_ERRORS as error:
        raise ApiError("WATCH", path, f"the event is not the expected JSON: {error}", status=200) from None
    if event.type != "ERROR":
        raise ApiError("WATCH", path, f"an event of the unknown type {event.type!r}", status=200)
    delay_s = status.details.retry_after_seconds
    error_text = f"{status.code or 500} {status.reason}: {status.message}"
    raise ApiError(
        "WATCH",
        path,
        error_text,
        status=status.code or 500,
        reason=status.reason,
        retry_after_s=float(delay_s) if delay_s else None,
    )
