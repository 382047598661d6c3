"""Where in a text a field stands: worked out only when something is wrong with it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import yaml
from yaml.events import (
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from nodewright.world.documents import decode_text
from nodewright.world.errors import Fault, InputError
from nodewright.world.yaml import MAX_YAML_BYTES, Loader

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """An object in a file: enough to tell people where a fault of it is."""

    source: str
    content: bytes
    document: int
    """Which document, from 1."""
    documents: int
    """How many there are in the file."""
    prefix: str = ""
    """The way to the object within its document, e.g. `items[3]`."""
    label: str = ""
    """Kind and name, as far as they are known."""

    def all_of(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults with their source, in the order of the text, each once."""
        placed = {str(fault): fault for fault in faults}.values()
        return [self.of(fault) for fault in sorted(placed, key=lambda one: self.spot(one.path) or (0, 0))]

    def of(self, fault: Fault) -> Fault:
        """The fault with its source: file, line and column where they can be found, object."""
        spot = self.spot(fault.path)
        parts = [f"{self.source}:{spot[0]}:{spot[1]}" if spot else self.name, self.label]
        return replace(fault, source=", ".join(part for part in parts if part))

    def spot(self, path: str = "") -> tuple[int, int] | None:
        """Line and column of the field, or of the object itself, if they can be found."""
        return _spots(self.content, self.source).find(self.document, f"{self.prefix}.{path}")

    @property
    def name(self) -> str:
        """The place in words, without a line."""
        document = f", document {self.document}" if self.documents > 1 else ""
        return f"{self.source}{document}{', ' if self.prefix else ''}{self.prefix}"


class _Spot(NamedTuple):
    line: int
    column: int
    inside: "dict[str, _Spot]"


@dataclass
class _Spots:
    """Positions of all fields of a text."""

    documents: list[_Spot] = field(default_factory=list)

    def find(self, document: int, path: str) -> tuple[int, int] | None:
        """Line and column of the field, or of the nearest field around it that can be found."""
        if document > len(self.documents):
            return None
        spot = self.documents[document - 1]
        for key, name in _STEP.findall(path):
            inner = spot.inside.get(key or name)
            if inner is None:
                break
            spot = inner
        return spot.line, spot.column


@lru_cache(maxsize=1)  # many faults, one file
def _spots(content: bytes, source: str) -> _Spots:
    if len(content) > MAX_YAML_BYTES:
        return _Spots()
    try:
        return _Reader(decode_text(content, source)).read()
    except (yaml.YAMLError, InputError):  # JSON that is no YAML, or a later document that is neither
        return _Spots()


_NOTHING: "dict[str, _Spot]" = {}


class _Reader:
    """Follows the events of a text that is known to be sound, so that nesting is bounded."""

    def __init__(self, text: str) -> None:
        self._next = Loader(text.removeprefix("\ufeff")).get_event

    def read(self) -> _Spots:
        found = _Spots()
        while not isinstance(event := self._next(), StreamEndEvent):
            if isinstance(event, DocumentStartEvent):
                root = self._next()
                found.documents.append(_Spot(*_place(root), self._inside(root)))
        return found

    def _inside(self, event: Event) -> "dict[str, _Spot]":
        # Types are compared, not asked for their kin, and scalars not descended into: half of the time.
        found: dict[str, _Spot] = {}
        following = self._next
        if type(event) is SequenceStartEvent:
            while type(item := following()) is not SequenceEndEvent:
                found[str(len(found))] = _Spot(*_place(item), self._within(item))
        elif type(event) is MappingStartEvent:
            while type(key := following()) is not MappingEndEvent:
                name = key.value if isinstance(key, ScalarEvent) else ""
                self._within(key)
                found[name] = _Spot(*_place(key), self._within(following()))
        return found

    def _within(self, event: Event) -> "dict[str, _Spot]":
        return _NOTHING if type(event) is ScalarEvent else self._inside(event)


def _place(event: Event) -> tuple[int, int]:
    mark = event.start_mark
    assert mark is not None
    return mark.line + 1, mark.column + 1
