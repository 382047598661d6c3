"""Lists and watches as the API server sends them: pages of objects, and events."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import Literal, TypeVar

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, StatusObject
from nodewright.documents.output.terminal import print_message
from nodewright.model.errors import JSON_ERRORS

T = TypeVar("T")
_TYPED_START = b'{"metadata"'


class ObjectPage(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of a list, each as JSON with its kind and apiVersion."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str = ""
    remaining: int | None = None
    """How many objects the pages after this have, as the server estimates; None: it does not say, or none."""
    is_restart: bool = False
    """The list expired between two pages: this page has all objects, those of the pages before are void."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _ObjectList(msgspec.Struct, frozen=True, rename="camel"):
    items: list[msgspec.Raw] | None
    kind: str = ""
    api_version: str = ""
    metadata: _ListMeta = _ListMeta()


class _TypeMeta(msgspec.Struct, frozen=True):
    kind: str = ""


_LIST_DECODER = msgspec.json.Decoder(_ObjectList)
_TYPE_DECODER = msgspec.json.Decoder(_TypeMeta)


def decode_page(body: bytes, *, is_restart: bool = False) -> tuple[ObjectPage, str]:
    """The page in an answer, and the token of the next page; empty after the last.

    Errors: msgspec.DecodeError for half an object, HTML and what is not a list.
    """
    answer = _LIST_DECODER.decode(body)
    kind = answer.kind.removesuffix("List")
    prefix = b'{"kind":%s,"apiVersion":%s,' % (
        msgspec.json.encode(kind),
        msgspec.json.encode(answer.api_version),
    )
    page = ObjectPage(
        items=tuple(read_items(answer.items or (), lambda item: _with_type(item, prefix), kind)),
        resource_version=answer.metadata.resource_version,
        remaining=answer.metadata.remaining_item_count,
        is_restart=is_restart,
    )
    return page, answer.metadata.continue_token


def _with_type(item: msgspec.Raw, prefix: bytes) -> msgspec.Raw:
    """The object with its kind, which the server omits in lists of built-in kinds."""
    text = bytes(item)
    # Also a number or a list is valid JSON: the decoder refuses it.
    if not text.startswith(_TYPED_START) and _TYPE_DECODER.decode(text).kind:
        return msgspec.Raw(text)
    return msgspec.Raw(prefix + text[1:])


def read_items(items: Iterable[msgspec.Raw], read: Callable[[msgspec.Raw], T], kind: str = "") -> Iterator[T]:
    """The objects of a page that can be read; one line on stderr about the others, which concern nothing else."""
    errors = []
    for item in items:
        try:
            value = read(item)
        except JSON_ERRORS as error:
            errors.append(error)
        else:
            yield value
    if errors:
        name = f"objects ({kind})" if kind else "objects"
        print_message(f"warning: {len(errors)} {name} of the API server cannot be read, skipped: {errors[0]}")


async def collected_pages(pages: AsyncIterator[ObjectPage]) -> ObjectPage:
    """The pages as one; a restart discards the pages before it."""
    items: list[msgspec.Raw] = []
    resource_version = ""
    async for page in pages:
        if page.is_restart:
            items.clear()
            resource_version = ""
        items += page.items
        # The version of the first page is that of the whole list.
        resource_version = resource_version or page.resource_version
    return ObjectPage(items=tuple(items), resource_version=resource_version)


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
