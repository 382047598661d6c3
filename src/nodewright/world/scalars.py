"""What a plain YAML scalar stands for, by kubectl's rules."""

import math
import re
from decimal import Decimal
from functools import lru_cache

from nodewright.values.units import INT64_MAX, INT64_MIN

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_NOT_FINITE = frozenset(
    f"{sign}{word}"
    for sign, words in (
        ("", (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")),
        ("+", (".inf", ".Inf", ".INF")),
        ("-", (".inf", ".Inf", ".INF")),
    )
    for word in words
)
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_UINT64_MAX = 2**64 - 1
_LEAST_PLAIN, _PLAIN_FLOAT = 1e-6, 1e21  # beyond, Go writes floats with an exponent


class NotJSON(ValueError):  # noqa: N818 - named for what it says
    """A scalar that JSON has no value for."""


@lru_cache(maxsize=16_384)
def resolve(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar, as it is after kubectl has turned the YAML into JSON.

    Follows: go.yaml.in/yaml v2.4, resolve.go, resolve; whole floats become integers on the way through JSON.
    Errors:  NotJSON for infinities and what is not a number.

    >>> [resolve(text) for text in ("on", "0o17", "08", "1e3", "1.50", "2026-01-01", "~")]
    [True, 15, 8, 1000, 1.5, '2026-01-01', None]
    """
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first not in "+-.0123456789":
        return text
    if text in _NOT_FINITE:
        raise NotJSON(f"{text} is no value in JSON")
    # A leading dot is read as it stands, everything else without its underscores.
    plain = text if first == "." else text.replace("_", "")
    number = _integer(plain)
    if number is not None:
        return number
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        if math.isfinite(value):
            return whole_if_it_is(value)
    return text


def whole_if_it_is(value: float) -> int | float:
    """The number as an integer where Go writes it without a fraction, so that it comes back as one."""
    # By way of the digits that are written: 2**64 comes back as 18446744073709552000.
    return int(Decimal(repr(value))) if value.is_integer() and abs(value) < _PLAIN_FLOAT else value


def number_text(value: float) -> str:
    """The number as Go writes it into JSON, which is what an amount is read from.

    >>> number_text(0.00005), number_text(2), number_text(1e30)
    ('0.00005', '2', '1e+30')
    """
    if isinstance(value, float) and _LEAST_PLAIN <= abs(value) < 1:
        return format(Decimal(repr(value)), "f")
    return repr(value)


def key_text(value: object) -> str | None:
    """The key that a resolved scalar makes; None for what can be no key."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return None


def _integer(text: str) -> int | None:
    """The 64-bit integer that the text stands for in Go's notation."""
    match = _INTEGER.fullmatch(text)
    if match is None or len(text) > 70:  # 64 binary digits, a prefix and a sign
        return None
    sign, *digits = match.groups()
    for base, part in zip(_BASES, digits, strict=True):
        if part is not None:
            number = int(part, base)
            number = -number if sign == "-" else number
            # Beyond the signed ones Go tries unsigned integers, which take no sign.
            most = INT64_MAX if sign else _UINT64_MAX
            return number if INT64_MIN <= number <= most else None
    raise AssertionError(text)
