"""Reading the texts that Kubernetes takes for amounts."""

import re
from enum import StrEnum
from typing import NamedTuple

from nodewright.values.units import INT64_MAX, fits_int64


class Format(StrEnum):
    """How an amount is printed; `UNSET` is the format of a zero that nobody wrote."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"
    UNSET = ""


class QuantityError(ValueError):
    """A text that Kubernetes does not take for an amount; the message is Kubernetes' own."""


FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

# Texts beyond these bounds stand for no amount of anything; without them one line could cost minutes,
# and a sum have more digits than Python prints.
LONGEST_TEXT = 1000
LARGEST_EXPONENT = 1000

_FINEST = -9  # nothing finer than 10**-9 is kept
# Nothing that was read is given back (`*+`): a scanner, whose time grows with the length of the text.
_SHAPE = re.compile(r"([+-]?+)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?+[0-9]*+)", re.ASCII)
DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class Reading(NamedTuple):
    """What a text stands for: the fields of a `Quantity`."""

    unscaled: int
    scale: int
    format: Format
    kept: str
    quick: bool


def read_amount(text: str) -> Reading:
    """What the text stands for, exactly.

    Errors:  QuantityError with Kubernetes' message.
    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    if not text:
        raise QuantityError(FORMAT_WRONG)
    if text == "0":
        return Reading(0, 0, Format.DECIMAL_SI, text, quick=True)
    match = _SHAPE.fullmatch(text) if len(text) <= LONGEST_TEXT else None
    if match is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, whole, fraction, suffix = match.groups(default="")
    fmt, exponent = _suffix(suffix)
    quick = _quick(text, sign, whole or "0", fraction, fmt, exponent)
    if quick is not None:
        return quick
    if not (zeros or whole or fraction):
        raise QuantityError(NUMERIC_WRONG)
    return _slow(sign, whole, fraction, fmt, exponent)


def _suffix(text: str) -> tuple[Format, int]:
    """The format and exponent (of 10, for binary suffixes of 2) that a suffix stands for."""
    if text in DECIMAL_EXPONENTS:
        return Format.DECIMAL_SI, DECIMAL_EXPONENTS[text]
    if text in BINARY_EXPONENTS:
        return Format.BINARY_SI, BINARY_EXPONENTS[text]
    if len(text) > 1 and text[0] in "eE":
        try:
            parsed = int(text[1:])
        except ValueError:
            raise QuantityError(SUFFIX_WRONG) from None
        if not fits_int64(parsed):
            raise QuantityError(SUFFIX_WRONG)
        exponent = (parsed + 2**31) % 2**32 - 2**31  # cut to its low 32 bits, as there
        if abs(exponent) > LARGEST_EXPONENT:
            raise QuantityError(SUFFIX_WRONG)
        return Format.DECIMAL_EXPONENT, exponent
    raise QuantityError(SUFFIX_WRONG)


def _quick(text: str, sign: str, whole: str, fraction: str, fmt: Format, exponent: int) -> Reading | None:
    """The amount as a 64-bit integer where Kubernetes holds it so, else None."""
    digits = whole + fraction
    if fmt is Format.BINARY_SI:
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
    unscaled = number * factor  # fits 64 bits by the numbers of digits above
    if fmt is Format.BINARY_SI:
        keep = number % 8 != 0
    else:
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    kept = text if keep else ""
    return Reading(-unscaled if sign == "-" else unscaled, scale, fmt, kept, quick=True)


def _slow(sign: str, whole: str, fraction: str, fmt: Format, exponent: int) -> Reading:
    """The amount as a decimal of any size."""
    unscaled, scale = int(whole + fraction or "0"), -len(fraction)
    if fmt is Format.BINARY_SI:
        unscaled <<= exponent
    else:
        scale += exponent
    if unscaled:
        # Who asks for too little to count gets the least that counts.
        finer = _FINEST - scale
        unscaled = away_from_zero(unscaled, finer) if finer > 0 else unscaled * 10**-finer
        scale = _FINEST
    if fmt is Format.BINARY_SI:
        one = 10**-scale
        if unscaled > INT64_MAX * one:
            unscaled, scale = INT64_MAX, 0
        elif 0 < unscaled < one:
            fmt = Format.DECIMAL_SI
    return Reading(-unscaled if sign == "-" else unscaled, scale, fmt, "", quick=False)


def away_from_zero(number: int, places: int) -> int:
    """The number divided by 10**places, rounded away from zero."""
    if places > LONGEST_TEXT * 3:
        return (number > 0) - (number < 0)
    covering: int = -(-abs(number) // 10**places)
    return -covering if number < 0 else covering
