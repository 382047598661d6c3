"""Decodes JSON into values of Go's types as Go does: fields that are absent in JSON keep their value.

Follows: Go 1.26, encoding/json/decode.go, object, array, literalStore; encoding/base64/base64.go, Decode.
Departs: a slice that shrinks and grows again has zero values, not its former elements.
"""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from nodewright.documents.formats.go_json import (
    ByteSlice,
    Converted,
    Field,
    GoJSONError,
    GoType,
    IntegerType,
    JSONNode,
    MapOf,
    Members,
    NumberText,
    Pointer,
    SliceOf,
    StringType,
    Struct,
    parse,
    zero_value,
)
from nodewright.model.values.golang import NumberError, parse_int

_MAX_UINT64_DIGITS = 20
_BYTE = IntegerType("uint8", 0, 255)
_TOP = "value"


def unmarshal(data: bytes, kind: Struct, into: dict[str, Any]) -> str | None:
    """Go's error message, or None; fills ``into``, after an error only in part.

    >>> from nodewright.documents.formats.go_json import STRING, UINT64
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
        return _GoFieldPath(struct.short_name, (*self.fields, field.json))


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
