"""Decodes plain documents, as JSON and YAML parsers return them, into objects."""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from nodewright.documents.formats.kubectl_yaml import number_text
from nodewright.model.errors import ENCODING_ERRORS
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import Quantity, QuantityError

T = TypeVar("T")
_CONTAINERS = frozenset({dict, list})


def decode(document: Any, kind: type[T], *, may_have_nulls: bool = True) -> T:
    """The document as an object of that kind; nulls count as absent, unknown fields are ignored.

    ``may_have_nulls``: False if a check has found that the document has none, which spares the search for them.

    Errors: msgspec.ValidationError at the first fault. User input is checked before, with all its
        faults at once (`schema`).
    """
    plain = without_nulls(document) if may_have_nulls and _may_have_nulls(document) else document
    return msgspec.convert(plain, kind, dec_hook=_decode_custom_type)


def _may_have_nulls(document: Any) -> bool:
    """Whether a null may be in the document: to write it as JSON takes a fifth of the time of a copy."""
    try:
        return b"null" in msgspec.json.encode(document)
    except ENCODING_ERRORS:
        return True


def decode_json(content: bytes, kind: type[T]) -> T:
    """The JSON as an object of that kind; otherwise as `decode`.

    Errors: msgspec.DecodeError.
    """
    try:
        return msgspec.json.decode(content, type=kind, dec_hook=_decode_custom_type)
    except msgspec.ValidationError:  # As of a null that means "absent".
        return decode(msgspec.json.decode(content), kind)


def without_nulls(document: Any) -> Any:
    """The document without its null members, which mean "absent" in Kubernetes."""
    # Most values are scalars: checking the type here is cheaper than a call for each.
    if isinstance(document, dict):
        return {
            key: without_nulls(value) if type(value) in _CONTAINERS else value
            for key, value in document.items()
            if value is not None
        }
    if isinstance(document, list):
        return [without_nulls(item) if type(item) in _CONTAINERS else item for item in document]
    return document


def parse_quantity(value: str | float) -> Quantity:
    """The quantity in a document; surrounding blanks are ignored.

    Errors:  QuantityError.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.UnmarshalJSON.
    """
    return Quantity.parse(value.strip() if isinstance(value, str) else number_text(value))


def _decode_custom_type(kind: type, value: Any) -> Any:
    if kind is Instant:
        if not isinstance(value, str):
            raise InstantError(f"a time is a string, not {value!r}")
        return _instant(value)
    if kind is Quantity:
        if isinstance(value, str):
            return _quantity(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise QuantityError(f"a quantity is a string or a number, not {value!r}")
        return parse_quantity(value)
    raise NotImplementedError(kind)


# Both are immutable, and objects have many equal ones.
_instant = lru_cache(maxsize=4096)(Instant.parse)
_quantity = lru_cache(maxsize=4096)(parse_quantity)
