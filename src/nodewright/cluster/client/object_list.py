"""Pages of a list as the API server sends them."""

from collections.abc import AsyncIterator

import msgspec

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
        items=tuple(_with_type(item, prefix) for item in answer.items or ()),
        resource_version=answer.metadata.resource_version,
        remaining=answer.metadata.remaining_item_count,
        is_restart=is_restart,
    )
    return page, answer.metadata.continue_token


def _with_type(item: msgspec.Raw, prefix: bytes) -> msgspec.Raw:
    """The object with its kind, which the server omits in lists of built-in kinds."""
    text = bytes(item)
    if not text.startswith(_TYPED_START) and _TYPE_DECODER.decode(text).kind:
        return msgspec.Raw(text)
    return msgspec.Raw(prefix + text[1:])


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
