"""CPU time relative to sibling cgroups: `cpu.shares` of cgroup v1, `cpu.weight` of cgroup v2.

Which amount of CPU counts depends on the cgroup: a pod's, a container's or a QoS class's. The amount becomes shares
(1024 per CPU), and with cgroup v2 shares become a weight from 1 to 10000, on a straight line or on a curve.
"""

import math
from collections.abc import Iterable
from typing import NewType

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, CgroupSettings, CPUShares
from nodewright.engine.core.requests.effective_resources import (
    NEWEST_REQUEST_RULES,
    RequestRules,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.objects import Pod, ResourceList, cached_by_spec
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.quantity import ZERO, MilliCPU, Quantity, wrap_int64

Weight = NewType("Weight", int)
"""CPU time relative to that of sibling cgroups, in cgroup v2: from 1 to 10000."""

MIN_SHARES, MAX_SHARES = Shares(2), Shares(262_144)
MIN_WEIGHT, MAX_WEIGHT = Weight(1), Weight(10_000)
_SHARES_A_CPU = 1024
_FIRST_SHARES, _SHARES_SPAN, _WEIGHT_SPAN = 2, 262_142, 9999


# ---------------------------------------------------------------- the amount that counts


def pod_cpu_shares(requests: ResourceList, pod_class: QOSClass) -> CPUShares:
    """Shares for the requests of the whole pod; the minimum for a BestEffort pod."""
    if pod_class is QOSClass.BEST_EFFORT:
        return CPUShares(MIN_SHARES, MilliCPU(0), AmountOrigin.BEST_EFFORT)
    milli = MilliCPU(requests.get(CPU, ZERO).milli_value())
    return CPUShares(cpu_shares(milli), milli, AmountOrigin.POD_REQUESTS)


def container_cpu_shares(
    request: Quantity | None, limit: Quantity, origins: tuple[AmountOrigin, AmountOrigin]
) -> CPUShares:
    """Shares for the request, or for the limit if no request is set; a request of 0 counts as set."""
    amount, origin = (limit, origins[1]) if request is None else (request, origins[0])
    milli = MilliCPU(amount.milli_value())
    return CPUShares(cpu_shares(milli), milli, origin)


def qos_cpu_shares(
    pods: Iterable[Pod], rules: RequestRules = NEWEST_REQUEST_RULES
) -> dict[QOSClass, CgroupSettings]:
    """The settings of each QoS class's cgroup with its CPU shares; empty for Guaranteed pods (the cgroup of all pods).

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setCPUCgroupConfig.
    """
    milli = MilliCPU(
        sum(_cpu_request(pod, rules) for pod in pods if qos_class(pod, rules.qos) is QOSClass.BURSTABLE)
    )
    burstable = CPUShares(cpu_shares(milli), milli, AmountOrigin.BURSTABLE_PODS)
    best_effort = CPUShares(MIN_SHARES, MilliCPU(0), AmountOrigin.BEST_EFFORT)
    return {
        QOSClass.GUARANTEED: CgroupSettings(),
        QOSClass.BURSTABLE: CgroupSettings(cpu=burstable),
        QOSClass.BEST_EFFORT: CgroupSettings(cpu=best_effort),
    }


@cached_by_spec  # an agent adds up the requests of all pods at each start and end of a pod
def _cpu_request(pod: Pod, rules: RequestRules) -> MilliCPU:
    return MilliCPU(pod_requests(pod, rules.options()).get(CPU, ZERO).milli_value())


# ---------------------------------------------------------------- from amounts to shares to weights


def cpu_weight(cpu: CPUShares, rules: CgroupConfig, *, is_container: bool) -> Weight:
    """The `cpu.weight` of a cgroup: the kubelet's straight line, or the curve of recent runtimes for a container."""
    is_curved = is_container and not rules.runtime_uses_linear_weights
    return runtime_weight(cpu.shares) if is_curved else kubelet_weight(cpu.shares)


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


def kubelet_weight(shares: Shares) -> Weight:
    """The weight that the kubelet writes for shares, to the cgroups of pods, QoS classes and the node.

    Units:   shares, at least 2.
    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, getCPUWeight: a straight line.

    >>> kubelet_weight(Shares(2)), kubelet_weight(Shares(1024)), kubelet_weight(MAX_SHARES)
    (1, 39, 10000)
    """
    return MAX_WEIGHT if shares >= MAX_SHARES else linear_weight(shares)


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
