"""Amounts of resources as Kubernetes parses, prints and calculates them: exact, with format and text.

Also integer types for units that must not be confused, and 64-bit arithmetic.
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import NamedTuple, NewType, Self

DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in DECIMAL_EXPONENTS.items()}

BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_BINARY_SUFFIXES = ("", *BINARY_EXPONENTS)

MilliCPU = NewType("MilliCPU", int)
"""Thousandths of a CPU."""

Bytes = NewType("Bytes", int)
"""Bytes of memory or storage."""

Microseconds = NewType("Microseconds", int)
"""Microseconds, as cgroup files count CPU time."""

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


class QuantityFormat(StrEnum):
    """How an amount is printed; `UNSET` is the format of Go's zero value."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"
    UNSET = ""


@total_ordering
class Quantity:
    """An exact amount: `unscaled` x 10**`scale`, its format, and the original text if Kubernetes keeps it.

    Equal by amount, whatever the format; printed as Kubernetes prints it.

    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.
    Departs: a value, never changed in place; arithmetic gives a new one. Exponents beyond 10**1000 and
        texts beyond 1,000 characters are rejected, where Kubernetes would compute for minutes.

    >>> Quantity.parse("1.5Gi") + Quantity.parse("100M")
    Quantity('1710612736')
    >>> Quantity.parse("1000m") == Quantity.parse("1"), str(Quantity.parse("1024Ki"))
    (True, '1Mi')
    """

    # A plain class: a decoder would treat a dataclass as an object with these fields.
    __slots__ = ("format", "is_int64", "original_text", "scale", "unscaled")

    unscaled: int
    scale: int
    format: QuantityFormat
    original_text: str
    # Whether Kubernetes stores it as a 64-bit integer (`int64Amount`) instead of a decimal of any size
    # (`inf.Dec`). It matters: rounding of negative amounts and `as_int64` differ.
    is_int64: bool

    def __init__(
        self,
        unscaled: int = 0,
        scale: int = 0,
        fmt: QuantityFormat = QuantityFormat.UNSET,
        original_text: str = "",
        *,
        is_int64: bool = True,
    ) -> None:
        put = object.__setattr__
        put(self, "unscaled", unscaled)
        put(self, "scale", scale)
        put(self, "format", fmt)
        put(self, "original_text", original_text)
        put(self, "is_int64", is_int64)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Quantity cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self.unscaled, self.scale, self.format, self.original_text, self.is_int64)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """The amount of a text.

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
    def of(cls, units: int, fmt: QuantityFormat = QuantityFormat.DECIMAL_SI, *, scale: int = 0) -> Self:
        """A whole number of units of 10**scale.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, NewQuantity.
        """
        return cls(units, scale, fmt)

    @classmethod
    def of_milli(cls, milli: int, fmt: QuantityFormat = QuantityFormat.DECIMAL_SI) -> Self:
        """A number of thousandths."""
        return cls(milli, -3, fmt)

    # ------------------------------------------------------------ reading

    def value(self) -> int:
        """Whole units, rounded up.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.Value; beyond 64 bits the
            result wraps as in Kubernetes.
        """
        return self.unscaled if self.is_int64 and self.scale == 0 else self.scaled_value(0)

    def milli_value(self) -> int:
        """Thousandths, rounded up."""
        return self.unscaled if self.is_int64 and self.scale == -3 else self.scaled_value(-3)

    def scaled_value(self, scale: int) -> int:
        """Units of 10**scale, rounded up (negative amounts: as Kubernetes does, see below).

        Follows: v1.36, apimachinery/pkg/api/resource/{amount,scale_int}.go. Amounts held as 64-bit
            integers round away from zero; others are truncated toward zero and then raised by one.
        """
        finer = scale - self.scale
        if self.is_int64:
            if finer > 0:
                return rounded_away_from_zero(self.unscaled, finer)
            product = self.unscaled * 10 ** min(-finer, 40)
            return product if INT64_MIN <= product <= INT64_MAX else 0
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
        """The exact integer if the amount is stored as a whole 64-bit one, else None (`1000m` gives None).

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.AsInt64.
        """
        if not self.is_int64 or self.scale < 0:
            return None
        whole = self.unscaled * 10 ** min(self.scale, 40)
        return whole if fits_int64(whole) else None

    def as_fraction(self) -> Fraction:
        """The amount as a fraction."""
        return Fraction(self.unscaled) * Fraction(10) ** self.scale

    def approximate_float(self) -> float:
        """The amount as an approximate float, with the kubelet's rounding.

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
        return _float(self.as_fraction())

    def is_zero(self) -> bool:
        """Whether the amount is zero."""
        return self.unscaled == 0

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    # ------------------------------------------------------------ printing

    def __str__(self) -> str:
        return self.original_text or self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def canonical(self) -> str:
        """The canonical text, independent of the original text.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.CanonicalizeBytes.
        """
        if self.unscaled == 0:
            return "0"
        if self.format is QuantityFormat.BINARY_SI:
            units = self._whole_units()
            if units is not None and abs(units) >= 1024:
                return _binary_text(units)
            return self._decimal_text(QuantityFormat.DECIMAL_SI)
        return self._decimal_text(self.format)

    def _whole_units(self) -> int | None:
        if self.scale >= 0:
            whole: int = self.unscaled * 10**self.scale
            return whole
        units, rest = divmod(self.unscaled, 10**-self.scale)
        return None if rest else units

    def _decimal_text(self, fmt: QuantityFormat) -> str:
        mantissa, exponent = _stripped(self.unscaled, self.scale)
        spare = exponent % 3
        mantissa, exponent = mantissa * 10**spare, exponent - spare
        if fmt is QuantityFormat.DECIMAL_SI:
            # Beyond E Kubernetes has no suffix and prints only the mantissa.
            return f"{mantissa}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)

    def as_stored(self) -> "Quantity":
        """The same amount after printing and parsing, as the API server stores it.

        >>> Quantity.parse("1.5Gi").as_int64(), Quantity.parse("1.5Gi").as_stored().as_int64()
        (None, 1610612736)
        """
        try:
            return Quantity.parse(str(self))
        except QuantityError:  # Its text is beyond the bounds of what is read.
            return self

    # ------------------------------------------------------------ arithmetic

    def __add__(self, other: "Quantity") -> "Quantity":
        """The sum, in the left format; in the right format if the left is zero."""
        fmt = other.format if self.unscaled == 0 else self.format
        is_int64 = self.is_int64 and other.is_int64
        if is_int64:
            # The scale of a zero is dropped.
            if other.unscaled == 0:
                return Quantity(self.unscaled, self.scale, fmt)
            if self.unscaled == 0:
                return Quantity(other.unscaled, other.scale, fmt)
        left, right, scale = self._aligned(other)
        total = left + right
        is_int64 = is_int64 and fits_int64(left) and fits_int64(right) and fits_int64(total)
        return Quantity(total, scale, fmt, is_int64=is_int64)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """The difference, in the left format; in the right format if the left is zero."""
        return self + Quantity(-other.unscaled, other.scale, other.format, is_int64=other.is_int64)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.unscaled, self.scale, self.format, is_int64=self.is_int64)

    def times(self, factor: int) -> tuple["Quantity", bool]:
        """The product, and whether its unscaled number fits 64 bits.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.Mul.
        """
        product = self.unscaled * factor
        if self.is_int64:
            if self.unscaled == 0:
                return Quantity(0, self.scale, self.format), True
            if factor == 0:
                return Quantity(0, 0, self.format), True
            # It stays a 64-bit integer only if the product is a whole number of units that fits.
            whole = (
                fits_int64(product * 10 ** min(self.scale, 40))
                if self.scale >= 0
                else product % 10**-self.scale == 0
            )
            if fits_int64(product) and whole:
                return Quantity(product, self.scale, self.format), True
        return Quantity(product, self.scale, self.format, is_int64=False), fits_int64(product)

    def __mul__(self, factor: int) -> "Quantity":
        return self.times(factor)[0]

    def rounded_up(self, scale: int) -> tuple["Quantity", bool]:
        """The amount rounded away from zero to a multiple of 10**scale, and whether it is exact.

        Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.RoundUp. An amount that is
            coarse enough is returned unchanged, including its original text.
        """
        if self.scale >= scale:
            if self.is_int64:
                return self, True
            finer = self.unscaled * 10 ** (self.scale - scale)
            return Quantity(finer, scale, self.format, is_int64=False), True
        units = rounded_away_from_zero(self.unscaled, scale - self.scale)
        exact = units * 10 ** (scale - self.scale) == self.unscaled
        return Quantity(units, scale, self.format, is_int64=self.is_int64), exact

    # ------------------------------------------------------------ comparing

    def compare(self, other: "Quantity") -> int:
        """-1, 0 or 1."""
        left, right, _ = self._aligned(other)
        return (left > right) - (left < right)

    def _aligned(self, other: "Quantity") -> tuple[int, int, int]:
        """Both unscaled numbers at the finer of the two scales, and that scale."""
        left, right = self.scale, other.scale
        if left == right:
            return self.unscaled, other.unscaled, left
        if left < right:
            return self.unscaled, other.unscaled * 10 ** (right - left), left
        return self.unscaled * 10 ** (left - right), other.unscaled, right

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return False
        if self.scale == other.scale:
            return self.unscaled == other.unscaled
        return self.compare(other) == 0

    def __lt__(self, other: "Quantity") -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(_stripped(self.unscaled, self.scale) if self.unscaled else (0, 0))


class QuantityError(ValueError):
    """A text that Kubernetes does not parse as a quantity; the message is Kubernetes'."""


FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

# Texts beyond these bounds are no real amounts; without the bounds, parsing one could take minutes,
# and a sum could have more digits than Python prints.
MAX_TEXT_LENGTH = 1000
MAX_EXPONENT = 1000


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


def rounded_away_from_zero(number: int, places: int) -> int:
    """The number divided by 10**places, rounded away from zero."""
    if places > MAX_TEXT_LENGTH * 3:
        return (number > 0) - (number < 0)
    covering: int = -(-abs(number) // 10**places)
    return -covering if number < 0 else covering


def whole_amount(text: str) -> int:
    """The whole number of an amount that an option states, rounded up.

    Errors:  QuantityError.
    Departs: Kubernetes takes an amount without digits as 0, and counts as 0 what does not fit into 64 bits.

    >>> whole_amount("1.5Ki")
    1536
    """
    amount = Quantity.parse(text)
    if not any("0" <= letter <= "9" for letter in text):
        raise QuantityError(NUMERIC_WRONG)
    number = amount.value()
    if amount.sign() * number < abs(amount.sign()):
        raise QuantityError(f"must be at most {INT64_MAX}")
    return number


def wrap_int64(number: int) -> int:
    """The number after wrapping to a signed 64-bit integer.

    >>> wrap_int64(2**63)
    -9223372036854775808
    """
    return (number + 2**63) % 2**64 - 2**63


def fits_int64(number: int) -> bool:
    """Whether a signed 64-bit integer can hold the number."""
    return INT64_MIN <= number <= INT64_MAX


def _restored(
    unscaled: int,
    scale: int,
    fmt: QuantityFormat,
    original_text: str,
    is_int64: bool,  # noqa: FBT001 - pickle calls it
) -> Quantity:
    return Quantity(unscaled, scale, fmt, original_text, is_int64=is_int64)


@lru_cache(maxsize=65_536)
def _parse(text: str) -> Quantity:
    unscaled, scale, fmt, original_text, is_int64 = parse_quantity_text(text)
    return Quantity(unscaled, scale, fmt, original_text, is_int64=is_int64)


def _stripped(mantissa: int, exponent: int) -> tuple[int, int]:
    """The same amount without factors of ten in the mantissa, which is not zero."""
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


_FINEST = -9  # nothing finer than 10**-9 is stored
# Possessive quantifiers (`*+`) never backtrack, so the time is linear in the length of the text.
_SHAPE = re.compile(r"([+-]?+)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?+[0-9]*+)", re.ASCII)


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


ZERO = Quantity()
