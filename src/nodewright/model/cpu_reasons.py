"""The facts that decide which CPUs a container gets, and whether the CPU manager starts at all."""

from typing import TypeAlias

import msgspec

from nodewright.values.idset import CPUSet, NUMASet

# ---------------------------------------------------------------- the machine


class CPUCountUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """The description of the machine counts no CPUs."""


class CoreWithoutThreads(msgspec.Struct, frozen=True, kw_only=True):
    """A core of the machine lists no CPU."""

    numa: int
    core: int


class CoreThreadsRepeated(msgspec.Struct, frozen=True, kw_only=True):
    """A core of the machine lists a CPU more than once."""

    numa: int
    core: int
    threads: tuple[int, ...]


MachineFault: TypeAlias = CPUCountUnknown | CoreWithoutThreads | CoreThreadsRepeated

# ---------------------------------------------------------------- the policy and its options


class CPUPolicyUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no CPU manager policy of this name."""

    policy: str


class CPUPolicyTakesNoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The policy `none` was given options."""

    options: tuple[tuple[str, str], ...]


class CPUOptionUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no CPU manager policy option of this name."""

    option: str


class CPUOptionGated(msgspec.Struct, frozen=True, kw_only=True):
    """The option's stage of maturity is switched off by its feature gate."""

    option: str
    stage: str
    """`Alpha` or `Beta`."""


class CPUOptionValueInvalid(msgspec.Struct, frozen=True, kw_only=True):
    """The option's value is no boolean."""

    option: str
    value: str


class CPUOptionsExclusive(msgspec.Struct, frozen=True, kw_only=True):
    """Two options are on that exclude each other."""

    one: str
    other: str


class AlignBySocketAgainstPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The option align-by-socket does not go with this topology manager policy."""

    policy: str


class AlignBySocketAgainstMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The option align-by-socket does not go with a machine of more sockets than NUMA nodes."""

    sockets: int
    numa_nodes: int


class CPUReservationMissing(msgspec.Struct, frozen=True, kw_only=True):
    """The static policy needs a CPU reservation, and none is configured."""


class CPUReservationZero(msgspec.Struct, frozen=True, kw_only=True):
    """The static policy needs a CPU reservation above zero."""


class CPUReservationUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """The reserved CPUs are not as many as the reservation says.

    Units: CPUs, the reservation rounded up.
    """

    reserved: CPUSet
    wanted: int


class ReservedCPUUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """The list of reserved CPUs names one that the machine lacks."""

    cpu: int


PolicyFault: TypeAlias = (
    CPUPolicyUnknown
    | CPUPolicyTakesNoOptions
    | CPUOptionUnknown
    | CPUOptionGated
    | CPUOptionValueInvalid
    | CPUOptionsExclusive
    | AlignBySocketAgainstPolicy
    | AlignBySocketAgainstMachine
    | CPUReservationMissing
    | CPUReservationZero
    | CPUReservationUnmet
    | ReservedCPUUnknown
)

# ---------------------------------------------------------------- the state that a kubelet starts on


class SharedPoolEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """The state has assignments, but no CPUs in the shared pool."""


class ReservedCPUsNotShared(msgspec.Struct, frozen=True, kw_only=True):
    """Some reserved CPUs are missing from the shared pool of the state."""

    reserved: CPUSet
    shared: CPUSet


class ReservedCPUsShared(msgspec.Struct, frozen=True, kw_only=True):
    """Strictly reserved CPUs are in the shared pool of the state."""

    reserved: CPUSet
    """Those of the reserved CPUs that are there."""
    shared: CPUSet


class AssignmentShared(msgspec.Struct, frozen=True, kw_only=True):
    """A container's CPUs are in the shared pool of the state, too."""

    pod: str
    container: str
    cpus: CPUSet
    shared: CPUSet


class MachineCPUsChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The state does not cover just the CPUs that it should."""

    expected: CPUSet
    found: CPUSet


StateFault: TypeAlias = (
    SharedPoolEmpty | ReservedCPUsNotShared | ReservedCPUsShared | AssignmentShared | MachineCPUsChanged
)

# ---------------------------------------------------------------- a container or pod that asks for CPUs


class CPUHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A container with CPUs of its own; no container: a pod with CPUs that none of its containers has."""

    pod: str
    container: str
    cpus: CPUSet


class CPUsOfNUMA(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the CPUs of one NUMA node."""

    numa: int
    free: CPUSet
    reserved: CPUSet
    holders: tuple[CPUHolder, ...]


class NotEnoughCPUs(msgspec.Struct, frozen=True, kw_only=True):
    """Fewer CPUs can be given away than are asked for.

    Units: CPUs.
    """

    requested: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()
    """The NUMA nodes with what is free on them and who has the rest; empty where that is not known."""


class NotWholeCores(msgspec.Struct, frozen=True, kw_only=True):
    """Only whole cores are given out, and the request is no multiple of a core's CPUs.

    Units: CPUs.
    """

    requested: int
    cpus_per_core: int


class NotEnoughWholeCores(msgspec.Struct, frozen=True, kw_only=True):
    """Only whole cores are given out, and too few CPUs are free on cores without a reserved CPU.

    Units: CPUs.
    """

    requested: int
    cpus_per_core: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()


class PodSharedPoolEmpty(msgspec.Struct, frozen=True, kw_only=True):
    """Containers of the pod take all its CPUs for themselves, and others need some to share.

    Units: CPUs.
    """

    pod_cpus: int
    exclusive: int
    init: bool
    """Whether it is an init container that would have nothing to run on."""


class CPUAccountingWrong(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's distribution over NUMA nodes came out with too few or too many CPUs.

    Units: CPUs; negative: too many.
    """

    remaining: int


class PickerRefuses(msgspec.Struct, frozen=True, kw_only=True):
    """A CPU picker that is not the kubelet's has no CPUs to give, though enough are free.

    Units: requested in CPUs.
    """

    picker: str
    said: str
    requested: int
    free: CPUSet


class PickedBy(msgspec.Struct, frozen=True, kw_only=True):
    """A CPU picker that is not the kubelet's has chosen these CPUs."""

    picker: str
    cpus: CPUSet


# ---------------------------------------------------------------- known defects of the kubelet


class KubeletHangs(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet would never come back from this decision.

    Units: CPUs.
    """

    requested: int
    group: int
    """CPUs that are given out together."""
    numa: NUMASet
    """The NUMA nodes between which it goes round for ever."""


class KubeletCrashes(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet would divide by zero here and end."""

    divisor: str
    """The number that is zero, in words."""


class CPUsNotFree(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet hands out CPUs that were not free, because it takes the machine for a regular one."""

    cpus: CPUSet


class CPUsStranded(msgspec.Struct, frozen=True, kw_only=True):
    """A pod was refused for it could not divide its CPUs; the kubelet forgets to take them back, for good."""

    cpus: CPUSet


class DistributionOverwritten(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet found the best NUMA nodes and then used others, because it reuses a buffer."""

    best: NUMASet
    used: NUMASet
    best_for_rest: NUMASet
    """Where what cannot be dealt evenly would have gone."""
    used_for_rest: NUMASet


CPURefusal: TypeAlias = (
    NotEnoughCPUs
    | NotWholeCores
    | NotEnoughWholeCores
    | PodSharedPoolEmpty
    | CPUAccountingWrong
    | PickerRefuses
    | KubeletHangs
    | KubeletCrashes
)
CPURemark: TypeAlias = PickedBy | CPUsNotFree | CPUsStranded | DistributionOverwritten
CPUReason: TypeAlias = MachineFault | PolicyFault | StateFault | CPURefusal | CPURemark
