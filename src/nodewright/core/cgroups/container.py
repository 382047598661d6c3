"""What does the kubelet tell the runtime to set a container's group to, and the pod's sandbox?"""

import math
from collections.abc import Mapping

import msgspec

from nodewright.core.cgroups.facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    ContainerSettings,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    MemoryThrottle,
    NoSwap,
    Origin,
    RunsOn,
    SwapForbidden,
    SwapShare,
    Unified,
    Unlimited,
)
from nodewright.core.cgroups.rules import LIMITED_SWAP, CgroupRules, page_bytes_of
from nodewright.core.requests import (
    OOMScore,
    QOSClass,
    RequestOptions,
    is_critical,
    oom_scores,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    qos_class,
)
from nodewright.model.objects import Container, Pod, ResourceList
from nodewright.model.resource_names import CPU, MEMORY, is_huge_page
from nodewright.values.cpu_time import NO_QUOTA, cpu_shares
from nodewright.values.quantity import ZERO, Quantity
from nodewright.values.units import Bytes, MilliCPU

_WITHOUT_OVERHEAD = RequestOptions(exclude_overhead=True)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a container may run, as the managers have it. None: they say nothing."""

    cpus: RunsOn | None = None
    mems: MemoryFrom | None = None
    is_unquoted: bool = False
    """Whether its CPUs are its own, and so without a quota."""


ANYWHERE = Place()


def containers_settings(
    pod: Pod, rules: CgroupRules, places: Mapping[str, Place] | None = None
) -> dict[str, ContainerSettings]:
    """What each container's group is set to, by name: containers in order, then init containers.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources;
        kubelet/cm/internal_container_lifecycle_linux.go, PreCreateContainer.
    """
    found = {}
    scores = {score.container: score for score in oom_scores(pod, rules.memory_capacity)}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        place = (places or {}).get(container.name, ANYWHERE)
        found[container.name] = _container_settings(pod, container, rules, place, scores[container.name])
    return found


def sandbox_settings(pod: Pod, rules: CgroupRules, *, has_exclusive_cpus: bool = False) -> ContainerSettings:
    """What the runtime is told that the pod without its overhead may use: runtimes in virtual machines need it.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox_linux.go, calculateSandboxResources.
    """
    requests, limits = pod_requests(pod, _WITHOUT_OVERHEAD), pod_limits(pod, _WITHOUT_OVERHEAD)
    limit = limits.get(CPU, ZERO)
    return ContainerSettings(
        cpu=_shares(requests.get(CPU), limit, (Origin.POD_REQUESTS, Origin.POD_LIMITS)),
        quota=_quota(limit, Origin.POD_LIMITS, rules, is_unquoted=has_exclusive_cpus),
        memory=_ceiling(limits.get(MEMORY, ZERO), Origin.POD_LIMITS),
        unified=_killed_together(rules),
    )


def overhead_settings(pod: Pod, rules: CgroupRules) -> ContainerSettings:
    """What the runtime is told that the sandbox itself needs; nothing without an overhead.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox_linux.go, convertOverheadToLinuxResources.
    """
    if not pod.spec.overhead:
        return ContainerSettings()
    cpu, memory = pod.spec.overhead.get(CPU, ZERO), pod.spec.overhead.get(MEMORY, ZERO)
    return ContainerSettings(
        cpu=_shares(cpu, cpu, (Origin.OVERHEAD, Origin.OVERHEAD)),
        quota=_quota(cpu, Origin.OVERHEAD, rules, is_unquoted=False),
        memory=_ceiling(memory, Origin.OVERHEAD),
        unified=_killed_together(rules),
    )


def _container_settings(
    pod: Pod, container: Container, rules: CgroupRules, place: Place, score: OOMScore
) -> ContainerSettings:
    resources = container.resources
    cpu, cpu_origin = _limit(pod, container, CPU)
    memory, memory_origin = _limit(pod, container, MEMORY)
    ceiling = _ceiling(memory, memory_origin)
    swap = _swap(pod, container, rules)
    unified = list(_killed_together(rules))
    if swap is not None and rules.version == 2:
        unified.append(swap)
    if rules.has_memory_qos:
        unified += _memory_qos(pod, container, rules)
    forbidden = swap.because if isinstance(swap, SwapForbidden) and rules.version == 1 else None
    return ContainerSettings(
        cpu=_shares(resources.requests.get(CPU), cpu, (Origin.REQUEST, cpu_origin)),
        quota=_quota(cpu, cpu_origin, rules, is_unquoted=place.is_unquoted),
        memory=ceiling,
        swap=MemoryAndSwap(ceiling.memory_bytes, forbidden) if forbidden and ceiling else None,
        huge_pages=_huge_pages(pod, container, rules),
        unified=tuple(unified),
        oom_score=score,
        cpus=place.cpus,
        mems=place.mems,
    )


def _limit(pod: Pod, container: Container, resource: str) -> tuple[Quantity, Origin]:
    """The container's limit or, where it has none, that of the pod level."""
    own = container.resources.limits.get(resource, ZERO)
    if own.is_zero() and pod.spec.resources is not None and pod_level_resources_set(pod):
        level = pod.spec.resources.limits.get(resource, ZERO)
        return level, Origin.NOTHING if level.is_zero() else Origin.POD_LEVEL
    return own, Origin.NOTHING if own.is_zero() else Origin.LIMIT


def _shares(request: Quantity | None, limit: Quantity, origins: tuple[Origin, Origin]) -> CPUShares:
    """Shares for the request; where there is none at all (zero is one) for the limit."""
    amount, origin = (limit, origins[1]) if request is None else (request, origins[0])
    milli = MilliCPU(amount.milli_value())
    return CPUShares(cpu_shares(milli), milli, origin)


def _quota(limit: Quantity, origin: Origin, rules: CgroupRules, *, is_unquoted: bool) -> CPUQuota | None:
    if not rules.enforces_quota:
        return None
    milli = MilliCPU(limit.milli_value())
    quota, unlimited = rules.quota(milli), None
    if is_unquoted:
        quota, unlimited = NO_QUOTA, Unlimited.EXCLUSIVE_CPUS
    elif quota == 0:
        unlimited = Unlimited.NO_LIMIT
    return CPUQuota(
        quota_us=quota,
        period_us=rules.quota_period,
        milli_cpu=milli,
        origin=origin,
        unlimited=unlimited,
    )


def _ceiling(limit: Quantity, origin: Origin) -> MemoryCeiling | None:
    total = limit.value()
    return MemoryCeiling(Bytes(total), origin) if total else None


def _killed_together(rules: CgroupRules) -> tuple[Unified, ...]:
    together = rules.version == 2 and rules.single_process_oom_kill is False
    return (KilledTogether(),) if together else ()


def _huge_pages(pod: Pod, container: Container, rules: CgroupRules) -> tuple[HugePageCeiling, ...]:
    """Every page size that the machine has; no pages of those that have no limit.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, GetHugepageLimitsFromResources.
    Departs: of two names for the same page size the last by name counts, where the kubelet walks a map.
    """
    limits: dict[int, HugePageCeiling] = {}
    level: ResourceList = {}
    if pod.spec.resources is not None and pod_level_resources_set(pod):
        level = pod.spec.resources.limits
    for amounts, origin in ((level, Origin.POD_LEVEL), (container.resources.limits, Origin.LIMIT)):
        for name, amount in sorted(amounts.items()):
            page = page_bytes_of(name) if is_huge_page(name) else None
            if page is not None:
                limits[page] = HugePageCeiling(Bytes(page), Bytes(amount.value()), origin)
    none = Bytes(0)
    return tuple(limits.get(page, HugePageCeiling(page, none, Origin.NOTHING)) for page in rules.huge_pages)


# ---------------------------------------------------------------- swap


def _swap(pod: Pod, container: Container, rules: CgroupRules) -> SwapShare | SwapForbidden | None:
    """What the container may swap; None: the kernel does not account for it.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, configureContainerSwapResources,
        calcSwapForBurstablePods.
    """
    if not rules.has_swap_controller:
        return None
    forbidden = _no_swap(pod, container, rules)
    if forbidden is not None:
        return SwapForbidden(forbidden)
    request = _memory(container.resources.requests)
    # Floats as there: the product is cut, not rounded.
    share = float(request) / float(rules.memory_capacity) * float(rules.swap_capacity)
    return SwapShare(
        swap_bytes=Bytes(int(share)),
        request=request,
        capacity=rules.memory_capacity,
        swap=rules.swap_capacity,
    )


def _no_swap(pod: Pod, container: Container, rules: CgroupRules) -> NoSwap | None:
    """Why the container may not swap; None: it may.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior.
    """
    if rules.swap_behavior != LIMITED_SWAP:
        return NoSwap.BEHAVIOR
    if rules.version == 1:
        return NoSwap.CGROUP_V1
    if is_critical(pod):
        return NoSwap.CRITICAL
    if qos_class(pod) is not QOSClass.BURSTABLE:
        return NoSwap.NOT_BURSTABLE
    resources = container.resources
    request, limit = resources.requests.get(MEMORY, ZERO), resources.limits.get(MEMORY, ZERO)
    if request.is_zero() and limit.is_zero():
        return NoSwap.NO_MEMORY
    if request == limit:
        return NoSwap.REQUEST_IS_LIMIT
    if request.value() > rules.memory_capacity:
        return NoSwap.BEYOND_CAPACITY
    return None


# ---------------------------------------------------------------- MemoryQoS


def _memory_qos(pod: Pod, container: Container, rules: CgroupRules) -> list[Unified]:
    """Protection and throttling of memory; the pod level does not count here."""
    request, limit = _memory(container.resources.requests), _memory(container.resources.limits)
    found: list[Unified] = []
    if request and rules.reserves_by_tier:
        file = MEMORY_MIN if qos_class(pod) is QOSClass.GUARANTEED else MEMORY_LOW
        found.append(MemoryProtection(file, request, Origin.REQUEST))
    else:
        origin = Origin.NOTHING if rules.reserves_by_tier else Origin.POLICY
        found += [MemoryProtection(file, Bytes(0), origin) for file in (MEMORY_MIN, MEMORY_LOW)]
    throttle = _throttle(request, limit, rules) if request != limit else None
    return found if throttle is None else [*found, throttle]


def _throttle(request: Bytes, limit: Bytes, rules: CgroupRules) -> MemoryThrottle | None:
    """Where the kernel begins to slow the container down; None: it does not."""
    ceiling, origin = (limit, Origin.LIMIT) if limit else (rules.allocatable_memory or Bytes(0), Origin.NODE)
    if not limit and ceiling <= 0:
        return None
    # Floats as there: the sum is rounded down, then divided as a float, then cut to whole pages.
    wanted = math.floor(float(request) + (float(ceiling) - float(request)) * rules.throttling_factor)
    high = Bytes(int(float(wanted) / float(rules.page_bytes)) * rules.page_bytes)
    if high == 0 or high <= request:
        return None
    return MemoryThrottle(
        memory_bytes=high,
        request=request,
        ceiling=ceiling,
        origin=origin,
        factor=rules.throttling_factor,
        page_bytes=rules.page_bytes,
    )


def _memory(amounts: ResourceList) -> Bytes:
    return Bytes(amounts.get(MEMORY, ZERO).value())
