"""What is a pod's group set to? Its containers together stay within it."""

from nodewright.core.cgroups.facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    CeilingMissing,
    CPUQuota,
    CPUShares,
    GroupSettings,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    Origin,
    ProcessCeiling,
    Unlimited,
)
from nodewright.core.cgroups.rules import CgroupRules, huge_page_limits
from nodewright.core.requests import (
    QOSClass,
    per_container_limits,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    qos_class,
)
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.cpu_time import NO_QUOTA, SHARES_MIN, cpu_shares
from nodewright.values.quantity import ZERO
from nodewright.values.units import Bytes, MilliCPU


def pod_settings(pod: Pod, rules: CgroupRules, *, has_exclusive_cpus: bool = False) -> GroupSettings:
    """What the kubelet sets the pod's group to when it makes it.

    Follows: v1.36, kubelet/cm/helpers_linux.go, ResourceConfigForPod;
        kubelet/cm/pod_container_manager_linux.go, EnsureExists.
    """
    decided, requests = qos_class(pod), pod_requests(pod)
    missing = _missing(pod, decided)
    without = {each.resource for each in missing}
    limits = pod_limits(pod)
    memory = limits.get(MEMORY, ZERO).value()
    return GroupSettings(
        cpu=_shares(requests, decided),
        quota=None
        if CPU in without
        else _quota(MilliCPU(limits.get(CPU, ZERO).milli_value()), rules, lifted=has_exclusive_cpus),
        memory=None if MEMORY in without else MemoryCeiling(Bytes(memory), Origin.POD_LIMITS),
        processes=ProcessCeiling(rules.pod_pids_limit, Origin.POD_PIDS_LIMIT)
        if rules.pod_pids_limit > 0
        else None,
        huge_pages=tuple(
            HugePageCeiling(Bytes(page), Bytes(total), Origin.POD_REQUESTS)
            for page, total in huge_page_limits(requests).items()
        ),
        unified=_protection(requests, decided, rules),
        missing=missing,
    )


def _shares(requests: ResourceList, decided: QOSClass) -> CPUShares:
    if decided is QOSClass.BEST_EFFORT:
        return CPUShares(SHARES_MIN, MilliCPU(0), Origin.BEST_EFFORT)
    milli = MilliCPU(requests.get(CPU, ZERO).milli_value())
    return CPUShares(cpu_shares(milli), milli, Origin.POD_REQUESTS)


def _quota(milli: MilliCPU, rules: CgroupRules, *, lifted: bool) -> CPUQuota:
    quota, unlimited = rules.quota(milli), None
    if lifted or not rules.enforces_quota:
        quota = NO_QUOTA
        unlimited = Unlimited.EXCLUSIVE_CPUS if rules.enforces_quota else Unlimited.NOT_ENFORCED
    elif quota == 0:
        unlimited = Unlimited.NO_LIMIT
    return CPUQuota(
        quota_us=quota,
        period_us=rules.period,
        milli_cpu=milli,
        origin=Origin.POD_LIMITS,
        unlimited=unlimited,
    )


def _missing(pod: Pod, decided: QOSClass) -> tuple[CeilingMissing, ...]:
    """The ceilings that the group does not get.

    A Burstable pod has one only where each container has a limit, or the pod level. Of init containers what runs
    by then counts, so that the limit of a sidecar stands in for one that has none.
    """
    if decided is QOSClass.GUARANTEED:
        return ()
    if decided is QOSClass.BEST_EFFORT:
        return CeilingMissing(CPU, ()), CeilingMissing(MEMORY, ())
    names = [one.name for one in (*pod.spec.containers, *pod.spec.init_containers)]
    in_use = [each.resources for each in per_container_limits(pod)]
    level = pod.spec.resources.limits if pod.spec.resources and pod_level_resources_set(pod) else {}
    found = []
    for resource in (CPU, MEMORY):
        lacking = tuple(
            name for name, limits in zip(names, in_use, strict=True) if limits.get(resource, ZERO).is_zero()
        )
        if lacking and level.get(resource, ZERO).is_zero():
            found.append(CeilingMissing(resource, lacking))
    return tuple(found)


def _protection(
    requests: ResourceList, decided: QOSClass, rules: CgroupRules
) -> tuple[MemoryProtection, ...]:
    request = Bytes(requests.get(MEMORY, ZERO).value())
    if not rules.reserves_by_tier or request <= 0:
        return ()
    file = MEMORY_MIN if decided is QOSClass.GUARANTEED else MEMORY_LOW
    return (MemoryProtection(file, request, Origin.POD_REQUESTS),)
