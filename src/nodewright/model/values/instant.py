"""Timestamps as Kubernetes writes them (`2026-01-31T12:00:00Z`), in whole nanoseconds since 1970."""

from functools import lru_cache, total_ordering

from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.bounded_cache import cached_texts
from nodewright.model.values.duration import Nanoseconds

_TEXT = lazy_pattern(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})"
    r"(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_DAYS_IN_400_YEARS = 146_097
_DAYS_BEFORE_1970 = 719_528  # from the first day of year 0


class InstantError(ValueError):
    """A text that is not a timestamp."""


@total_ordering
class Instant(Nanoseconds):
    """A timestamp, equal and ordered by time, independently of its time zone.

    Follows: Go, time.Parse with time.RFC3339, as metav1.Time reads it.

    >>> Instant.parse("1970-01-02T00:00:00Z").nanoseconds == 86_400 * 10**9
    True
    >>> Instant.parse("2026-01-31T13:00:00+01:00") == Instant.parse("2026-01-31T12:00:00Z")
    True
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Instant":
        """The timestamp of a text in the format of RFC 3339.

        Digits beyond nanoseconds are truncated.
        Errors: InstantError.
        """
        return cls(_nanoseconds(text))

    @property
    def whole_second(self) -> "Instant":
        """The timestamp truncated to a second, as in API objects."""
        return Instant(self.nanoseconds // 10**9 * 10**9)

    def __str__(self) -> str:
        """As Kubernetes writes it, in UTC; with fractions of a second only if there are any.

        >>> str(Instant.parse("2024-02-29T23:59:59.250+01:00"))
        '2024-02-29T22:59:59.25Z'
        >>> str(Instant(0))
        '1970-01-01T00:00:00Z'
        """
        seconds, rest = divmod(self.nanoseconds, 10**9)
        days, seconds = divmod(seconds, 86_400)
        year, month, day = _date(days)
        fraction = f".{rest:09}".rstrip("0") if rest else ""
        minutes, second = divmod(seconds, 60)
        return f"{year:04}-{month:02}-{day:02}T{minutes // 60:02}:{minutes % 60:02}:{second:02}{fraction}Z"

    def __repr__(self) -> str:
        return f"Instant({self.nanoseconds})"

    def __lt__(self, other: "Instant") -> bool:
        return self.nanoseconds < other.nanoseconds


ZERO_TIME = Instant(-62_135_596_800 * 10**9)
"""The beginning of year 1: Go's zero time."""


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


# A live pod has a dozen timestamps, most of them within a few seconds of each other.
@cached_texts(1024)
def _nanoseconds(text: str) -> int:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise InstantError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, sign, offset_h, offset_min = match.groups()[6:]
    offset_h, offset_min = int(offset_h or 0), int(offset_min or 0)
    if not (1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        raise InstantError(f"{text!r} names a day that does not exist")
    # Go accepts offsets of 24 hours and of 60 minutes.
    if hour > 23 or minute > 59 or second > 59 or offset_h > 24 or offset_min > 60:
        raise InstantError(f"{text!r} names a time of day that does not exist")
    seconds = (_days_since_1970(year, month, day) * 24 + hour) * 3600 + minute * 60 + second
    offset = offset_h * 3600 + offset_min * 60
    seconds += offset if sign == "-" else -offset
    return seconds * 10**9 + int((fraction or "")[:9].ljust(9, "0"))


def _days_in(year: int, month: int) -> int:
    if month == 2 and _is_leap(year):
        return 29
    return _DAYS_BEFORE_MONTH[month] - _DAYS_BEFORE_MONTH[month - 1]


def _days_since_1970(year: int, month: int, day: int) -> int:
    leap_days = (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400  # in the years before this one
    in_year = _DAYS_BEFORE_MONTH[month - 1] + day - 1 + (1 if month > 2 and _is_leap(year) else 0)
    return year * 365 + leap_days + in_year - _DAYS_BEFORE_1970


@lru_cache(64)
def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a number of days since 1970."""
    cycles, day_of_cycle = divmod(days + _DAYS_BEFORE_1970, _DAYS_IN_400_YEARS)
    # Leap days of 400 years are fewer than a year: this is the year or the one after it.
    year = 400 * cycles + day_of_cycle // 365
    if _days_since_1970(year, 1, 1) > days:
        year -= 1
    month = next(month for month in range(12, 0, -1) if _days_since_1970(year, month, 1) <= days)
    return year, month, days - _days_since_1970(year, month, 1) + 1


def micro_time(instant: Instant) -> str:
    """The time with six digits after the point, as metav1.MicroTime is written.

    >>> micro_time(Instant(1_500_000_000))
    '1970-01-01T00:00:01.500000Z'
    """
    microseconds = instant.nanoseconds % 10**9 // 1_000
    return f"{str(instant.whole_second).removesuffix('Z')}.{microseconds:06}Z"
