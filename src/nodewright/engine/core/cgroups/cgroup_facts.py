"""The values of cgroup files, each with the numbers that decide it.

Units: bytes; thousandths of a CPU; microseconds of CPU time; number of processes.
"""

from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec

from nodewright.engine.core.requests.oom_adjust import OOMScore
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU

MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH = "memory.min", "memory.low", "memory.high"


class AmountOrigin(StrEnum):
    """The origin of the amount that decides a value."""

    REQUEST = "request"
    """The container's request."""
    LIMIT = "limit"
    """The container's limit."""
    POD_LEVEL = "podLevel"
    """The limit in `spec.resources` of the pod, where the container has none."""
    POD_REQUESTS = "podRequests"
    """The request of the whole pod."""
    POD_LIMITS = "podLimits"
    """The limits of the pod as a whole."""
    OVERHEAD = "overhead"
    """The pod's overhead."""
    BEST_EFFORT = "bestEffort"
    """A fixed amount for the BestEffort class."""
    BURSTABLE_PODS = "burstablePods"
    """The requests of all Burstable pods."""
    PROTECTED_PODS = "protectedPods"
    """The requests of all Guaranteed and Burstable pods."""
    QOS_RESERVED = "qosReserved"
    """The memory that `qosReserved` leaves to the QoS class."""
    LENT = "lent"
    """What the node lends to BestEffort pods."""
    NODE = "node"
    """The node's capacity, less kubeReserved and systemReserved if node allocatable is enforced."""
    KUBE_RESERVED = "kubeReserved"
    """The amounts in `kubeReserved`."""
    SYSTEM_RESERVED = "systemReserved"
    """The amounts in `systemReserved`."""
    POD_PIDS_LIMIT = "podPidsLimit"
    """The kubelet's setting `podPidsLimit`."""
    POLICY = "memoryReservationPolicy"
    """`memoryReservationPolicy` protects no memory."""
    UNBOUNDED = "unbounded"
    """More than any machine has: no limit."""
    UNSET = "nothing"
    """No amount is specified."""


class NoQuotaReason(StrEnum):
    """Why CPU time has no quota."""

    NO_LIMIT = "noLimit"
    EXCLUSIVE_CPUS = "exclusiveCPUs"
    NOT_ENFORCED = "cpuCFSQuota"


class CPUPool(StrEnum):
    """The CPUs that a cgroup runs on."""

    EXCLUSIVE = "own"
    """Exclusive CPUs."""
    POD = "pod"
    """The pod's CPUs that are not exclusive to one of its containers."""
    SHARED = "shared"
    """The shared pool."""
    ALL = "all"
    """All CPUs of the machine."""


class NoSwapReason(StrEnum):
    """Why a container may not swap."""

    BEHAVIOR = "swapBehavior"
    CGROUP_V1 = "cgroupV1"
    CRITICAL = "critical"
    NOT_BURSTABLE = "notBurstable"
    NO_MEMORY = "noMemory"
    REQUEST_IS_LIMIT = "requestIsLimit"
    BEYOND_CAPACITY = "beyondCapacity"


class CPUShares(msgspec.Struct, frozen=True):
    """CPU shares: the proportion of CPU time among sibling cgroups."""

    shares: Shares
    milli_cpu: MilliCPU
    origin: AmountOrigin


class CPUQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU time that may be used in each period; 0: no limit, -1: the quota is disabled."""

    quota_us: Microseconds
    period_us: Microseconds
    milli_cpu: MilliCPU = MilliCPU(0)
    origin: AmountOrigin = AmountOrigin.UNSET
    unlimited: NoQuotaReason | None = None


class MemoryCeiling(msgspec.Struct, frozen=True):
    """The limit of memory."""

    memory_bytes: Bytes
    origin: AmountOrigin


class MemoryAndSwap(msgspec.Struct, frozen=True):
    """The limit of memory and swap together (version 1): that of memory alone, which prevents swapping."""

    memory_bytes: Bytes
    because: NoSwapReason


class ProcessCeiling(msgspec.Struct, frozen=True):
    """The limit of processes and threads."""

    processes: int
    origin: AmountOrigin


class HugePageCeiling(msgspec.Struct, frozen=True):
    """The limit of huge pages of one size."""

    page_bytes: Bytes
    total_bytes: Bytes
    origin: AmountOrigin


class MemoryProtection(msgspec.Struct, frozen=True):
    """Memory that is not reclaimed (`memory.min`), or only if no unprotected memory is left (`memory.low`)."""

    file: str
    memory_bytes: Bytes
    origin: AmountOrigin


class MemoryThrottle(msgspec.Struct, frozen=True, kw_only=True):
    """The memory usage above which the cgroup is throttled: request + factor x (ceiling - request), in whole pages."""

    memory_bytes: Bytes
    request: Bytes
    ceiling: Bytes
    origin: AmountOrigin
    """`limit`, or `node` if the container has no limit."""
    factor: float
    page_bytes: Bytes


class BorrowerCeiling(msgspec.Struct, frozen=True):
    """The memory usage above which BestEffort pods are throttled together: what the node lends."""

    memory_bytes: Bytes


class RunsIdle(msgspec.Struct, frozen=True):
    """The cgroup runs only while no other has work (`cpu.idle`): a borrower on a node that lends."""


class NotThrottled(msgspec.Struct, frozen=True):
    """No limit above which the cgroup is throttled, whatever was set before, because MemoryQoS is off (since 1.37)."""


class SwapShare(msgspec.Struct, frozen=True, kw_only=True):
    """Swap in proportion to requested memory: request / capacity x swap."""

    swap_bytes: Bytes
    request: Bytes
    capacity: Bytes
    swap: Bytes


class SwapForbidden(msgspec.Struct, frozen=True):
    """No swap (version 2)."""

    because: NoSwapReason
    swap_bytes: Bytes = Bytes(0)


class KilledTogether(msgspec.Struct, frozen=True):
    """An OOM kill ends all processes of the container, not one (`singleProcessOOMKill: false`)."""


class RunsOn(msgspec.Struct, frozen=True):
    """The CPUs that the cgroup may run on."""

    cpus: CPUSet
    pool: CPUPool


class MemoryFrom(msgspec.Struct, frozen=True):
    """The NUMA nodes that the cgroup may allocate memory from."""

    numa: NUMASet


class CeilingMissing(msgspec.Struct, frozen=True):
    """A limit that is not set on a pod's cgroup, because at least one container has none."""

    resource: str
    containers: tuple[str, ...]
    """The containers without a limit; empty: the pod is BestEffort."""


Unified: TypeAlias = (
    MemoryProtection
    | MemoryThrottle
    | BorrowerCeiling
    | NotThrottled
    | SwapShare
    | SwapForbidden
    | KilledTogether
)
"""The facts that are written to files of version 2 by name."""

CgroupFact: TypeAlias = (
    CPUShares
    | CPUQuota
    | MemoryCeiling
    | MemoryAndSwap
    | ProcessCeiling
    | HugePageCeiling
    | Unified
    | RunsOn
    | RunsIdle
    | MemoryFrom
)
"""The fact that decides the value of a file."""


class CgroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's settings of one of its own cgroups. None: the setting is left unchanged."""

    cpu: CPUShares | None = None
    quota: CPUQuota | None = None
    memory: MemoryCeiling | None = None
    processes: ProcessCeiling | None = None
    huge_pages: tuple[HugePageCeiling, ...] | None = None
    unified: tuple[Unified, ...] = ()
    cpus: RunsOn | None = None
    unset_limits: tuple[CeilingMissing, ...] = ()
    """The ceilings that are not set, and why."""


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a container's cgroup, or the sandbox's, that the kubelet sends to the runtime. None: not sent."""

    cpu: CPUShares | None = None
    quota: CPUQuota | None = None
    memory: MemoryCeiling | None = None
    swap: MemoryAndSwap | None = None
    huge_pages: tuple[HugePageCeiling, ...] = ()
    unified: tuple[Unified, ...] = ()
    oom_score: OOMScore | None = None
    cpus: RunsOn | None = None
    mems: MemoryFrom | None = None


def unified_file(fact: Unified) -> tuple[str, str]:
    """The file of version 2 and the text that is written to it.

    >>> unified_file(SwapForbidden(NoSwapReason.CRITICAL))
    ('memory.swap.max', '0')
    """
    match fact:
        case MemoryProtection(file=file, memory_bytes=amount):
            return file, str(amount)
        case MemoryThrottle(memory_bytes=amount) | BorrowerCeiling(memory_bytes=amount):
            return MEMORY_HIGH, str(amount)
        case NotThrottled():
            return MEMORY_HIGH, "max"
        case SwapShare(swap_bytes=amount) | SwapForbidden(swap_bytes=amount):
            return "memory.swap.max", str(amount)
        case KilledTogether():
            return "memory.oom.group", "1"
        case _:
            assert_never(fact)
