"""Go's types as values: enough of them to say what the kubelet's state files are made of.

A value of such a type is plain Python: `str`, `int`, `bytes`, `list` and `dict`, a structure a `dict` by Go's
field names; None is Go's nil.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """A string type."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class Whole:
    """A type of whole numbers, with the least and the largest it holds."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ByteList:
    """`[]byte`: in JSON a text in base64."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A slice."""

    name: str
    item: "GoType"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map."""

    name: str
    key: "Text | Whole"
    item: "GoType"


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer to a structure."""

    to: "Struct"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a structure: its name in Go and in JSON."""

    name: str
    json: str
    type: "GoType"
    omits_empty: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure; ``name`` is qualified by its package."""

    name: str
    fields: tuple[Field, ...]

    @property
    def short_name(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Converted:
    """A structure that is another one in JSON."""

    memory: Struct
    json: Struct
    from_json: Callable[[Any], Any]
    """Errors: ValueError."""
    to_json: Callable[[Any], Any]


GoType: TypeAlias = Text | Whole | ByteList | ListOf | MapOf | Pointer | Struct | Converted

TEXT = Text()
RESOURCE_NAME = Text("v1.ResourceName")
INT = Whole("int", -(2**63), 2**63 - 1)
INT64 = Whole("int64", -(2**63), 2**63 - 1)
UINT64 = Whole("uint64", 0, 2**64 - 1)
CHECKSUM = Whole("checksum.Checksum", 0, 2**64 - 1)


def zero(kind: GoType) -> Any:
    """The value that a variable of the type begins with."""
    match kind:
        case Text():
            return ""
        case Whole():
            return 0
        case Struct(fields=fields):
            return {field.name: zero(field.type) for field in fields}
        case Converted(memory=memory):
            return zero(memory)
        case _:
            return None
