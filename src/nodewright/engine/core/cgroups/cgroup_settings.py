"""The settings of the cgroups that the kubelet manages itself: of pods, QoS classes, all pods and daemons."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_limits
from nodewright.engine.core.cgroups.cgroup_facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    AmountOrigin,
    CeilingMissing,
    CgroupSettings,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    NoQuotaReason,
    ProcessCeiling,
)
from nodewright.engine.core.requests.effective_resources import (
    per_container_limits,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.request_options import NEWEST_REQUEST_RULES, RequestRules
from nodewright.engine.core.requests.spec_cache import cached_by_spec
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.values.cpu_time import MIN_SHARES, NO_QUOTA, cpu_shares
from nodewright.model.values.quantity import ZERO
from nodewright.model.values.units import Bytes, MilliCPU


def pod_cgroup_settings(pod: Pod, rules: CgroupConfig, *, has_exclusive_cpus: bool = False) -> CgroupSettings:
    """The kubelet's settings of the pod's cgroup at creation.

    Follows: v1.36, kubelet/cm/helpers_linux.go, ResourceConfigForPod;
        kubelet/cm/pod_container_manager_linux.go, EnsureExists.
    """
    counting = rules.requests.options()
    pod_class, requests = qos_class(pod, rules.pod_level), pod_requests(pod, counting)
    unset_limits = _unset_limits(pod, pod_class, rules)
    unset_resources = {ceiling.resource for ceiling in unset_limits}
    limits = pod_limits(pod, counting)
    memory = limits.get(MEMORY, ZERO).value()
    return CgroupSettings(
        cpu=pod_cpu_shares(requests, pod_class),
        quota=None
        if CPU in unset_resources
        else _pod_quota(MilliCPU(limits.get(CPU, ZERO).milli_value()), rules, is_disabled=has_exclusive_cpus),
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


def pod_cpu_shares(requests: ResourceList, pod_class: QOSClass) -> CPUShares:
    if pod_class is QOSClass.BEST_EFFORT:
        return CPUShares(MIN_SHARES, MilliCPU(0), AmountOrigin.BEST_EFFORT)
    milli = MilliCPU(requests.get(CPU, ZERO).milli_value())
    return CPUShares(cpu_shares(milli), milli, AmountOrigin.POD_REQUESTS)


def _pod_quota(milli: MilliCPU, rules: CgroupConfig, *, is_disabled: bool) -> CPUQuota:
    quota, unlimited = rules.quota(milli), None
    if is_disabled or not rules.cpu_cfs_quota:
        quota = NO_QUOTA
        unlimited = NoQuotaReason.EXCLUSIVE_CPUS if rules.cpu_cfs_quota else NoQuotaReason.NOT_ENFORCED
    elif quota == 0:
        unlimited = NoQuotaReason.NO_LIMIT
    return CPUQuota(
        quota_us=quota,
        period_us=rules.configured_period_us,
        milli_cpu=milli,
        origin=AmountOrigin.POD_LIMITS,
        unlimited=unlimited,
    )


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
    limits_by_container = [consumption.resources for consumption in per_container_limits(pod)]
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


PID_RESOURCE = "pid"
"""The kubelet's resource name for processes."""

HUGE_PAGES_UNBOUNDED = Bytes(1 << 62)

SettingsByQOSClass: TypeAlias = dict[QOSClass, CgroupSettings]


def qos_cpu_shares(pods: Iterable[Pod], rules: RequestRules = NEWEST_REQUEST_RULES) -> SettingsByQOSClass:
    """The settings of each QoS class's cgroup with its CPU shares; empty for Guaranteed pods (the cgroup of all pods).

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setCPUCgroupConfig.
    """
    milli = MilliCPU(
        sum(_cpu_request(pod, rules) for pod in pods if qos_class(pod, rules.pod_level) is QOSClass.BURSTABLE)
    )
    return {
        QOSClass.GUARANTEED: CgroupSettings(),
        QOSClass.BURSTABLE: CgroupSettings(
            cpu=CPUShares(cpu_shares(milli), milli, AmountOrigin.BURSTABLE_PODS)
        ),
        QOSClass.BEST_EFFORT: CgroupSettings(
            cpu=CPUShares(MIN_SHARES, MilliCPU(0), AmountOrigin.BEST_EFFORT)
        ),
    }


def qos_memory_requests(
    pods: Iterable[Pod], rules: RequestRules = NEWEST_REQUEST_RULES
) -> dict[QOSClass, Bytes]:
    """The memory requests of the Guaranteed and the Burstable pods.

    The pod level counts even where the gate PodLevelResources is off; the class is that of the containers then.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, getQoSMemoryRequests.
    """
    sums = {QOSClass.GUARANTEED: Bytes(0), QOSClass.BURSTABLE: Bytes(0)}
    for pod in pods:
        pod_class = qos_class(pod, rules.pod_level)
        if pod_class in sums:
            sums[pod_class] = Bytes(sums[pod_class] + _memory_request(pod))
    return sums


@cached_by_spec  # an agent adds up the requests of all pods at each start and end of a pod
def _cpu_request(pod: Pod, rules: RequestRules) -> MilliCPU:
    return MilliCPU(pod_requests(pod, rules.options()).get(CPU, ZERO).milli_value())


@cached_by_spec
def _memory_request(pod: Pod) -> Bytes:
    return Bytes(pod_requests(pod).get(MEMORY, ZERO).value())


def with_memory_qos(
    settings_by_class: SettingsByQOSClass, requested: Mapping[QOSClass, Bytes], rules: CgroupConfig
) -> SettingsByQOSClass:
    """The cgroups with memory protection; that of all pods (Guaranteed) includes the Burstable pods' memory.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setMemoryQoS.
    """
    if not rules.has_memory_qos:
        return settings_by_class
    if rules.protects_every_request:
        return _with_every_request_protected(settings_by_class, requested)
    burstable, guaranteed = Bytes(0), Bytes(0)
    origins = (AmountOrigin.POLICY, AmountOrigin.POLICY)
    if rules.has_tiered_reservation:
        burstable = requested[QOSClass.BURSTABLE]
        guaranteed = Bytes(requested[QOSClass.GUARANTEED] + burstable)
        origins = (AmountOrigin.PROTECTED_PODS, AmountOrigin.BURSTABLE_PODS)
    protected = {
        QOSClass.GUARANTEED: MemoryProtection(MEMORY_MIN, guaranteed, origins[0]),
        QOSClass.BURSTABLE: MemoryProtection(MEMORY_LOW, burstable, origins[1]),
    }
    return {
        pod_class: replace(settings, unified=(protected[pod_class],)) if pod_class in protected else settings
        for pod_class, settings in settings_by_class.items()
    }


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
    return {
        pod_class: replace(settings, unified=protected[pod_class]) if pod_class in protected else settings
        for pod_class, settings in settings_by_class.items()
    }


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


def _truncated_percent(hundredfold: int) -> int:
    return hundredfold // 100 if hundredfold >= 0 else -(-hundredfold // 100)
