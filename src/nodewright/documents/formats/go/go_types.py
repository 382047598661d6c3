"""Go's types as values: those that the kubelet's state files consist of.

A value of such a type is plain Python: `str`, `int`, `bytes`, `list` or `dict`; a struct is a `dict` by Go's
field names; None is Go's nil.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec


class StringType(msgspec.Struct, frozen=True):
    """A string type."""

    name: str = "string"


class IntegerType(msgspec.Struct, frozen=True):
    """An integer type, with the smallest and the largest value that it holds."""

    name: str
    minimum: int
    maximum: int


class ByteSlice(msgspec.Struct, frozen=True):
    """`[]byte`: in JSON a string in base64."""

    name: str = "[]uint8"


class SliceOf(msgspec.Struct, frozen=True):
    """A slice."""

    name: str
    item: "GoType"


class MapOf(msgspec.Struct, frozen=True):
    """A map."""

    name: str
    key: "StringType | IntegerType"
    item: "GoType"


class Pointer(msgspec.Struct, frozen=True):
    """A pointer to a struct."""

    to: "Struct"


class Field(msgspec.Struct, frozen=True):
    """A field of a struct: its name in Go and in JSON."""

    name: str
    json: str
    type: "GoType"
    omits_empty: bool = False


class Struct(msgspec.Struct, frozen=True):
    """A struct; ``name`` is qualified by its package."""

    name: str
    fields: tuple[Field, ...]

    @property
    def short_name(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]


class Converted(msgspec.Struct, frozen=True):
    """A struct with a custom JSON form, which is another struct."""

    memory: Struct
    json: Struct
    from_json: Callable[[Any], Any]
    """Errors: ValueError."""
    to_json: Callable[[Any], Any]


GoType: TypeAlias = StringType | IntegerType | ByteSlice | SliceOf | MapOf | Pointer | Struct | Converted

STRING = StringType()
RESOURCE_NAME = StringType("v1.ResourceName")
INT = IntegerType("int", -(2**63), 2**63 - 1)
INT64 = IntegerType("int64", -(2**63), 2**63 - 1)
UINT64 = IntegerType("uint64", 0, 2**64 - 1)
CHECKSUM = IntegerType("checksum.Checksum", 0, 2**64 - 1)


def zero_value(kind: GoType) -> Any:
    """The zero value of the type."""
    match kind:
        case StringType():
            return ""
        case IntegerType():
            return 0
        case Struct(fields=fields):
            return {field.name: zero_value(field.type) for field in fields}
        case Converted(memory=memory):
            return zero_value(memory)
        case _:
            return None
