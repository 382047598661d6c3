"""CPU time in cgroups: shares, and quotas in microseconds of each period for thousandths of a CPU."""

from typing import NewType

from nodewright.model.values.quantity import Microseconds, MilliCPU, wrap_int64

Shares = NewType("Shares", int)
"""CPU time relative to that of sibling cgroups, in cgroup v1: from 2 to 262144."""

CFS_PERIOD = Microseconds(100_000)
"""The default period."""
MIN_CFS_QUOTA = Microseconds(1000)
NO_QUOTA = Microseconds(-1)
"""The value that removes a quota."""


def cpu_quota(milli: MilliCPU, period: Microseconds = CFS_PERIOD) -> Microseconds:
    """CPU time that may be used in each period; 0 for no limit, and never less than a millisecond.

    Units:   thousandths of a CPU in, microseconds per period out, rounded down.
    Follows: v1.36, kubelet/cm/helpers_linux.go, MilliCPUToQuota.

    >>> cpu_quota(MilliCPU(500)), cpu_quota(MilliCPU(1)), cpu_quota(MilliCPU(0))
    (50000, 1000, 0)
    """
    if milli == 0:
        return Microseconds(0)
    # Values below the minimum are raised to it, so the direction of rounding below zero does not matter.
    return Microseconds(max(MIN_CFS_QUOTA, wrap_int64(milli * period) // 1000))


def quota_to_milli_cpu(quota: Microseconds, period: Microseconds) -> MilliCPU:
    """The amount of CPU for a quota; 0 for no quota.

    Units:   microseconds per period in, thousandths of a CPU out, truncated toward zero.
    Follows: v1.36, kubelet/cm/helpers_linux.go, QuotaToMilliCPU.

    >>> quota_to_milli_cpu(Microseconds(50000), CFS_PERIOD), quota_to_milli_cpu(NO_QUOTA, CFS_PERIOD)
    (500, 0)
    """
    if quota == NO_QUOTA:
        return MilliCPU(0)
    scaled = wrap_int64(quota * 1000)
    return MilliCPU(scaled // period if scaled >= 0 else -(-scaled // period))
