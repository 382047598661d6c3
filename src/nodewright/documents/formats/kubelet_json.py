"""Decodes plain documents into objects as the kubelet's JSON decoder does, with its messages.

Follows: v1.36, sigs.k8s.io/json, internal/golang/encoding/json/decode.go.
Departs: all faults at once, where the kubelet reports the first; a number such as 110.0 counts as an integer,
    because the document, read from YAML, does not keep how the number was written.
"""

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import float_text
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError

T = TypeVar("T", bound=msgspec.Struct)
_NO_VALUE = object()


class DecodingFault(msgspec.Struct, frozen=True, kw_only=True):
    """A value that the kubelet cannot decode into its field."""

    path: str
    message: str
    """The kubelet's message."""
    value: object
    is_final: bool
    """Whether the kubelet stops at this fault; it reports other faults only if no final one follows."""


class Decoded(msgspec.Struct, Generic[T], frozen=True):
    """An object, the faults of its document (fields with faults are left out) and its unknown fields."""

    value: T
    faults: tuple[DecodingFault, ...]
    unknown_fields: tuple[str, ...]

    @property
    def first_fault(self) -> DecodingFault | None:
        """The fault that the kubelet reports."""
        final = (fault for fault in self.faults if fault.is_final)
        return next(final, self.faults[0] if self.faults else None)


def decode_as_go(document: dict[str, Any], kind: type[T], *, ignored: tuple[str, ...] = ()) -> Decoded[T]:
    """The document as an object of that kind; ``ignored`` fields are known but not read."""
    decoder = _KubeletDecoder()
    value = decoder.struct(kind, document, _FieldPosition(), ignored)
    return Decoded(value, tuple(decoder.faults), tuple(decoder.unknown_fields))


class _FieldPosition(msgspec.Struct, frozen=True):
    """The position of a value: its path, and struct and fields as in the decoder's messages."""

    path: str = ""
    fields: tuple[str, ...] = ()
    struct: str = ""

    def field(self, struct: str, name: str) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}.{name}" if self.path else name, (*self.fields, name), struct)

    def below(self, step: str) -> "_FieldPosition":
        return _FieldPosition(f"{self.path}[{step}]", self.fields, self.struct)


class _KubeletDecoder(msgspec.Struct, eq=False):
    """Decodes one document. Object members are read in the order of their names, as after YAML."""

    faults: list[DecodingFault] = []
    unknown_fields: list[str] = []

    def struct(
        self, kind: type[T], document: dict[str, Any], at: _FieldPosition, ignored: tuple[str, ...] = ()
    ) -> T:
        members = _members(kind)
        attributes = {}
        for name, value in sorted(document.items()):
            if name not in members:
                if name not in ignored:
                    self.unknown_fields.append(f"{at.path}.{name}" if at.path else name)
                continue
            attribute, read_field = members[name]
            read_value = read_field(self, value, at.field(kind.__name__, name))
            if read_value is not _NO_VALUE:
                attributes[attribute] = read_value
        return kind(**attributes)

    def mismatch(self, value: Any, go_type: str, at: _FieldPosition, *, description: str = "") -> Any:
        from nodewright.documents.formats.go_json import unmarshal_type_error  # noqa: PLC0415 - start-up time

        message = unmarshal_type_error(description or json_kind(value), go_type, at.struct, at.fields)
        self.faults.append(DecodingFault(path=at.path, message=message, value=value, is_final=False))
        return _NO_VALUE

    def refuse(self, value: Any, text: str, at: _FieldPosition) -> Any:
        self.faults.append(DecodingFault(path=at.path, message=text, value=value, is_final=True))
        return _NO_VALUE


_Reader = Callable[[_KubeletDecoder, Any, _FieldPosition], Any]


@cache
def _members(kind: type) -> dict[str, tuple[str, _Reader]]:
    """For each name in the document the attribute and its reader."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.encode_name: (field.name, _reader(hints[field.name], _NO_NOTES))
        for field in msgspec.structs.fields(kind)
    }


_NO_NOTES: dict[str, Any] = {}


def _reader(hint: Any, notes: dict[str, Any]) -> _Reader:
    """The reader for values of that type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta = next(note for note in arguments[1:] if isinstance(note, msgspec.Meta))
        bounds = {"low": meta.ge, "high": meta.le} if meta.ge is not None else {}
        return _reader(arguments[0], {**notes, **bounds, **(meta.extra or {})})
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _or_null(_reader(inner, {**notes, "pointer": True}))
    if origin is tuple:
        return _list_reader(_reader(arguments[0], _NO_NOTES), _go_type(hint, notes))
    if origin is dict:
        return _map_reader(_reader(arguments[1], _NO_NOTES), arguments[1], _go_type(hint, notes))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _or_null(_struct_reader(hint))
    if hint is Duration:
        return _duration_reader(notes)
    if hint is Quantity:
        return _quantity
    assert hint in (bool, int, float, str), hint
    return _or_null(_scalar_reader(hint, notes))


def _or_null(read: _Reader) -> _Reader:
    """A reader for which null leaves the field unset."""
    return lambda decoder, value, at: _NO_VALUE if value is None else read(decoder, value, at)


def _scalar_reader(kind: type, notes: dict[str, Any]) -> _Reader:
    go_type = _go_type(kind, notes)

    def read(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
        if kind in (bool, str):
            return value if isinstance(value, kind) else decoder.mismatch(value, go_type, at)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return decoder.mismatch(value, go_type, at)
        if kind is float:
            return _float64(decoder, value, at)
        integer = int(value) if isinstance(value, int) or value.is_integer() else None
        if integer is None or not notes["low"] <= integer <= notes["high"]:
            return decoder.mismatch(value, go_type, at, description=f"number {_number_text(value)}")
        return integer

    return read


def _float64(decoder: _KubeletDecoder, value: float, at: _FieldPosition) -> Any:
    try:
        return float(value)
    except OverflowError:
        return decoder.mismatch(value, "float64", at, description=f"number {_number_text(value)}")


def _list_reader(read_item: _Reader, go_type: str) -> _Reader:
    def read(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
        if not isinstance(value, list):
            return decoder.mismatch(value, go_type, at)
        items = (read_item(decoder, item, at.below(str(index))) for index, item in enumerate(value))
        return tuple(item for item in items if item is not _NO_VALUE)

    return _or_null(read)


def _map_reader(read_item: _Reader, item_hint: Any, go_type: str) -> _Reader:
    empty = {str: "", bool: False}.get(item_hint, _NO_VALUE)

    def read(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
        if not isinstance(value, dict):
            return decoder.mismatch(value, go_type, at)
        items = {key: read_item(decoder, item, at.below(key)) for key, item in sorted(value.items())}
        # A null in a map is an empty entry.
        items = {
            key: empty if value[key] is None and item is _NO_VALUE else item for key, item in items.items()
        }
        return {key: item for key, item in items.items() if item is not _NO_VALUE}

    return _or_null(read)


def _struct_reader(kind: type[msgspec.Struct]) -> _Reader:
    def read(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
        if not isinstance(value, dict):
            return decoder.mismatch(value, _go_type(kind, _NO_NOTES), at)
        return decoder.struct(kind, value, at)

    return read


def _duration_reader(notes: dict[str, Any]) -> _Reader:
    def read(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
        if value is None and notes.get("pointer"):
            return _NO_VALUE
        if notes.get("number") and isinstance(value, int) and not isinstance(value, bool):
            return Duration(value)
        if not isinstance(value, str | None):
            return decoder.mismatch(value, "string", at)
        try:
            # As in the kubelet, null reads as an empty string, which is not a duration.
            return Duration.parse(value or "")
        except DurationError as error:
            return decoder.refuse(value, str(error), at)

    return read


def _quantity(decoder: _KubeletDecoder, value: Any, at: _FieldPosition) -> Any:
    if value is None:
        return ZERO
    if isinstance(value, bool | list | dict):
        text = (
            {True: "true", False: "false"}[value]
            if isinstance(value, bool)
            else msgspec.json.encode(value).decode()
        )
    else:
        text = value if isinstance(value, str) else _number_text(value)
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        return decoder.refuse(value, str(error), at)


def _number_text(number: int | float) -> str:  # noqa: PYI041 - integers are printed differently
    if isinstance(number, int) and abs(number) < 2**64:
        return str(number)
    # Larger integers are floats before the decoder reads them, at least from YAML.
    try:
        return float_text(float(number))
    except OverflowError:
        return float_text(float("inf"))


def json_kind(value: Any) -> str:
    """The JSON type of a value of a document, as Go's error messages name it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


# Types of other packages than v1beta1.
_OTHER_PACKAGE = frozenset(
    (
        "FormatOptions",
        "LoggingConfiguration",
        "OutputRoutingOptions",
        "Taint",
        "TracingConfiguration",
        "VModuleItem",
    )
)


def _go_type(hint: Any, notes: dict[str, Any]) -> str:
    """The type's name as Go prints it."""
    if "go" in notes:
        return str(notes["go"])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta = next(note for note in arguments[1:] if isinstance(note, msgspec.Meta))
        return _go_type(arguments[0], meta.extra or {})
    if origin is tuple:
        return f"[]{_go_type(arguments[0], _NO_NOTES)}"
    if origin is dict:
        if arguments[1] is Quantity:
            return "v1.ResourceList"
        return f"map[string]{_go_type(arguments[1], _NO_NOTES)}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"{'v1' if hint.__name__ in _OTHER_PACKAGE else 'v1beta1'}.{hint.__name__}"
    return {str: "string", bool: "bool", float: "float64"}[hint]
