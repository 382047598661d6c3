"""Whole-number units that must not be confused, and the conversions between them."""

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
    """The number as signed 64-bit arithmetic leaves it.

    >>> wrap_int64(2**63)
    -9223372036854775808
    """
    return (number + 2**63) % 2**64 - 2**63


def fits_int64(number: int) -> bool:
    """Whether a signed 64-bit integer can hold the number."""
    return INT64_MIN <= number <= INT64_MAX


CPU_SHARES_MIN, CPU_SHARES_MAX = 2, 262_144


def cpu_shares(milli: MilliCPU) -> int:
    """The weight that a cgroup gets for an amount of CPU.

    Units:   thousandths of a CPU in, shares (1024 a CPU) out.
    Follows: v1.36, kubelet/cm/helpers_linux.go, MilliCPUToShares.

    >>> cpu_shares(MilliCPU(1500)), cpu_shares(MilliCPU(0))
    (1536, 2)
    """
    # Less than the least weight is cut to it, so that the direction of rounding below zero does not show.
    return max(CPU_SHARES_MIN, min(wrap_int64(milli * 1024) // 1000, CPU_SHARES_MAX))
