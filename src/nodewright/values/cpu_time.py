"""CPU time in the numbers of cgroups: shares, weights, quotas, and back.

Kubernetes counts thousandths of a CPU; version 1 of cgroups has shares (1024 a CPU), version 2 has weights from
1 to 10000, and both have a quota of microseconds in each period.
"""

import math
from typing import NewType

from nodewright.values.units import Microseconds, MilliCPU, wrap_int64

Shares = NewType("Shares", int)
"""CPU time in proportion to that of neighbours, as version 1 counts it: from 2 to 262144."""

Weight = NewType("Weight", int)
"""The same as version 2 counts it: from 1 to 10000."""

SHARES_MIN, SHARES_MAX = Shares(2), Shares(262_144)
WEIGHT_MIN, WEIGHT_MAX = Weight(1), Weight(10_000)

CFS_PERIOD = Microseconds(100_000)
"""The period where none is configured."""
CFS_QUOTA_MIN = Microseconds(1000)
NO_QUOTA = Microseconds(-1)
"""What is written to lift a quota."""

_SHARES_A_CPU = 1024
_FIRST_SHARES, _SHARES_SPAN, _WEIGHT_SPAN = 2, 262_142, 9999


def cpu_shares(milli: MilliCPU) -> Shares:
    """The shares that a cgroup gets for an amount of CPU; for none the least, not the kernel's default of 1024.

    Units:   thousandths of a CPU in, shares (1024 a CPU) out.
    Follows: v1.36, kubelet/cm/helpers_linux.go, MilliCPUToShares.

    >>> cpu_shares(MilliCPU(1500)), cpu_shares(MilliCPU(250)), cpu_shares(MilliCPU(0))
    (1536, 256, 2)
    """
    # Less than the least weight is cut to it, so that the direction of rounding below zero does not show.
    return Shares(max(SHARES_MIN, min(wrap_int64(milli * _SHARES_A_CPU) // 1000, SHARES_MAX)))


def milli_of_shares(shares: Shares) -> MilliCPU:
    """The amount of CPU that shares stand for; 0 for less than the least shares.

    Units:   shares in, thousandths of a CPU out, rounded up.
    Follows: v1.36, kubelet/cm/helpers_linux.go, SharesToMilliCPU, which divides in 64-bit floats.

    >>> milli_of_shares(Shares(256)), milli_of_shares(Shares(1))
    (250, 0)
    """
    if shares < SHARES_MIN:
        return MilliCPU(0)
    return MilliCPU(math.ceil(float(wrap_int64(shares * 1000)) / _SHARES_A_CPU))


def cpu_quota(milli: MilliCPU, period: Microseconds = CFS_PERIOD) -> Microseconds:
    """CPU time that may be used in each period; 0 for no limit, and never less than a millisecond.

    Units:   thousandths of a CPU in, microseconds a period out, rounded down.
    Follows: v1.36, kubelet/cm/helpers_linux.go, MilliCPUToQuota.

    >>> cpu_quota(MilliCPU(500)), cpu_quota(MilliCPU(1)), cpu_quota(MilliCPU(0))
    (50000, 1000, 0)
    """
    if milli == 0:
        return Microseconds(0)
    # What is below the least quota is raised to it, so that the direction of rounding below zero does not show.
    return Microseconds(max(CFS_QUOTA_MIN, wrap_int64(milli * period) // 1000))


def milli_of_quota(quota: Microseconds, period: Microseconds) -> MilliCPU:
    """The amount of CPU that a quota stands for; 0 for none.

    Units:   microseconds a period in, thousandths of a CPU out, cut toward zero.
    Follows: v1.36, kubelet/cm/helpers_linux.go, QuotaToMilliCPU.

    >>> milli_of_quota(Microseconds(50000), CFS_PERIOD), milli_of_quota(NO_QUOTA, CFS_PERIOD)
    (500, 0)
    """
    if quota == NO_QUOTA:
        return MilliCPU(0)
    scaled = wrap_int64(quota * 1000)
    return MilliCPU(scaled // period if scaled >= 0 else -(-scaled // period))


def kubelet_weight(shares: Shares) -> Weight:
    """The weight that the kubelet writes for shares: to the groups of pods, QoS classes and the node.

    Units:   shares, at least 2.
    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, getCPUWeight: a straight line.

    >>> kubelet_weight(Shares(2)), kubelet_weight(Shares(1024)), kubelet_weight(SHARES_MAX)
    (1, 39, 10000)
    """
    if shares >= SHARES_MAX:
        return WEIGHT_MAX
    return Weight(1 + (shares - _FIRST_SHARES) * _WEIGHT_SPAN // _SHARES_SPAN)


def shares_of_weight(weight: Weight) -> Shares:
    """The shares that the kubelet takes a weight for when it reads one.

    Units:   weight, at least 1.
    Follows: v1.36, kubelet/cm/cgroup_v2_manager_linux.go, cpuWeightToCPUShares.

    >>> shares_of_weight(WEIGHT_MIN), shares_of_weight(WEIGHT_MAX)
    (2, 262144)
    """
    return Shares((weight - 1) * _SHARES_SPAN // _WEIGHT_SPAN + _FIRST_SHARES)


def runtime_weight(shares: Shares) -> Weight:
    """The weight that runtimes write for shares: to the groups of containers. 0 shares are none: nothing is written.

    A curve through the least, the greatest and the kernel's defaults: 1024 shares are a weight of 100.

    Follows: opencontainers/cgroups v0.0.6, utils.go, ConvertCPUSharesToCgroupV2Value (runc 1.3.2, crun 1.23 on).

    >>> runtime_weight(SHARES_MIN), runtime_weight(Shares(1024)), runtime_weight(SHARES_MAX)
    (1, 100, 10000)
    """
    if shares == 0:
        return Weight(0)
    if shares <= SHARES_MIN:
        return WEIGHT_MIN
    if shares >= SHARES_MAX:
        return WEIGHT_MAX
    # Floats as there. 1024 alone comes to a whole number, and exactly; no other comes near enough for its last
    # binary digit, in which libraries may differ, to count.
    power = math.log2(shares)
    return Weight(math.ceil(10 ** ((power * power + 125 * power) / 612.0 - 7.0 / 34.0)))
