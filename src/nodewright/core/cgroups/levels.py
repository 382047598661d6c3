"""What are the groups above pods set to: those of the QoS classes, of all pods together, and of daemons?"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.cgroups.facts import (
    MEMORY_LOW,
    MEMORY_MIN,
    CPUShares,
    GroupSettings,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    Origin,
    ProcessCeiling,
)
from nodewright.core.cgroups.rules import CgroupRules, huge_page_limits
from nodewright.core.requests import QOSClass, pod_requests, qos_class
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.cpu_time import SHARES_MIN, cpu_shares
from nodewright.values.quantity import ZERO
from nodewright.values.units import Bytes, MilliCPU

PROCESSES = "pid"
"""The name that the kubelet counts processes by."""

UNBOUNDED = Bytes(1 << 62)

ByClass: TypeAlias = dict[QOSClass, GroupSettings]


def class_shares(pods: Iterable[Pod]) -> ByClass:
    """The CPU time of each class's group; that of Guaranteed pods is the group of all pods, and not touched.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setCPUCgroupConfig.
    """
    milli = MilliCPU(
        sum(
            pod_requests(pod).get(CPU, ZERO).milli_value()
            for pod in pods
            if qos_class(pod) is QOSClass.BURSTABLE
        )
    )
    return {
        QOSClass.GUARANTEED: GroupSettings(),
        QOSClass.BURSTABLE: GroupSettings(cpu=CPUShares(cpu_shares(milli), milli, Origin.BURSTABLE_PODS)),
        QOSClass.BEST_EFFORT: GroupSettings(cpu=CPUShares(SHARES_MIN, MilliCPU(0), Origin.BEST_EFFORT)),
    }


def class_memory_requests(pods: Iterable[Pod]) -> dict[QOSClass, Bytes]:
    """What the Guaranteed and the Burstable pods request of memory.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, getQoSMemoryRequests.
    """
    sums = {QOSClass.GUARANTEED: Bytes(0), QOSClass.BURSTABLE: Bytes(0)}
    for pod in pods:
        decided = qos_class(pod)
        if decided in sums:
            sums[decided] = Bytes(sums[decided] + pod_requests(pod).get(MEMORY, ZERO).value())
    return sums


def with_protection(groups: ByClass, requested: Mapping[QOSClass, Bytes], rules: CgroupRules) -> ByClass:
    """The groups with the memory that is protected; the group of all pods has to cover those within.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setMemoryQoS.
    """
    if not rules.has_memory_qos:
        return groups
    burstable, guaranteed = Bytes(0), Bytes(0)
    origins = (Origin.POLICY, Origin.POLICY)
    if rules.reserves_by_tier:
        burstable = requested[QOSClass.BURSTABLE]
        guaranteed = Bytes(requested[QOSClass.GUARANTEED] + burstable)
        origins = (Origin.PROTECTED_PODS, Origin.BURSTABLE_PODS)
    protected = {
        QOSClass.GUARANTEED: MemoryProtection(MEMORY_MIN, guaranteed, origins[0]),
        QOSClass.BURSTABLE: MemoryProtection(MEMORY_LOW, burstable, origins[1]),
    }
    return {
        decided: replace(group, unified=(protected[decided],)) if decided in protected else group
        for decided, group in groups.items()
    }


def with_reserve(
    groups: ByClass, requested: Mapping[QOSClass, Bytes], percent: int, allocatable: Bytes | None
) -> ByClass:
    """The groups with the memory that `qosReserved` leaves to lower classes; it may come to less than nothing.

    Units:   percent of what the higher classes request; bytes, None: not known, and then nothing is set.
    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setMemoryReserve.
    """
    if not allocatable:
        return groups
    burstable = allocatable - _cut(requested[QOSClass.GUARANTEED] * percent)
    best_effort = burstable - _cut(requested[QOSClass.BURSTABLE] * percent)
    limits = {QOSClass.BURSTABLE: burstable, QOSClass.BEST_EFFORT: best_effort}
    return {
        decided: replace(group, memory=MemoryCeiling(Bytes(limits[decided]), Origin.QOS_RESERVED))
        if decided in limits
        else group
        for decided, group in groups.items()
    }


def with_reserve_retried(groups: ByClass, usage: Mapping[QOSClass, Bytes]) -> ByClass:
    """The groups after what was to be reserved could not be: where more is in use, that becomes the limit.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, retrySetMemoryReserve.
    """
    return {
        decided: replace(group, memory=replace(group.memory, memory_bytes=usage[decided]))
        if group.memory is not None and usage[decided] > group.memory.memory_bytes
        else group
        for decided, group in groups.items()
    }


def with_unbounded_huge_pages(groups: ByClass, rules: CgroupRules) -> ByClass:
    """The groups, that of all pods included, without a bound to huge pages.

    Within a minute of the kubelet's start this replaces what the group of all pods was made with.

    Follows: v1.36, kubelet/cm/qos_container_manager_linux.go, setHugePagesConfig.
    """
    pages = tuple(HugePageCeiling(page, UNBOUNDED, Origin.UNBOUNDED) for page in rules.huge_pages)
    return {decided: replace(group, huge_pages=pages) for decided, group in groups.items()}


def level_settings(
    resources: ResourceList | None, origin: Origin, *, compressible_only: bool = False
) -> GroupSettings | None:
    """What the group of all pods, or one of daemons, is set to for these amounts; None where none are configured.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, getCgroupConfigInternal.
    """
    if resources is None:
        return None
    cpu, shares = resources.get(CPU), None
    if cpu is not None:
        milli = MilliCPU(cpu.milli_value())
        shares = CPUShares(cpu_shares(milli), milli, origin)
    if compressible_only:
        return GroupSettings(cpu=shares)
    memory, processes = resources.get(MEMORY), resources.get(PROCESSES)
    return GroupSettings(
        cpu=shares,
        memory=None if memory is None else MemoryCeiling(Bytes(memory.value()), origin),
        processes=None if processes is None else ProcessCeiling(processes.value(), origin),
        huge_pages=tuple(
            HugePageCeiling(Bytes(page), Bytes(total), origin)
            for page, total in huge_page_limits(resources).items()
        ),
    )


def _cut(hundredfold: int) -> int:
    return hundredfold // 100 if hundredfold >= 0 else -(-hundredfold // 100)
