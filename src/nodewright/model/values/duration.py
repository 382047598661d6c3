"""Durations as Kubernetes writes them (`1h2m0.5s`), in whole nanoseconds."""

import re
from functools import total_ordering

from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.quantity import INT64_MAX, INT64_MIN

_UNITS_NS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MOST_DIGITS = 19  # as many as 2**63 has
_PART = lazy_pattern(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)", re.ASCII)


class DurationError(ValueError):
    """A text that is not a duration; the message is Go's."""


class Nanoseconds:
    """A number of nanoseconds, immutable; equal among values of the same kind."""

    __slots__ = ("nanoseconds",)
    nanoseconds: int

    def __init__(self, nanoseconds: int = 0) -> None:
        object.__setattr__(self, "nanoseconds", nanoseconds)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.nanoseconds,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.nanoseconds == other.nanoseconds

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.nanoseconds))


@total_ordering
class Duration(Nanoseconds):
    """A duration in whole nanoseconds, equal by length, printed in Kubernetes' notation.

    Follows: Go, time.Duration, as metav1.Duration reads and writes it.

    >>> Duration.parse("90s"), str(Duration.parse("0.5ms"))
    (Duration('1m30s'), '500µs')
    >>> Duration.parse("1m") < Duration.seconds(61)
    True
    """

    __slots__ = ()

    @classmethod
    def seconds(cls, seconds: int) -> "Duration":
        """The duration of this many seconds."""
        return cls(seconds * 10**9)

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """The duration of a text such as `1h30m` or `-1.5s`.

        Errors:  DurationError with Go's message.
        Follows: Go, time.ParseDuration.
        """
        return cls(_parse(text))

    @property
    def total_seconds(self) -> float:
        """The duration in seconds.

        A float, as the kubelet computes it: whole seconds plus the float of the rest.
        """
        sign = -1 if self.nanoseconds < 0 else 1
        whole, rest = divmod(abs(self.nanoseconds), 10**9)
        return sign * (whole + rest / 1e9)

    def __str__(self) -> str:
        size = abs(self.nanoseconds)
        sign = "-" if self.nanoseconds < 0 else ""
        if size == 0:
            return "0s"
        if size < 10**3:
            return f"{sign}{size}ns"
        if size < 10**6:
            return f"{sign}{_decimal(size, 3)}µs"
        if size < 10**9:
            return f"{sign}{_decimal(size, 6)}ms"
        minutes, nanoseconds = divmod(size, 60 * 10**9)
        hours, minutes = divmod(minutes, 60)
        head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{head}{_decimal(nanoseconds, 9)}s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    def __bool__(self) -> bool:
        return self.nanoseconds != 0

    def __lt__(self, other: "Duration") -> bool:
        return self.nanoseconds < other.nanoseconds


def _parse(text: str) -> int:
    invalid = f"time: invalid duration {_quoted(text)}"
    sign, rest = (-1 if text[:1] == "-" else 1), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(invalid)
    total = at = 0
    while at < len(rest):
        match = _PART.match(rest, at)
        assert match is not None, "the pattern matches anything, even nothing"
        whole, _, fraction, unit = match.groups()
        if not whole and not fraction:
            raise DurationError(invalid)
        whole = whole.lstrip("0") or "0"
        if len(whole) > _MOST_DIGITS:
            raise DurationError(invalid)
        if not unit:
            raise DurationError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in _UNITS_NS:
            raise DurationError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        total += int(whole) * _UNITS_NS[unit] + _fraction_ns(fraction or "", _UNITS_NS[unit])
        if total > INT64_MAX + 1:
            raise DurationError(invalid)
        at = match.end()
    if not INT64_MIN <= sign * total <= INT64_MAX:
        raise DurationError(invalid)
    return sign * total


def _fraction_ns(digits: str, unit_ns: int) -> int:
    """Nanoseconds in the digits after the point, truncated.

    Digits that would overflow 63 bits are ignored, and the rest is scaled in a float, as Go does.
    """
    number, scale = 0, 1.0
    for digit in digits:
        if number > INT64_MAX // 10 or number * 10 + int(digit) > INT64_MAX + 1:
            break
        number, scale = number * 10 + int(digit), scale * 10
    return int(float(number) * (float(unit_ns) / scale))


def _decimal(number: int, places: int) -> str:
    """The number with a point before its last places, without trailing zeros."""
    whole, rest = divmod(number, 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".") if rest else str(whole)


def _quoted(text: str) -> str:
    r"""The text in quotes as package time writes it: every byte beyond ASCII as \xNN."""
    escaped = []
    for char in text:
        if char in '"\\':
            escaped.append("\\" + char)
        elif " " <= char <= "~":
            escaped.append(char)
        else:
            escaped.extend(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
    return '"' + "".join(escaped) + '"'
