"""Schemas compiled for msgspec, which finds out in C that a document has no faults; `schema` finds what the faults are.

Compiling takes some milliseconds, so it is worth it only for types of which many documents are checked.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Any

import msgspec

from nodewright.documents.formats.decode import INTEGER_BOUNDS, SchemaType, parse_quantity, schema_type
from nodewright.model.values.instant import Instant


def is_plain(document: Any, type_name: str) -> bool:
    """Whether the document is known to have no faults, no nulls and no parts without a schema; False: it may have some."""
    try:
        msgspec.convert(document, _compiled(type_name), dec_hook=_accept_scalar)
    except (msgspec.ValidationError, RecursionError, OverflowError):
        return False
    return True


class _Amount:
    """A quantity."""


class _Time:
    """A time as Kubernetes writes it."""


class _Unknown:
    """A value that is not described, or only by `schema`: no document with one is known to have no faults."""


def _accept_scalar(kind: type, value: Any) -> object:
    """A placeholder for a value of the kind.

    Errors: ValueError, which makes the document one that `schema` has to check.
    """
    if type(value) is str:
        if kind is _Time:
            return _accept_time(value)
        if kind is _Amount:
            return _accept_amount(value)
    raise ValueError(value)


@lru_cache(maxsize=4096)
def _accept_time(text: str, accepted: _Time = _Time()) -> _Time:  # noqa: B008 - one placeholder for all
    Instant.parse(text)
    return accepted


@lru_cache(maxsize=4096)
def _accept_amount(text: str, accepted: _Amount = _Amount()) -> _Amount:  # noqa: B008 - as above
    parse_quantity(text)
    return accepted


@cache
def _compiled(type_name: str) -> Any:
    return _Compiler().type_of(schema_type(type_name))


class _Compiler:
    """Compiles each type once; a type that contains itself is left to `schema`."""

    def __init__(self) -> None:
        self._types: dict[int, Any] = {}

    def type_of(self, schema: SchemaType) -> Any:
        """The type that accepts plain values of the schema only."""
        if id(schema) not in self._types:
            self._types[id(schema)] = _Unknown  # while it is compiled
            self._types[id(schema)] = self._compile(schema)
        return self._types[id(schema)]

    def _compile(self, schema: SchemaType) -> Any:
        if schema.fields is not None:
            return self._struct(schema, schema.fields)
        if schema.kind == "list" and schema.item is not None:
            return _LIST[self.type_of(schema.item)]
        if schema.kind == "map" and schema.item is not None:
            # `schema` notes of every mapping of anything that it may have nulls, also of an empty one.
            return _Unknown if schema.item.kind == "any" else _MAPPING[str, self.type_of(schema.item)]
        scalar = _SCALARS.get(schema.kind, _Unknown)
        is_union = schema.kind in INTEGER_BOUNDS and str in schema.accepts and scalar is not _Unknown
        return scalar | str if is_union else scalar

    def _struct(self, schema: SchemaType, fields: Mapping[str, SchemaType]) -> Any:
        names = {f"field{number}": name for number, name in enumerate(fields)}
        members = [
            (field, self.type_of(fields[name]))
            if name in schema.required
            else (field, self.type_of(fields[name]), None)
            for field, name in names.items()
        ]
        return msgspec.defstruct(
            "Compiled", members, kw_only=True, forbid_unknown_fields=True, gc=False, rename=names
        )


_LIST: Any = list
_MAPPING: Any = dict
_SCALARS: dict[str, Any] = {
    "str": str,
    "bool": bool,
    "float": float,
    **{
        kind: Annotated[int, msgspec.Meta(ge=INTEGER_BOUNDS[kind][0], le=INTEGER_BOUNDS[kind][1])]
        for kind in ("int32", "int64")
    },
    "quantity": _Amount,
    "time": _Time,
}
