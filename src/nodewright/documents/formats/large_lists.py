"""Reads large Lists of JSON, as `kubectl get -o json` prints them, one item at a time.

A list of 100,000 pods takes ten times the memory of its text once all of it is decoded. So only the places of its items are
sought first; each item is decoded when it is needed, and dropped again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from nodewright.documents.formats.json_documents import (
    JSONValueDecoder,
    NotJSONError,
    TooDeepError,
    json_documents,
    quick_json_value,
)
from nodewright.documents.formats.kubectl_yaml import MAX_DEPTH, YAMLDocument
from nodewright.model.errors import JSON_ERRORS, InputError
from nodewright.model.patterns import lazy_pattern

NoteProgress: TypeAlias = Callable[[str], None]
"""Receives a line about how far the work is."""
ReadWhole: TypeAlias = Callable[[], Sequence[YAMLDocument]]
_GAP = lazy_pattern(rb"[ \t\r\n]*,[ \t\r\n]*")
_DEPTH_OF_ITEMS = 2
"""An item is nested in its list, and the list in its document."""


_NOTED_ITEMS = 500
T = TypeVar("T")


def noted(items: Sequence[T], source: str, note_progress: NoteProgress | None) -> Iterable[T]:
    """The items; while they are read, the progress is noted."""
    return items if note_progress is None else _noted(items, source, note_progress)


def _noted(items: Sequence[T], source: str, note_progress: NoteProgress) -> Iterator[T]:
    for index, item in enumerate(items):
        if index % _NOTED_ITEMS == 0:
            note_progress(f"{source}: {index:,} of {len(items):,} objects")
        yield item


class _RawList(msgspec.Struct):
    items: list[msgspec.Raw]


class ListItems(Sequence[Any]):
    """The items of a List, each decoded when it is read.

    Errors: InputError when an item that is not valid is reached: the faults of the whole text.
    """

    def __init__(self, items: Sequence[msgspec.Raw], read_whole: ReadWhole) -> None:
        self._items, self._read_whole = items, read_whole
        self._decoder = JSONValueDecoder(MAX_DEPTH - _DEPTH_OF_ITEMS)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self._value(index) for index in range(len(self._items)))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        numbers = range(len(self._items))[index]
        return self._value(numbers) if isinstance(numbers, int) else list(map(self._value, numbers))

    def _value(self, index: int) -> Any:
        content = bytes(self._items[index])
        value = quick_json_value(content, MAX_DEPTH - _DEPTH_OF_ITEMS)
        if value is not msgspec.UNSET:
            return value
        try:
            value, _ = self._decoder.decode(content.decode())
        except (ValueError, RecursionError, TooDeepError, ArithmeticError):
            return self._item_of_whole(index)
        return self._item_of_whole(index) if self._decoder.duplicate_keys else value

    def _item_of_whole(self, index: int) -> Any:
        """The item of the text that is read at once, which fails as a rule."""
        (document,) = self._read_whole()
        return document.value["items"][index]


def large_list(content: bytes, source: str, read_whole: ReadWhole) -> YAMLDocument | None:
    """The document of a text that is one JSON object with `items`, which are decoded when they are read; None for any other.

    Everything but its items is checked as `json_documents` does it. ``read_whole`` reads the text at once, for its faults.
    """
    try:
        items = msgspec.json.decode(content, type=_RawList).items
    except JSON_ERRORS:  # other JSON, or none: the reader of whole texts finds out
        return None
    span = _span(content, items)
    if span is None:
        return None
    try:
        (document,) = json_documents((content[: span[0]] + content[span[1] :]).decode(), source)
    except (NotJSONError, InputError, UnicodeDecodeError):
        return None
    if document.value.get("items") != []:
        return None
    document.value["items"] = ListItems(items, read_whole)
    return document


def _span(content: bytes, items: Sequence[msgspec.Raw]) -> tuple[int, int] | None:
    """Where the items begin and end; None if they are elsewhere than one after the other, as when `items` is given twice."""
    if not items:
        return None
    start = end = content.find(bytes(items[0]))
    for number, raw in enumerate(items):
        if number:
            gap = _GAP.match(content, end)
            if gap is None:
                return None
            end = gap.end()
        item = bytes(raw)
        if content[end : end + len(item)] != item:
            return None
        end += len(item)
    return start, end
