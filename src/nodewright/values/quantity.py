"""Amounts of resources as Kubernetes reads, prints and calculates them: exact, with suffix and text."""

from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Self

from nodewright.values.quantity_text import (
    BINARY_EXPONENTS,
    DECIMAL_EXPONENTS,
    Format,
    QuantityError,
    away_from_zero,
    read_amount,
)
from nodewright.values.units import INT64_MAX, fits_int64, wrap_int64

__all__ = ["ZERO", "Format", "Quantity", "QuantityError"]


_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = ("", *BINARY_EXPONENTS)


@total_ordering
class Quantity:
    """An exact amount: `unscaled` x 10**`scale`, its format, and the text that was typed where it is kept.

    Equal by amount, whatever the format; printed as Kubernetes prints it.

    Follows: v1.36, apimachinery/pkg/api/resource/quantity.go, Quantity.
    Departs: a value, never changed in place; arithmetic gives a new one. Exponents beyond 10**1000 and
        texts beyond 1,000 characters are refused, where Kubernetes would compute for minutes.

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
        return self.unscaled if self.quick and self.scale == 0 else self.scaled_value(0)

    def milli_value(self) -> int:
        """Thousandths, rounded up."""
        return self.unscaled if self.quick and self.scale == -3 else self.scaled_value(-3)

    def scaled_value(self, scale: int) -> int:
        """Units of 10**scale, rounded up (negative amounts: as Kubernetes does, see below).

        Follows: v1.36, apimachinery/pkg/api/resource/{amount,scale_int}.go. Amounts held as 64-bit
            integers round away from zero; others are cut toward zero and then raised by one.
        """
        finer = scale - self.scale
        if self.quick:
            if finer > 0:
                return away_from_zero(self.unscaled, finer)
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
            units = self._whole_units()
            if units is not None and abs(units) >= 1024:
                return _binary_text(units)
            return self._decimal_text(Format.DECIMAL_SI)
        return self._decimal_text(self.format)

    def _whole_units(self) -> int | None:
        if self.scale >= 0:
            whole: int = self.unscaled * 10**self.scale
            return whole
        units, rest = divmod(self.unscaled, 10**-self.scale)
        return None if rest else units

    def _decimal_text(self, fmt: Format) -> str:
        mantissa, exponent = _stripped(self.unscaled, self.scale)
        spare = exponent % 3
        mantissa, exponent = mantissa * 10**spare, exponent - spare
        if fmt is Format.DECIMAL_SI:
            # Beyond E Kubernetes knows no suffix and prints the mantissa alone.
            return f"{mantissa}{_DECIMAL_SUFFIXES.get(exponent, '')}"
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)

    def stored(self) -> "Quantity":
        """The same amount as it is after it was written down and read again, as the API server does.

        >>> Quantity.parse("1.5Gi").as_int64(), Quantity.parse("1.5Gi").stored().as_int64()
        (None, 1610612736)
        """
        return Quantity.parse(str(self))

    # ------------------------------------------------------------ arithmetic

    def __add__(self, other: "Quantity") -> "Quantity":
        """The sum, in the left format; in the right one where the left is zero."""
        fmt = other.format if self.unscaled == 0 else self.format
        quick = self.quick and other.quick
        if quick:
            # A zero gives its scale away.
            if other.unscaled == 0:
                return Quantity(self.unscaled, self.scale, fmt)
            if self.unscaled == 0:
                return Quantity(other.unscaled, other.scale, fmt)
        left, right, scale = self._aligned(other)
        total = left + right
        quick = quick and fits_int64(left) and fits_int64(right) and fits_int64(total)
        return Quantity(total, scale, fmt, quick=quick)

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
        units = away_from_zero(self.unscaled, scale - self.scale)
        exact = units * 10 ** (scale - self.scale) == self.unscaled
        return Quantity(units, scale, self.format, quick=self.quick), exact

    # ------------------------------------------------------------ comparing

    def compare(self, other: "Quantity") -> int:
        """-1, 0 or 1."""
        left, right, _ = self._aligned(other)
        return (left > right) - (left < right)

    def _aligned(self, other: "Quantity") -> tuple[int, int, int]:
        """Both unscaled numbers at the finer of the two scales, and that scale."""
        mine, theirs = self.scale, other.scale
        if mine == theirs:
            return self.unscaled, other.unscaled, mine
        if mine < theirs:
            return self.unscaled, other.unscaled * 10 ** (theirs - mine), mine
        return self.unscaled * 10 ** (mine - theirs), other.unscaled, theirs

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
    unscaled, scale, fmt, kept, quick = read_amount(text)
    return Quantity(unscaled, scale, fmt, kept, quick=quick)


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
