"""The facts that decide whose memory a container gets, and whether the memory manager starts at all."""

from typing import TypeAlias

import msgspec

from nodewright.values.idset import NUMASet
from nodewright.values.quantity import Quantity

# ---------------------------------------------------------------- the policy and its reservation


class MemoryPolicyUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no memory manager policy of this name."""

    policy: str


class MemoryPolicyNotOnLinux(msgspec.Struct, frozen=True, kw_only=True):
    """The policy exists, but only on Windows."""

    policy: str


class ReservedMemoryElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """`reservedMemory` names a NUMA node that the machine does not have."""

    numa: int


class ReservedMemoryDiffers(msgspec.Struct, frozen=True, kw_only=True):
    """`reservedMemory` does not add up to what kube-reserved, system-reserved and hard eviction reserve."""

    resource: str
    over_numa: Quantity
    """The sum over the NUMA nodes."""
    node_allocatable: Quantity


class ReservedMemoryInexact(msgspec.Struct, frozen=True, kw_only=True):
    """An amount in `reservedMemory` is held as a decimal, which this manager does not take."""

    numa: int
    resource: str
    amount: Quantity


class NoReservedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The policy Static needs some memory reserved for the system."""


MemoryPolicyFault: TypeAlias = (
    MemoryPolicyUnknown
    | MemoryPolicyNotOnLinux
    | ReservedMemoryElsewhere
    | ReservedMemoryDiffers
    | ReservedMemoryInexact
    | NoReservedMemory
)
"""Why the kubelet does not make its memory manager."""

# ---------------------------------------------------------------- the state that it starts on


class MemoryAssignedWithoutMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The state has assignments but no machine that they could be on."""


class MemoryAssignedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """The state has an assignment on a NUMA node that the machine does not have."""

    pod: str
    container: str
    """Empty: the assignment is the pod's."""
    numa: int


class MemoryTypeNotThere(msgspec.Struct, frozen=True, kw_only=True):
    """The state has an assignment of a kind of memory that the NUMA node does not have."""

    pod: str
    container: str
    """Empty: the assignment is the pod's."""
    numa: int
    resource: str


class MachineMemoryChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The machine in the state is not what the machine, the reservation and the assignments come to."""

    numa: int
    """The first NUMA node that differs."""
    what: str
    """The field that differs, e.g. `memory allocatable`."""
    stored: str
    expected: str


MemoryStateFault: TypeAlias = (
    MemoryAssignedWithoutMachine | MemoryAssignedElsewhere | MemoryTypeNotThere | MachineMemoryChanged
)
"""Why the kubelet does not start on the state."""

# ---------------------------------------------------------------- placing


class NUMAMemoryLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What a NUMA node has left of one kind of memory.

    Units: bytes.
    """

    numa: int
    resource: str
    free: int
    allocatable: int
    group: NUMASet
    """The nodes with which it is used together; itself alone if it is not shared."""
    is_used: bool
    """Whether something is placed on it."""


class MemoryRequestInexact(msgspec.Struct, frozen=True, kw_only=True):
    """A request is held as a decimal ("1.5Gi", "100Ti"), which this manager does not take."""

    resource: str
    amount: Quantity
    in_pod: bool = False
    """Whether it was found when a pod's memory was divided: the kubelet then takes it for an empty shared pool."""


class NoNUMAFits(msgspec.Struct, frozen=True, kw_only=True):
    """No NUMA nodes have enough memory that may be used together.

    Units: bytes.
    """

    requested: tuple[tuple[str, int], ...]
    left: tuple[NUMAMemoryLeft, ...]


class AffinityCannotGrow(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA nodes agreed on have too little memory, and no larger set with them has enough.

    Units: bytes.
    """

    affinity: NUMASet
    requested: tuple[tuple[str, int], ...]
    left: tuple[NUMAMemoryLeft, ...]


class DefaultNotPreferred(msgspec.Struct, frozen=True, kw_only=True):
    """A preferred place was promised, and the best that there is by now is none."""

    found: NUMASet


class ExtensionNotPreferred(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA nodes agreed on were preferred but too small, and the larger set is not preferred."""

    affinity: NUMASet
    found: NUMASet


class GroupViolated(msgspec.Struct, frozen=True, kw_only=True):
    """The NUMA nodes agreed on include one that is used alone or together with others."""

    affinity: NUMASet
    left: tuple[NUMAMemoryLeft, ...]


class PodSharedMemoryEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """Containers with memory of their own take all of the pod's, and others need some of it.

    Units: bytes.
    """

    resource: str
    pod_total: int
    exclusive: int
    init: bool
    """Whether those others are init containers."""


class MemoryTypeMissing(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet crashes: it looks for a kind of memory (a huge page size) that the NUMA node does not list."""

    numa: int
    resource: str


MemoryRefusal: TypeAlias = (
    MemoryRequestInexact
    | NoNUMAFits
    | AffinityCannotGrow
    | DefaultNotPreferred
    | ExtensionNotPreferred
    | GroupViolated
    | PodSharedMemoryEmpty
    | MemoryTypeMissing
)


class MemoryPlaced(msgspec.Struct, frozen=True, kw_only=True):
    """Where the memory was placed, and whether these are the NUMA nodes that were agreed on.

    Units: bytes.
    """

    numa: NUMASet
    affinity: NUMASet | None
    """What was agreed on; None: it was left to this manager."""
    requested: tuple[tuple[str, int], ...]
    reused: tuple[tuple[str, int], ...]
    """What was taken over from init containers."""


MemoryReason: TypeAlias = MemoryPolicyFault | MemoryStateFault | MemoryRefusal | MemoryPlaced
