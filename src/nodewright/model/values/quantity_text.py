"""Parsing of texts that Kubernetes accepts as quantities."""

import re
from enum import StrEnum
from typing import NamedTuple

from nodewright.model.values.units import INT64_MAX, fits_int64


class QuantityFormat(StrEnum):
    """How an amount is printed; `UNSET` is the format of Go's zero value."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"
    UNSET = ""


class QuantityError(ValueError):
    """A text that Kubernetes does not parse as a quantity; the message is Kubernetes'."""


FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

# Texts beyond these bounds are no real amounts; without the bounds, parsing one could take minutes,
# and a sum could have more digits than Python prints.
MAX_TEXT_LENGTH = 1000
MAX_EXPONENT = 1000

_FINEST = -9  # nothing finer than 10**-9 is stored
# Possessive quantifiers (`*+`) never backtrack, so the time is linear in the length of the text.
_SHAPE = re.compile(r"([+-]?+)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?+[0-9]*+)", re.ASCII)
DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class ParsedQuantity(NamedTuple):
    """A parsed text: the fields of a `Quantity`."""

    unscaled: int
    scale: int
    format: QuantityFormat
    original_text: str
    is_int64: bool


def parse_quantity_text(text: str) -> ParsedQuantity:
    """The exact amount of the text.

    Errors:  QuantityError with Kubernetes' message.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    if not text:
        raise QuantityError(FORMAT_WRONG)
    if text == "0":
        return ParsedQuantity(0, 0, QuantityFormat.DECIMAL_SI, text, is_int64=True)
    match = _SHAPE.fullmatch(text) if len(text) <= MAX_TEXT_LENGTH else None
    if match is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, whole, fraction, suffix = match.groups(default="")
    fmt, exponent = _suffix(suffix)
    int64_amount = _int64_amount(text, sign, whole or "0", fraction, fmt, exponent)
    if int64_amount is not None:
        return int64_amount
    if not (zeros or whole or fraction):
        raise QuantityError(NUMERIC_WRONG)
    return _decimal_amount(sign, whole, fraction, fmt, exponent)


def _suffix(text: str) -> tuple[QuantityFormat, int]:
    """The format and exponent (of 10, for binary suffixes of 2) of a suffix."""
    if text in DECIMAL_EXPONENTS:
        return QuantityFormat.DECIMAL_SI, DECIMAL_EXPONENTS[text]
    if text in BINARY_EXPONENTS:
        return QuantityFormat.BINARY_SI, BINARY_EXPONENTS[text]
    if len(text) > 1 and text[0] in "eE":
        try:
            parsed = int(text[1:])
        except ValueError:
            raise QuantityError(SUFFIX_WRONG) from None
        if not fits_int64(parsed):
            raise QuantityError(SUFFIX_WRONG)
        exponent = (parsed + 2**31) % 2**32 - 2**31  # truncated to its low 32 bits, as in Kubernetes
        if abs(exponent) > MAX_EXPONENT:
            raise QuantityError(SUFFIX_WRONG)
        return QuantityFormat.DECIMAL_EXPONENT, exponent
    raise QuantityError(SUFFIX_WRONG)


def _int64_amount(
    text: str, sign: str, whole: str, fraction: str, fmt: QuantityFormat, exponent: int
) -> ParsedQuantity | None:
    """The amount as a 64-bit integer if Kubernetes stores it so, else None."""
    digits = whole + fraction
    if fmt is QuantityFormat.BINARY_SI:
        # `exponent * 3 / 10` in 32-bit floats is exact enough for 10 to 60.
        if fraction or 15 - len(whole) - exponent * 3 // 10 - 1 < 0:
            return None
        scale, factor = 0, 1 << exponent
    else:
        if len(digits) > 18:
            return None
        scale, factor = exponent - len(fraction), 1
    if scale < _FINEST:
        return None
    number = int(digits)
    unscaled = number * factor  # fits 64 bits because of the limits on digits above
    if fmt is QuantityFormat.BINARY_SI:
        is_kept = number % 8 != 0
    else:
        is_kept = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    original_text = text if is_kept else ""
    return ParsedQuantity(-unscaled if sign == "-" else unscaled, scale, fmt, original_text, is_int64=True)


def _decimal_amount(
    sign: str, whole: str, fraction: str, fmt: QuantityFormat, exponent: int
) -> ParsedQuantity:
    """The amount as a decimal of any size."""
    unscaled, scale = int(whole + fraction or "0"), -len(fraction)
    if fmt is QuantityFormat.BINARY_SI:
        unscaled <<= exponent
    else:
        scale += exponent
    if unscaled:
        # Amounts below the finest unit are rounded up to it.
        finer = _FINEST - scale
        unscaled = rounded_away_from_zero(unscaled, finer) if finer > 0 else unscaled * 10**-finer
        scale = _FINEST
    if fmt is QuantityFormat.BINARY_SI:
        unit = 10**-scale
        if unscaled > INT64_MAX * unit:
            unscaled, scale = INT64_MAX, 0
        elif 0 < unscaled < unit:
            fmt = QuantityFormat.DECIMAL_SI
    return ParsedQuantity(-unscaled if sign == "-" else unscaled, scale, fmt, "", is_int64=False)


def rounded_away_from_zero(number: int, places: int) -> int:
    """The number divided by 10**places, rounded away from zero."""
    if places > MAX_TEXT_LENGTH * 3:
        return (number > 0) - (number < 0)
    covering: int = -(-abs(number) // 10**places)
    return -covering if number < 0 else covering
