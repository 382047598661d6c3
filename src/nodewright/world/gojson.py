"""Plain documents into objects as the kubelet's JSON decoder does it: in its words, unknown fields by path.

Follows: v1.36, sigs.k8s.io/json, internal/golang/encoding/json/decode.go.
Departs: all faults at once, where the kubelet tells the first; a number such as 110.0 counts as whole,
    because what was written cannot be told from what YAML makes of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from nodewright.values.duration import Duration, DurationError
from nodewright.values.golang import float_text
from nodewright.values.quantity import ZERO, Quantity, QuantityError

T = TypeVar("T", bound=msgspec.Struct)
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingFault:
    """A value that does not fit its field."""

    path: str
    text: str
    """What the kubelet says."""
    value: object
    is_final: bool
    """Whether the kubelet stops here; other faults it tells only when none of these follows."""


@dataclass(frozen=True, slots=True)
class Decoded(Generic[T]):
    """An object, the faults of its document (fields with faults are left out) and the fields nobody knows."""

    value: T
    faults: tuple[DecodingFault, ...]
    unknown: tuple[str, ...]

    @property
    def first(self) -> DecodingFault | None:
        """The fault that the kubelet tells."""
        final = (fault for fault in self.faults if fault.is_final)
        return next(final, self.faults[0] if self.faults else None)


def decode_as_go(document: dict[str, Any], kind: type[T], *, ignored: tuple[str, ...] = ()) -> Decoded[T]:
    """The document as an object of that kind; fields ``ignored`` are known but of no interest."""
    walk = _Walk()
    value = walk.struct(kind, document, _Place(), ignored)
    return Decoded(value, tuple(walk.faults), tuple(walk.unknown))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: for people, for the decoder's messages, and in the decoder's terms."""

    path: str = ""
    fields: tuple[str, ...] = ()
    struct: str = ""

    def field(self, struct: str, name: str) -> "_Place":
        return _Place(f"{self.path}.{name}" if self.path else name, (*self.fields, name), struct)

    def below(self, step: str) -> "_Place":
        return _Place(f"{self.path}[{step}]", self.fields, self.struct)


@dataclass(slots=True)
class _Walk:
    """One pass over a document. Object members are met in the order of their names, as after YAML."""

    faults: list[DecodingFault] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def struct(self, kind: type[T], document: dict[str, Any], at: _Place, ignored: tuple[str, ...] = ()) -> T:
        members = _members(kind)
        found = {}
        for name, value in sorted(document.items()):
            if name not in members:
                if name not in ignored:
                    self.unknown.append(f"{at.path}.{name}" if at.path else name)
                continue
            attribute, read = members[name]
            read_value = read(self, value, at.field(kind.__name__, name))
            if read_value is not _ABSENT:
                found[attribute] = read_value
        return kind(**found)

    def misfit(self, value: Any, go_type: str, at: _Place, *, shown: str = "") -> Any:
        where = f"Go struct field {at.struct}.{'.'.join(at.fields)}"
        text = f"json: cannot unmarshal {shown or _json_kind(value)} into {where} of type {go_type}"
        self.faults.append(DecodingFault(path=at.path, text=text, value=value, is_final=False))
        return _ABSENT

    def refuse(self, value: Any, text: str, at: _Place) -> Any:
        self.faults.append(DecodingFault(path=at.path, text=text, value=value, is_final=True))
        return _ABSENT


_Read = Callable[[_Walk, Any, _Place], Any]


@cache
def _members(kind: type) -> dict[str, tuple[str, _Read]]:
    """For each name in the document the attribute and how to read it."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        one.encode_name: (one.name, _reader(hints[one.name], _NOTES)) for one in msgspec.structs.fields(kind)
    }


_NOTES: dict[str, Any] = {}


def _reader(hint: Any, notes: dict[str, Any]) -> _Read:
    """How a value of that type is read."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta = next(note for note in arguments[1:] if isinstance(note, msgspec.Meta))
        bounds = {"low": meta.ge, "high": meta.le} if meta.ge is not None else {}
        return _reader(arguments[0], {**notes, **bounds, **(meta.extra or {})})
    if origin in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not NoneType)
        return _or_null(_reader(inner, {**notes, "pointer": True}))
    if origin is tuple:
        return _list_reader(_reader(arguments[0], _NOTES), _go_type(hint, notes))
    if origin is dict:
        return _map_reader(_reader(arguments[1], _NOTES), arguments[1], _go_type(hint, notes))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _or_null(_struct_reader(hint))
    if hint is Duration:
        return _duration_reader(notes)
    if hint is Quantity:
        return _quantity
    assert hint in (bool, int, float, str), hint
    return _or_null(_plain_reader(hint, notes))


def _or_null(read: _Read) -> _Read:
    """Null leaves the field as it is."""
    return lambda walk, value, at: _ABSENT if value is None else read(walk, value, at)


def _plain_reader(kind: type, notes: dict[str, Any]) -> _Read:
    go_type = _go_type(kind, notes)

    def read(walk: _Walk, value: Any, at: _Place) -> Any:
        if kind in (bool, str):
            return value if isinstance(value, kind) else walk.misfit(value, go_type, at)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return walk.misfit(value, go_type, at)
        if kind is float:
            return _float64(walk, value, at)
        whole = int(value) if isinstance(value, int) or value.is_integer() else None
        if whole is None or not notes["low"] <= whole <= notes["high"]:
            return walk.misfit(value, go_type, at, shown=f"number {_number_text(value)}")
        return whole

    return read


def _float64(walk: _Walk, value: float, at: _Place) -> Any:
    try:
        return float(value)
    except OverflowError:
        return walk.misfit(value, "float64", at, shown=f"number {_number_text(value)}")


def _list_reader(read_item: _Read, go_type: str) -> _Read:
    def read(walk: _Walk, value: Any, at: _Place) -> Any:
        if not isinstance(value, list):
            return walk.misfit(value, go_type, at)
        items = (read_item(walk, item, at.below(str(index))) for index, item in enumerate(value))
        return tuple(item for item in items if item is not _ABSENT)

    return _or_null(read)


def _map_reader(read_item: _Read, item_hint: Any, go_type: str) -> _Read:
    empty = {str: "", bool: False}.get(item_hint, _ABSENT)

    def read(walk: _Walk, value: Any, at: _Place) -> Any:
        if not isinstance(value, dict):
            return walk.misfit(value, go_type, at)
        items = {key: read_item(walk, item, at.below(key)) for key, item in sorted(value.items())}
        # A null in a map is an entry all the same, an empty one.
        items = {
            key: empty if value[key] is None and item is _ABSENT else item for key, item in items.items()
        }
        return {key: item for key, item in items.items() if item is not _ABSENT}

    return _or_null(read)


def _struct_reader(kind: type[msgspec.Struct]) -> _Read:
    def read(walk: _Walk, value: Any, at: _Place) -> Any:
        if not isinstance(value, dict):
            return walk.misfit(value, _go_type(kind, _NOTES), at)
        return walk.struct(kind, value, at)

    return read


def _duration_reader(notes: dict[str, Any]) -> _Read:
    def read(walk: _Walk, value: Any, at: _Place) -> Any:
        if value is None and notes.get("pointer"):
            return _ABSENT
        if notes.get("number") and isinstance(value, int) and not isinstance(value, bool):
            return Duration(value)
        if not isinstance(value, str | None):
            return walk.misfit(value, "string", at)
        try:
            # Null reads as an empty text, which is no duration: so it is in the kubelet.
            return Duration.parse(value or "")
        except DurationError as error:
            return walk.refuse(value, str(error), at)

    return read


def _quantity(walk: _Walk, value: Any, at: _Place) -> Any:
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
        return walk.refuse(value, str(error), at)


def _number_text(number: int | float) -> str:  # noqa: PYI041 - the two are told apart
    if isinstance(number, int) and abs(number) < 2**64:
        return str(number)
    # Larger whole numbers are floats before the decoder sees them, at least from YAML.
    try:
        return float_text(float(number))
    except OverflowError:
        return float_text(float("inf"))


def _json_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


# Types that live in other packages than the configuration's own.
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
        return f"[]{_go_type(arguments[0], _NOTES)}"
    if origin is dict:
        if arguments[1] is Quantity:
            return "v1.ResourceList"
        return f"map[string]{_go_type(arguments[1], _NOTES)}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"{'v1' if hint.__name__ in _OTHER_PACKAGE else 'v1beta1'}.{hint.__name__}"
    return {str: "string", bool: "bool", float: "float64"}[hint]
