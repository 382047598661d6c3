"""Values of Go's types as JSON, and as the text that the kubelet's checksums are taken of."""

import base64
from collections.abc import Iterable
from typing import Any

from nodewright.values.fnv import fnv1a_32
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
)

_ESCAPES = {
    **{chr(code): f"\\u{code:04x}" for code in range(32)},
    **{char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"},
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ESCAPING = str.maketrans(_ESCAPES)


def marshal(value: Any, kind: GoType) -> str:
    """The value as JSON in one line, names of maps in order, `<`, `>` and `&` escaped.

    Follows: Go 1.26, encoding/json/encode.go, Marshal.
    """
    match kind:
        case Converted(json=json, to_json=to_json):
            return marshal(to_json(value), json)
        case Pointer(to=to):
            return "null" if value is None else marshal(value, to)
        case Struct(fields=fields):
            return _object(
                (field.json, marshal(value[field.name], field.type))
                for field in fields
                if value[field.name] or not field.omits_empty
            )
        case Text():
            return _text(value)
        case Whole():
            return str(value)
        case _ if value is None:
            return "null"
        case ByteList():
            return f'"{base64.b64encode(value).decode()}"'
        case ListOf(item=item):
            return f"[{','.join(marshal(each, item) for each in value)}]"
        case MapOf(item=item):
            named = sorted((str(name), each) for name, each in value.items())
            return _object((name, marshal(each, item)) for name, each in named)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_text(name)}:{value}" for name, value in members) + "}"


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPING)}"'


def dump(value: Any, kind: Struct, *, is_pointer: bool = False) -> str:
    """The value as the kubelet prints it to take its checksum: with the names of types, keys in order.

    Follows: github.com/davecgh/go-spew v1.1.1, spew/format.go with %#v; v1.36, k8s.io/utils/dump/dump.go, ForHash.
    """
    dumping = _Dumping()
    dumping.typed(value, kind, star="*" if is_pointer else "")
    return "".join(dumping.parts)


def checksum(text: str) -> int:
    """The 32-bit FNV-1a hash of a text.

    Follows: v1.36, pkg/kubelet/checkpointmanager/checksum/checksum.go, New.

    >>> checksum("")
    2166136261
    """
    return fnv1a_32(text)


class _Dumping:
    """One pass over a value."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._hides_next_type = False

    def typed(self, value: Any, kind: GoType, star: str = "") -> None:
        """The value with its type before it."""
        if not self._hides_next_type:
            name = (
                kind.memory.name
                if isinstance(kind, Converted)
                else kind.to.name
                if isinstance(kind, Pointer)
                else kind.name
            )
            self.parts.append(f"({star}{name})")
        self.bare(value, kind)

    def bare(self, value: Any, kind: GoType) -> None:
        """The value alone; types of fields within are shown."""
        # A nil pointer at the end of a map leaves the printer with its mind on hiding types.
        self._hides_next_type = isinstance(kind, Pointer) and value is None
        match kind:
            case Converted(memory=memory):
                self.bare(value, memory)
            case Pointer(to=to) if value is not None:
                self.parts.append("<*>")
                self.bare(value, to)
            case Text() | Whole():
                self.parts.append(str(value))
            case Struct(fields=fields):
                self._struct(value, fields)
            case _ if value is None:
                self.parts.append("<nil>")
            case MapOf():
                self._map(value, kind)
            case ListOf(item=item):
                self._list(value, item)
            case _:
                self.parts.append(f"[{' '.join(map(str, value))}]")

    def _struct(self, value: Any, fields: tuple[Field, ...]) -> None:
        self.parts.append("{")
        for index, field in enumerate(fields):
            self.parts.append(f" {field.name}:" if index else f"{field.name}:")
            self.typed(value[field.name], field.type)
        self.parts.append("}")

    def _map(self, value: dict[Any, Any], kind: MapOf) -> None:
        self.parts.append("map[")
        for index, key in enumerate(sorted(value)):
            self.parts.append(f" {key}:" if index else f"{key}:")
            self.bare(value[key], kind.item)
        self.parts.append("]")

    def _list(self, value: list[Any], item: GoType) -> None:
        self.parts.append("[")
        for index, each in enumerate(value):
            if index:
                self.parts.append(" ")
            self.bare(each, item)
        self.parts.append("]")
