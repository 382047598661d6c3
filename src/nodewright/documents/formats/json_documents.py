"""Parses JSON as the API machinery does: several values in a text, no duplicate keys.

A number with a fraction or an exponent is no integer, where YAML's `1.0` and `1e3` become integers on their way to JSON.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from nodewright.documents.formats.kubectl_yaml import (
    MAX_DEPTH,
    YAMLDocument,
    read_documents,
)
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.model.patterns import lazy_pattern

JSON_BLANKS = " \t\r\n"
_ESCAPED_COLON = lazy_pattern(rb"\\u003[aA]")
_ESCAPED_SURROGATE = lazy_pattern(r"\\u[dD][89a-fA-F]")


class NotJSONError(Exception):
    """The text is not JSON; it may be YAML that starts with a brace."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def json_documents(text: str, source: str) -> list[YAMLDocument]:
    """The documents of a text of JSON values.

    Errors: NotJSONError; InputError with the faults: duplicate keys, nesting, numbers that are too large.
    """
    end = _skip_blanks(text, 0)
    value = quick_json_value(text.encode("utf-8", "surrogatepass"))
    if value is not msgspec.UNSET:
        return [YAMLDocument(value, 1, text.count("\n", 0, end) + 1)]
    from json import JSONDecodeError  # noqa: PLC0415 - start-up time

    decoder = JSONValueDecoder()
    documents: list[YAMLDocument] = []
    while end < len(text):
        line = text.count("\n", 0, end) + 1
        try:
            value, end = decoder.decode(text, end)
        except JSONDecodeError as error:
            position = f"{source}:{error.lineno}:{error.colno}"
            raise NotJSONError(Fault(rule=f"not valid JSON: {error.msg}", source=position)) from None
        except _NotFiniteError as error:
            raise NotJSONError(Fault(rule=f"not valid JSON: {error}", source=source)) from None
        except ValueError:  # Python's limit on the digits of an integer
            raise InputError([Fault(rule="a number has too many digits", source=source)]) from None
        except (RecursionError, TooDeepError):
            raise InputError([_too_deep(source)]) from None
        documents.append(YAMLDocument(value, len(documents) + 1, line))
        end = _skip_blanks(text, end)
    if decoder.large_numbers:
        raise InputError(
            [Fault(rule="the number is too large", value=decoder.large_numbers[0], source=source)]
        )
    if decoder.duplicate_keys:
        raise InputError(_duplicate_key_faults(text, source, decoder.duplicate_keys))
    return documents


def quick_json_value(content: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """The only value of a text as `JSONValueDecoder` decodes it, in a third of the time; UNSET: that one has to decide.

    A key that is given twice is found by its colon, which the decoded value does not have.
    """
    if b"\\" in content and _ESCAPED_COLON.search(content):
        return msgspec.UNSET
    try:
        value = _QUICK.decode(content)
        encoded = msgspec.json.encode(value)
    except (*JSON_ERRORS, ArithmeticError):
        return msgspec.UNSET
    if content.count(b":") != encoded.count(b":"):
        return msgspec.UNSET
    # Most values have fewer brackets than may be nested.
    brackets = encoded.count(b"{") + encoded.count(b"[")
    return msgspec.UNSET if brackets > max_depth and _is_deeper_than(value, max_depth) else value


class JSONValueDecoder:
    """Decodes values of a text, one after the other; collects keys that are given twice, and numbers beyond floats."""

    def __init__(self, max_depth: int = MAX_DEPTH) -> None:
        from json import JSONDecoder  # noqa: PLC0415 - start-up time

        self.duplicate_keys: list[str] = []
        self.large_numbers: list[str] = []
        self._max_depth = max_depth
        self._scan = JSONDecoder(
            object_pairs_hook=self._members, parse_float=self._number, parse_constant=_reject_constant
        ).raw_decode

    def decode(self, text: str, start: int = 0) -> tuple[Any, int]:
        """The value that starts there, and the position after it.

        Errors: ValueError, RecursionError, TooDeepError or _NotFiniteError.
        """
        value, end = self._scan(text, start)
        # Most values have fewer brackets than may be nested.
        brackets = text.count("{", start, end) + text.count("[", start, end)
        if brackets > self._max_depth and _is_deeper_than(value, self._max_depth):
            raise TooDeepError
        has_surrogates = _ESCAPED_SURROGATE.search(text, start, end) is not None
        return _without_surrogates(value) if has_surrogates else value, end

    def _number(self, text: str) -> float:
        """A number beyond floats is valid JSON, so that the text is not read as YAML, which takes it for a string."""
        value = float(text)
        if not math.isfinite(value):
            self.large_numbers.append(text)
        return value

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value_of_key = dict(pairs)
        if len(value_of_key) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.duplicate_keys.extend(key for key, count in counts.items() if count > 1)
        return value_of_key


def _duplicate_key_faults(text: str, source: str, keys: list[str]) -> Sequence[Fault]:
    """The faults of duplicate keys, with their positions if the text can be parsed as YAML."""
    try:
        read_documents(text, source)
    except InputError as error:
        if sorted(str(fault.value) for fault in error.faults) == sorted(keys):
            return error.faults
    return [Fault(rule=f'the key "{key}" is given twice', value=key, source=source) for key in keys]


def _without_surrogates(value: Any) -> Any:
    """The value with unpaired UTF-16 surrogates replaced by U+FFFD, as Go does."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value


def _too_deep(source: str) -> Fault:
    return Fault(rule=f"nested more than {MAX_DEPTH} levels deep", source=source)


def _skip_blanks(text: str, start: int) -> int:
    while start < len(text) and text[start] in JSON_BLANKS:
        start += 1
    return start


class TooDeepError(Exception):
    """Lists and mappings are nested too deep."""


class _NotFiniteError(ArithmeticError):
    pass


def _finite_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError
    return value


def _reject_constant(name: str) -> None:
    raise _NotFiniteError(f"{name} is not a JSON value")


_CONTAINERS = (dict, list)
"""Half of the time of `dict | list`, for each value of a document."""


def _is_deeper_than(value: Any, max_depth: int) -> bool:
    """Whether containers nest deeper; checked level by level, without recursion."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(max_depth):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return False
    return True


_QUICK = msgspec.json.Decoder(float_hook=_finite_number)


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
        is_faulty = self._decoder.duplicate_keys or self._decoder.large_numbers
        return self._item_of_whole(index) if is_faulty else value

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


def merge_patch(target: Any, patch: Any) -> Any:
    """The document after a merge patch: null removes, objects merge, every other value replaces.

    Follows: Go, github.com/evanphx/json-patch, MergePatch (RFC 7386).

    >>> merge_patch({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]})
    {'a': {'c': 2}, 'd': [2]}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
