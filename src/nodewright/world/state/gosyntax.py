r"""JSON as Go scans it: the same texts are taken, and the others are refused in its words.

Follows: Go 1.26, encoding/json/scanner.go, checkValid; decode.go, unquoteBytes.
"""

import codecs
import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from nodewright.values.golang import quoted

MOST_LEVELS = 10_000


class GoJSONError(ValueError):
    """Bytes that Go does not take; the message is Go's own."""


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number as it is written."""

    text: str


@dataclass(slots=True)
class Members:
    """An object: its members in order, repeated names and all."""

    pairs: "list[tuple[str, JSONNode]]"


JSONNode: TypeAlias = "bool | str | NumberText | list[JSONNode] | Members | None"

_BLANKS = re.compile(rb"[ \t\r\n]*+")
_PIECES = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
_OPEN_STRING = re.compile(_PIECES)
_STRING = re.compile(_PIECES + rb'"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: dict[bytes, "JSONNode"] = {b"true": True, b"false": False, b"null": None}
_HEX = frozenset(b"0123456789abcdefABCDEF")
_AFTER_BACKSLASH = frozenset(b'"\\/bfnrtu')
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(data: bytes) -> JSONNode:
    """The value that the bytes stand for.

    Errors: GoJSONError.

    >>> parse(b'{"a": [1.50, "b"]}')
    Members(pairs=[('a', [NumberText(text='1.50'), 'b'])])
    >>> parse(b'{"a": 1,}')
    Traceback (most recent call last):
    ...
    nodewright.world.state.gosyntax.GoJSONError: invalid character '}' looking for beginning of object key string
    """
    return _Scanner(data).document()


class _Scanner:
    """A place in the bytes, and the containers that are open there: depth costs no calls."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._key = ""
        self._top: list[JSONNode] = []
        self._open: list[list[JSONNode] | Members] = [self._top]

    def document(self) -> JSONNode:
        while True:
            node, goes_on = self._begun()
            holder = self._open[-1]
            if isinstance(holder, Members):
                holder.pairs.append((self._key, node))
            else:
                holder.append(node)
            if goes_on:
                assert isinstance(node, list | Members)
                self._enter(node)
                continue
            while len(self._open) > 1 and self._ends(self._open[-1]):
                self._open.pop()
            if len(self._open) == 1:
                break
        self._skip_blanks()
        if self._at < len(self._data):
            raise self._unexpected(self._at, "after top-level value")
        return self._top[0]

    def _begun(self) -> tuple[JSONNode, bool]:
        """A value, and whether it is a container of which more follows."""
        first = self._after_blanks()
        if first in b"[{":
            if len(self._open) > MOST_LEVELS:
                raise self._unexpected(self._at, "exceeded max depth")
            self._at += 1
            node: list[JSONNode] | Members = [] if first == b"[" else Members([])
            is_empty = self._after_blanks() == (b"]" if first == b"[" else b"}")
            self._at += is_empty
            return node, not is_empty
        if first == b'"':
            return self._string(), False
        if first == b"-" or first.isdigit():
            return self._number(), False
        for word, value in _WORDS.items():
            if word.startswith(first):
                return self._word(word, value), False
        raise self._unexpected(self._at, "looking for beginning of value")

    def _enter(self, node: list[JSONNode] | Members) -> None:
        self._open.append(node)
        if isinstance(node, Members):
            self._name()

    def _ends(self, holder: list[JSONNode] | Members) -> bool:
        """Whether the container ends after this member; if not, all is ready for the next."""
        follows = self._after_blanks()
        end, where = (
            (b"}", "after object key:value pair")
            if isinstance(holder, Members)
            else (b"]", "after array element")
        )
        if follows not in (end, b","):
            raise self._unexpected(self._at, where)
        self._at += 1
        if follows == end:
            return True
        if isinstance(holder, Members):
            self._name()
        return False

    def _name(self) -> None:
        """Read a member's name, up to its value."""
        if self._after_blanks() != b'"':
            raise self._unexpected(self._at, "looking for beginning of object key string")
        self._key = self._string()
        if self._after_blanks() != b":":
            raise self._unexpected(self._at, "after object key")
        self._at += 1

    def _string(self) -> str:
        found = _STRING.match(self._data, self._at)
        if found is None:
            raise self._broken_string()
        self._at = found.end()
        return _unquoted(found[0])

    def _broken_string(self) -> GoJSONError:
        begun = _OPEN_STRING.match(self._data, self._at)
        assert begun is not None
        at = begun.end()
        if at == len(self._data):
            return _ended()
        if self._data[at : at + 1] != b"\\":
            return self._unexpected(at, "in string literal")
        if self._byte(at + 1) not in _AFTER_BACKSLASH:
            return self._unexpected(at + 1, "in string escape code")
        while self._byte(at + 2) in _HEX:
            at += 1
        return self._unexpected(at + 2, "in \\u hexadecimal character escape")

    def _number(self) -> NumberText:
        found = _NUMBER.match(self._data, self._at)
        if found is None:
            raise self._unexpected(self._at + 1, "in numeric literal")
        after = found.end()
        if self._byte(after) == ord("."):
            raise self._unexpected(after + 1, "after decimal point in numeric literal")
        if self._byte(after) in b"eE":
            after += self._byte(after + 1) in b"+-"
            raise self._unexpected(after + 1, "in exponent of numeric literal")
        self._at = after
        return NumberText(found[0].decode())

    def _word(self, word: bytes, value: JSONNode) -> JSONNode:
        for offset, wanted in enumerate(word):
            if self._byte(self._at + offset) != wanted:
                where = f"in literal {word.decode()} (expecting {_shown(wanted)})"
                raise self._unexpected(self._at + offset, where)
        self._at += len(word)
        return value

    def _after_blanks(self) -> bytes:
        """The byte that follows the blanks.

        Errors: GoJSONError if none does.
        """
        self._skip_blanks()
        if self._at == len(self._data):
            raise _ended()
        return self._data[self._at : self._at + 1]

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._data, self._at)
        assert blanks is not None
        self._at = blanks.end()

    def _byte(self, at: int) -> int:
        # Go asks whether a text may end by scanning one blank more.
        return self._data[at] if at < len(self._data) else ord(" ")

    def _unexpected(self, at: int, where: str) -> GoJSONError:
        return GoJSONError(f"invalid character {_shown(self._byte(at))} {where}")


def _ended() -> GoJSONError:
    return GoJSONError("unexpected end of JSON input")


def _shown(byte: int) -> str:
    """The byte as a character in quotes; Go takes it for the character of that number."""
    if byte == ord("'"):
        return r"'\''"
    return "'\"'" if byte == ord('"') else f"'{quoted(chr(byte))[1:-1]}'"


def _unquoted(literal: bytes) -> str:
    """What a string literal stands for; bytes and halves of pairs that are no characters become U+FFFD."""
    text = literal.decode("utf-8", _REPLACE)
    if "\\" not in text:
        return text[1:-1]
    value: str = json.loads(text, strict=False)
    if _ESCAPED_HALF.search(literal):
        value = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    return value


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD a byte, as Go has it, where Python has one for the whole of a broken character."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


_REPLACE = "nodewright.each-byte"
codecs.register_error(_REPLACE, _each_byte)
