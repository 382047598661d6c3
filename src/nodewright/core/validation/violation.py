"""One rule of the API server that a field offends against."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias


class ErrorType(StrEnum):
    """What is wrong with a value, in the API server's words.

    Follows: v1.36, apimachinery/pkg/util/validation/field/errors.go, ErrorType.
    """

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    DUPLICATE = "Duplicate value"
    NOT_SUPPORTED = "Unsupported value"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "Not found"


Shown: TypeAlias = str | int | tuple[str, ...] | dict[str, Any]
"""A value as it is shown: structures and lists as JSON, an empty list as null."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A field, what is wrong with it, the value there (None: not shown) and the rule, if more is to be said."""

    path: str
    type: ErrorType
    value: Shown | None = None
    rule: str = ""


def invalid(path: str, value: Shown, rule: str) -> Violation:
    """The value is not of the form that is demanded."""
    return Violation(path, ErrorType.INVALID, value, rule)


def required(path: str, rule: str = "") -> Violation:
    """Something must be there."""
    return Violation(path, ErrorType.REQUIRED, None, rule)


def duplicate(path: str, value: str) -> Violation:
    """The value is taken."""
    return Violation(path, ErrorType.DUPLICATE, value)


def forbidden(path: str, rule: str) -> Violation:
    """Nothing may be there."""
    return Violation(path, ErrorType.FORBIDDEN, None, rule)


def not_supported(path: str, value: str, supported: Iterable[str]) -> Violation:
    """The value is none of those that there are."""
    values = ", ".join(f'"{one}"' for one in supported)
    return Violation(path, ErrorType.NOT_SUPPORTED, value, f"supported values: {values}")


def each_invalid(path: str, value: str, rules: Iterable[str]) -> Iterator[Violation]:
    """The value offends against each of these rules."""
    return (invalid(path, value, rule) for rule in rules)
