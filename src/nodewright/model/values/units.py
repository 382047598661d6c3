"""Integer types for units that must not be confused, and 64-bit arithmetic."""

from typing import NewType

MilliCPU = NewType("MilliCPU", int)
"""Thousandths of a CPU."""

Bytes = NewType("Bytes", int)
"""Bytes of memory or storage."""

Microseconds = NewType("Microseconds", int)
"""Microseconds, as cgroup files count CPU time."""

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def wrap_int64(number: int) -> int:
    """The number after wrapping to a signed 64-bit integer.

    >>> wrap_int64(2**63)
    -9223372036854775808
    """
    return (number + 2**63) % 2**64 - 2**63


def fits_int64(number: int) -> bool:
    """Whether a signed 64-bit integer can hold the number."""
    return INT64_MIN <= number <= INT64_MAX
