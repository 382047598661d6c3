"""YAML of many documents that are alike, each kind of them parsed once.

Large clusters are written as thousands of documents that differ in a name. Such a text is cut at its document
marks; the name of each piece is put aside, and a piece that is known but for its name is not parsed again.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nodewright.world.errors import InputError
from nodewright.world.scalars import NotJSON, resolve
from nodewright.world.yaml import read_documents

_MARK = re.compile(r"^---[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_OTHER_MARKS = re.compile(r"^(?:---[ \t]*[^ \t\n#]|\.\.\.|%)|\r|\t", re.MULTILINE)
_NAME = re.compile(r"^  name: ([a-z][-a-z0-9.]*[a-z0-9])[ \t]*$", re.MULTILINE)
STAND_IN = "zz-name-zz"
_LEAST = 4
"""Shorter names are likely to be parts of other words."""


class Piece(NamedTuple):
    """A document of a text: the line on which it begins, and its value."""

    value: Any
    line: int
    name: str
    """The object's name, in whose place `value` has `STAND_IN`; empty: nothing was put aside."""
    text: str
    """As it is written."""


def pieces(text: str, source: str, max_bytes: int) -> Iterator[Piece] | None:
    """The documents that are not empty, or None for a text that must be read as a whole.

    Values of equal pieces are one object: do not change them.

    Errors: InputError when a piece is reached that is no YAML, with its place in the text.
    """
    if _OTHER_MARKS.search(text) is not None or STAND_IN in text:
        return None
    return _read(text, source, max_bytes)


def _read(text: str, source: str, max_bytes: int) -> Iterator[Piece]:
    known: dict[str, Any] = {}
    line = 1
    for part in _parts(text):
        name = _name_in(part)
        key = _without(part, name) if name else part
        if key in known:
            value = known[key]
        else:
            name, value = _parsed(part, key, name, _At(source, line, max_bytes))
            if name:
                known[key] = value
        if value is not None:
            yield Piece(value, line, name, part)
        line += part.count("\n") + 1


class _At(NamedTuple):
    source: str
    line: int
    max_bytes: int


def _parsed(part: str, key: str, name: str, at: _At) -> tuple[str, Any]:
    """The name that may be put aside, and the value without it; no name and the value with it where it may not."""
    if name:
        try:
            value = _value(key, at)
        except InputError:
            value = None
        if isinstance(value, dict) and _is_named(value):
            return name, value
    try:
        return "", _value(part, at)
    except InputError:
        # Once more with as many lines before it as the text has, for the places of the faults.
        _value("\n" * (at.line - 1) + part, at._replace(max_bytes=at.max_bytes + at.line))
        raise


def _parts(text: str) -> Iterator[str]:
    """What stands between the marks; each part but the first begins one line after a mark."""
    start = 0
    for found in _MARK.finditer(text):
        yield text[start : found.start()]
        start = found.end()
    yield text[start:]


def _name_in(part: str) -> str:
    found = _NAME.search(part)
    if found is None or len(found[1]) < _LEAST:
        return ""
    return found[1] if _is_text(found[1]) else ""


def _is_text(name: str) -> bool:
    """Whether the name is read as a text, alone and beside what no letter or digit is (`1.e-55` is a number)."""
    try:
        return isinstance(resolve(name), str) and re.search("[g-z]", name) is not None
    except NotJSON:
        return False


def _without(part: str, name: str) -> str:
    """The text with a stand-in for the name, but where it is a part of a longer word or of an escape or tag."""
    first, *rest = part.split(name)
    found = [first]
    for before, after in zip((first, *rest), rest, strict=False):
        is_word = not (before[-1:].isalnum() or before[-1:] in ("\\", "!") or after[:1].isalnum())
        found += [STAND_IN if is_word else name, after]
    return "".join(found)


def _is_named(value: dict[str, Any]) -> bool:
    meta = value.get("metadata")
    return isinstance(meta, dict) and meta.get("name") == STAND_IN


def _value(text: str, at: _At) -> Any:
    found = read_documents(text, at.source, max_bytes=at.max_bytes)
    assert len(found) <= 1, "a piece has no marks"
    return found[0].value if found else None
