"""Decodes JSON into values of Go's types as Go does: fields that are absent in JSON keep their value.

Follows: Go 1.26, encoding/json/decode.go, object, array, literalStore; encoding/base64/base64.go, Decode.
Departs: a slice that shrinks and grows again has zero values, not its former elements.
"""

import base64
import codecs
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.model.values.golang import NumberError, parse_int, quoted


class StringType(msgspec.Struct, frozen=True):
    """A string type."""

    name: str = "string"


class IntegerType(msgspec.Struct, frozen=True):
    """An integer type, with the smallest and the largest value that it holds."""

    name: str
    minimum: int
    maximum: int


class ByteSlice(msgspec.Struct, frozen=True):
    """`[]byte`: in JSON a string in base64."""

    name: str = "[]uint8"


class SliceOf(msgspec.Struct, frozen=True):
    """A slice."""

    name: str
    item: "GoType"


class MapOf(msgspec.Struct, frozen=True):
    """A map."""

    name: str
    key: "StringType | IntegerType"
    item: "GoType"


class Pointer(msgspec.Struct, frozen=True):
    """A pointer."""

    to: "GoType"


class Field(msgspec.Struct, frozen=True):
    """A field of a struct: its name in Go and in JSON."""

    name: str
    json: str
    type: "GoType"
    omits_empty: bool = False
    embedded_in: str = ""
    """The embedded struct that has the field, which Go's messages name."""


class Struct(msgspec.Struct, frozen=True):
    """A struct; ``name`` is qualified by its package."""

    name: str
    fields: tuple[Field, ...]

    @property
    def short_name(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]


class Converted(msgspec.Struct, frozen=True):
    """A struct with a custom JSON form, which is another struct."""

    memory: Struct
    json: Struct
    from_json: Callable[[Any], Any]
    """Errors: ValueError."""
    to_json: Callable[[Any], Any]


GoType: TypeAlias = StringType | IntegerType | ByteSlice | SliceOf | MapOf | Pointer | Struct | Converted

STRING = StringType()
RESOURCE_NAME = StringType("v1.ResourceName")
INT = IntegerType("int", -(2**63), 2**63 - 1)
INT64 = IntegerType("int64", -(2**63), 2**63 - 1)
UINT64 = IntegerType("uint64", 0, 2**64 - 1)
CHECKSUM = IntegerType("checksum.Checksum", 0, 2**64 - 1)
MAX_NESTING_DEPTH = 10_000


class NumberText(msgspec.Struct, frozen=True):
    """A number as the text contains it."""

    text: str


@dataclass(slots=True)
class Members:
    """An object: its members in order, including duplicate names."""

    pairs: "list[tuple[str, JSONNode]]"


JSONNode: TypeAlias = "bool | str | NumberText | list[JSONNode] | Members | None"


class GoJSONError(ValueError):
    """Bytes that Go rejects; the message is Go's own."""


_MAX_UINT64_DIGITS = 20
_BYTE = IntegerType("uint8", 0, 255)
_TOP = "value"


def unmarshal(data: bytes, kind: Struct, into: dict[str, Any]) -> str | None:
    """Go's error message, or None; fills ``into``, after an error only in part.

    >>> kind = Struct("pkg.Point", (Field("X", "x", UINT64), Field("Name", "name", STRING)))
    >>> unmarshal(b'{"x": -1, "NAME": "a"}', kind, point := zero_value(kind)), point
    ('json: cannot unmarshal number -1 into Go struct field Point.x of type uint64', {'X': 0, 'Name': 'a'})
    """
    unmarshaller = _Unmarshaller()
    try:
        unmarshaller.fill(parse(data), kind, {_TOP: into}, _TOP, _GoFieldPath())
    except GoJSONError as error:
        return str(error)
    return unmarshaller.error


class _GoFieldPath(NamedTuple):
    """The field of a value, as Go's messages name it."""

    struct: str = ""
    fields: tuple[str, ...] = ()

    def below(self, struct: Struct, field: Field) -> "_GoFieldPath":
        embedded = (field.embedded_in,) if field.embedded_in else ()
        return _GoFieldPath(struct.short_name, (*self.fields, *embedded, field.json))


class _Unmarshaller:
    """Decodes one document. Continues after a type mismatch; the first one is the error."""

    def __init__(self) -> None:
        self.error: str | None = None

    def fill(self, node: JSONNode, kind: GoType, holder: Any, key: Any, at: _GoFieldPath) -> None:
        """Decodes the node into ``holder[key]``."""
        match kind:
            case Converted():
                self._convert(node, kind, holder, key)
            case Pointer(to=to) if node is not None:
                if holder[key] is None:
                    holder[key] = zero_value(to)
                self.fill(node, to, holder, key, at)
            case Pointer() | MapOf() | SliceOf() | ByteSlice() if node is None:
                holder[key] = None
            case _ if node is None:
                return
            case Struct() if isinstance(node, Members):
                self._fill_struct(node, kind, holder[key], at)
            case MapOf() if isinstance(node, Members):
                self._fill_map(node, kind, holder, key, at)
            case SliceOf(item=item) if isinstance(node, list):
                holder[key] = self._elements(node, item, holder[key], at)
            case ByteSlice() if isinstance(node, list):
                holder[key] = bytes(self._elements(node, _BYTE, [], at))
            case ByteSlice() if isinstance(node, str):
                self._fill_bytes(node, holder, key)
            case StringType() if isinstance(node, str):
                holder[key] = node
            case IntegerType() if isinstance(node, NumberText):
                self._fill_integer(node.text, kind, holder, key, at)
            case _:
                self._note_mismatch(_JSON_KINDS[type(node)], kind, at)

    def _fill_struct(self, node: Members, kind: Struct, into: dict[str, Any], at: _GoFieldPath) -> None:
        exact = {field.json: field for field in kind.fields}
        folded = {_folded(field.json): field for field in reversed(kind.fields)}
        for name, value in node.pairs:
            field = exact.get(name) or folded.get(_folded(name))
            if field is not None:
                self.fill(value, field.type, into, field.name, at.below(kind, field))

    def _fill_map(self, node: Members, kind: MapOf, holder: Any, key: Any, at: _GoFieldPath) -> None:
        if holder[key] is None:
            holder[key] = {}
        into = holder[key]
        for name, value in node.pairs:
            item = {_TOP: zero_value(kind.item)}
            self.fill(value, kind.item, item, _TOP, at)
            if isinstance(kind.key, StringType):
                into[name] = item[_TOP]
            else:
                number = {_TOP: None}
                self._fill_integer(name, kind.key, number, _TOP, at)
                if number[_TOP] is not None:
                    into[number[_TOP]] = item[_TOP]

    def _elements(
        self, node: list[JSONNode], item: GoType, previous: list[Any] | None, at: _GoFieldPath
    ) -> list[Any]:
        into = [*(previous or [])[: len(node)]]
        into += [zero_value(item) for _ in node[len(into) :]]
        for index, value in enumerate(node):
            self.fill(value, item, into, index, at)
        return into

    def _fill_integer(self, text: str, kind: IntegerType, holder: Any, key: Any, at: _GoFieldPath) -> None:
        try:
            number = _integer(text, kind)
        except NumberError:
            self._note_mismatch(f"number {text}", kind, at)
        else:
            holder[key] = number

    def _fill_bytes(self, text: str, holder: Any, key: Any) -> None:
        try:
            holder[key] = _base64_bytes(text)
        except GoJSONError as error:
            self.error = self.error or str(error)

    def _convert(self, node: JSONNode, kind: Converted, holder: Any, key: Any) -> None:
        """Decodes the JSON form and converts it; unlike a type mismatch, a failure ends the decoding.

        Errors: GoJSONError.
        """
        json_form, unmarshaller = {_TOP: zero_value(kind.json)}, _Unmarshaller()
        unmarshaller.fill(node, kind.json, json_form, _TOP, _GoFieldPath())
        if unmarshaller.error is not None:
            raise GoJSONError(unmarshaller.error)
        try:
            holder[key] = kind.from_json(json_form[_TOP])
        except ValueError as error:
            raise GoJSONError(str(error)) from None

    def _note_mismatch(self, value: str, kind: GoType, at: _GoFieldPath) -> None:
        if self.error is not None:
            return
        assert not isinstance(kind, Pointer | Converted)
        self.error = unmarshal_type_error(value, kind.name, at.struct, at.fields)


def unmarshal_type_error(json_value: str, go_type: str, struct: str = "", fields: Sequence[str] = ()) -> str:
    """Go's message for a JSON value that a field of that type cannot hold; without fields, for a whole document.

    Follows: Go 1.26, encoding/json/decode.go, UnmarshalTypeError.Error.
    """
    target = f"struct field {struct}.{'.'.join(fields)} of" if fields else "value of"
    return f"json: cannot unmarshal {json_value} into Go {target} type {go_type}"


_JSON_KINDS = {Members: "object", list: "array", str: "string", bool: "bool", NumberText: "number"}
_CASE_FOLDS = str.maketrans(
    {"\u212a": "k", "\u017f": "s"} | {chr(code): chr(code + 32) for code in range(65, 91)}
)


def _folded(name: str) -> str:
    """The name in lower case; other letters do not fold into the letters of field names."""
    return name.translate(_CASE_FOLDS)


def _integer(text: str, kind: IntegerType) -> int:
    """The number, if the type can hold it.

    Errors: NumberError.
    """
    if kind.minimum == 0 and not (text.isdecimal() and len(text) <= _MAX_UINT64_DIGITS):
        raise NumberError(text)
    number = parse_int(text) if kind.minimum else int(text)
    if not kind.minimum <= number <= kind.maximum:
        raise NumberError(text)
    return number


def _base64_bytes(text: str) -> bytes:
    """The bytes of a base64 string; line breaks in it are ignored.

    Errors: GoJSONError naming the position.
    """
    data = text.encode()
    position = _base64_error_position(data)
    if position is not None:
        raise GoJSONError(f"illegal base64 data at input byte {position}")
    return base64.b64decode(data)


_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_LINE_BREAKS = frozenset(b"\r\n")
_PADDING = ord("=")


def _base64_error_position(data: bytes) -> int | None:
    """The position at which Go rejects the base64; None if it is valid."""
    at = in_group = 0
    while at < len(data):
        char = data[at]
        at += 1
        if char in _ALPHABET:
            in_group = (in_group + 1) % 4
        elif char == _PADDING and in_group > 1:
            return _padding_error_position(data, at, missing=3 - in_group)
        elif char not in _LINE_BREAKS:
            return at - 1
    return at - in_group if in_group else None


def _padding_error_position(data: bytes, at: int, *, missing: int) -> int | None:
    """The position of an error after the first `=`, which ``missing`` more must follow."""
    if missing:
        at = _after_line_breaks(data, at)
        if at == len(data):
            return at
        if data[at] != _PADDING:
            return at - 1
        at += 1
    at = _after_line_breaks(data, at)
    return at if at < len(data) else None


def _after_line_breaks(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _LINE_BREAKS:
        at += 1
    return at


_BLANKS = re.compile(rb"[ \t\r\n]*+")
_STRING_START = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_OPEN_STRING = re.compile(_STRING_START)
_STRING = re.compile(_STRING_START + rb'"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: dict[bytes, "JSONNode"] = {b"true": True, b"false": False, b"null": None}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_AFTER_BACKSLASH = frozenset(b'"\\/bfnrtu')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_PARSED = BoundedCache[bytes, JSONNode](max_bytes=4 << 20, max_entries=16)
"""`upgrade` reads the files of a node under each change of a release."""


def parse(data: bytes) -> JSONNode:
    """The JSON value in the bytes.

    Errors: GoJSONError.

    >>> parse(b'{"a": [1.50, "b"]}')
    Members(pairs=[('a', [NumberText(text='1.50'), 'b'])])
    >>> parse(b'{"a": 1,}')
    Traceback (most recent call last):
    ...
    nodewright.documents.formats.go_json.GoJSONError: invalid character '}' looking for beginning of object key string
    """
    node = _PARSED.get(data)
    if node is None:
        node = _Scanner(data).document()
        _PARSED.put(data, node, len(data))
    return node


class _Scanner:
    """A position in the bytes and the containers that are open there; nesting needs no recursion."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._key = ""
        self._top: list[JSONNode] = []
        self._open: list[list[JSONNode] | Members] = [self._top]

    def document(self) -> JSONNode:
        while True:
            node, has_members = self._start_value()
            container = self._open[-1]
            if isinstance(container, Members):
                container.pairs.append((self._key, node))
            else:
                container.append(node)
            if has_members:
                assert isinstance(node, list | Members)
                self._enter(node)
                continue
            while len(self._open) > 1 and self._is_container_end(self._open[-1]):
                self._open.pop()
            if len(self._open) == 1:
                break
        self._skip_blanks()
        if self._at < len(self._data):
            raise self._unexpected(self._at, "after top-level value")
        return self._top[0]

    def _start_value(self) -> tuple[JSONNode, bool]:
        """The next value, and whether it is a container with members to read."""
        first = self._next_byte()
        if first in b"[{":
            if len(self._open) > MAX_NESTING_DEPTH:
                raise self._unexpected(self._at, "exceeded max depth")
            self._at += 1
            node: list[JSONNode] | Members = [] if first == b"[" else Members([])
            is_empty = self._next_byte() == (b"]" if first == b"[" else b"}")
            self._at += is_empty
            return node, not is_empty
        if first == b'"':
            return self._string(), False
        if first == b"-" or first.isdigit():
            return self._number(), False
        for literal, value in _LITERALS.items():
            if literal.startswith(first):
                return self._literal(literal, value), False
        raise self._unexpected(self._at, "looking for beginning of value")

    def _enter(self, node: list[JSONNode] | Members) -> None:
        self._open.append(node)
        if isinstance(node, Members):
            self._read_name()

    def _is_container_end(self, container: list[JSONNode] | Members) -> bool:
        """Whether the container ends after this member; otherwise the scanner stands at the next value."""
        next_byte = self._next_byte()
        end, context = (
            (b"}", "after object key:value pair")
            if isinstance(container, Members)
            else (b"]", "after array element")
        )
        if next_byte not in (end, b","):
            raise self._unexpected(self._at, context)
        self._at += 1
        if next_byte == end:
            return True
        if isinstance(container, Members):
            self._read_name()
        return False

    def _read_name(self) -> None:
        """Reads the name of a member and the colon after it."""
        if self._next_byte() != b'"':
            raise self._unexpected(self._at, "looking for beginning of object key string")
        self._key = self._string()
        if self._next_byte() != b":":
            raise self._unexpected(self._at, "after object key")
        self._at += 1

    def _string(self) -> str:
        match = _STRING.match(self._data, self._at)
        if match is None:
            raise self._string_error()
        self._at = match.end()
        return _unquoted(match[0])

    def _string_error(self) -> GoJSONError:
        open_string = _OPEN_STRING.match(self._data, self._at)
        assert open_string is not None
        at = open_string.end()
        if at == len(self._data):
            return _unexpected_end()
        if self._data[at : at + 1] != b"\\":
            return self._unexpected(at, "in string literal")
        if self._byte(at + 1) not in _AFTER_BACKSLASH:
            return self._unexpected(at + 1, "in string escape code")
        while self._byte(at + 2) in _HEX:
            at += 1
        return self._unexpected(at + 2, "in \\u hexadecimal character escape")

    def _number(self) -> NumberText:
        match = _NUMBER.match(self._data, self._at)
        if match is None:
            raise self._unexpected(self._at + 1, "in numeric literal")
        end = match.end()
        if self._byte(end) == ord("."):
            raise self._unexpected(end + 1, "after decimal point in numeric literal")
        if self._byte(end) in b"eE":
            end += self._byte(end + 1) in b"+-"
            raise self._unexpected(end + 1, "in exponent of numeric literal")
        self._at = end
        return NumberText(match[0].decode())

    def _literal(self, literal: bytes, value: JSONNode) -> JSONNode:
        for offset, expected in enumerate(literal):
            if self._byte(self._at + offset) != expected:
                context = f"in literal {literal.decode()} (expecting {_quoted_byte(expected)})"
                raise self._unexpected(self._at + offset, context)
        self._at += len(literal)
        return value

    def _next_byte(self) -> bytes:
        """The next byte that is not blank.

        Errors: GoJSONError at the end of the bytes.
        """
        self._skip_blanks()
        if self._at == len(self._data):
            raise _unexpected_end()
        return self._data[self._at : self._at + 1]

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._data, self._at)
        assert blanks is not None
        self._at = blanks.end()

    def _byte(self, at: int) -> int:
        # Go checks for the end of a text by scanning one more blank.
        return self._data[at] if at < len(self._data) else ord(" ")

    def _unexpected(self, at: int, context: str) -> GoJSONError:
        return GoJSONError(f"invalid character {_quoted_byte(self._byte(at))} {context}")


def _unexpected_end() -> GoJSONError:
    return GoJSONError("unexpected end of JSON input")


def _quoted_byte(byte: int) -> str:
    """The byte as a quoted character, as Go prints it: as the character with that code point."""
    if byte == ord("'"):
        return r"'\''"
    return "'\"'" if byte == ord('"') else f"'{quoted(chr(byte))[1:-1]}'"


def _unquoted(literal: bytes) -> str:
    """The string of a literal; invalid bytes and unpaired surrogates become U+FFFD."""
    text = literal.decode("utf-8", _REPLACE)
    if "\\" not in text:
        return text[1:-1]
    value: str = json.loads(text, strict=False)
    if _ESCAPED_SURROGATE.search(literal):
        value = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    return value


def _replacement_per_byte(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each byte, as in Go; Python inserts one for a whole invalid character."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


_REPLACE = "nodewright.each-byte"
codecs.register_error(_REPLACE, _replacement_per_byte)


def zero_value(kind: GoType) -> Any:
    """The zero value of the type."""
    match kind:
        case StringType():
            return ""
        case IntegerType():
            return 0
        case Struct(fields=fields):
            return {field.name: zero_value(field.type) for field in fields}
        case Converted(memory=memory):
            return zero_value(memory)
        case _:
            return None
