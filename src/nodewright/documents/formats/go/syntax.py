r"""Parses JSON as Go does: accepts the same texts, and rejects the others with Go's error messages.

Follows: Go 1.26, encoding/json/scanner.go, checkValid; decode.go, unquoteBytes.
"""

import codecs
import json
import re
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from nodewright.model.values.golang import quoted

MAX_NESTING_DEPTH = 10_000


class GoJSONError(ValueError):
    """Bytes that Go rejects; the message is Go's own."""


class NumberText(msgspec.Struct, frozen=True):
    """A number as the text contains it."""

    text: str


@dataclass(slots=True)
class Members:
    """An object: its members in order, including duplicate names."""

    pairs: "list[tuple[str, JSONNode]]"


JSONNode: TypeAlias = "bool | str | NumberText | list[JSONNode] | Members | None"

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_STRING_START = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_OPEN_STRING = re.compile(_STRING_START)
_STRING = re.compile(_STRING_START + rb'"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: dict[bytes, "JSONNode"] = {b"true": True, b"false": False, b"null": None}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_AFTER_BACKSLASH = frozenset(b'"\\/bfnrtu')
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


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
    return _Scanner(data).document()


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
