"""A format of a state file: its Go struct and its checksum."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.go_json import (
    CHECKSUM,
    STRING,
    ByteSlice,
    Converted,
    Field,
    GoType,
    IntegerType,
    MapOf,
    Pointer,
    SliceOf,
    StringType,
    Struct,
    unmarshal,
    zero_value,
)
from nodewright.model.reasons.kubelet_start import FormatTried, StateFile, StateFileDamaged
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.golang import fnv1a_32

CHECKSUM_FIELD = Field("Checksum", "checksum", CHECKSUM)
CORRUPTED = "checkpoint is corrupted"
_DATA = Field("Data", "data", STRING)
_DATA_CHECKSUM = Field("DataChecksum", "dataChecksum", CHECKSUM)
_DATA_STRUCT = Struct("", (_DATA, _DATA_CHECKSUM))


class CheckpointFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format whose checksum is the hash of the whole file with checksum 0.

    Follows: v1.36, cpumanager/state/checkpoint.go, memorymanager/state/checkpoint.go, VerifyChecksum.
    """

    version: int
    kind: Struct
    checksum_type_name: str
    """The name of the struct in the hashed text: older formats have that of the newest one."""
    other_type_name: str = ""
    """A name with which the checksum is valid, too; empty: none."""
    accepts_zero: bool = True
    """Whether a file without a checksum is accepted."""

    def empty(self) -> dict[str, Any]:
        """The value into which the kubelet decodes the file."""
        return _with_maps(self.kind)

    def checksum_text(self, value: dict[str, Any], name: str = "") -> str:
        """The text that is hashed for the checksum."""
        renamed = Struct(name or self.checksum_type_name, self.kind.fields)
        return dump({**value, CHECKSUM_FIELD.name: 0}, renamed, is_pointer=True)

    def encoded(self, value: dict[str, Any]) -> bytes:
        """The file with this content."""
        checksum_value = checksum(self.checksum_text(value))
        return marshal({**value, CHECKSUM_FIELD.name: checksum_value}, self.kind).encode()

    def decode(self, content: bytes, into: dict[str, Any]) -> FormatTried | None:
        """Decodes the file in this format into ``into``, after an error only in part; returns the failure or None."""
        error = unmarshal(content, self.kind, into)
        if error is not None:
            return FormatTried(version=self.version, error=error)
        stored = into[CHECKSUM_FIELD.name]
        if stored == 0 and self.accepts_zero:
            return None
        computed = checksum(self.checksum_text(into))
        if stored == computed or (
            self.other_type_name and stored == checksum(self.checksum_text(into, self.other_type_name))
        ):
            return None
        return FormatTried(version=self.version, error=CORRUPTED, checksum=stored, computed=computed)


class DataCheckpointFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A format whose member `data` has the content as text, with a checksum of its own; the members of an older format
    beside it are for older kubelets.

    Follows: v1.37, memorymanager/state/checkpoint.go, MarshalCheckpoint, UnmarshalCheckpoint, VerifyChecksum;
        state_checkpoint.go, loadAndMigrateCheckpointV3.
    Departs: the CPU manager's file is derived from the memory manager's: its merged source was not found.
    """

    version: int
    name: str
    """The struct of the file."""
    legacy: CheckpointFormat
    data: Struct
    """The content of `data`."""
    manager: str

    def empty(self) -> dict[str, Any]:
        """The value into which the kubelet decodes `data`."""
        return _with_maps(self.data)

    def checksum_text(self, value: dict[str, Any]) -> str:
        """The text that is hashed for the checksum of the older format."""
        return self.legacy.checksum_text(value)

    def encoded(self, value: dict[str, Any]) -> bytes:
        """The file with this content."""
        text, hashed = marshal(value, self.data), checksum(self.checksum_text(value))
        file = {CHECKSUM_FIELD.name: hashed, _DATA.name: text, _DATA_CHECKSUM.name: _text_checksum(text)}
        return marshal({**value, **file}, self._kind()).encode()

    def decode(self, content: bytes, into: dict[str, Any]) -> FormatTried | None:
        """As that of a CheckpointFormat; `into` is the content of `data`, beside `data` and `dataChecksum` themselves."""
        file = {**self.legacy.empty(), **_with_maps(_DATA_STRUCT)}
        error, part = unmarshal(content, self._kind(), file), f"{self.manager} checkpoint"
        text, stored = file[_DATA.name], file[_DATA_CHECKSUM.name]
        into |= {_DATA.name: text, _DATA_CHECKSUM.name: stored}
        if error is None:
            error, part = unmarshal(text.encode(), self.data, into), f"{part} data"
        lead = f"could not load v{self.version} checkpoint: " if has_data(into) else ""
        if error is not None:
            return FormatTried(version=self.version, error=f"{lead}failed to deserialize {part}: {error}")
        computed = _text_checksum(text)
        if stored == computed:
            return None
        return FormatTried(
            version=self.version,
            error=f"{lead}{CORRUPTED}",
            member=_DATA_CHECKSUM.json,
            checksum=stored,
            computed=computed,
        )

    def _kind(self) -> Struct:
        older = self.legacy.kind
        embedded = (replace(field, embedded_in=older.short_name) for field in older.fields)
        return Struct(self.name, (*embedded, *_DATA_STRUCT.fields))


class LoadedCheckpoint(NamedTuple):
    """The content of a file."""

    value: dict[str, Any]
    file_format: CheckpointFormat | DataCheckpointFormat
    newest: dict[str, Any]
    """The content in the first format that was tried; after an error only a part."""


def load_checkpoint(
    content: bytes, formats: Sequence[CheckpointFormat | DataCheckpointFormat], file: StateFile, path: str
) -> Verdict[LoadedCheckpoint]:
    """The content in the first of the formats that the file has; a file with `data` is read in no older format."""
    tried: list[FormatTried] = []
    newest: dict[str, Any] = {}
    for file_format in formats:
        value = file_format.empty()
        newest = newest or value
        failed = file_format.decode(content, value)
        if failed is None:
            return Granted(LoadedCheckpoint(value, file_format, newest))
        if has_data(value):
            tried = [failed]
            break
        if isinstance(file_format, CheckpointFormat):
            tried.append(failed)
    return Refused((StateFileDamaged(file=file, path=path, tried=tuple(tried)),))


def has_data_members(content: bytes) -> bool:
    """Whether a file is of a format with `data`, as far as it can be decoded."""
    into = zero_value(_DATA_STRUCT)
    unmarshal(content, _DATA_STRUCT, into)
    return has_data(into)


def has_data(value: Mapping[str, Any]) -> bool:
    """Whether a file has a content in `data`, or a checksum of one."""
    return bool(value.get(_DATA.name) or value.get(_DATA_CHECKSUM.name))


def _with_maps(kind: Struct) -> dict[str, Any]:
    """The zero value of the struct, with maps that are empty."""
    maps: dict[str, Any] = {field.name: {} for field in kind.fields if isinstance(field.type, MapOf)}
    return {**zero_value(kind), **maps}


def _text_checksum(text: str) -> int:
    return checksum(f"(string){text}")


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
_ESCAPE_TABLE = str.maketrans(_ESCAPES)


def marshal(value: Any, kind: GoType) -> str:
    """The value as JSON in one line, with sorted map keys and escaped `<`, `>` and `&`.

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
        case StringType():
            return _json_string(value)
        case IntegerType():
            return str(value)
        case _ if value is None:
            return "null"
        case ByteSlice():
            return f'"{base64.b64encode(value).decode()}"'
        case SliceOf(item=item):
            return f"[{','.join(marshal(element, item) for element in value)}]"
        case MapOf(item=item):
            entries = sorted((str(key), entry) for key, entry in value.items())
            return _object((key, marshal(entry, item)) for key, entry in entries)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{_json_string(name)}:{value}" for name, value in members) + "}"


def _json_string(text: str) -> str:
    return f'"{text.translate(_ESCAPE_TABLE)}"'


def dump(value: Any, kind: Struct, *, is_pointer: bool = False) -> str:
    """The value as the kubelet prints it for a checksum: with type names and sorted keys.

    Follows: github.com/davecgh/go-spew v1.1.1, spew/format.go with %#v; v1.36, k8s.io/utils/dump/dump.go, ForHash.
    """
    printer = _SpewPrinter()
    printer.print_typed(value, kind, star="*" if is_pointer else "")
    return "".join(printer.parts)


def checksum(text: str) -> int:
    """The 32-bit FNV-1a hash of a text.

    Follows: v1.36, pkg/kubelet/checkpointmanager/checksum/checksum.go, New.

    >>> checksum("")
    2166136261
    """
    return fnv1a_32(text)


class _SpewPrinter:
    """Prints one value as go-spew does."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._hides_next_type = False

    def print_typed(self, value: Any, kind: GoType, star: str = "") -> None:
        """Prints the type and the value."""
        if not self._hides_next_type:
            named = kind.to if isinstance(kind, Pointer) else kind
            assert not isinstance(named, Pointer)
            name = named.memory.name if isinstance(named, Converted) else named.name
            self.parts.append(f"({star}{name})")
        self.print_untyped(value, kind)

    def print_untyped(self, value: Any, kind: GoType) -> None:
        """Prints the value without its type; fields in it are printed with theirs."""
        # After a nil pointer at the end of a map, go-spew also hides the type of the next value.
        self._hides_next_type = isinstance(kind, Pointer) and value is None
        match kind:
            case Converted(memory=memory):
                self.print_untyped(value, memory)
            case Pointer(to=to) if value is not None:
                self.parts.append("<*>")
                self.print_untyped(value, to)
            case StringType() | IntegerType():
                self.parts.append(str(value))
            case Struct(fields=fields):
                self._print_struct(value, fields)
            case _ if value is None:
                self.parts.append("<nil>")
            case MapOf():
                self._print_map(value, kind)
            case SliceOf(item=item):
                self._print_list(value, item)
            case _:
                self.parts.append(f"[{' '.join(map(str, value))}]")

    def _print_struct(self, value: Any, fields: tuple[Field, ...]) -> None:
        self.parts.append("{")
        for index, field in enumerate(fields):
            self.parts.append(f" {field.name}:" if index else f"{field.name}:")
            self.print_typed(value[field.name], field.type)
        self.parts.append("}")

    def _print_map(self, value: dict[Any, Any], kind: MapOf) -> None:
        self.parts.append("map[")
        for index, key in enumerate(sorted(value)):
            self.parts.append(f" {key}:" if index else f"{key}:")
            self.print_untyped(value[key], kind.item)
        self.parts.append("]")

    def _print_list(self, value: list[Any], item: GoType) -> None:
        self.parts.append("[")
        for index, element in enumerate(value):
            if index:
                self.parts.append(" ")
            self.print_untyped(element, item)
        self.parts.append("]")
