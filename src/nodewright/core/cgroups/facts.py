"""What is written to cgroups, each value with the numbers that it comes from.

Units: bytes; thousandths of a CPU; microseconds of CPU time; pieces for processes.
"""

from enum import StrEnum
from typing import TypeAlias, assert_never

import msgspec

from nodewright.core.requests import OOMScore
from nodewright.values.cpu_time import Shares
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.values.units import Bytes, Microseconds, MilliCPU

MEMORY_MIN, MEMORY_LOW, MEMORY_HIGH = "memory.min", "memory.low", "memory.high"


class Origin(StrEnum):
    """Whose amount it is that a value comes from."""

    REQUEST = "request"
    """The container's request."""
    LIMIT = "limit"
    """The container's limit."""
    POD_LEVEL = "podLevel"
    """The limit in `spec.resources` of the pod, where the container has none."""
    POD_REQUESTS = "podRequests"
    """What the pod requests as a whole."""
    POD_LIMITS = "podLimits"
    """The limits of the pod as a whole."""
    OVERHEAD = "overhead"
    """The pod's overhead."""
    BEST_EFFORT = "bestEffort"
    """The class alone."""
    BURSTABLE_PODS = "burstablePods"
    """What all Burstable pods request together."""
    PROTECTED_PODS = "protectedPods"
    """What all Guaranteed and Burstable pods request together."""
    QOS_RESERVED = "qosReserved"
    """What `qosReserved` leaves to the class."""
    NODE = "node"
    """What the node has for pods, or all it has where node allocatable is not enforced."""
    KUBE_RESERVED = "kubeReserved"
    """What is kept for Kubernetes' own daemons."""
    SYSTEM_RESERVED = "systemReserved"
    """What is kept for the system's daemons."""
    POD_PIDS_LIMIT = "podPidsLimit"
    """The kubelet's setting of that name."""
    POLICY = "memoryReservationPolicy"
    """The kubelet's setting of that name protects nothing."""
    UNBOUNDED = "unbounded"
    """On purpose more than there can be."""
    NOTHING = "nothing"
    """Nobody says anything."""


class Unlimited(StrEnum):
    """Why CPU time has no quota."""

    NO_LIMIT = "noLimit"
    EXCLUSIVE_CPUS = "exclusiveCPUs"
    NOT_ENFORCED = "cpuCFSQuota"


class Pool(StrEnum):
    """Which CPUs a group runs on."""

    OWN = "own"
    """CPUs that nobody else has."""
    POD = "pod"
    """Those of the pod that none of its containers has to itself."""
    SHARED = "shared"
    """Those that no container has to itself."""
    ALL = "all"
    """All of the machine."""


class NoSwap(StrEnum):
    """Why a container may not swap."""

    BEHAVIOR = "swapBehavior"
    CGROUP_V1 = "cgroupV1"
    CRITICAL = "critical"
    NOT_BURSTABLE = "notBurstable"
    NO_MEMORY = "noMemory"
    REQUEST_IS_LIMIT = "requestIsLimit"
    BEYOND_CAPACITY = "beyondCapacity"


class CPUShares(msgspec.Struct, frozen=True):
    """CPU time in proportion to that of neighbours."""

    shares: Shares
    milli_cpu: MilliCPU
    origin: Origin


class CPUQuota(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time that may be used in each period: 0 is no limit, -1 a limit that is lifted."""

    quota_us: Microseconds
    period_us: Microseconds
    milli_cpu: MilliCPU = MilliCPU(0)
    origin: Origin = Origin.NOTHING
    unlimited: Unlimited | None = None


class MemoryCeiling(msgspec.Struct, frozen=True):
    """Memory that may be used."""

    memory_bytes: Bytes
    origin: Origin


class MemoryAndSwap(msgspec.Struct, frozen=True):
    """Memory and swap together (version 1): as much as memory alone, so none should be swapped."""

    memory_bytes: Bytes
    because: NoSwap


class ProcessCeiling(msgspec.Struct, frozen=True):
    """Processes and threads that there may be."""

    processes: int
    origin: Origin


class HugePageCeiling(msgspec.Struct, frozen=True):
    """Huge pages of one size that may be used."""

    page_bytes: Bytes
    total_bytes: Bytes
    origin: Origin


class MemoryProtection(msgspec.Struct, frozen=True):
    """Memory that is not reclaimed (`memory.min`), or only when nothing else is left (`memory.low`)."""

    file: str
    memory_bytes: Bytes
    origin: Origin


class MemoryThrottle(msgspec.Struct, frozen=True, kw_only=True):
    """Memory beyond which the group is slowed down: request + factor x (ceiling - request), in whole pages."""

    memory_bytes: Bytes
    request: Bytes
    ceiling: Bytes
    origin: Origin
    """`limit`, or `node` where the container has none."""
    factor: float
    page_bytes: Bytes


class SwapShare(msgspec.Struct, frozen=True, kw_only=True):
    """Swap in proportion to requested memory: request / capacity x swap."""

    swap_bytes: Bytes
    request: Bytes
    capacity: Bytes
    swap: Bytes


class SwapForbidden(msgspec.Struct, frozen=True):
    """No swap (version 2)."""

    because: NoSwap
    swap_bytes: Bytes = Bytes(0)


class KilledTogether(msgspec.Struct, frozen=True):
    """When memory runs out all processes of the container end, not one (`singleProcessOOMKill: false`)."""


class RunsOn(msgspec.Struct, frozen=True):
    """The CPUs that the group may run on."""

    cpus: CPUSet
    pool: Pool


class MemoryFrom(msgspec.Struct, frozen=True):
    """The NUMA nodes that the group's memory comes from."""

    numa: NUMASet


class CeilingMissing(msgspec.Struct, frozen=True):
    """A ceiling that a pod's group does not get: at least one container has no limit of its own."""

    resource: str
    containers: tuple[str, ...]
    """None: the class gets no ceiling."""


Unified: TypeAlias = MemoryProtection | MemoryThrottle | SwapShare | SwapForbidden | KilledTogether
"""What goes to files of version 2 by their name."""

Fact: TypeAlias = (
    CPUShares
    | CPUQuota
    | MemoryCeiling
    | MemoryAndSwap
    | ProcessCeiling
    | HugePageCeiling
    | Unified
    | RunsOn
    | MemoryFrom
)
"""Where the value of a file comes from."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet sets one of its own groups to. None: it leaves the setting alone."""

    cpu: CPUShares | None = None
    quota: CPUQuota | None = None
    memory: MemoryCeiling | None = None
    processes: ProcessCeiling | None = None
    huge_pages: tuple[HugePageCeiling, ...] | None = None
    unified: tuple[Unified, ...] = ()
    cpus: RunsOn | None = None
    missing: tuple[CeilingMissing, ...] = ()
    """Ceilings that it has none of, and why."""


class ContainerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet tells the runtime to set a container's group, or the sandbox, to. None: nothing."""

    cpu: CPUShares | None = None
    quota: CPUQuota | None = None
    memory: MemoryCeiling | None = None
    swap: MemoryAndSwap | None = None
    huge_pages: tuple[HugePageCeiling, ...] = ()
    unified: tuple[Unified, ...] = ()
    oom_score: OOMScore | None = None
    cpus: RunsOn | None = None
    mems: MemoryFrom | None = None


def unified_text(fact: Unified) -> tuple[str, str]:
    """The file of version 2 and what is written to it.

    >>> unified_text(SwapForbidden(NoSwap.CRITICAL))
    ('memory.swap.max', '0')
    """
    match fact:
        case MemoryProtection(file=file, memory_bytes=amount):
            return file, str(amount)
        case MemoryThrottle(memory_bytes=amount):
            return MEMORY_HIGH, str(amount)
        case SwapShare(swap_bytes=amount) | SwapForbidden(swap_bytes=amount):
            return "memory.swap.max", str(amount)
        case KilledTogether():
            return "memory.oom.group", "1"
        case _:
            assert_never(fact)
