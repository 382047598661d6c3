"""Finds the line and column of a field in a manifest; computed only for fields with faults."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import yaml
from msgspec.structs import replace
from yaml import events
from yaml.error import Mark

from nodewright.documents.formats.documents import decode_text, provided_content
from nodewright.documents.formats.json_documents import ListItems
from nodewright.documents.formats.kubectl_yaml import MAX_YAML_BYTES, Loader
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.api_request import CLUSTER_WIDE
from nodewright.model.patterns import lazy_pattern

_STEP = lazy_pattern(r"\[([^\]]*)\]|([^.\[\]]+)")


class ObjectLocation(msgspec.Struct, frozen=True):
    """The location of an object in a file, which locates the object's faults."""

    source: str
    content: bytes
    document: int
    """The number of the document, from 1."""
    documents: int
    """The number of documents in the file."""
    prefix: str = ""
    """The path of the object in its document, e.g. `items[3]`."""
    label: str = ""
    """Kind and name of the object, as far as they are known."""

    @property
    def is_live(self) -> bool:
        """Whether the object was read from a cluster, so that no file has a text with its position."""
        return provided_content(self.source) is not None

    def locate_all(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults with their source, in the order of the text, without duplicates."""
        unique = {str(fault): fault for fault in faults}.values()
        in_order = sorted(unique, key=lambda fault: self.position(fault.path) or (0, 0))
        return [self.locate(fault) for fault in in_order]

    def locate(self, fault: Fault) -> Fault:
        """The fault with its source: file, line and column if they are known, and object."""
        position = self.position(fault.path)
        parts = [f"{self.source}:{position[0]}:{position[1]}" if position else self.name, self.label]
        return replace(fault, source=", ".join(part for part in parts if part))

    def position(self, path: str = "") -> tuple[int, int] | None:
        """Line and column of the field, or of the object itself; None if neither is known, or the object is of a cluster."""
        if self.is_live:
            return None
        return _yaml_positions(self.content, self.source).find(self.document, f"{self.prefix}.{path}")

    @property
    def name(self) -> str:
        """File, document and path of the object, without a line; of an object of a cluster what was read."""
        if self.is_live:
            return self.source
        document = f", document {self.document}" if self.documents > 1 else ""
        return f"{self.source}{document}{', ' if self.prefix else ''}{self.prefix}"


_YAMLPosition: TypeAlias = "tuple[Mark | None, dict[str, _YAMLPosition]]"
"""Where a field begins, and the fields in it. A plain tuple, because there is one for each field of a text."""
_OF_METADATA = ("labels", "annotations")


class _YAMLPositions(msgspec.Struct, eq=False):
    """The positions of all fields of a text."""

    documents: list[_YAMLPosition] = []

    def find(self, document: int, path: str) -> tuple[int, int] | None:
        """Line and column of the field, or of its nearest parent that is in the text."""
        if document > len(self.documents):
            return None
        position = self.documents[document - 1]
        # After the last bracket nothing is a key; to search for its end each time takes very long.
        end = path.rfind("]") + 1
        for key, name in (*_STEP.findall(path[:end]), *_STEP.findall(path[end:].replace("[", "."))):
            _, children = position
            child = children.get(key or name)
            if child is None and name in _OF_METADATA and (meta := children.get("metadata")):
                # The API server leaves out `metadata` in the paths of pod templates.
                child = meta[1].get(name)
            if child is None:
                break
            position = child
        mark, _ = position
        assert mark is not None
        return mark.line + 1, mark.column + 1


@lru_cache(maxsize=1)  # many faults of one file are located one after the other
def _yaml_positions(content: bytes, source: str) -> _YAMLPositions:
    if len(content) > MAX_YAML_BYTES:
        return _YAMLPositions()
    try:
        return _PositionReader(decode_text(content, source)).read()
    except (yaml.YAMLError, InputError):  # JSON that is not YAML, or a later document that is neither
        return _YAMLPositions()


_NO_CHILDREN: "dict[str, _YAMLPosition]" = {}


class _PositionReader:
    """Reads positions from the events of a text that was parsed before, so that nesting is bounded."""

    def __init__(self, text: str) -> None:
        self._next = Loader(text.removeprefix("\ufeff")).get_event

    def read(self) -> _YAMLPositions:
        positions = _YAMLPositions()
        while not isinstance(event := self._next(), events.StreamEndEvent):
            if isinstance(event, events.DocumentStartEvent):
                root = self._next()
                positions.documents.append((root.start_mark, self._children(root)))
        return positions

    def _children(self, event: events.Event) -> "dict[str, _YAMLPosition]":
        # Types are compared instead of isinstance, and scalars take no call: less than half the time.
        children: dict[str, _YAMLPosition] = {}
        next_event = self._next
        if type(event) is events.SequenceStartEvent:
            while type(item := next_event()) is not events.SequenceEndEvent:
                below = _NO_CHILDREN if type(item) is events.ScalarEvent else self._children(item)
                children[str(len(children))] = (item.start_mark, below)
        elif type(event) is events.MappingStartEvent:
            while type(key := next_event()) is not events.MappingEndEvent:
                name = key.value if type(key) is events.ScalarEvent else self._skipped(key)
                value = next_event()
                below = _NO_CHILDREN if type(value) is events.ScalarEvent else self._children(value)
                children[name] = (key.start_mark, below)
        return children

    def _skipped(self, key: events.Event) -> str:
        """The empty name of a key that is no scalar, once its events are read."""
        self._children(key)
        return ""


def object_label(value: dict[str, Any], version: str, kind: str, namespace: str) -> str:
    """Kind, namespace and name, as far as the object sets them; no namespace of kinds that have none."""
    meta = value.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    name = meta.get("name") or meta.get("generateName")
    if name and (version.rpartition("/")[0], kind) in CLUSTER_WIDE:
        return f"{kind} {name}"
    return f"{kind} {meta.get('namespace') or namespace}/{name}" if name else kind


def type_meta_faults(version: Any, kind: Any, location: ObjectLocation) -> list[Fault]:
    """The faults of an object without apiVersion or kind."""
    return [
        location.locate(Fault(rule=f"Object '{word}' is missing", path=path))
        for path, word, value in (("apiVersion", "apiVersion", version), ("kind", "Kind", kind))
        if not isinstance(value, str) or not value
    ]


def listed_items(value: Mapping[str, Any]) -> Sequence[Any] | None:
    """The items of a List; None for an object of any other kind.

    >>> listed_items({"kind": "PodList", "items": [1]}), listed_items({"kind": "Pod", "items": [1]})
    ([1], None)
    """
    items = value.get("items")
    return items if isinstance(items, list | ListItems) and str(value.get("kind")).endswith("List") else None


def with_type_meta(item: Any, version: str, kind: str) -> Any:
    """The item with the apiVersion and kind that its list implies, as in a PodList with untyped items."""
    if isinstance(item, dict) and kind != "List" and not item.get("kind"):
        return {"apiVersion": version, "kind": kind.removesuffix("List"), **item}
    return item
