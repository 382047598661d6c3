"""Plain documents (what JSON and YAML parsers give) into objects."""

from typing import Any, TypeVar

import msgspec

from nodewright.values.instant import Instant, InstantError
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.scalars import number_text

T = TypeVar("T")
_HOLDERS = frozenset({dict, list})


def decode(document: Any, kind: type[T]) -> T:
    """The document as an object of that kind; nulls count as absent, unknown fields are passed over.

    Errors: msgspec.ValidationError at the first fault. What people write is checked before, with all its
        faults at once (`manifests`).
    """
    return msgspec.convert(without_nulls(document), kind, dec_hook=_custom)


def without_nulls(document: Any) -> Any:
    """The document without its null members, which mean "absent" in Kubernetes."""
    # Most values hold no others: asking for their type here is cheaper than a call for each.
    if isinstance(document, dict):
        return {
            key: without_nulls(value) if type(value) in _HOLDERS else value
            for key, value in document.items()
            if value is not None
        }
    if isinstance(document, list):
        return [without_nulls(item) if type(item) in _HOLDERS else item for item in document]
    return document


def amount(value: str | float) -> Quantity:
    """The amount that a value of a document stands for; blanks around it do not count.

    Errors:  QuantityError.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.UnmarshalJSON.
    """
    return Quantity.parse(value.strip() if isinstance(value, str) else number_text(value))


def _custom(kind: type, value: Any) -> Any:
    if kind is Instant:
        if not isinstance(value, str):
            raise InstantError(f"a time is a text, not {value!r}")
        return Instant.parse(value)
    if kind is Quantity:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(f"an amount is a string or a number, not {value!r}")
        return amount(value)
    raise NotImplementedError(kind)
