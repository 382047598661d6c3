"""Sentences that explain cgroup values."""

from typing import assert_never

from nodewright.documents.output.request_sentences import joined
from nodewright.engine.core.cgroups.cgroup_comparison import FileDifference
from nodewright.engine.core.cgroups.cgroup_config import huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CeilingMissing,
    CgroupFact,
    CPUPool,
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
    ProcessCeiling,
    RunsOn,
    SwapForbidden,
    SwapShare,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, amount_text


def file_value_reason(file: CgroupFile) -> str:
    """The reason for the value of a file.

    >>> from nodewright.engine.core.cgroups.cgroup_facts import CPUShares, AmountOrigin
    >>> file_value_reason(CgroupFile("cpu.weight", "10", CPUShares(256, 250, AmountOrigin.REQUEST)))
    'requests.cpu 250m: 256 shares'
    """
    text = fact_sentence(file.because)
    return f"{text}; rounded up to whole per cent, as systemd does" if file.kubelet_value else text


def difference_reason(difference: FileDifference) -> str:
    """The reason for the expected value of a file, or for an unexpected cgroup or file."""
    if difference.group is None:
        return "the cgroup of a pod that is not in the input"
    if not difference.file:
        return "the cgroup does not exist"
    if difference.because is None:
        return "the kubelet does not write this file"
    return fact_sentence(difference.because)


def fact_sentence(fact: CgroupFact) -> str:
    """The reason for a value."""
    match fact:
        case CPUShares():
            return _shares(fact)
        case CPUQuota():
            return _quota(fact)
        case MemoryCeiling(memory_bytes=amount, origin=origin):
            return _amount(origin, MEMORY, amount)
        case MemoryAndSwap(because=because):
            return f"memory and swap limit equals the memory limit: {_NO_SWAP[because]}"
        case ProcessCeiling(processes=count, origin=origin):
            return _SETTINGS.get(origin) or f"{_ORIGINS[origin]} {count} processes"
        case HugePageCeiling():
            return _huge_pages(fact)
        case MemoryProtection(memory_bytes=amount, origin=origin):
            return _SETTINGS.get(origin) or _amount(origin, MEMORY, amount)
        case MemoryThrottle():
            return _throttle(fact)
        case SwapShare(request=request, capacity=capacity, swap=swap):
            return (
                f"requests.memory {_bytes(request)} / the node's memory {_bytes(capacity)} "
                f"x its swap {_bytes(swap)}"
            )
        case SwapForbidden(because=because):
            return f"no swap: {_NO_SWAP[because]}"
        case KilledTogether():
            return "singleProcessOOMKill: false"
        case RunsOn(pool=pool):
            return _POOLS[pool]
        case MemoryFrom():
            return "memory allocated to the container by the memory manager"
        case _:
            assert_never(fact)


def missing_limit_sentence(fact: CeilingMissing) -> str:
    """Why a pod cgroup has no limit."""
    text = f"no {fact.resource} limit on the pod"
    if not fact.containers:
        return f"{text}: the pod is BestEffort"
    verb = "has" if len(fact.containers) == 1 else "have"
    return f"{text}: {joined(fact.containers)} {verb} no limit"


def _shares(fact: CPUShares) -> str:
    if fact.origin is AmountOrigin.BEST_EFFORT:
        return f"BestEffort: {fact.shares} shares, the minimum"
    if fact.origin is AmountOrigin.UNSET:
        return f"neither requests.cpu nor limits.cpu: {fact.shares} shares, the minimum"
    return f"{_amount(fact.origin, CPU, fact.milli_cpu)}: {fact.shares} shares"


def _quota(fact: CPUQuota) -> str:
    match fact.unlimited:
        case NoQuotaReason.NO_LIMIT:
            return "no cpu limit"
        case NoQuotaReason.EXCLUSIVE_CPUS:
            return "exclusive CPUs: no quota"
        case NoQuotaReason.NOT_ENFORCED:
            return "cpuCFSQuota: false"
        case None:
            limit = _amount(fact.origin, CPU, fact.milli_cpu)
            return f"{limit}: {fact.quota_us} of {fact.period_us} µs"
        case _:
            assert_never(fact.unlimited)


def _huge_pages(fact: HugePageCeiling) -> str:
    size = huge_page_size_name(fact.page_bytes)
    if fact.origin is AmountOrigin.UNBOUNDED:
        return "limited by the pod cgroups: above any possible amount"
    if fact.origin is AmountOrigin.UNSET:
        return f"no requests for huge pages of {size}"
    return f"{_ORIGINS[fact.origin]} {_bytes(fact.total_bytes)} in huge pages of {size}"


def _throttle(fact: MemoryThrottle) -> str:
    name = "limits.memory" if fact.origin is AmountOrigin.LIMIT else "the node's memory for pods"
    request = _bytes(fact.request)
    return (
        f"requests.memory {request} + {fact.factor:g} x ({name} {_bytes(fact.ceiling)} - {request}), "
        f"in whole pages of {_bytes(fact.page_bytes)}"
    )


def _amount(origin: AmountOrigin, resource: str, amount: int) -> str:
    text = amount_text(resource, amount)
    match origin:
        case AmountOrigin.REQUEST:
            return f"requests.{resource} {text}"
        case AmountOrigin.LIMIT:
            return f"limits.{resource} {text}"
        case AmountOrigin.POD_LEVEL:
            return f"the pod level's limits.{resource} {text}"
        case _:
            return f"{_ORIGINS[origin]} {resource} {text}"


def _bytes(amount: int) -> str:
    return amount_text(MEMORY, amount)


_ORIGINS = {
    AmountOrigin.REQUEST: "requests:",
    AmountOrigin.LIMIT: "limits:",
    AmountOrigin.POD_LEVEL: "the pod level's limits:",
    AmountOrigin.POD_REQUESTS: "the pod requests",
    AmountOrigin.POD_LIMITS: "the pod is limited to",
    AmountOrigin.OVERHEAD: "the pod's overhead is",
    AmountOrigin.BEST_EFFORT: "BestEffort pods request",
    AmountOrigin.BURSTABLE_PODS: "Burstable pods request together",
    AmountOrigin.PROTECTED_PODS: "Guaranteed and Burstable pods request together",
    AmountOrigin.QOS_RESERVED: "qosReserved leaves",
    AmountOrigin.NODE: "allocatable for all pods:",
    AmountOrigin.KUBE_RESERVED: "kubeReserved:",
    AmountOrigin.SYSTEM_RESERVED: "systemReserved:",
    AmountOrigin.POD_PIDS_LIMIT: "podPidsLimit:",
    AmountOrigin.POLICY: "memoryReservationPolicy:",
    AmountOrigin.UNBOUNDED: "unbounded:",
    AmountOrigin.UNSET: "no requests for",
}
_SETTINGS = {
    AmountOrigin.POLICY: "memoryReservationPolicy: None",
    AmountOrigin.UNSET: "no memory is requested",
}
_POOLS = {
    CPUPool.EXCLUSIVE: "exclusive CPUs",
    CPUPool.POD: "CPUs shared within the pod",
    CPUPool.SHARED: "the current shared pool",
    CPUPool.ALL: "all CPUs: the CPU manager allocates none exclusively",
}
_NO_SWAP = {
    NoSwapReason.BEHAVIOR: "swapBehavior is not LimitedSwap",
    NoSwapReason.CGROUP_V1: "LimitedSwap needs cgroup v2",
    NoSwapReason.CRITICAL: "the pod is critical",
    NoSwapReason.NOT_BURSTABLE: "the pod is not Burstable",
    NoSwapReason.NO_MEMORY: "the container has no memory request or limit",
    NoSwapReason.REQUEST_IS_LIMIT: "the container's memory request equals its limit",
    NoSwapReason.BEYOND_CAPACITY: "the container requests more memory than the node has",
}
