"""JSON into values of Go's types, as Go fills them: what was there before stays where JSON is silent.

Follows: Go 1.26, encoding/json/decode.go, object, array, literalStore; encoding/base64/base64.go, Decode.
Departs: items that a list had when it was longer do not come back when it grows again.
"""

import base64
from typing import Any, NamedTuple

from nodewright.values.golang import NumberError, parse_int
from nodewright.world.state.gosyntax import GoJSONError, JSONNode, Members, NumberText, parse
from nodewright.world.state.gotypes import (
    ByteList,
    Converted,
    Field,
    GoType,
    ListOf,
    MapOf,
    Pointer,
    Struct,
    Text,
    Whole,
    zero,
)

_MOST_DIGITS = 20
_BYTE = Whole("uint8", 0, 255)
_TOP = "value"


def unmarshal(data: bytes, kind: Struct, into: dict[str, Any]) -> str | None:
    """What Go says against the bytes, None if nothing; ``into`` is filled, after an error in part.

    >>> from nodewright.world.state.gotypes import TEXT, UINT64
    >>> kind = Struct("pkg.Point", (Field("X", "x", UINT64), Field("Name", "name", TEXT)))
    >>> unmarshal(b'{"x": -1, "NAME": "a"}', kind, point := zero(kind)), point
    ('json: cannot unmarshal number -1 into Go struct field Point.x of type uint64', {'X': 0, 'Name': 'a'})
    """
    filling = _Filling()
    try:
        filling.fill(parse(data), kind, {_TOP: into}, _TOP, _Place())
    except GoJSONError as error:
        return str(error)
    return filling.error


class _Place(NamedTuple):
    """Where a value stands, in the words of Go's messages."""

    struct: str = ""
    fields: tuple[str, ...] = ()

    def below(self, struct: Struct, field: Field) -> "_Place":
        return _Place(struct.short_name, (*self.fields, field.json))


class _Filling:
    """One pass over a document. The first misfit is told in the end; the pass goes on."""

    def __init__(self) -> None:
        self.error: str | None = None

    def fill(self, node: JSONNode, kind: GoType, holder: Any, key: Any, at: _Place) -> None:
        """Put what the node says to where ``holder[key]`` is."""
        match kind:
            case Converted():
                self._convert(node, kind, holder, key)
            case Pointer(to=to) if node is not None:
                if holder[key] is None:
                    holder[key] = zero(to)
                self.fill(node, to, holder, key, at)
            case Pointer() | MapOf() | ListOf() | ByteList() if node is None:
                holder[key] = None
            case _ if node is None:
                return
            case Struct() if isinstance(node, Members):
                self._struct(node, kind, holder[key], at)
            case MapOf() if isinstance(node, Members):
                self._map(node, kind, holder, key, at)
            case ListOf(item=item) if isinstance(node, list):
                holder[key] = self._list(node, item, holder[key], at)
            case ByteList() if isinstance(node, list):
                holder[key] = bytes(self._list(node, _BYTE, [], at))
            case ByteList() if isinstance(node, str):
                self._base64(node, holder, key)
            case Text() if isinstance(node, str):
                holder[key] = node
            case Whole() if isinstance(node, NumberText):
                self._number(node.text, kind, holder, key, at)
            case _:
                self._misfit(_WORDS[type(node)], kind, at)

    def _struct(self, node: Members, kind: Struct, into: dict[str, Any], at: _Place) -> None:
        exact = {field.json: field for field in kind.fields}
        folded = {_folded(field.json): field for field in reversed(kind.fields)}
        for name, value in node.pairs:
            field = exact.get(name) or folded.get(_folded(name))
            if field is not None:
                self.fill(value, field.type, into, field.name, at.below(kind, field))

    def _map(self, node: Members, kind: MapOf, holder: Any, key: Any, at: _Place) -> None:
        if holder[key] is None:
            holder[key] = {}
        into = holder[key]
        for name, value in node.pairs:
            item = {_TOP: zero(kind.item)}
            self.fill(value, kind.item, item, _TOP, at)
            if isinstance(kind.key, Text):
                into[name] = item[_TOP]
            else:
                number = {_TOP: None}
                self._number(name, kind.key, number, _TOP, at)
                if number[_TOP] is not None:
                    into[number[_TOP]] = item[_TOP]

    def _list(self, node: list[JSONNode], item: GoType, before: list[Any] | None, at: _Place) -> list[Any]:
        into = [*(before or [])[: len(node)]]
        into += [zero(item) for _ in node[len(into) :]]
        for index, value in enumerate(node):
            self.fill(value, item, into, index, at)
        return into

    def _number(self, text: str, kind: Whole, holder: Any, key: Any, at: _Place) -> None:
        try:
            number = _whole(text, kind)
        except NumberError:
            self._misfit(f"number {text}", kind, at)
        else:
            holder[key] = number

    def _base64(self, text: str, holder: Any, key: Any) -> None:
        try:
            holder[key] = base64_bytes(text)
        except GoJSONError as error:
            self.error = self.error or str(error)

    def _convert(self, node: JSONNode, kind: Converted, holder: Any, key: Any) -> None:
        """Read another structure and make this one of it; unlike a misfit, a failure ends the pass.

        Errors: GoJSONError.
        """
        other, own = {_TOP: zero(kind.json)}, _Filling()
        own.fill(node, kind.json, other, _TOP, _Place())
        if own.error is not None:
            raise GoJSONError(own.error)
        try:
            holder[key] = kind.from_json(other[_TOP])
        except ValueError as error:
            raise GoJSONError(str(error)) from None

    def _misfit(self, value: str, kind: GoType, at: _Place) -> None:
        if self.error is not None:
            return
        assert not isinstance(kind, Pointer | Converted)
        where = f"struct field {at.struct}.{'.'.join(at.fields)} of" if at.fields else "value of"
        self.error = f"json: cannot unmarshal {value} into Go {where} type {kind.name}"


_WORDS = {Members: "object", list: "array", str: "string", bool: "bool", NumberText: "number"}
_FOLDS = str.maketrans({"\u212a": "k", "\u017f": "s"} | {chr(code): chr(code + 32) for code in range(65, 91)})


def _folded(name: str) -> str:
    """The name without regard to case: of all letters only these fold into those of our fields."""
    return name.translate(_FOLDS)


def _whole(text: str, kind: Whole) -> int:
    """The number, if the type holds it.

    Errors: NumberError.
    """
    if kind.low == 0 and not (text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise NumberError(text)
    number = parse_int(text) if kind.low else int(text)
    if not kind.low <= number <= kind.high:
        raise NumberError(text)
    return number


def base64_bytes(text: str) -> bytes:
    """The bytes that a text in base64 stands for; line ends in it do not count.

    Errors: GoJSONError naming the place.
    """
    data = text.encode()
    fault = _base64_fault(data)
    if fault is not None:
        raise GoJSONError(f"illegal base64 data at input byte {fault}")
    return base64.b64decode(data)


_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_LINE_ENDS = frozenset(b"\r\n")
_PADDING = ord("=")


def _base64_fault(data: bytes) -> int | None:
    """Where Go finds the bytes to be no base64; None if they are."""
    at = in_group = 0
    while at < len(data):
        char = data[at]
        at += 1
        if char in _ALPHABET:
            in_group = (in_group + 1) % 4
        elif char == _PADDING and in_group > 1:
            return _padding_fault(data, at, wanted=3 - in_group)
        elif char not in _LINE_ENDS:
            return at - 1
    return at - in_group if in_group else None


def _padding_fault(data: bytes, at: int, *, wanted: int) -> int | None:
    """What is wrong behind the first sign of padding, of which so many more are wanted."""
    if wanted:
        at = _after_line_ends(data, at)
        if at == len(data):
            return at
        if data[at] != _PADDING:
            return at - 1
        at += 1
    at = _after_line_ends(data, at)
    return at if at < len(data) else None


def _after_line_ends(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in _LINE_ENDS:
        at += 1
    return at
