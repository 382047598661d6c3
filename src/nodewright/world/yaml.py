"""YAML as kubectl takes it: YAML 1.1 scalars, duplicate keys refused, nothing that a text can do to harm us.

Documents are built in one pass from the parser's events, never by PyYAML's own composer: that one calls
itself for each level in C and takes the process down when a text nests deeply enough.
"""

import base64
import binascii
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from nodewright.world.errors import Fault, InputError
from nodewright.world.scalars import NotJSON, key_text, resolve

MAX_YAML_BYTES = 3 * 1024 * 1024
MAX_DEPTH = 128
MOST_FAULTS = 50

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_RESOLVED_TAGS = frozenset(_TAG + name for name in ("bool", "int", "float", "null"))
_KIND_OF = {bool: "bool", int: "int", float: "float", type(None): "null", str: "str"}
_MERGE = object()


class Document(NamedTuple):
    """One document of a text: its value, its number (from 1, empty ones count) and the line it starts on."""

    value: Any
    number: int
    line: int


def read_yaml(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[Any]:
    r"""The values of all documents in a text that are not empty.

    Follows: sigs.k8s.io/yaml v1.6, yaml.go, YAMLToJSON; go.yaml.in/yaml v2.4, resolve.go, resolve.
    Departs: duplicate keys are errors, and `---` inside a block of text does not end the document.
    Errors:  InputError with all faults that could be found: syntax (the first), duplicate keys, nesting
             beyond 128 levels, aliases that grow out of proportion, values that JSON does not have.

    >>> read_yaml("a: yes\n---\nb: [0755, 1_000, 22:22, 2026-01-01]", "example")
    [{'a': True}, {'b': [493, 1000, '22:22', '2026-01-01']}]
    """
    return [document.value for document in read_documents(text, source, max_bytes=max_bytes)]


def read_documents(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[Document]:
    """The documents of a text that are not empty, with their numbers and lines; else as read_yaml."""
    text = text.removeprefix("\ufeff")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        rule = f"no text: {text[error.start]!r} at offset {error.start} stands for no character"
        raise InputError([Fault(rule=rule, source=source)]) from None
    if size > max_bytes:
        rule = f"{size} bytes of YAML; the most taken is {max_bytes} (JSON may be larger)"
        raise InputError([Fault(rule=rule, source=source)])
    return _Builder(text, source).documents()


class _TooMuchError(Exception):
    """The text is not worth reading on."""


class _Builder:
    """Builds documents from events, and gathers faults while it goes."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._faults: list[Fault] = []
        self._depth = 0
        self._nodes = 0  # how many nodes a reader meets who follows every alias
        self._aliased = 0  # how many of them by way of an alias
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # None: still open

    def documents(self) -> list[Document]:
        found: list[Document] = []
        try:
            # The C loader reads on creation, so that even its making may fail.
            self._next = Loader(self._text).get_event
            number = 0
            while not isinstance(event := self._next(), StreamEndEvent):
                if isinstance(event, StreamStartEvent | DocumentEndEvent):
                    continue
                assert isinstance(event, DocumentStartEvent)
                self._anchors = {}
                number += 1
                line = _place(event)[0]
                value = self._value(self._next())
                if value is not None:
                    found.append(Document(value, number, line))
        except yaml.YAMLError as error:
            self._faults.append(_syntax_fault(error, self._source))
        except _TooMuchError:
            pass
        if self._faults:
            raise InputError(self._faults)
        return found

    def _value(self, event: Event) -> Any:
        self._nodes += 1
        if isinstance(event, ScalarEvent):
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, 1
            return value
        if isinstance(event, AliasEvent):
            return self._alias(event)
        assert isinstance(event, MappingStartEvent | SequenceStartEvent)
        before, anchor = self._nodes, event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fault(event, f"nested more than {MAX_DEPTH} levels deep")
            raise _TooMuchError
        value = self._mapping() if isinstance(event, MappingStartEvent) else self._sequence()
        self._depth -= 1
        if anchor is not None:
            self._anchors[anchor] = value, self._nodes - before + 1
        return value

    def _sequence(self) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._value(event))
        return items

    def _mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: set[str] = set()
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event)
            if key is _MERGE:
                self._merge(found, merged)
                continue
            value = self._value(self._next())
            if key in found:
                if key in merged:
                    merged.discard(key)
                else:
                    self._fault(event, f'the key "{key}" is given twice', key)
            if key is not None:
                found[key] = value
        return found

    def _key(self, event: Event) -> Any:
        """The key as text; the sign that a merge follows; None if there was a fault."""
        if isinstance(event, ScalarEvent):
            if event.value == "<<" and (event.implicit[0] or event.tag == _TAG + "merge"):
                return _MERGE
            if event.anchor is None and event.tag is None and not event.implicit[0]:
                return event.value
        value = self._value(event)
        key = key_text(value)
        if key is None:
            self._fault(event, f"a key is a text, not {'null' if value is None else 'a list or mapping'}")
        return key

    def _merge(self, found: dict[str, Any], merged: set[str]) -> None:
        """Take in the members of one or several mappings, of which the first counts most.

        Follows: go.yaml.in/yaml v2.4, decode.go, decoder.merge: what comes later in the text wins.
        """
        event = self._next()
        value = self._value(event)
        parts = value if isinstance(value, list) else [value]
        for part in reversed(parts):
            if not isinstance(part, dict):
                self._fault(event, "map merge requires map or sequence of maps as the value")
                return
            merged.update(key for key in part if key not in found)
            found.update(part)

    def _alias(self, event: AliasEvent) -> Any:
        name = event.anchor
        if name not in self._anchors:
            self._fault(event, f"unknown anchor '{name}' referenced")
            return None
        target = self._anchors[name]
        if target is None:
            self._fault(event, f"anchor '{name}' value contains itself")
            return None
        value, size = target
        self._nodes += size
        self._aliased += size
        if self._aliased > 100 and self._nodes > 1000 and self._aliased > _allowed(self._nodes) * self._nodes:
            self._fault(event, "document contains excessive aliasing")
            raise _TooMuchError
        return value

    def _scalar(self, event: ScalarEvent) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            if not event.implicit[0]:
                return text
        elif tag not in _RESOLVED_TAGS:
            return self._binary(event) if tag == _TAG + "binary" else text
        try:
            value = resolve(text)
        except NotJSON as error:
            self._fault(event, str(error), text)
            return text
        if tag is not None:
            found = _KIND_OF[type(value)]
            wanted = tag.removeprefix(_TAG)
            if found != wanted and (found, wanted) != ("int", "float"):
                self._fault(event, f"cannot decode !!{found} `{text}` as a !!{wanted}")
        return value

    def _binary(self, event: ScalarEvent) -> str:
        try:
            return base64.b64decode("".join(event.value.split()), validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            self._fault(event, "!!binary value contains invalid base64 data")
            return ""

    def _fault(self, event: Event, rule: str, value: object = None) -> None:
        line, column = _place(event)
        source = f"{self._source}:{line}:{column}"
        self._faults.append(Fault(rule=rule, value=value, source=source))
        if len(self._faults) >= MOST_FAULTS:
            raise _TooMuchError


def _place(event: Event) -> tuple[int, int]:
    """Line and column, from 1."""
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1


def _allowed(nodes: int) -> float:
    """The share of nodes that may come from aliases.

    Follows: go.yaml.in/yaml v2.4, decode.go, allowedAliasRatio.
    """
    few, many = 400_000, 4_000_000
    return 0.99 - 0.89 * min(max(nodes - few, 0) / (many - few), 1)


def _syntax_fault(error: yaml.YAMLError, source: str) -> Fault:
    if isinstance(error, yaml.MarkedYAMLError):
        rule = ", ".join(part for part in (error.context, error.problem) if part)
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        return Fault(rule=rule or "no YAML", source=place)
    if isinstance(error, yaml.reader.ReaderError):
        shown = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        rule = f"the character U+{shown:04X} at offset {error.position} is not allowed in YAML"
        return Fault(rule=rule, source=source)
    return Fault(rule=str(error) or "no YAML", source=source)
