"""The facts that decide which NUMA nodes a container's memory is on, and why the memory manager does not start."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.reasons.fact import ManagerFact, numa_nodes
from nodewright.model.values.golang import quoted
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import Quantity

_PREFIX = "[memorymanager] "

# ---------------------------------------------------------------- the policy and its reservation


class MemoryPolicyUnknown(ManagerFact, frozen=True, kw_only=True):
    """There is no memory manager policy of this name."""

    policy: str

    def kubelet_error(self) -> str:
        return f"unknown policy: {quoted(self.policy)}"


class MemoryPolicyNotOnLinux(ManagerFact, frozen=True, kw_only=True):
    """The policy exists, but only on Windows."""

    policy: str

    def kubelet_error(self) -> str:
        return f'policy {quoted(self.policy)} is not available for platform "linux"'


class ReservedMemoryElsewhere(ManagerFact, frozen=True, kw_only=True):
    """`reservedMemory` names a NUMA node that the machine does not have."""

    numa: int

    def kubelet_error(self) -> str:
        return (
            f"the reserved memory configuration references a NUMA node {self.numa} "
            "that does not exist on this machine"
        )


class ReservedMemoryDiffers(ManagerFact, frozen=True, kw_only=True):
    """`reservedMemory` does not add up to kube-reserved plus system-reserved plus the hard eviction threshold."""

    resource: str
    over_numa: Quantity
    """The sum over the NUMA nodes."""
    node_allocatable: Quantity

    def kubelet_error(self) -> str:
        return (
            f"the total amount {quoted(str(self.over_numa))} of type {quoted(self.resource)} is not equal to "
            f"the value {quoted(str(self.node_allocatable))} determined by Node Allocatable feature"
        )


class ReservedMemoryInexact(ManagerFact, frozen=True, kw_only=True):
    """An amount in `reservedMemory` is stored as a decimal, which the memory manager does not accept."""

    numa: int
    resource: str
    amount: Quantity

    def kubelet_error(self) -> str:
        return "could not covert a variable of type Quantity to int64"


class NoReservedMemory(ManagerFact, frozen=True, kw_only=True):
    """The policy Static needs some memory reserved for the system."""

    def kubelet_error(self) -> str:
        return f"{_PREFIX}you should specify the system reserved memory"


MemoryPolicyFault: TypeAlias = (
    MemoryPolicyUnknown
    | MemoryPolicyNotOnLinux
    | ReservedMemoryElsewhere
    | ReservedMemoryDiffers
    | ReservedMemoryInexact
    | NoReservedMemory
)
"""Why the kubelet does not create its memory manager."""

# ---------------------------------------------------------------- the stored state


class MemoryAssignedWithoutMachine(ManagerFact, frozen=True, kw_only=True):
    """The state has assignments but no machine state."""

    def kubelet_error(self) -> str:
        return f"{_PREFIX}machine state can not be empty when it has memory assignments"


class MemoryAssignedElsewhere(ManagerFact, frozen=True, kw_only=True):
    """The state has an assignment on a NUMA node that the machine does not have."""

    pod: str
    container: str
    """Empty: the assignment is the pod's."""
    numa: int

    def kubelet_error(self) -> str:
        return (
            f"{_PREFIX}(pod: {self.pod}, container: {self.container}) "
            "the memory assignment uses the NUMA that does not exist"
        )


class MemoryTypeNotThere(ManagerFact, frozen=True, kw_only=True):
    """The state has an assignment of a memory type that the NUMA node does not have."""

    pod: str
    container: str
    """Empty: the assignment is the pod's."""
    numa: int
    resource: str

    def kubelet_error(self) -> str:
        return (
            f"{_PREFIX}(pod: {self.pod}, container: {self.container}) the memory assignment uses memory resource "
            "that does not exist"
        )


class MachineMemoryChanged(ManagerFact, frozen=True, kw_only=True):
    """The machine state differs from what the machine, the reservation and the assignments result in."""

    numa: int
    """The first NUMA node that differs."""
    what: str
    """The field that differs, e.g. `memory allocatable`."""
    stored: str
    expected: str

    def kubelet_error(self) -> str:
        return f"{_PREFIX}the expected machine state is different from the real one"

    def sentence(self) -> str:
        return f"NUMA node {self.numa} differs in {self.what}: stored {self.stored}, expected {self.expected}"


MemoryStateFault: TypeAlias = (
    MemoryAssignedWithoutMachine | MemoryAssignedElsewhere | MemoryTypeNotThere | MachineMemoryChanged
)
"""Why the kubelet does not start with the stored state."""

# ---------------------------------------------------------------- refusals


class NUMAMemoryLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What a NUMA node has left of one memory type.

    Units: bytes.
    """

    numa: int
    resource: str
    free: int
    allocatable: int
    group: NUMASet
    """The nodes with which it is used together; only itself if it is not shared."""
    is_used: bool
    """Whether memory is assigned on it."""


class MemoryRequestInexact(ManagerFact, frozen=True, kw_only=True):
    """A request is stored as a decimal ("1.5Gi", "100Ti"), which the memory manager does not accept."""

    resource: str
    amount: Quantity
    in_pod: bool = False
    """Whether it was found while dividing a pod's memory: the kubelet then reports an empty shared pool."""

    def kubelet_error(self) -> str:
        return f"{_PREFIX}failed to represent quantity as int64"

    def error_type(self) -> str:
        """Follows: v1.36, memorymanager/policy_static.go, AllocatePod."""
        return "EmptyPodSharedPoolError" if self.in_pod else ""

    def sentence(self) -> str:
        return (
            f"{self.resource} {self.amount}: the memory manager accepts only amounts that Kubernetes stores as "
            "integers; write it in a smaller unit"
        )


class NoNUMAFits(ManagerFact, frozen=True, kw_only=True):
    """No set of NUMA nodes that may be used together has enough memory.

    Units: bytes.
    """

    requested: tuple[tuple[str, int], ...]
    left: tuple[NUMAMemoryLeft, ...]

    def kubelet_error(self) -> str:
        return (
            f"{_PREFIX}failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        )

    def sentence(self) -> str:
        return f"no NUMA nodes that may be used together have {_amounts(self.requested)} free: {_left(self.left)}"


class AffinityCannotGrow(ManagerFact, frozen=True, kw_only=True):
    """The NUMA nodes of the affinity have too little memory, and no larger set that includes them has enough.

    Units: bytes.
    """

    affinity: NUMASet
    requested: tuple[tuple[str, int], ...]
    left: tuple[NUMAMemoryLeft, ...]

    def kubelet_error(self) -> str:
        return f"{_PREFIX}failed to find NUMA nodes to extend the current topology hint"

    def sentence(self) -> str:
        return (
            f"the affinity is {numa_nodes(self.affinity)}, with less than {_amounts(self.requested)} free, "
            f"and no larger set of NUMA nodes that includes it may be used: {_left(self.left)}"
        )


class DefaultNotPreferred(ManagerFact, frozen=True, kw_only=True):
    """The hint promised a preferred affinity, and the best one available now is not preferred."""

    found: NUMASet

    def kubelet_error(self) -> str:
        return f"{_PREFIX}failed to find the default preferred hint"

    def sentence(self) -> str:
        return f"the hint was preferred, but the best affinity left, {numa_nodes(self.found)}, is not"


class ExtensionNotPreferred(ManagerFact, frozen=True, kw_only=True):
    """The NUMA nodes of the affinity are preferred but too small, and the larger set is not preferred."""

    affinity: NUMASet
    found: NUMASet

    def kubelet_error(self) -> str:
        return f"{_PREFIX}failed to find the extended preferred hint"

    def sentence(self) -> str:
        return (
            f"too little memory on {numa_nodes(self.affinity)}, "
            f"and the larger set, {numa_nodes(self.found)}, is not preferred"
        )


class GroupViolated(ManagerFact, frozen=True, kw_only=True):
    """The affinity includes a NUMA node that is already used alone or in another group."""

    affinity: NUMASet
    left: tuple[NUMAMemoryLeft, ...]

    def kubelet_error(self) -> str:
        return f"{_PREFIX}preferred hint violates NUMA node allocation"

    def sentence(self) -> str:
        return (
            f"{numa_nodes(self.affinity)} cannot be used together: a NUMA node is used alone or in one group "
            f"({_left(self.left)})"
        )


class PodSharedMemoryEmpty(ManagerFact, frozen=True, kw_only=True):
    """Exclusive memory of containers uses up the pod's, and other containers of the pod need some.

    Units: bytes.
    """

    resource: str
    pod_total: int
    exclusive: int
    init: bool
    """Whether those other containers are init containers."""

    def kubelet_error(self) -> str:
        if self.init:
            return f"pod rejected, pod has shared init containers but no {self.resource} available for them"
        return (
            f"pod rejected, sum of exclusive container {self.resource} requests equals pod budget, "
            "leaving no memory for shared containers"
        )

    def error_type(self) -> str:
        """Follows: v1.36, memorymanager/policy_static.go, AllocatePod; cm/admission/errors.go."""
        return "EmptyPodSharedPoolError"


class MemoryTypeMissing(ManagerFact, frozen=True, kw_only=True):
    """The kubelet crashes: it looks up a memory type (a huge page size) that the NUMA node does not list."""

    numa: int
    resource: str

    def kubelet_error(self) -> str:
        return f"the kubelet crashes: NUMA node {self.numa} lists no {self.resource}"

    def error_type(self) -> str:
        """Departs: a kubelet that crashes reports nothing; the reason is then `KubeletCrashes`."""
        return "KubeletCrashes"


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


class MemoryPlaced(ManagerFact, frozen=True, kw_only=True):
    """On which NUMA nodes the memory was assigned, and which ones the affinity named.

    Units: bytes.
    """

    numa: NUMASet
    affinity: NUMASet | None
    """The topology manager's affinity; None: the memory manager chose."""
    requested: tuple[tuple[str, int], ...]
    reused: tuple[tuple[str, int], ...]
    """What was reused from init containers."""

    def kubelet_error(self) -> str:
        return f"memory placed on NUMA nodes {self.numa}"

    def sentence(self) -> str:
        reused = f", {_amounts(self.reused)} of it reused from init containers" if self.reused else ""
        if self.affinity is None:
            origin = "chosen by the memory manager"
        elif self.affinity == self.numa:
            origin = "as in the affinity"
        else:
            origin = f"extended from the affinity {self.affinity}, which has too little"
        return f"{_amounts(self.requested)} on {numa_nodes(self.numa)}, {origin}{reused}"


MemoryReason: TypeAlias = MemoryPolicyFault | MemoryStateFault | MemoryRefusal | MemoryPlaced


def _left(left: Iterable[NUMAMemoryLeft]) -> str:
    """What the NUMA nodes have left; those with equal amounts together."""
    numa_by_text: dict[str, list[int]] = {}
    for node in left:
        text = (
            f"{readable_amount(node.resource, node.free)} of "
            f"{readable_amount(node.resource, node.allocatable)} {node.resource} left{_use(node)}"
        )
        numa_by_text.setdefault(text, []).append(node.numa)
    return ", ".join(
        f"{numa[0]} has {text}" if len(numa) == 1 else f"{NUMASet.from_ids(numa)} have {text} each"
        for text, numa in numa_by_text.items()
    )


def _use(node: NUMAMemoryLeft) -> str:
    if not node.is_used:
        return ""
    return " (used alone)" if len(node.group) == 1 else f" (used together as {node.group})"


def _amounts(amounts: Iterable[tuple[str, int]]) -> str:
    return " and ".join(f"{readable_amount(kind, size)} {kind}" for kind, size in amounts) or "nothing"
