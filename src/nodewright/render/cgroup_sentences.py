"""The words for where values in cgroups come from."""

from typing import assert_never

from nodewright.core.cgroups.compare import Difference
from nodewright.core.cgroups.facts import (
    CeilingMissing,
    CPUQuota,
    CPUShares,
    Fact,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    MemoryProtection,
    MemoryThrottle,
    NoSwap,
    Origin,
    Pool,
    ProcessCeiling,
    RunsOn,
    SwapForbidden,
    SwapShare,
    Unlimited,
)
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.rules import huge_page_text
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.render.amounts import amount_text
from nodewright.render.request_sentences import joined


def why(file: File) -> str:
    """Where the value of a file comes from.

    >>> from nodewright.core.cgroups.facts import CPUShares, Origin
    >>> why(File("cpu.weight", "10", CPUShares(256, 250, Origin.REQUEST)))
    'requests.cpu 250m: 256 shares'
    """
    text = fact_sentence(file.because)
    return f"{text}; up to whole per cent, as systemd counts" if file.wanted else text


def difference_reason(difference: Difference) -> str:
    """Why a file should say what it should, or why a group should not be there."""
    if difference.group is None:
        return "the group of a pod that is not among those given"
    if not difference.file:
        return "there is no such group"
    if difference.because is None:
        return "nobody should have written to it"
    return fact_sentence(difference.because)


def fact_sentence(fact: Fact) -> str:
    """Where a value comes from."""
    match fact:
        case CPUShares():
            return _shares(fact)
        case CPUQuota():
            return _quota(fact)
        case MemoryCeiling(memory_bytes=amount, origin=origin):
            return _amount(origin, MEMORY, amount)
        case MemoryAndSwap(because=because):
            return f"memory and swap together as much as memory: {_NO_SWAP[because]}"
        case ProcessCeiling(processes=count, origin=origin):
            return _SETTINGS.get(origin) or f"{_WHOSE[origin]} {count} processes"
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
            return "memory set aside for the container by the memory manager"
        case _:
            assert_never(fact)


def missing_sentence(fact: CeilingMissing) -> str:
    """Why a pod's group has no ceiling of its own."""
    text = f"no ceiling on {fact.resource}"
    if not fact.containers:
        return f"{text}: the pod is BestEffort"
    verb = "has" if len(fact.containers) == 1 else "have"
    return f"{text}: {joined(fact.containers)} {verb} no limit"


def _shares(fact: CPUShares) -> str:
    if fact.origin is Origin.BEST_EFFORT:
        return f"BestEffort: {fact.shares} shares, the least"
    if fact.origin is Origin.NOTHING:
        return f"neither requests.cpu nor limits.cpu: {fact.shares} shares, the least"
    return f"{_amount(fact.origin, CPU, fact.milli_cpu)}: {fact.shares} shares"


def _quota(fact: CPUQuota) -> str:
    match fact.unlimited:
        case Unlimited.NO_LIMIT:
            return "no cpu limit"
        case Unlimited.EXCLUSIVE_CPUS:
            return "CPUs of its own: no quota"
        case Unlimited.NOT_ENFORCED:
            return "cpuCFSQuota: false"
        case None:
            limit = _amount(fact.origin, CPU, fact.milli_cpu)
            return f"{limit}: {fact.quota_us} of {fact.period_us} µs"
        case _:
            assert_never(fact.unlimited)


def _huge_pages(fact: HugePageCeiling) -> str:
    size = huge_page_text(fact.page_bytes)
    if fact.origin is Origin.UNBOUNDED:
        return "left to the pods' groups: more than there can be"
    if fact.origin is Origin.NOTHING:
        return f"nobody asks for huge pages of {size}"
    return f"{_WHOSE[fact.origin]} {_bytes(fact.total_bytes)} in huge pages of {size}"


def _throttle(fact: MemoryThrottle) -> str:
    name = "limits.memory" if fact.origin is Origin.LIMIT else "the node's memory for pods"
    request = _bytes(fact.request)
    return (
        f"requests.memory {request} + {fact.factor:g} x ({name} {_bytes(fact.ceiling)} - {request}), "
        f"in whole pages of {_bytes(fact.page_bytes)}"
    )


def _amount(origin: Origin, resource: str, amount: int) -> str:
    text = amount_text(resource, amount)
    match origin:
        case Origin.REQUEST:
            return f"requests.{resource} {text}"
        case Origin.LIMIT:
            return f"limits.{resource} {text}"
        case Origin.POD_LEVEL:
            return f"the pod level's limits.{resource} {text}"
        case _:
            return f"{_WHOSE[origin]} {resource} {text}"


def _bytes(amount: int) -> str:
    return amount_text(MEMORY, amount)


_WHOSE = {
    Origin.REQUEST: "requests:",
    Origin.LIMIT: "limits:",
    Origin.POD_LEVEL: "the pod level's limits:",
    Origin.POD_REQUESTS: "the pod requests",
    Origin.POD_LIMITS: "the pod is limited to",
    Origin.OVERHEAD: "the pod's overhead is",
    Origin.BEST_EFFORT: "BestEffort pods request",
    Origin.BURSTABLE_PODS: "Burstable pods request together",
    Origin.PROTECTED_PODS: "Guaranteed and Burstable pods request together",
    Origin.QOS_RESERVED: "qosReserved leaves",
    Origin.NODE: "all pods together can have",
    Origin.KUBE_RESERVED: "kubeReserved:",
    Origin.SYSTEM_RESERVED: "systemReserved:",
    Origin.POD_PIDS_LIMIT: "podPidsLimit:",
    Origin.POLICY: "memoryReservationPolicy:",
    Origin.UNBOUNDED: "unbounded:",
    Origin.NOTHING: "nobody asks for",
}
_SETTINGS = {
    Origin.POLICY: "memoryReservationPolicy: None",
    Origin.NOTHING: "no memory is requested",
}
_POOLS = {
    Pool.OWN: "CPUs of its own",
    Pool.POD: "CPUs of the pod that none of its containers has to itself",
    Pool.SHARED: "CPUs that no container has to itself, as they are now",
    Pool.ALL: "all CPUs: the CPU manager gives none away",
}
_NO_SWAP = {
    NoSwap.BEHAVIOR: "swapBehavior is not LimitedSwap",
    NoSwap.CGROUP_V1: "LimitedSwap needs version 2 of cgroups",
    NoSwap.CRITICAL: "the pod is critical",
    NoSwap.NOT_BURSTABLE: "the pod is not Burstable",
    NoSwap.NO_MEMORY: "the container neither requests nor limits memory",
    NoSwap.REQUEST_IS_LIMIT: "the container's memory request is its limit",
    NoSwap.BEYOND_CAPACITY: "the container requests more memory than the node has",
}
