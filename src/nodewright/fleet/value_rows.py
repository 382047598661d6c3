"""Values as rows of plain JSON, and back: each object once, after the objects that it refers to.

A row is the name of a class and the values of its fields; an object within a field is `{"row": number}`. The classes
are those that the type of the last row can contain, a closed list, and every field is compared with its type. So rows
can be read from a file that is not trusted: nothing but values comes out of them.

>>> from nodewright.model.values.topology_hints import Hint
>>> rows = rows_of(Hint(NUMASet.of(0, 1), preferred=True))
>>> rows, value_of(rows, Hint)
([['Hint', '0-1', True]], Hint(numa=NUMASet('0-1'), preferred=True))
"""

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from nodewright.model.values.duration import Duration
from nodewright.model.values.idset import CPUSet, IdSet, NUMASet
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import (
    INT64_MAX,
    INT64_MIN,
    MAX_EXPONENT,
    Quantity,
    QuantityFormat,
    fits_int64,
)

T = TypeVar("T")
Rows: TypeAlias = Sequence[Any]
Read: TypeAlias = Callable[[Any], Any]
_PLAIN = frozenset({str, int, bool, NoneType})
_LARGEST_SCALE = 2 * MAX_EXPONENT


class RowError(ValueError):
    """Rows that are not those of a value of the type; the message names row, field and rule."""


def rows_of(value: object, omitted: Collection[str] = ()) -> list[Any]:
    """The rows of a value, its own last; fields whose class and name (`Pod.spec`) are ``omitted`` are null."""
    return _Writer(frozenset(omitted)).rows_of(value)


class _Writer:
    def __init__(self, omitted: frozenset[str]) -> None:
        self._rows: list[Any] = []
        self._omitted = omitted
        self._numbers: dict[int, tuple[int, object]] = {}
        """The row of each object by its id, with the object, so that no other one gets the id."""
        self._fields: dict[type, tuple[str | None, ...]] = {}
        """The fields of each class; None for one that is omitted."""

    def rows_of(self, value: object) -> list[Any]:
        self._plain(value)
        return self._rows

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return value if math.isfinite(value) else str(value)
        if kind is dict or kind is Counter:
            if all(type(key) is str for key in value):
                return {
                    key: item if type(item) in _PLAIN else self._plain(item) for key, item in value.items()
                }
            return [[self._plain(key), self._plain(item)] for key, item in value.items()]
        if kind is tuple or kind is list or kind is deque:
            return [item if type(item) in _PLAIN else self._plain(item) for item in value]
        if kind is set or kind is frozenset:
            return [self._plain(item) for item in sorted(value)]
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, IdSet):
            return str(value)
        if isinstance(value, Quantity):
            return [value.unscaled, value.scale, value.format.value, value.original_text, value.is_int64]
        if isinstance(value, Instant | Duration):
            return value.nanoseconds
        return {"row": self._row(value, kind)}

    def _row(self, value: Any, kind: type) -> int:
        known = self._numbers.get(id(value))
        if known is not None:
            return known[0]
        fields = self._fields.get(kind)
        if fields is None:
            names = field_names(kind)
            fields = self._fields[kind] = tuple(
                None if f"{kind.__name__}.{name}" in self._omitted else name for name in names
            )
        name = kind.__name__
        items = [None if field is None else getattr(value, field) for field in fields]
        row = [name, *[item if type(item) in _PLAIN else self._plain(item) for item in items]]
        self._rows.append(row)
        self._numbers[id(value)] = (len(self._rows) - 1, value)
        return len(self._rows) - 1


def field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a struct, a named tuple or a dataclass, in order."""
    fields: Iterable[str]
    if issubclass(kind, msgspec.Struct):
        fields = kind.__struct_fields__
    else:
        fields = (
            kind._fields if issubclass(kind, tuple) else [field.name for field in dataclasses.fields(kind)]
        )
    return tuple(fields)


def value_of(rows: object, kind: type[T], omitted: Collection[str] = ()) -> T:
    """The value of the last row, which is of this class; ``omitted`` fields are None whatever their type.

    Errors: RowError.
    """
    if not isinstance(rows, list) or not rows:
        raise RowError("there are no rows")
    root: Any = kind
    return _Reader(row_classes(root, frozenset(omitted)), frozenset(omitted)).value_of(rows, kind)


@cache
def row_classes(root: Any, omitted: frozenset[str] = frozenset()) -> Mapping[str, type]:
    """The classes of rows of a value of this class, by name; not those that only ``omitted`` fields contain."""
    classes: dict[str, type] = {}
    pending: list[Any] = [root]
    while pending:
        hint = pending.pop()
        if get_origin(hint) is not None:
            pending += [] if get_origin(hint) is Literal else get_args(hint)
        elif _is_row_class(hint) and hint.__name__ not in classes:
            classes[hint.__name__] = hint
            hints = get_type_hints(hint)
            pending += [hints[name] for name in field_names(hint) if f"{hint.__name__}.{name}" not in omitted]
    return classes


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _is_row_class(kind: Any) -> bool:
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or _is_dataclass(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


class _Reader:
    def __init__(self, classes: Mapping[str, type], omitted: frozenset[str]) -> None:
        self._classes, self._omitted = classes, omitted
        self._values: list[Any] = []
        self._fields: dict[str, tuple[type, list[tuple[str, Read]]]] = {}

    def value_of(self, rows: list[Any], kind: type[T]) -> T:
        for row in rows:
            self._values.append(self._object(row))
        value = self._values[-1]
        if not isinstance(value, kind):
            raise RowError(f"the last row is not of {kind.__name__}")
        return value

    def _object(self, row: Any) -> Any:
        place = f"row {len(self._values)}"
        name = row[0] if isinstance(row, list) and row else None
        if not isinstance(name, str) or name not in self._classes:
            raise RowError(f"{place} is not of a known class")
        kind, fields = self._fields.get(name) or self._class_fields(name)
        if len(row) != len(fields) + 1:
            raise RowError(f"{place}: {name} has {len(fields)} fields, not {len(row) - 1}")
        arguments = {}
        for (field, read), item in zip(fields, row[1:], strict=True):
            try:
                arguments[field] = read(item)
            except (ValueError, TypeError, RecursionError) as error:
                raise RowError(f"{place}, {name}.{field}: {error}") from None
        return kind(**arguments)

    def _class_fields(self, name: str) -> tuple[type, list[tuple[str, Read]]]:
        kind = self._classes[name]
        hints = get_type_hints(kind)
        fields = [
            (field, _null if f"{name}.{field}" in self._omitted else self._reader(hints[field]))
            for field in field_names(kind)
        ]
        self._fields[name] = kind, fields
        return kind, fields

    def _reader(self, hint: Any) -> Read:
        """The function that reads values of this type."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in _ATOMS:
            return _ATOMS[hint]
        if origin in (Union, UnionType):
            return self._union_reader(arguments)
        if origin is Literal:
            return partial(_member, frozenset(arguments))
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            return partial(_fixed_tuple, [self._reader(argument) for argument in arguments])
        if origin in _COLLECTIONS:
            return partial(_collection, _COLLECTIONS[origin], self._reader(arguments[0]))
        if origin is Counter:
            return partial(_mapping, Counter, self._reader(arguments[0]), _integer)
        if origin in (dict, Mapping):
            return partial(_mapping, dict, self._reader(arguments[0]), self._reader(arguments[1]))
        if isinstance(hint, type) and issubclass(hint, Enum):
            return hint
        assert _is_row_class(hint), hint
        return partial(self._reference, (hint,))

    def _union_reader(self, members: tuple[Any, ...]) -> Read:
        classes = tuple(member for member in members if _is_row_class(member))
        others = [member for member in members if not _is_row_class(member)]
        # The error of the last one is shown: it should not be that of null.
        readers = [self._reader(member) for member in sorted(others, key=lambda each: each is not NoneType)]
        if classes:
            readers.append(partial(self._reference, classes))
        return partial(_first_match, readers)

    def _reference(self, classes: tuple[type, ...], value: Any) -> Any:
        number = value.get("row") if isinstance(value, dict) and len(value) == 1 else None
        if type(number) is not int or not 0 <= number < len(self._values):
            raise RowError("does not refer to a row above")
        referent = self._values[number]
        if not isinstance(referent, classes):
            raise RowError(f"refers to a row of {type(referent).__name__}")
        return referent


def _null(value: Any) -> None:
    if value is not None:
        raise RowError("must be null")


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise RowError(f"must be of {kind.__name__}")
    return value


_integer = partial(_exactly, int)


def _number(value: Any) -> float:
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if type(value) not in (int, float):
        raise RowError("must be a number")
    number: float = value
    return number


def _member(values: frozenset[Any], value: Any) -> Any:
    if not isinstance(value, str | int) or value not in values:
        raise RowError("is not one of the values")
    return value


def _first_match(readers: Sequence[Read], value: Any) -> Any:
    for read in readers[:-1]:
        try:
            return read(value)
        except (ValueError, TypeError):
            continue
    return readers[-1](value)


def _collection(kind: Callable[[Any], Any], read: Read, value: Any) -> Any:
    return kind(map(read, _exactly(list, value)))


def _fixed_tuple(readers: Sequence[Read], value: Any) -> tuple[Any, ...]:
    return tuple(read(item) for read, item in zip(readers, _exactly(list, value), strict=True))


def _mapping(kind: type[dict[Any, Any]], read_key: Read, read_item: Read, value: Any) -> Any:
    pairs = value.items() if isinstance(value, dict) else _exactly(list, value)
    return kind({read_key(key): read_item(item) for key, item in pairs})


def _id_set(kind: type[IdSet], value: Any) -> IdSet:
    return kind.parse(_exactly(str, value))


def _nanoseconds(kind: type[Instant | Duration], value: Any) -> Instant | Duration:
    if not INT64_MIN <= _integer(value) <= INT64_MAX:
        raise RowError("is beyond 64 bits")
    return kind(value)


def _quantity(value: Any) -> Quantity:
    unscaled, scale, format_name, original_text, is_int64 = _exactly(list, value)
    if abs(_integer(scale)) > _LARGEST_SCALE or (_exactly(bool, is_int64) and not fits_int64(unscaled)):
        raise RowError("is not an amount")
    return Quantity(
        _integer(unscaled),
        scale,
        QuantityFormat(format_name),
        _exactly(str, original_text),
        is_int64=is_int64,
    )


def _anything(value: Any) -> Any:
    return value


_COLLECTIONS: Mapping[Any, Callable[[Any], Any]] = {
    tuple: tuple,
    Sequence: tuple,
    Collection: tuple,
    list: list,
    set: set,
    frozenset: frozenset,
}
_ATOMS: Mapping[Any, Read] = {
    Any: _anything,
    object: _anything,
    NoneType: _null,
    str: partial(_exactly, str),
    int: _integer,
    bool: partial(_exactly, bool),
    float: _number,
    CPUSet: partial(_id_set, CPUSet),
    NUMASet: partial(_id_set, NUMASet),
    Quantity: _quantity,
    Instant: partial(_nanoseconds, Instant),
    Duration: partial(_nanoseconds, Duration),
}
