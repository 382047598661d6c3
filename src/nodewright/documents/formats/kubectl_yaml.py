"""YAML as kubectl reads it: YAML 1.1 scalars, no duplicate keys, bounded size, nesting and aliases.

Documents are built in one pass from the parser's events, not by PyYAML's composer, which recurses in C
and crashes the process on deeply nested text.
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, NamedTuple

import yaml
from yaml import events

from nodewright.model.errors import Fault, InputError
from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.quantity import INT64_MAX, INT64_MIN

CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NOT_FINITE = frozenset(
    f"{sign}{word}"
    for sign, words in (
        ("", (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")),
        ("+", (".inf", ".Inf", ".INF")),
        ("-", (".inf", ".Inf", ".INF")),
    )
    for word in words
)
_INTEGER = lazy_pattern(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII
)
_BASES = (16, 2, 8, 10)
_FLOAT = lazy_pattern(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_UINT64_MAX = 2**64 - 1
_MIN_PLAIN_FLOAT, _PLAIN_FLOAT = 1e-6, 1e21  # beyond, Go writes floats with an exponent


class NotJSONValueError(ValueError):
    """A scalar that has no JSON value."""


@cached_texts(16_384)
def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar after kubectl has converted the YAML to JSON.

    Follows: go.yaml.in/yaml v2.4, resolve.go, resolve; whole floats become integers on the way through JSON.
    Errors:  NotJSONValueError for infinities and NaN.

    >>> [resolve(text) for text in ("on", "0o17", "08", "1e3", "1.50", "2026-01-01", "~")]
    [True, 15, 8, 1000, 1.5, '2026-01-01', None]
    """
    if text in CONSTANTS:
        return CONSTANTS[text]
    first = text[0]
    if first not in "+-.0123456789":
        return text
    if text in _NOT_FINITE:
        raise NotJSONValueError(f"{text} is not a JSON value")
    # Underscores are removed, except after a leading dot.
    plain = text if first == "." else text.replace("_", "")
    number = _integer(plain)
    if number is not None:
        return number
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        if math.isfinite(value):
            return as_integer_if_whole(value)
    return text


def as_integer_if_whole(value: float) -> int | float:
    """The number as an integer if Go writes it without a fraction, and so reads it back as an integer."""
    # Converted through the shortest decimal text: 2**64 becomes 18446744073709552000.
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < _PLAIN_FLOAT else value


def number_text(value: float) -> str:
    """The number as Go writes it into JSON, from which a quantity is parsed.

    >>> number_text(0.00005), number_text(2), number_text(1e30)
    ('0.00005', '2', '1e+30')
    """
    if isinstance(value, float) and _MIN_PLAIN_FLOAT <= abs(value) < 1:
        return format(Decimal(repr(value)), "f")
    return repr(value)


def key_text(value: object) -> str | None:
    """The mapping key for a resolved scalar; None if it cannot be a key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return None


def _integer(text: str) -> int | None:
    """The 64-bit integer that the text stands for in Go's notation; None if it is not one."""
    match = _INTEGER.fullmatch(text)
    if match is None or len(text) > 70:  # 64 binary digits, a prefix and a sign
        return None
    sign, *digit_groups = match.groups()
    for base, digit_text in zip(_BASES, digit_groups, strict=True):
        if digit_text is not None:
            number = int(digit_text, base)
            number = -number if sign == "-" else number
            # Go parses numbers beyond int64 as uint64, which has no sign.
            maximum = INT64_MAX if sign else _UINT64_MAX
            return number if INT64_MIN <= number <= maximum else None
    raise AssertionError(text)


MAX_YAML_BYTES = 3 * 1024 * 1024
MAX_DEPTH = 128
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
MAX_FAULTS = 50

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_RESOLVED_TAGS = frozenset(_TAG + name for name in ("bool", "int", "float", "null"))
_TAG_OF_TYPE = {bool: "bool", int: "int", float: "float", type(None): "null", str: "str"}
_MERGE = object()


@cached_texts(4096)
def _is_plain_key(text: str) -> bool:
    """Whether a plain scalar stands for its own text as a key; most keys occur very often."""
    return text[:1].isalpha() and text not in CONSTANTS


class YAMLDocument(NamedTuple):
    """One document of a text: its value, its number (from 1, counting empty documents) and its first line."""

    value: Any
    number: int
    line: int


def read_yaml(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[Any]:
    r"""The values of all non-empty documents in a text.

    Follows: sigs.k8s.io/yaml v1.6, yaml.go, YAMLToJSON; go.yaml.in/yaml v2.4, resolve.go, resolve.
    Departs: duplicate keys are errors, and `---` inside a block scalar does not end the document.
    Errors:  InputError with all faults: syntax (the first), duplicate keys, nesting
             beyond 128 levels, excessive aliasing, values that JSON does not have.

    >>> read_yaml("a: yes\n---\nb: [0755, 1_000, 22:22, 2026-01-01]", "example")
    [{'a': True}, {'b': [493, 1000, '22:22', '2026-01-01']}]
    """
    return [document.value for document in read_documents(text, source, max_bytes=max_bytes)]


def read_documents(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[YAMLDocument]:
    """The non-empty documents of a text, with their numbers and lines; otherwise like `read_yaml`."""
    text = text.removeprefix("\ufeff")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        rule = f"not valid text: {text[error.start]!r} at offset {error.start} is not a character"
        raise InputError([Fault(rule=rule, source=source)]) from None
    if size > max_bytes:
        rule = f"{size} bytes of YAML exceed the limit of {max_bytes} (JSON may be larger)"
        raise InputError([Fault(rule=rule, source=source)])
    return _Builder(text, source).documents()


class _TooManyFaultsError(Exception):
    """Stops reading a text after too many faults."""


class _Builder:
    """Builds documents from parser events, and collects faults."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._faults: list[Fault] = []
        self._depth = 0
        self._nodes = 0  # number of nodes with every alias expanded
        self._aliased = 0  # number of those that come from an alias
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # None: the anchored value is not complete

    def documents(self) -> list[YAMLDocument]:
        documents: list[YAMLDocument] = []
        try:
            # The C loader reads when it is created, so its creation may fail.
            self._next = Loader(self._text).get_event
            number = 0
            while not isinstance(event := self._next(), events.StreamEndEvent):
                if isinstance(event, events.StreamStartEvent | events.DocumentEndEvent):
                    continue
                assert isinstance(event, events.DocumentStartEvent)
                self._anchors = {}
                number += 1
                line = _line_and_column(event)[0]
                value = self._value(self._next())
                if value is not None:
                    documents.append(YAMLDocument(value, number, line))
        except yaml.YAMLError as error:
            self._faults.append(_syntax_fault(error, self._source, self._text))
        except _TooManyFaultsError:
            pass
        if self._faults:
            raise InputError(self._faults)
        return documents

    def _value(self, event: events.Event) -> Any:
        self._nodes += 1
        if type(event) is events.ScalarEvent:
            if event.anchor is None and event.tag is None and not event.implicit[0]:
                return event.value
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = value, 1
            return value
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        assert isinstance(event, events.MappingStartEvent | events.SequenceStartEvent)
        nodes_before, anchor = self._nodes, event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fault(event, _TOO_DEEP)
            raise _TooManyFaultsError
        value = self._mapping() if isinstance(event, events.MappingStartEvent) else self._sequence()
        self._depth -= 1
        if anchor is not None:
            self._anchors[anchor] = value, self._nodes - nodes_before + 1
        return value

    def _sequence(self) -> list[Any]:
        items: list[Any] = []
        while type(event := self._next()) is not events.SequenceEndEvent:
            items.append(self._value(event))
        return items

    def _mapping(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        merged: set[str] = set()
        next_event = self._next
        while type(event := next_event()) is not events.MappingEndEvent:
            key = self._key(event)
            if key is _MERGE:
                self._merge(members, merged)
                continue
            value = self._value(next_event())
            if key in members:
                if key in merged:
                    merged.discard(key)
                else:
                    self._fault(event, f'the key "{key}" is given twice', key)
            if key is not None:
                members[key] = value
        return members

    def _key(self, event: events.Event) -> Any:
        """The key as text, `_MERGE` for a merge key, or None after a fault."""
        if type(event) is events.ScalarEvent:
            if event.anchor is None and event.tag is None:
                if not event.implicit[0]:
                    return event.value
                if _is_plain_key(event.value):
                    self._nodes += 1
                    return event.value
            if event.value == "<<" and (event.implicit[0] or event.tag == _TAG + "merge"):
                return _MERGE
        value = self._value(event)
        key = key_text(value)
        if key is None:
            self._fault(event, f"a key is a string, not {'null' if value is None else 'a list or mapping'}")
        return key

    def _merge(self, members: dict[str, Any], merged: set[str]) -> None:
        """Adds the members of one or several mappings; the first mapping takes precedence.

        Follows: go.yaml.in/yaml v2.4, decode.go, decoder.merge: later members of the text take precedence.
        """
        event = self._next()
        value = self._value(event)
        mappings = value if isinstance(value, list) else [value]
        for mapping in reversed(mappings):
            if not isinstance(mapping, dict):
                self._fault(event, "map merge requires map or sequence of maps as the value")
                return
            merged.update(key for key in mapping if key not in members)
            members.update(mapping)

    def _alias(self, event: events.AliasEvent) -> Any:
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
        if (
            self._aliased > 100
            and self._nodes > 1000
            and self._aliased > _allowed_alias_ratio(self._nodes) * self._nodes
        ):
            self._fault(event, "document contains excessive aliasing")
            raise _TooManyFaultsError
        return value

    def _scalar(self, event: events.ScalarEvent) -> Any:
        text, tag = event.value, event.tag
        if tag is None:
            if not event.implicit[0]:
                return text
        elif tag not in _RESOLVED_TAGS:
            return self._binary(event) if tag == _TAG + "binary" else text
        try:
            value = resolve(text)
        except NotJSONValueError as error:
            self._fault(event, str(error), text)
            return text
        if tag is not None:
            actual = _TAG_OF_TYPE[type(value)]
            expected = tag.removeprefix(_TAG)
            if actual != expected and (actual, expected) != ("int", "float"):
                self._fault(event, f"cannot decode !!{actual} `{text}` as a !!{expected}")
        return value

    def _binary(self, event: events.ScalarEvent) -> str:
        try:
            return base64.b64decode("".join(event.value.split()), validate=True).decode(errors="replace")
        except (binascii.Error, ValueError):
            self._fault(event, "!!binary value contains invalid base64 data")
            return ""

    def _fault(self, event: events.Event, rule: str, value: object = None) -> None:
        line, column = _line_and_column(event)
        source = f"{self._source}:{line}:{column}"
        self._faults.append(Fault(rule=rule, value=value, source=source))
        if len(self._faults) >= MAX_FAULTS:
            raise _TooManyFaultsError


def _line_and_column(event: events.Event) -> tuple[int, int]:
    """Line and column, from 1."""
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1


def _allowed_alias_ratio(nodes: int) -> float:
    """The ratio of nodes that may come from aliases.

    Follows: go.yaml.in/yaml v2.4, decode.go, allowedAliasRatio.
    """
    few, many = 400_000, 4_000_000
    return 0.99 - 0.89 * min(max(nodes - few, 0) / (many - few), 1)


def _syntax_fault(error: yaml.YAMLError, source: str, text: str) -> Fault:
    if isinstance(error, yaml.MarkedYAMLError):
        rule = ", ".join(part for part in (error.context, error.problem) if part)
        if error.problem == "exceeded maximum nesting depth":  # libyaml's own limit, of 1,000 levels
            rule = _TOO_DEEP
        mark = error.problem_mark or error.context_mark
        position = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        lines = text.split("\n", mark.line + 1) if mark else []
        if mark and any(line[mark.column :].startswith("\t") for line in lines[mark.line : mark.line + 1]):
            rule += ": indent with spaces, YAML forbids tabs"
        return Fault(rule=rule or "not valid YAML", source=position)
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        rule = f"the character U+{code:04X} at offset {error.position} is not allowed in YAML"
        return Fault(rule=rule, source=source)
    return Fault(rule=str(error) or "not valid YAML", source=source)


_MARK = "\n---\n"
_TEXT = lazy_pattern(r": ([A-Za-z][-A-Za-z0-9_./@]*(?::[-A-Za-z0-9_./@]+)*)$", re.MULTILINE)
"""A text that is a string wherever it stands, unless it is a constant, or has a colon between braces."""
_MASK = "zZ"
_NUMBERED = lazy_pattern(rf"{_MASK}(\d+){_MASK}")

Fill = Callable[[Sequence[str]], Any]
"""The value of a document with these texts."""


def read_alike_documents(text: str, source: str, *, max_bytes: int = MAX_YAML_BYTES) -> list[YAMLDocument]:
    """As `read_documents`, and faster for many alike documents.

    Errors: InputError as of `read_documents`.
    """
    if text.isascii() and len(text) <= max_bytes and not _is_unusual(text):
        documents = _Parts(source).documents(text)
        if documents is not None:
            return documents
    return read_documents(text, source, max_bytes=max_bytes)


def _is_unusual(text: str) -> bool:
    """Whether there are other marks than `---`, parts may depend on each other, or masks cannot be recognised."""
    return (
        text.startswith(("...", "%"))
        or any(mark in text for mark in ("\r", "\t", "\n...", "\n%", _MASK))
        or ("&" in text and "*" in text)
    )


_forms: dict[tuple[str, ...], tuple[Fill, int] | None] = {}
"""The forms that were seen in all files, by the rest of the part: the value, and its first line; None: seen once."""
_MAX_FORMS, _MAX_FORM_LENGTH = 4096, 16 << 10


class _Parts:
    """The parts of a text, one after the other."""

    def __init__(self, source: str) -> None:
        self._source = source

    def documents(self, text: str) -> list[YAMLDocument] | None:
        """The documents that are not empty; None: the text is left to `read_documents`."""
        first, *others = f"\n{text}".split(_MARK)
        if f"\n{text}".count("\n---") != len(others):
            return None
        parts = [f"---\n{part}\n" for part in others[:-1]] + [f"---\n{part}" for part in others[-1:]]
        line = first.count("\n")
        if any(row and not row.startswith("#") for row in map(str.strip, first.split("\n"))):
            parts.insert(0, f"{first[1:]}\n")  # a document without a marker
            line = 0
        documents: list[YAMLDocument] = []
        for number, part in enumerate(parts, 1):
            try:
                entry = self._document(part)
            except InputError:
                return None
            if entry is None:
                if not part.startswith("---"):
                    return None
            elif isinstance(entry[0], dict):
                documents.append(YAMLDocument(entry[0], number, line + entry[1]))
            else:
                return None  # a text without indentation may contain what looks like a marker
            line += part.count("\n")
        return documents

    def _document(self, part: str) -> tuple[Any, int] | None:
        """The value of the part's document and its first line there; None: it is empty."""
        pieces = _TEXT.split(part)
        texts, rest = pieces[1::2], tuple(pieces[::2])
        if not texts or not CONSTANTS.keys().isdisjoint(texts):
            return self._parsed(part)
        if ("{" in part or "[" in part) and any(":" in text for text in texts):
            return self._parsed(part)
        form = _forms.get(rest)
        if form is not None:
            return form[0](texts), form[1]
        parsed = self._parsed(part)
        if len(part) > _MAX_FORM_LENGTH:
            return parsed
        if rest in _forms and parsed is not None:
            self._add_form(rest, texts, parsed)
        if len(_forms) >= _MAX_FORMS:
            _forms.clear()
        _forms.setdefault(rest, None)
        return parsed

    def _add_form(self, rest: tuple[str, ...], texts: Sequence[str], parsed: tuple[Any, int]) -> None:
        masks = (f": {_MASK}{number}{_MASK}" for number in range(len(texts)))
        masked = self._parsed("".join(map("".join, zip(rest, [*masks, ""], strict=True))))
        if masked is None:
            return
        fill = _fill(masked[0])
        if (fill(texts), masked[1]) == parsed:
            _forms[rest] = fill, masked[1]

    def _parsed(self, part: str) -> tuple[Any, int] | None:
        documents = read_documents(part, self._source)
        return (documents[0].value, documents[0].line) if documents else None


def _fill(masked: Any) -> Fill:
    """The function that puts texts in place of their masks, except in keys."""
    if isinstance(masked, dict):
        members = [(key, _fill(value)) for key, value in masked.items()]
        return lambda texts: {key: fill(texts) for key, fill in members}
    if isinstance(masked, list):
        items = [_fill(value) for value in masked]
        return lambda texts: [fill(texts) for fill in items]
    if isinstance(masked, str) and _MASK in masked:
        if match := _NUMBERED.fullmatch(masked):
            return itemgetter(int(match[1]))
        return lambda texts: _NUMBERED.sub(lambda match: texts[int(match[1])], masked)
    return lambda _texts: masked
