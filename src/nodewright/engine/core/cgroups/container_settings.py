"""The cgroup settings that the kubelet sends to the runtime for containers and the sandbox."""

import math
from collections.abc import Mapping

import msgspec

from nodewright.engine.core.cgroups.cgroup_config import LIMITED_SWAP, CgroupConfig, huge_page_size_bytes
from nodewright.engine.core.cgroups.cgroup_facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    AmountOrigin,
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
    NoQuotaReason,
    NoSwapReason,
    RunsOn,
    SwapForbidden,
    SwapShare,
    Unified,
)
from nodewright.engine.core.requests.effective_resources import (
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.oom_adjust import OOMScore, oom_scores
from nodewright.engine.core.requests.qos_and_priority import QOSClass, is_critical, qos_class
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_huge_page
from nodewright.model.values.cpu_time import NO_QUOTA, cpu_shares
from nodewright.model.values.quantity import ZERO, Quantity
from nodewright.model.values.units import Bytes, MilliCPU


class ContainerCpuset(msgspec.Struct, frozen=True, kw_only=True):
    """The cpuset that the resource managers decide for a container. None: not decided."""

    cpus: RunsOn | None = None
    mems: MemoryFrom | None = None
    is_quota_disabled: bool = False
    """Whether the CPU quota is disabled, because the CPUs are exclusive."""


UNRESTRICTED = ContainerCpuset()


def settings_by_container(
    pod: Pod, rules: CgroupConfig, cpusets: Mapping[str, ContainerCpuset] | None = None
) -> dict[str, ContainerSettings]:
    """The cgroup settings of each container by name: containers in order, then init and ephemeral containers.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources;
        kubelet/cm/internal_container_lifecycle_linux.go, PreCreateContainer.
    """
    settings = {}
    scores = {score.container: score for score in oom_scores(pod, rules.memory_capacity, rules.gates)}
    for container in (*pod.spec.containers, *pod.spec.init_containers, *pod.spec.ephemeral_containers):
        cpuset = (cpusets or {}).get(container.name, UNRESTRICTED)
        settings[container.name] = _container_settings(pod, container, rules, cpuset, scores[container.name])
    return settings


def sandbox_settings(pod: Pod, rules: CgroupConfig, *, has_exclusive_cpus: bool = False) -> ContainerSettings:
    """The resources of the pod without its overhead as sent to the runtime; VM-based runtimes need them.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox_linux.go, calculateSandboxResources.
    """
    counting = rules.requests.options(exclude_overhead=True)
    requests, limits = pod_requests(pod, counting), pod_limits(pod, counting)
    limit = limits.get(CPU, ZERO)
    return ContainerSettings(
        cpu=container_cpu_shares(requests.get(CPU), limit, (AmountOrigin.POD_REQUESTS, AmountOrigin.POD_LIMITS)),
        quota=_container_quota(limit, AmountOrigin.POD_LIMITS, rules, is_quota_disabled=has_exclusive_cpus),
        memory=_ceiling(limits.get(MEMORY, ZERO), AmountOrigin.POD_LIMITS),
        unified=_killed_together(rules),
    )


def overhead_settings(pod: Pod, rules: CgroupConfig) -> ContainerSettings:
    """The resources of the sandbox itself, which the kubelet sends to the runtime; none without an overhead.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_sandbox_linux.go, convertOverheadToLinuxResources.
    """
    if not pod.spec.overhead:
        return ContainerSettings()
    cpu, memory = pod.spec.overhead.get(CPU, ZERO), pod.spec.overhead.get(MEMORY, ZERO)
    return ContainerSettings(
        cpu=container_cpu_shares(cpu, cpu, (AmountOrigin.OVERHEAD, AmountOrigin.OVERHEAD)),
        quota=_container_quota(cpu, AmountOrigin.OVERHEAD, rules, is_quota_disabled=False),
        memory=_ceiling(memory, AmountOrigin.OVERHEAD),
        unified=_killed_together(rules),
    )


def _container_settings(
    pod: Pod, container: Container, rules: CgroupConfig, cpuset: ContainerCpuset, score: OOMScore
) -> ContainerSettings:
    resources = container.resources
    cpu, cpu_origin = _limit(pod, container, CPU, rules)
    memory, memory_origin = _limit(pod, container, MEMORY, rules)
    ceiling = _ceiling(memory, memory_origin)
    swap = _swap(pod, container, rules)
    unified = list(_killed_together(rules))
    if swap is not None and rules.version == 2:
        unified.append(swap)
    if rules.has_memory_qos:
        unified += _memory_qos(pod, container, rules)
    forbidden = swap.because if isinstance(swap, SwapForbidden) and rules.version == 1 else None
    return ContainerSettings(
        cpu=container_cpu_shares(resources.requests.get(CPU), cpu, (AmountOrigin.REQUEST, cpu_origin)),
        quota=_container_quota(cpu, cpu_origin, rules, is_quota_disabled=cpuset.is_quota_disabled),
        memory=ceiling,
        swap=MemoryAndSwap(ceiling.memory_bytes, forbidden) if forbidden and ceiling else None,
        huge_pages=_huge_pages(pod, container, rules),
        unified=tuple(unified),
        oom_score=score,
        cpus=cpuset.cpus,
        mems=cpuset.mems,
    )


def _limit(
    pod: Pod, container: Container, resource: str, rules: CgroupConfig
) -> tuple[Quantity, AmountOrigin]:
    """The container's limit or, if it has none, that of the pod level; and its origin."""
    limit = container.resources.limits.get(resource, ZERO)
    pod_level = rules.pod_level_resources(pod) if limit.is_zero() else None
    if pod_level is not None:
        pod_limit = pod_level.limits.get(resource, ZERO)
        return pod_limit, AmountOrigin.UNSET if pod_limit.is_zero() else AmountOrigin.POD_LEVEL
    return limit, AmountOrigin.UNSET if limit.is_zero() else AmountOrigin.LIMIT


def container_cpu_shares(
    request: Quantity | None, limit: Quantity, origins: tuple[AmountOrigin, AmountOrigin]
) -> CPUShares:
    """Shares for the request, or for the limit if no request is set; a request of 0 counts as set."""
    amount, origin = (limit, origins[1]) if request is None else (request, origins[0])
    milli = MilliCPU(amount.milli_value())
    return CPUShares(cpu_shares(milli), milli, origin)


def _container_quota(
    limit: Quantity, origin: AmountOrigin, rules: CgroupConfig, *, is_quota_disabled: bool
) -> CPUQuota | None:
    if not rules.cpu_cfs_quota:
        return None
    milli = MilliCPU(limit.milli_value())
    quota, unlimited = rules.quota(milli), None
    if is_quota_disabled:
        quota, unlimited = NO_QUOTA, NoQuotaReason.EXCLUSIVE_CPUS
    elif quota == 0:
        unlimited = NoQuotaReason.NO_LIMIT
    return CPUQuota(
        quota_us=quota,
        period_us=rules.quota_period_us,
        milli_cpu=milli,
        origin=origin,
        unlimited=unlimited,
    )


def _ceiling(limit: Quantity, origin: AmountOrigin) -> MemoryCeiling | None:
    total = limit.value()
    return MemoryCeiling(Bytes(total), origin) if total else None


def _killed_together(rules: CgroupConfig) -> tuple[Unified, ...]:
    together = rules.version == 2 and rules.single_process_oom_kill is False
    return (KilledTogether(),) if together else ()


def _huge_pages(pod: Pod, container: Container, rules: CgroupConfig) -> tuple[HugePageCeiling, ...]:
    """A limit for each huge page size of the machine; 0 for sizes without a limit in the pod.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, GetHugepageLimitsFromResources.
    Departs: of two names for the same page size the last by name counts; the kubelet walks a map in random order.
    """
    limits: dict[int, HugePageCeiling] = {}
    pod_level_limits: ResourceList = {}
    pod_level = rules.pod_level_resources(pod)
    if pod_level is not None and rules.gates.rules.huge_page_limits_from_pod_level:
        pod_level_limits = pod_level.limits
    for amounts, origin in (
        (pod_level_limits, AmountOrigin.POD_LEVEL),
        (container.resources.limits, AmountOrigin.LIMIT),
    ):
        for name, amount in sorted(amounts.items()):
            page = huge_page_size_bytes(name) if is_huge_page(name) else None
            if page is not None:
                limits[page] = HugePageCeiling(Bytes(page), Bytes(amount.value()), origin)
    no_pages = Bytes(0)
    return tuple(
        limits.get(page, HugePageCeiling(page, no_pages, AmountOrigin.UNSET))
        for page in rules.huge_page_sizes
    )


# ---------------------------------------------------------------- swap


def _swap(pod: Pod, container: Container, rules: CgroupConfig) -> SwapShare | SwapForbidden | None:
    """The swap limit of the container; None: the kernel does not account for swap.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, configureContainerSwapResources,
        calcSwapForBurstablePods.
    """
    if not rules.has_swap_controller:
        return None
    forbidden = _no_swap(pod, container, rules)
    if forbidden is not None:
        return SwapForbidden(forbidden)
    request = _memory(container.resources.requests)
    # Floats as in the kubelet: the product is truncated, not rounded.
    share = float(request) / float(rules.memory_capacity) * float(rules.swap_capacity)
    return SwapShare(
        swap_bytes=Bytes(int(share)),
        request=request,
        capacity=rules.memory_capacity,
        swap=rules.swap_capacity,
    )


def _no_swap(pod: Pod, container: Container, rules: CgroupConfig) -> NoSwapReason | None:
    """Why the container may not swap; None: it may.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior.
    """
    if rules.swap_behavior != LIMITED_SWAP:
        return NoSwapReason.BEHAVIOR
    if rules.version == 1:
        return NoSwapReason.CGROUP_V1
    if is_critical(pod):
        return NoSwapReason.CRITICAL
    if qos_class(pod, rules.pod_level) is not QOSClass.BURSTABLE:
        return NoSwapReason.NOT_BURSTABLE
    resources = container.resources
    request, limit = resources.requests.get(MEMORY, ZERO), resources.limits.get(MEMORY, ZERO)
    if request.is_zero() and limit.is_zero():
        return NoSwapReason.NO_MEMORY
    if request == limit:
        return NoSwapReason.REQUEST_IS_LIMIT
    if request.value() > rules.memory_capacity:
        return NoSwapReason.BEYOND_CAPACITY
    return None


# ---------------------------------------------------------------- MemoryQoS


def _memory_qos(pod: Pod, container: Container, rules: CgroupConfig) -> list[Unified]:
    """Protection and throttling of memory by the container's own request and limit; the pod level does not count."""
    request, limit = _memory(container.resources.requests), _memory(container.resources.limits)
    facts: list[Unified] = []
    if rules.protects_every_request:
        facts += [MemoryProtection(MEMORY_MIN, request, AmountOrigin.REQUEST)] if request else []
    elif request and rules.has_tiered_reservation:
        is_guaranteed = qos_class(pod, rules.pod_level) is QOSClass.GUARANTEED
        file = MEMORY_MIN if is_guaranteed else MEMORY_LOW
        facts.append(MemoryProtection(file, request, AmountOrigin.REQUEST))
    else:
        origin = AmountOrigin.UNSET if rules.has_tiered_reservation else AmountOrigin.POLICY
        facts += [MemoryProtection(file, Bytes(0), origin) for file in (MEMORY_MIN, MEMORY_LOW)]
    throttle = _throttle(request, limit, rules) if request != limit else None
    return facts if throttle is None else [*facts, throttle]


def _throttle(request: Bytes, limit: Bytes, rules: CgroupConfig) -> MemoryThrottle | None:
    """The `memory.high` of the container; None: not set."""
    ceiling, origin = (
        (limit, AmountOrigin.LIMIT) if limit else (rules.allocatable_memory or Bytes(0), AmountOrigin.NODE)
    )
    if not limit and ceiling <= 0:
        return None
    # Floats as in the kubelet: the sum is rounded down, divided as a float, then truncated to whole pages.
    threshold = math.floor(float(request) + (float(ceiling) - float(request)) * rules.throttling_factor)
    high = Bytes(int(float(threshold) / float(rules.page_bytes)) * rules.page_bytes)
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
