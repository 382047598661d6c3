"""The facts that decide which CPUs a container gets, and whether the CPU manager starts at all."""

from dataclasses import dataclass
from typing import TypeAlias

from nodewright.values.idset import CPUSet, NUMASet

# ---------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUCountUnknown:
    """The description of the machine counts no CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreWithoutThreads:
    """A core of the machine lists no CPU."""

    numa: int
    core: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreThreadsRepeated:
    """A core of the machine lists a CPU more than once."""

    numa: int
    core: int
    threads: tuple[int, ...]


MachineFault: TypeAlias = CPUCountUnknown | CoreWithoutThreads | CoreThreadsRepeated

# ---------------------------------------------------------------- the policy and its options


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUPolicyUnknown:
    """There is no CPU manager policy of this name."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUPolicyTakesNoOptions:
    """The policy `none` was given options."""

    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptionUnknown:
    """There is no CPU manager policy option of this name."""

    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptionGated:
    """The option's stage of maturity is switched off by its feature gate."""

    option: str
    stage: str
    """`Alpha` or `Beta`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptionValueInvalid:
    """The option's value is no boolean."""

    option: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptionsExclusive:
    """Two options are on that exclude each other."""

    one: str
    other: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignBySocketAgainstPolicy:
    """The option align-by-socket does not go with this topology manager policy."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignBySocketAgainstMachine:
    """The option align-by-socket does not go with a machine of more sockets than NUMA nodes."""

    sockets: int
    numa_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUReservationMissing:
    """The static policy needs a CPU reservation, and none is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUReservationZero:
    """The static policy needs a CPU reservation above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUReservationUnmet:
    """The reserved CPUs are not as many as the reservation says.

    Units: CPUs, the reservation rounded up.
    """

    reserved: CPUSet
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCPUUnknown:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPoolEmpty:
    """The state has assignments, but no CPUs in the shared pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCPUsNotShared:
    """Some reserved CPUs are missing from the shared pool of the state."""

    reserved: CPUSet
    shared: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCPUsShared:
    """Strictly reserved CPUs are in the shared pool of the state."""

    reserved: CPUSet
    """Those of the reserved CPUs that are there."""
    shared: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentShared:
    """A container's CPUs are in the shared pool of the state, too."""

    pod: str
    container: str
    cpus: CPUSet
    shared: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCPUsChanged:
    """The state does not cover just the CPUs that it should."""

    expected: CPUSet
    found: CPUSet


StateFault: TypeAlias = (
    SharedPoolEmpty | ReservedCPUsNotShared | ReservedCPUsShared | AssignmentShared | MachineCPUsChanged
)

# ---------------------------------------------------------------- a container or pod that asks for CPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUHolder:
    """A container with CPUs of its own; no container: a pod with CPUs that none of its containers has."""

    pod: str
    container: str
    cpus: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUsOfNUMA:
    """Who has the CPUs of one NUMA node."""

    numa: int
    free: CPUSet
    reserved: CPUSet
    holders: tuple[CPUHolder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEnoughCPUs:
    """Fewer CPUs can be given away than are asked for.

    Units: CPUs.
    """

    requested: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()
    """The NUMA nodes with what is free on them and who has the rest; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWholeCores:
    """Only whole cores are given out, and the request is no multiple of a core's CPUs.

    Units: CPUs.
    """

    requested: int
    cpus_per_core: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEnoughWholeCores:
    """Only whole cores are given out, and too few CPUs are free on cores without a reserved CPU.

    Units: CPUs.
    """

    requested: int
    cpus_per_core: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSharedPoolEmpty:
    """Containers of the pod take all its CPUs for themselves, and others need some to share.

    Units: CPUs.
    """

    pod_cpus: int
    exclusive: int
    init: bool
    """Whether it is an init container that would have nothing to run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUAccountingWrong:
    """The kubelet's distribution over NUMA nodes came out with too few or too many CPUs.

    Units: CPUs; negative: too many.
    """

    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerRefuses:
    """A CPU picker that is not the kubelet's has no CPUs to give, though enough are free.

    Units: requested in CPUs.
    """

    picker: str
    said: str
    requested: int
    free: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PickedBy:
    """A CPU picker that is not the kubelet's has chosen these CPUs."""

    picker: str
    cpus: CPUSet


# ---------------------------------------------------------------- known defects of the kubelet


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletHangs:
    """The kubelet would never come back from this decision.

    Units: CPUs.
    """

    requested: int
    group: int
    """CPUs that are given out together."""
    numa: NUMASet
    """The NUMA nodes between which it goes round for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletCrashes:
    """The kubelet would divide by zero here and end."""

    divisor: str
    """The number that is zero, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUsNotFree:
    """The kubelet hands out CPUs that were not free, because it takes the machine for a regular one."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUsStranded:
    """A pod was refused for it could not divide its CPUs; the kubelet forgets to take them back, for good."""

    cpus: CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionOverwritten:
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
