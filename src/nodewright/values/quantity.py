"""Amounts of resources as Kubernetes reads, prints and calculates them: exact, with suffix and text."""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Self

from nodewright.values.units import INT64_MAX, fits_int64, wrap_int64


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

# Texts beyond these bounds stand for no amount of anything; without them one line could cost minutes.
LONGEST_TEXT = 4000
LARGEST_EXPONENT = 10_000

_FINEST = -9  # nothing finer than 10**-9 is kept
_SHAPE = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*)([-+]?)([0-9]*)", re.ASCII)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = ("", *_BINARY_EXPONENTS)


@total_ordering
class Quantity:
    """An exact amount: `unscaled` x 10**`scale`, its format, and the text that was typed where it is kept.

    Equal by amount, whatever the format; printed as Kubernetes prints it.

    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.
    Departs: a value, never changed in place; arithmetic gives a new one. Exponents beyond 10**10000 and
        texts beyond 4,000 characters are refused, where Kubernetes would compute for minutes.

    >>> Quantity.parse("1.5Gi") + Quantity.parse("100M")
    Quantity('1710612736')
    >>> Quantity.parse("1000m") == Quantity.parse("1"), str(Quantity.parse("1024Ki"))
    (True, '1Mi')
    """

    # A plain class: a decoder would take a dataclass for an object with these fields.
    __slots__ = ("format", "kept", "quick", "scale", "unscaled")

    unscaled: int
    scale: int
    format: Format
    kept: str
    # Whether Kubernetes holds it as a 64-bit integer (`int64Amount`) and not as a decimal of any size
    # (`inf.Dec`). It shows: rounding of negative amounts and `as_int64` differ.
    quick: bool

    def __init__(
        self,
        unscaled: int = 0,
        scale: int = 0,
        fmt: Format = Format.UNSET,
        kept: str = "",
        *,
        quick: bool = True,
    ) -> None:
        put = object.__setattr__
        put(self, "unscaled", unscaled)
        put(self, "scale", scale)
        put(self, "format", fmt)
        put(self, "kept", kept)
        put(self, "quick", quick)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Quantity cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.unscaled, self.scale, self.format, self.kept, self.quick)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """The amount that a text stands for.

        Errors:  QuantityError with Kubernetes' message.
        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
        """
        return _parse(text)

    @classmethod
    def parse_json(cls, raw: str) -> "Quantity":
        """The amount in a JSON value: a string, a number or null.

        Errors:  QuantityError.
        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.UnmarshalJSON.
        """
        if raw == "null":
            return ZERO
        if len(raw) >= 2 and raw[0] == raw[-1] == '"':
            raw = raw[1:-1]
        return _parse(raw.strip())

    @classmethod
    def of(cls, units: int, fmt: Format = Format.DECIMAL_SI, *, scale: int = 0) -> Self:
        """A whole number of units of 10**scale.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, NewQuantity.
        """
        return cls(units, scale, fmt)

    @classmethod
    def of_milli(cls, milli: int, fmt: Format = Format.DECIMAL_SI) -> Self:
        """A number of thousandths."""
        return cls(milli, -3, fmt)

    # ------------------------------------------------------------ reading

    def value(self) -> int:
        """Whole units, rounded up.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.Value; beyond 64 bits the
            result wraps as there.
        """
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Thousandths, rounded up."""
        return self.scaled_value(-3)

    def scaled_value(self, scale: int) -> int:
        """Units of 10**scale, rounded up (negative amounts: as Kubernetes does, see below).

        Follows: v1.36, apimachinery/pkg/api/resource/{amount,scale_int}.go. Amounts held as 64-bit
            integers round away from zero; others are cut toward zero and then raised by one.
        """
        finer = scale - self.scale
        if self.quick:
            if finer > 0:
                return _away_from_zero(self.unscaled, finer)
            product = self.unscaled * 10 ** min(-finer, 40)
            return product if fits_int64(product) else 0
        if finer <= 0:
            return wrap_int64(self.unscaled * 10 ** min(-finer, 40))
        divisor = 10**finer
        if self.unscaled < INT64_MAX and finer < 19:
            whole = abs(self.unscaled) // divisor
            whole = -whole if self.unscaled < 0 else whole
            return wrap_int64(whole + (self.unscaled % divisor != 0))
        whole, rest = divmod(self.unscaled, divisor)
        return wrap_int64(whole + (rest != 0))

    def as_int64(self) -> int | None:
        """The exact integer if the amount is held as a whole 64-bit one, else None (`1000m` gives None).

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.AsInt64.
        """
        if not self.quick or self.scale < 0:
            return None
        whole = self.unscaled * 10 ** min(self.scale, 40)
        return whole if fits_int64(whole) else None

    def exact(self) -> Fraction:
        """The amount as a fraction."""
        return Fraction(self.unscaled) * Fraction(10) ** self.scale

    def approximate_float(self) -> float:
        """The amount as a quickly computed float, with the kubelet's rounding.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.AsApproximateFloat64.
        """
        base = _float(Fraction(self.unscaled))
        if self.scale == 0:
            return base
        if self.scale > 308:
            return base * float("inf") if base else float("nan")
        return base * 10.0**self.scale

    def as_float(self) -> float:
        """The nearest float.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.AsFloat64Slow.
        """
        return _float(self.exact())

    def is_zero(self) -> bool:
        """Whether the amount is nothing."""
        return self.unscaled == 0

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    # ------------------------------------------------------------ printing

    def __str__(self) -> str:
        return self.kept or self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def canonical(self) -> str:
        """The text worked out afresh, whatever was typed.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.CanonicalizeBytes.
        """
        if self.unscaled == 0:
            return "0"
        if self.format is Format.BINARY_SI:
            units = self.exact()
            if abs(units) >= 1024 and units.denominator == 1:
                return _binary_text(units.numerator)
            return self._decimal_text(Format.DECIMAL_SI)
        return self._decimal_text(self.format)

    def _decimal_text(self, fmt: Format) -> str:
        mantissa, exponent = _stripped(self.unscaled, self.scale)
        spare = exponent % 3
        mantissa, exponent = mantissa * 10**spare, exponent - spare
        if fmt is Format.DECIMAL_SI:
            # Beyond E Kubernetes knows no suffix and prints the mantissa alone.
            return f"{mantissa}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        if fmt is Format.UNSET:
            return str(mantissa)
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)

    # ------------------------------------------------------------ arithmetic

    def __add__(self, other: "Quantity") -> "Quantity":
        """The sum, in the left format; in the right one where the left is zero."""
        fmt = other.format if self.unscaled == 0 else self.format
        if not (self.quick and other.quick):
            scale = min(self.scale, other.scale)
            total = self.unscaled * 10 ** (self.scale - scale) + other.unscaled * 10 ** (other.scale - scale)
            return Quantity(total, scale, fmt, quick=False)
        if other.unscaled == 0:
            return Quantity(self.unscaled, self.scale, fmt)
        if self.unscaled == 0:
            return Quantity(other.unscaled, other.scale, fmt)
        scale = min(self.scale, other.scale)
        left = self.unscaled * 10 ** (self.scale - scale)
        right = other.unscaled * 10 ** (other.scale - scale)
        quick = fits_int64(left) and fits_int64(right) and fits_int64(left + right)
        return Quantity(left + right, scale, fmt, quick=quick)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """The difference, in the left format; in the right one where the left is zero."""
        return self + Quantity(-other.unscaled, other.scale, other.format, quick=other.quick)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.unscaled, self.scale, self.format, quick=self.quick)

    def times(self, factor: int) -> tuple["Quantity", bool]:
        """The product, and whether its unscaled number fits 64 bits.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.Mul.
        """
        product = self.unscaled * factor
        if self.quick:
            if self.unscaled == 0:
                return Quantity(0, self.scale, self.format), True
            if factor == 0:
                return Quantity(0, 0, self.format), True
            # It stays a 64-bit integer only where the product is a whole number of units that fits.
            whole = (
                fits_int64(product * 10 ** min(self.scale, 40))
                if self.scale >= 0
                else product % 10**-self.scale == 0
            )
            if fits_int64(product) and whole:
                return Quantity(product, self.scale, self.format), True
        return Quantity(product, self.scale, self.format, quick=False), fits_int64(product)

    def __mul__(self, factor: int) -> "Quantity":
        return self.times(factor)[0]

    def rounded_up(self, scale: int) -> tuple["Quantity", bool]:
        """The amount rounded away from zero to a multiple of 10**scale, and whether nothing was lost.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.RoundUp. An amount that is
            coarse enough already is left alone, kept text included.
        """
        if self.scale >= scale:
            if self.quick:
                return self, True
            finer = self.unscaled * 10 ** (self.scale - scale)
            return Quantity(finer, scale, self.format, quick=False), True
        units = _away_from_zero(self.unscaled, scale - self.scale)
        exact = units * 10 ** (scale - self.scale) == self.unscaled
        return Quantity(units, scale, self.format, quick=self.quick), exact

    # ------------------------------------------------------------ comparing

    def compare(self, other: "Quantity") -> int:
        """-1, 0 or 1."""
        if self.scale == other.scale:
            left, right = self.unscaled, other.unscaled
        else:
            scale = min(self.scale, other.scale)
            left = self.unscaled * 10 ** (self.scale - scale)
            right = other.unscaled * 10 ** (other.scale - scale)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __lt__(self, other: "Quantity") -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(_stripped(self.unscaled, self.scale) if self.unscaled else (0, 0))


ZERO = Quantity()


def _restored(unscaled: int, scale: int, fmt: Format, kept: str, quick: bool) -> Quantity:  # noqa: FBT001 - pickle's call
    return Quantity(unscaled, scale, fmt, kept, quick=quick)


@lru_cache(maxsize=65_536)
def _parse(text: str) -> Quantity:
    if not text:
        raise QuantityError(FORMAT_WRONG)
    if text == "0":
        return Quantity(0, 0, Format.DECIMAL_SI, text)
    match = _SHAPE.fullmatch(text)
    if match is None or len(text) > LONGEST_TEXT:
        raise QuantityError(FORMAT_WRONG)
    sign, whole, fraction, letters, exponent_sign, exponent_digits = match.groups()
    # Only zeros and nothing else: Kubernetes stops reading before it has seen a digit or a suffix.
    fraction = fraction or ""
    fmt, exponent = _suffix(letters + exponent_sign + exponent_digits)
    quick = _quick(text, sign, whole or "0", fraction, fmt, exponent)
    return quick or _slow(sign, whole, fraction, fmt, exponent, has_digits=_has_digits(text))


def _suffix(text: str) -> tuple[Format, int]:
    """The format and exponent (of 10, for binary suffixes of 2) that a suffix stands for."""
    if text in _DECIMAL_EXPONENTS:
        return Format.DECIMAL_SI, _DECIMAL_EXPONENTS[text]
    if text in _BINARY_EXPONENTS:
        return Format.BINARY_SI, _BINARY_EXPONENTS[text]
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


def _quick(text: str, sign: str, whole: str, fraction: str, fmt: Format, exponent: int) -> Quantity | None:
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
    unscaled = number * factor
    if not fits_int64(unscaled):
        return None
    if fmt is Format.BINARY_SI:
        keep = number % 8 != 0
    else:
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(-unscaled if sign == "-" else unscaled, scale, fmt, text if keep else "")


def _slow(sign: str, whole: str, fraction: str, fmt: Format, exponent: int, *, has_digits: bool) -> Quantity:
    """The amount as a decimal of any size."""
    if not has_digits:
        raise QuantityError(NUMERIC_WRONG)
    unscaled, scale = int(whole + fraction or "0"), -len(fraction)
    if fmt is Format.BINARY_SI:
        unscaled <<= exponent
    else:
        scale += exponent
    if unscaled:
        # Who asks for too little to count gets the least that counts.
        finer = _FINEST - scale
        unscaled = _away_from_zero(unscaled, finer) if finer > 0 else unscaled * 10**-finer
        scale = _FINEST
    if fmt is Format.BINARY_SI:
        units = Fraction(unscaled) * Fraction(10) ** scale
        if units > INT64_MAX:
            unscaled, scale = INT64_MAX, 0
        if 0 < units < 1:
            fmt = Format.DECIMAL_SI
    return Quantity(-unscaled if sign == "-" else unscaled, scale, fmt, quick=False)


def _has_digits(text: str) -> bool:
    number = text.lstrip("+-")
    return number[:1].isdigit() or number[1:2].isdigit()


def _away_from_zero(number: int, places: int) -> int:
    """The number divided by 10**places, rounded away from zero."""
    if places > LONGEST_TEXT * 3:
        return (number > 0) - (number < 0)
    covering: int = -(-abs(number) // 10**places)
    return -covering if number < 0 else covering


def _stripped(mantissa: int, exponent: int) -> tuple[int, int]:
    """The same amount with no factor of ten left in the mantissa, which is not zero."""
    while mantissa % 10 == 0:
        mantissa, exponent = mantissa // 10, exponent + 1
    return mantissa, exponent


def _binary_text(units: int) -> str:
    power = 0
    while units % 1024 == 0:
        units, power = units // 1024, power + 1
    return f"{units}{_BINARY_SUFFIXES[power] if power < len(_BINARY_SUFFIXES) else ''}"


def _float(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
