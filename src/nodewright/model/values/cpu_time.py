"""Conversions between amounts of CPU and cgroup values: shares, weights, quotas.

Kubernetes counts thousandths of a CPU; cgroup v1 has shares (1024 per CPU), cgroup v2 has weights from
1 to 10000, and both have a quota of microseconds in each period.
"""

import math
from typing import NewType

from nodewright.model.values.quantity import Microseconds, MilliCPU, wrap_int64

Shares = NewType("Shares", int)
"""CPU time relative to that of sibling cgroups, in cgroup v1: from 2 to 262144."""

Weight = NewType("Weight", int)
"""CPU time relative to that of sibling cgroups, in cgroup v2: from 1 to 10000."""

MIN_SHARES, MAX_SHARES = Shares(2), Shares(262_144)
MIN_WEIGHT, MAX_WEIGHT = Weight(1), Weight(10_000)

CFS_PERIOD = Microseconds(100_000)
"""The default period."""
MIN_CFS_QUOTA = Microseconds(1000)
NO_QUOTA = Microseconds(-1)
"""The value that removes a quota."""

_SHARES_A_CPU = 1024
_FIRST_SHARES, _SHARES_SPAN, _WEIGHT_SPAN = 2, 262_142, 9999


def cpu_shares(milli: MilliCPU) -> Shares:
    """The shares for an amount of CPU; for 0 the minimum, not the kernel's default of 1024.

    Units:   thousandths of a CPU in, shares (1024 per CPU) out.
    Follows: v1.36, kubelet/cm/helpers_linux.go, MilliCPUToShares.

    >>> cpu_shares(MilliCPU(1500)), cpu_shares(MilliCPU(250)), cpu_shares(MilliCPU(0))
    (1536, 256, 2)
    """
    # Values below the minimum are raised to it, so the direction of rounding below zero does not matter.
    return Shares(max(MIN_SHARES, min(wrap_int64(milli * _SHARES_A_CPU) // 1000, MAX_SHARES)))


def shares_to_milli_cpu(shares: Shares) -> MilliCPU:
    """The amount of CPU for shares; 0 below the minimum.

    Units:   shares in, thousandths of a CPU out, rounded up.
    Follows: v1.36, kubelet/cm/helpers_linux.go, SharesToMilliCPU, which divides in 64-bit floats.

    >>> shares_to_milli_cpu(Shares(256)), shares_to_milli_cpu(Shares(1))
    (250, 0)
    """
    if shares < MIN_SHARES:
        return MilliCPU(0)
    return MilliCPU(math.ceil(float(wrap_int64(shares * 1000)) / _SHARES_A_CPU))


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


def kubelet_weight(shares: Shares) -> Weight:
    """The weight that the kubelet writes for shares, to the cgroups of pods, QoS classes and the node.

    Units:   shares, at least 2.
    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, getCPUWeight: a straight line.

    >>> kubelet_weight(Shares(2)), kubelet_weight(Shares(1024)), kubelet_weight(MAX_SHARES)
    (1, 39, 10000)
    """
    return MAX_WEIGHT if shares >= MAX_SHARES else linear_weight(shares)


def linear_weight(shares: Shares) -> Weight:
    """The weight that older runtimes write for shares, without an upper bound. For 0 shares nothing is written.

    Follows: opencontainers/runc v1.2.1, libcontainer/cgroups/utils.go, ConvertCPUSharesToCgroupV2Value.
    """
    return Weight(1 + (shares - _FIRST_SHARES) * _WEIGHT_SPAN // _SHARES_SPAN) if shares else Weight(0)


def weight_to_shares(weight: Weight) -> Shares:
    """The shares that the kubelet computes from a weight that it reads.

    Units:   weight, at least 1.
    Follows: v1.36, kubelet/cm/cgroup_v2_manager_linux.go, cpuWeightToCPUShares.

    >>> weight_to_shares(MIN_WEIGHT), weight_to_shares(MAX_WEIGHT)
    (2, 262144)
    """
    return Shares((weight - 1) * _SHARES_SPAN // _WEIGHT_SPAN + _FIRST_SHARES)


def runtime_weight(shares: Shares) -> Weight:
    """The weight that runtimes write for shares, to the cgroups of containers. For 0 shares nothing is written.

    A curve through the minima, the maxima and the kernel's defaults: 1024 shares are a weight of 100.

    Follows: opencontainers/cgroups v0.0.6, utils.go, ConvertCPUSharesToCgroupV2Value (runc 1.3.2, crun 1.23 on).

    >>> runtime_weight(MIN_SHARES), runtime_weight(Shares(1024)), runtime_weight(MAX_SHARES)
    (1, 100, 10000)
    """
    if shares == 0:
        return Weight(0)
    if shares <= MIN_SHARES:
        return MIN_WEIGHT
    if shares >= MAX_SHARES:
        return MAX_WEIGHT
    # Floats as in runc. Only 1024 results in a whole number, and exactly; no other is near enough for the last
    # binary digit, in which libraries may differ, to matter.
    power = math.log2(shares)
    return Weight(math.ceil(10 ** ((power * power + 125 * power) / 612.0 - 7.0 / 34.0)))
