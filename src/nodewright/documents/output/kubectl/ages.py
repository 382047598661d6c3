"""Durations as kubectl prints them in columns."""

from nodewright.model.values.instant import Instant

UNKNOWN = "<unknown>"


def age(since: Instant | None, now: Instant) -> str:
    """The time since an instant, in at most two units.

    Follows: v1.36, apimachinery/pkg/util/duration/duration.go, HumanDuration; cli-runtime's tables for `<unknown>`.

    >>> age(Instant(0), Instant(90 * 10**9)), age(Instant(0), Instant(150 * 10**9))
    ('90s', '2m30s')
    >>> age(None, Instant(0))
    '<unknown>'
    """
    if since is None:
        return UNKNOWN
    # Go's integer division truncates towards zero.
    seconds = int((now.nanoseconds - since.nanoseconds) / 10**9)
    if seconds < -1:
        return "<invalid>"
    return _positive(max(0, seconds))


def _positive(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    days = hours // 24
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
