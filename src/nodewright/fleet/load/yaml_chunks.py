"""Parses YAML with many similar documents, each distinct one once.

Large clusters are dumped as thousands of documents that differ only in a name. The text is split at document markers;
the name in each chunk is replaced by a placeholder, and equal chunks are parsed once.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from nodewright.documents.formats.kubectl_yaml import NotJSONValueError, read_documents, resolve
from nodewright.model.errors import InputError

_MARK = re.compile(r"^---[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)
_OTHER_MARKS = re.compile(r"^(?:---[ \t]*[^ \t\n#]|\.\.\.|%)|\r|\t", re.MULTILINE)
_NAME = re.compile(r"^  name: ([a-z][-a-z0-9.]*[a-z0-9])[ \t]*$", re.MULTILINE)
NAME_PLACEHOLDER = "zz-name-zz"
_MIN_NAME_LENGTH = 4
"""Shorter names are likely to be parts of other words."""


class YAMLChunk(NamedTuple):
    """A document of a text, with its first line and its value."""

    value: Any
    line: int
    name: str
    """The object's name, for which `value` has `NAME_PLACEHOLDER`; empty: nothing was replaced."""
    text: str
    """The text of the document."""


def yaml_chunks(text: str, source: str, max_bytes: int) -> Iterator[YAMLChunk] | None:
    """The documents that are not empty, or None for a text that must be parsed as a whole.

    Values of equal chunks are one object, which must not be changed.

    Errors: InputError when a chunk that is not YAML is reached, with its location in the text.
    """
    if _OTHER_MARKS.search(text) is not None or NAME_PLACEHOLDER in text:
        return None
    return _chunks(text, source, max_bytes)


def _chunks(text: str, source: str, max_bytes: int) -> Iterator[YAMLChunk]:
    parsed_values: dict[str, Any] = {}
    line = 1
    for part in _chunk_texts(text):
        name = _name_in(part)
        key = _with_placeholder(part, name) if name else part
        if key in parsed_values:
            value = parsed_values[key]
        else:
            name, value = _parsed(part, key, name, _ChunkLocation(source, line, max_bytes))
            if name:
                parsed_values[key] = value
        if value is not None:
            yield YAMLChunk(value, line, name, part)
        line += part.count("\n") + 1


class _ChunkLocation(NamedTuple):
    source: str
    line: int
    max_bytes: int


def _parsed(part: str, key: str, name: str, location: _ChunkLocation) -> tuple[str, Any]:
    """The name and the value with the placeholder, or an empty name and the value as it is."""
    if name:
        try:
            value = _value(key, location)
        except InputError:
            value = None
        if isinstance(value, dict) and _is_named(value):
            return name, value
    try:
        return "", _value(part, location)
    except InputError:
        # Parse again after as many empty lines as precede it, so that faults have the right lines.
        _value(
            "\n" * (location.line - 1) + part, location._replace(max_bytes=location.max_bytes + location.line)
        )
        raise


def _chunk_texts(text: str) -> Iterator[str]:
    """The texts between document markers."""
    start = 0
    for mark in _MARK.finditer(text):
        yield text[start : mark.start()]
        start = mark.end()
    yield text[start:]


def _name_in(part: str) -> str:
    match = _NAME.search(part)
    if match is None or len(match[1]) < _MIN_NAME_LENGTH:
        return ""
    return match[1] if _is_text(match[1]) else ""


def _is_text(name: str) -> bool:
    """Whether YAML reads the name as a string, alone and next to punctuation (`1.e-55` is a number)."""
    try:
        return isinstance(resolve(name), str) and re.search("[g-z]", name) is not None
    except NotJSONValueError:
        return False


def _with_placeholder(part: str, name: str) -> str:
    """The text with the placeholder for the name, except within longer words, escapes and tags."""
    first, *rest = part.split(name)
    pieces = [first]
    for before, after in zip((first, *rest), rest, strict=False):
        is_word = not (before[-1:].isalnum() or before[-1:] in ("\\", "!") or after[:1].isalnum())
        pieces += [NAME_PLACEHOLDER if is_word else name, after]
    return "".join(pieces)


def _is_named(value: dict[str, Any]) -> bool:
    meta = value.get("metadata")
    return isinstance(meta, dict) and meta.get("name") == NAME_PLACEHOLDER


def _value(text: str, location: _ChunkLocation) -> Any:
    documents = read_documents(text, location.source, max_bytes=location.max_bytes)
    assert len(documents) <= 1, "a chunk has no document markers"
    return documents[0].value if documents else None


def with_name(value: Any, name: str) -> Any:
    """The value with the name in place of its placeholder."""
    if isinstance(value, str):
        return value.replace(NAME_PLACEHOLDER, name)
    if isinstance(value, dict):
        return {with_name(key, name): with_name(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [with_name(item, name) for item in value]
    return value
