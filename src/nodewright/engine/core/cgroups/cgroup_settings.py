"""The settings of cgroups, those that the kubelet manages itself and those that it sends to the runtime.

The kubelet manages the cgroups of pods, QoS classes, all pods and daemons; the runtime those of containers and the sandbox.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import (
    LIMITED_SWAP,
    CgroupConfig,
    huge_page_limits,
    huge_page_size_bytes,
)
from nodewright.engine.core.cgroups.cgroup_facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    AmountOrigin,
    CeilingMissing,
    CgroupSettings,
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
    NotThrottled,
    ProcessCeiling,
    RunsOn,
    SwapForbidden,
    SwapShare,
    Unified,
)
from nodewright.engine.core.cgroups.cpu_weight import (
    container_cpu_shares,
    cpu_shares,
    pod_cpu_shares,
)
from nodewright.engine.core.requests.effective_resources import (
    NEWEST_REQUEST_RULES,
    RequestRules,
    ResourceField,
    per_container,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.oom_adjust import OOMScore, oom_scores
from nodewright.engine.core.requests.qos_and_priority import QOSClass, is_critical, qos_class
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, cached_by_spec
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_huge_page
from nodewright.model.values.cpu_time import NO_QUOTA
from nodewright.model.values.quantity import ZERO, Bytes, Microseconds, MilliCPU, Quantity


def pod_cgroup_settings(pod: Pod, rules: CgroupConfig, *, has_exclusive_cpus: bool = False) -> CgroupSettings:
    """The kubelet's settings of the pod's cgroup at creation.

    Follows: v1.36, kubelet/cm/helpers_linux.go, ResourceConfigForPod;
        kubelet/cm/pod_container_manager_linux.go, EnsureExists.
    """
    counting = rules.requests.options()
    pod_class, requests = qos_class(pod, rules.qos), pod_requests(pod, counting)
    unset_limits = _unset_limits(pod, pod_class, rules)
    unset_resources = {ceiling.resource for ceiling in unset_limits}
    limits = pod_limits(pod, counting)
    memory = limits.get(MEMORY, ZERO).value()
    return CgroupSettings(
        cpu=pod_cpu_shares(requests, pod_class),
        quota=None
        if CPU in unset_resources
        else _quota(
            limits.get(CPU, ZERO),
            AmountOrigin.POD_LIMITS,
            rules,
            period_us=rules.configured_period_us,
            is_disabled=has_exclusive_cpus,
        ),
        memory=None if MEMORY in unset_resources else MemoryCeiling(Bytes(memory), AmountOrigin.POD_LIMITS),
        processes=ProcessCeiling(rules.pod_pids_limit, AmountOrigin.POD_PIDS_LIMIT)
        if rules.pod_pids_limit > 0
        else None,
        huge_pages=tuple(
            HugePageCeiling(Bytes(page), Bytes(total), AmountOrigin.POD_REQUESTS)
            for page, total in huge_page_limits(requests).items()
        ),
        unified=_protection(requests, pod_class, rules),
        unset_limits=unset_limits,
    )


def has_unknown_throttle(pod: Pod, rules: CgroupConfig) -> bool:
    """Whether a kubelet of 1.37 sets `memory.high` of the pod's cgroup by a formula that is not established here."""
    is_throttled = rules.has_memory_qos and rules.gates.rules.memory_qos_of_beta
    pod_level = rules.pod_level_resources(pod)
    if not is_throttled or rules.throttling_factor is None or pod_level is None:
        return False
    return pod_level.limits.get(MEMORY, ZERO) != pod_level.requests.get(MEMORY, ZERO)


PID_RESOURCE = "pid"
"""The kubelet's resource name for processes."""

HUGE_PAGES_UNBOUNDED = Bytes(1 << 62)

SettingsByQOSClass: TypeAlias = dict[QOSClass, CgroupSettings]


def qos_memory_requests(
    pods: Iterable[Pod], rules: RequestRules = NEWEST_REQUEST_RULES
) -> dict[QOSClass, Bytes]:
    """The memory requests of the Guaranteed and the Burstable pods.

    The pod level counts even where the gate PodLevelResources is off; the class is that of the containers then.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, getQoSMemoryRequests.
    """
    sums = {QOSClass.GUARANTEED: Bytes(0), QOSClass.BURSTABLE: Bytes(0)}
    for pod in pods:
        pod_class = qos_class(pod, rules.qos)
        if pod_class in sums:
            sums[pod_class] = Bytes(sums[pod_class] + _memory_request(pod))
    return sums


def with_memory_qos(
    settings_by_class: SettingsByQOSClass, requested: Mapping[QOSClass, Bytes], rules: CgroupConfig
) -> SettingsByQOSClass:
    """The cgroups with memory protection; that of all pods (Guaranteed) includes the Burstable pods' memory.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setMemoryQoS.
    """
    if not (rules.has_memory_qos or rules.resets_memory_qos):
        return settings_by_class
    if rules.protects_every_request:
        return _with_every_request_protected(settings_by_class, requested)
    burstable, guaranteed = Bytes(0), Bytes(0)
    origins = (AmountOrigin.POLICY, AmountOrigin.POLICY)
    if rules.has_tiered_reservation:
        burstable = requested[QOSClass.BURSTABLE]
        guaranteed = Bytes(requested[QOSClass.GUARANTEED] + burstable)
        origins = (AmountOrigin.PROTECTED_PODS, AmountOrigin.BURSTABLE_PODS)
    low = MemoryProtection(MEMORY_LOW, burstable, origins[1])
    lows_of_all = (low,) if rules.gates.rules.memory_qos_of_beta else ()
    protected = {
        QOSClass.GUARANTEED: (MemoryProtection(MEMORY_MIN, guaranteed, origins[0]), *lows_of_all),
        QOSClass.BURSTABLE: (low,),
    }
    return _with_unified(settings_by_class, protected)


def with_memory_reserve(
    settings_by_class: SettingsByQOSClass,
    requested: Mapping[QOSClass, Bytes],
    percent: int,
    allocatable: Bytes | None,
) -> SettingsByQOSClass:
    """The cgroups with the memory limits that `qosReserved` leaves to lower classes; they may be negative.

    Units:   percent of the higher classes' requests; bytes, None: unknown, and no limit is set.
    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setMemoryReserve.
    """
    if not allocatable:
        return settings_by_class
    burstable = allocatable - _truncated_percent(requested[QOSClass.GUARANTEED] * percent)
    best_effort = burstable - _truncated_percent(requested[QOSClass.BURSTABLE] * percent)
    limits = {QOSClass.BURSTABLE: burstable, QOSClass.BEST_EFFORT: best_effort}
    return {
        pod_class: replace(
            settings, memory=MemoryCeiling(Bytes(limits[pod_class]), AmountOrigin.QOS_RESERVED)
        )
        if pod_class in limits
        else settings
        for pod_class, settings in settings_by_class.items()
    }


def with_reserve_retried(
    settings_by_class: SettingsByQOSClass, usage: Mapping[QOSClass, Bytes]
) -> SettingsByQOSClass:
    """The cgroups after the reservation failed: where more is in use, the usage becomes the limit.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, retrySetMemoryReserve.
    """
    return {
        pod_class: replace(settings, memory=replace(settings.memory, memory_bytes=usage[pod_class]))
        if settings.memory is not None and usage[pod_class] > settings.memory.memory_bytes
        else settings
        for pod_class, settings in settings_by_class.items()
    }


def with_unbounded_huge_pages(
    settings_by_class: SettingsByQOSClass, rules: CgroupConfig
) -> SettingsByQOSClass:
    """The cgroups, that of all pods included, without limits of huge pages.

    Within a minute of the kubelet's start this replaces the limits with which the cgroup of all pods was created.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setHugePagesConfig.
    """
    pages = tuple(
        HugePageCeiling(page, HUGE_PAGES_UNBOUNDED, AmountOrigin.UNBOUNDED) for page in rules.huge_page_sizes
    )
    return {
        pod_class: replace(settings, huge_pages=pages) for pod_class, settings in settings_by_class.items()
    }


def node_level_settings(
    resources: ResourceList | None, origin: AmountOrigin, *, compressible_only: bool = False
) -> CgroupSettings | None:
    """The settings of the cgroup of all pods, or of daemons, for these amounts; None if no amounts are configured.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, getCgroupConfigInternal.
    """
    if resources is None:
        return None
    cpu, shares = resources.get(CPU), None
    if cpu is not None:
        milli = MilliCPU(cpu.milli_value())
        shares = CPUShares(cpu_shares(milli), milli, origin)
    if compressible_only:
        return CgroupSettings(cpu=shares)
    memory, processes = resources.get(MEMORY), resources.get(PID_RESOURCE)
    return CgroupSettings(
        cpu=shares,
        memory=None if memory is None else MemoryCeiling(Bytes(memory.value()), origin),
        processes=None if processes is None else ProcessCeiling(processes.value(), origin),
        huge_pages=tuple(
            HugePageCeiling(Bytes(page), Bytes(total), origin)
            for page, total in huge_page_limits(resources).items()
        ),
    )


def _quota(
    limit: Quantity, origin: AmountOrigin, rules: CgroupConfig, *, period_us: Microseconds, is_disabled: bool
) -> CPUQuota:
    milli = MilliCPU(limit.milli_value())
    quota, unlimited = rules.quota(milli), None
    if is_disabled or not rules.cpu_cfs_quota:
        quota = NO_QUOTA
        unlimited = NoQuotaReason.EXCLUSIVE_CPUS if rules.cpu_cfs_quota else NoQuotaReason.NOT_ENFORCED
    elif quota == 0:
        unlimited = NoQuotaReason.NO_LIMIT
    return CPUQuota(quota_us=quota, period_us=period_us, milli_cpu=milli, origin=origin, unlimited=unlimited)


def _unset_limits(pod: Pod, pod_class: QOSClass, rules: CgroupConfig) -> tuple[CeilingMissing, ...]:
    """The ceilings that are not set on the cgroup.

    A Burstable pod has a ceiling only if each container or the pod level has a limit. An init container counts together
    with the sidecars that are running by then, so their limits make up for one that it does not have.
    """
    if pod_class is QOSClass.GUARANTEED:
        return ()
    if pod_class is QOSClass.BEST_EFFORT:
        return CeilingMissing(CPU, ()), CeilingMissing(MEMORY, ())
    names = [container.name for container in (*pod.spec.containers, *pod.spec.init_containers)]
    limits_by_container = [consumption.resources for consumption in per_container(pod, ResourceField.LIMITS)]
    pod_level = rules.pod_level_resources(pod)
    pod_level_limits = pod_level.limits if pod_level else {}
    unset = []
    for resource in (CPU, MEMORY):
        without_limit = tuple(
            name
            for name, limits in zip(names, limits_by_container, strict=True)
            if limits.get(resource, ZERO).is_zero()
        )
        if without_limit and pod_level_limits.get(resource, ZERO).is_zero():
            unset.append(CeilingMissing(resource, without_limit))
    return tuple(unset)


def _protection(
    requests: ResourceList, pod_class: QOSClass, rules: CgroupConfig
) -> tuple[MemoryProtection, ...]:
    request = Bytes(requests.get(MEMORY, ZERO).value())
    if not (rules.has_tiered_reservation or rules.protects_every_request) or request <= 0:
        return ()
    is_minimum = pod_class is QOSClass.GUARANTEED or rules.protects_every_request
    file = MEMORY_MIN if is_minimum else MEMORY_LOW
    return (MemoryProtection(file, request, AmountOrigin.POD_REQUESTS),)


@cached_by_spec
def _memory_request(pod: Pod) -> Bytes:
    return Bytes(pod_requests(pod).get(MEMORY, ZERO).value())


def _with_every_request_protected(
    settings_by_class: SettingsByQOSClass, requested: Mapping[QOSClass, Bytes]
) -> SettingsByQOSClass:
    """The cgroups with `memory.min` where memory is requested.

    Follows: v1.35, kubelet/cm/qos_container_manager_linux.go, setMemoryQoS.
    """
    burstable = requested[QOSClass.BURSTABLE]
    totals = {
        QOSClass.GUARANTEED: (Bytes(requested[QOSClass.GUARANTEED] + burstable), AmountOrigin.PROTECTED_PODS),
        QOSClass.BURSTABLE: (burstable, AmountOrigin.BURSTABLE_PODS),
    }
    protected = {
        pod_class: (MemoryProtection(MEMORY_MIN, total, origin),)
        for pod_class, (total, origin) in totals.items()
        if total > 0
    }
    return _with_unified(settings_by_class, protected)


def _with_unified(
    settings_by_class: SettingsByQOSClass, protected: Mapping[QOSClass, tuple[MemoryProtection, ...]]
) -> SettingsByQOSClass:
    changed = {
        pod_class: replace(settings_by_class[pod_class], unified=protections)
        for pod_class, protections in protected.items()
        if pod_class in settings_by_class
    }
    return {**settings_by_class, **changed}


def _truncated_percent(hundredfold: int) -> int:
    return hundredfold // 100 if hundredfold >= 0 else -(-hundredfold // 100)


# ---------------------------------------------------------------- containers and the sandbox


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
        cpu=container_cpu_shares(
            requests.get(CPU), limit, (AmountOrigin.POD_REQUESTS, AmountOrigin.POD_LIMITS)
        ),
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
    elif rules.resets_memory_qos:
        unified.append(NotThrottled())
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


def _container_quota(
    limit: Quantity, origin: AmountOrigin, rules: CgroupConfig, *, is_quota_disabled: bool
) -> CPUQuota | None:
    if not rules.cpu_cfs_quota:
        return None
    return _quota(limit, origin, rules, period_us=rules.quota_period_us, is_disabled=is_quota_disabled)


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
    if qos_class(pod, rules.qos) is not QOSClass.BURSTABLE:
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
        is_guaranteed = qos_class(pod, rules.qos) is QOSClass.GUARANTEED
        file = MEMORY_MIN if is_guaranteed else MEMORY_LOW
        facts.append(MemoryProtection(file, request, AmountOrigin.REQUEST))
    else:
        origin = AmountOrigin.UNSET if rules.has_tiered_reservation else AmountOrigin.POLICY
        facts += [MemoryProtection(file, Bytes(0), origin) for file in (MEMORY_MIN, MEMORY_LOW)]
    if rules.gates.rules.memory_qos_of_beta:
        pod_level = None if limit else rules.pod_level_resources(pod)
        is_left_to_pod = pod_level is not None and _memory(pod_level.limits) > 0
        is_fixed = (request == limit and request > 0) or is_left_to_pod
    else:
        is_fixed = request == limit
    throttle = None if is_fixed else _throttle(request, limit, rules)
    return facts if throttle is None else [*facts, throttle]


def _throttle(request: Bytes, limit: Bytes, rules: CgroupConfig) -> MemoryThrottle | None:
    """The `memory.high` of the container; None: not set."""
    ceiling, origin = (
        (limit, AmountOrigin.LIMIT) if limit else (rules.allocatable_memory or Bytes(0), AmountOrigin.NODE)
    )
    factor = rules.throttling_factor
    if factor is None or (not limit and ceiling <= 0):
        return None
    # Floats as in the kubelet: the sum is rounded down, divided as a float, then truncated to whole pages.
    threshold = math.floor(float(request) + (float(ceiling) - float(request)) * factor)
    high = Bytes(int(float(threshold) / float(rules.page_bytes)) * rules.page_bytes)
    if high == 0 or high <= request:
        return None
    return MemoryThrottle(
        memory_bytes=high,
        request=request,
        ceiling=ceiling,
        origin=origin,
        factor=factor,
        page_bytes=rules.page_bytes,
    )


def _memory(amounts: ResourceList) -> Bytes:
    return Bytes(amounts.get(MEMORY, ZERO).value())
