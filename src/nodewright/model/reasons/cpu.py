"""The facts that decide which CPUs a container gets, and why the kubelet's CPU manager does not start.

It does not start for the machine, the policy with its options, or the stored state.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from nodewright.model.printable import counted
from nodewright.model.reasons.fact import KubeletText, ManagerFact
from nodewright.model.values.golang import quoted, text_map
from nodewright.model.values.idset import CPUSet, NUMASet

_STATIC = "new static policy error: "


# ---------------------------------------------------------------- which CPUs are free, and which containers hold the others


class CPUHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A container with exclusive CPUs; without a container: a pod with CPUs that none of its containers has."""

    pod: str
    container: str
    cpus: CPUSet


class CPUsOfNUMA(msgspec.Struct, frozen=True, kw_only=True):
    """How the CPUs of one NUMA node are used."""

    numa: int
    free: CPUSet
    reserved: CPUSet
    holders: tuple[CPUHolder, ...]


# ---------------------------------------------------------------- refusals


class NotEnoughCPUs(ManagerFact, frozen=True, kw_only=True):
    """Fewer CPUs are available than requested.

    Units: CPUs.
    """

    requested: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()
    """How the CPUs of each NUMA node are used; empty if that is not known."""

    def kubelet_error(self) -> str:
        return (
            f"not enough cpus available to satisfy request: requested={self.requested}, "
            f"available={self.available}"
        )

    def sentence(self) -> str:
        return f"{counted(self.requested, 'CPU')} requested, {self.available} available{_usage_by_numa(self.where)}"


class NotWholeCores(ManagerFact, frozen=True, kw_only=True):
    """Only whole cores are allocated, and the request is not a multiple of a core's CPUs.

    Units: CPUs.

    >>> NotWholeCores(requested=3, cpus_per_core=2).sentence()
    '3 CPUs requested, but full-pcpus-only allocates whole cores of 2 CPUs'
    """

    requested: int
    cpus_per_core: int

    def kubelet_error(self) -> str:
        return (
            f"SMT Alignment Error: requested {self.requested} cpus not multiple cpus per core = "
            f"{self.cpus_per_core}"
        )

    def error_type(self) -> str:
        """Follows: v1.36, cpumanager/policy_static.go, SMTAlignmentError."""
        return "SMTAlignmentError"

    def sentence(self) -> str:
        return (
            f"{counted(self.requested, 'CPU')} requested, but full-pcpus-only allocates whole cores of "
            f"{counted(self.cpus_per_core, 'CPU')}"
        )


class NotEnoughWholeCores(ManagerFact, frozen=True, kw_only=True):
    """Only whole cores are allocated, and too few CPUs are free on cores without a reserved CPU.

    Units: CPUs.
    """

    requested: int
    cpus_per_core: int
    available: int
    where: tuple[CPUsOfNUMA, ...] = ()

    def kubelet_error(self) -> str:
        return (
            "SMT Alignment Error: not enough free physical CPUs: "
            f"available physical CPUs = {self.available}, requested CPUs = {self.requested}, "
            f"CPUs per core = {self.cpus_per_core}"
        )

    def error_type(self) -> str:
        """Follows: v1.36, cpumanager/policy_static.go, SMTAlignmentError."""
        return "SMTAlignmentError"

    def sentence(self) -> str:
        return (
            f"{counted(self.requested, 'CPU')} requested, {self.available} free on cores without a reserved CPU, "
            f"and full-pcpus-only allocates no others{_usage_by_numa(self.where)}"
        )


class PodSharedPoolEmpty(ManagerFact, frozen=True, kw_only=True):
    """Exclusive CPUs of containers use up the pod's CPUs, and other containers of the pod need some to share.

    Units: CPUs.
    """

    pod_cpus: int
    exclusive: int
    init: bool
    """Whether an init container would have no CPU to run on."""

    def kubelet_error(self) -> str:
        if self.init:
            return "pod rejected, pod has shared init containers but no cpus available for them"
        return (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers"
        )

    def error_type(self) -> str:
        """Follows: v1.36, cm/admission/errors.go, GetPodAdmitResult."""
        return "EmptyPodSharedPoolError"

    def sentence(self) -> str:
        sharing = "an init container" if self.init else "other containers"
        return (
            f"exclusive: {self.exclusive} of the pod's {counted(self.pod_cpus, 'CPU')}; "
            f"nothing is left for {sharing} to share"
        )


class CPUAccountingWrong(ManagerFact, frozen=True, kw_only=True):
    """The kubelet's distribution over NUMA nodes results in too few or too many CPUs.

    Units: CPUs; negative: too many.
    """

    remaining: int

    def kubelet_error(self) -> str:
        extent = "not enough" if self.remaining > 0 else "too many"
        return f"accounting error, {extent} CPUs allocated, remaining: {self.remaining}"

    def sentence(self) -> str:
        extent = f"{self.remaining} too few" if self.remaining > 0 else f"{-self.remaining} too many"
        return f"the kubelet's distribution over NUMA nodes results in {extent} CPUs (a known defect)"


class PickerRefuses(ManagerFact, frozen=True, kw_only=True):
    """A custom CPU picker refuses the request, though enough CPUs are free.

    Units: requested in CPUs.
    """

    picker: str
    said: str
    requested: int
    free: CPUSet

    def kubelet_error(self) -> str:
        return f"CPU picker {self.picker}: {self.said}"

    def sentence(self) -> str:
        return (
            f"custom CPU picker {self.picker} refuses {counted(self.requested, 'CPU')} though CPUs {self.free} are free: "
            f"{self.said}"
        )


# ---------------------------------------------------------------- known defects of the kubelet


class _KubeletDefect(ManagerFact, frozen=True):
    """A decision that the kubelet never completes."""

    def kubelet(self) -> KubeletText:
        """The name of the defect, and what it is.

        Departs: a kubelet that hangs or crashes reports nothing; the reason is then the name of what it does.
        """
        return KubeletText(type(self).__name__, self.kubelet_error())


class KubeletHangs(_KubeletDefect, frozen=True, kw_only=True):
    """The kubelet would loop forever on this decision.

    Units: CPUs.
    """

    requested: int
    group: int
    """CPUs that are allocated together."""
    numa: NUMASet
    """The NUMA nodes that it iterates over forever."""

    def kubelet_error(self) -> str:
        return (
            f"the kubelet would hang: it would distribute {self.requested} CPUs in groups of "
            f"{self.group} over NUMA nodes {{{self.numa}}} forever"
        )

    def sentence(self) -> str:
        return (
            f"the kubelet would hang (a known defect): it would distribute {self.requested} CPUs "
            f"in groups of {self.group} over NUMA nodes {self.numa} forever"
        )


class KubeletCrashes(_KubeletDefect, frozen=True, kw_only=True):
    """The kubelet would panic on a division by zero."""

    divisor: str
    """The number that is zero, in words."""

    def kubelet_error(self) -> str:
        return f"the kubelet would crash: division by zero ({self.divisor})"

    def sentence(self) -> str:
        return f"the kubelet would crash (a known defect): it would divide by zero {self.divisor}"


class CPUsNotFree(ManagerFact, frozen=True, kw_only=True):
    """The kubelet allocates CPUs that are not free, because it assumes a regular machine."""

    cpus: CPUSet

    def kubelet_error(self) -> str:
        return f"the kubelet allocates CPUs {self.cpus}, which are not free"

    def sentence(self) -> str:
        return (
            f"CPUs {self.cpus} are allocated though they are not free (a known defect on irregular machines)"
        )


class CPUsStranded(ManagerFact, frozen=True, kw_only=True):
    """The kubelet rejects a pod that cannot divide its CPUs, and never releases them."""

    cpus: CPUSet

    def kubelet_error(self) -> str:
        return f"the kubelet does not release CPUs {self.cpus}, which no container uses"

    def sentence(self) -> str:
        return f"CPUs {self.cpus} stay allocated until the CPU manager's state is deleted (a known defect)"


class DistributionOverwritten(ManagerFact, frozen=True, kw_only=True):
    """The kubelet finds the best NUMA nodes and then uses others, because it reuses a buffer."""

    best: NUMASet
    used: NUMASet
    best_for_rest: NUMASet
    """The best NUMA nodes for the CPUs that cannot be distributed evenly."""
    used_for_rest: NUMASet

    def kubelet_error(self) -> str:
        return f"the kubelet finds NUMA nodes {{{self.best}}} best and then uses {{{self.used}}}"

    def sentence(self) -> str:
        if self.best != self.used:
            return f"NUMA nodes {self.best} are best, but the kubelet uses {self.used} (a known defect)"
        return (
            f"NUMA nodes {self.best_for_rest} are best for the remaining CPUs, but the kubelet uses "
            f"{self.used_for_rest} (a known defect)"
        )


class PickedBy(ManagerFact, frozen=True, kw_only=True):
    """A custom CPU picker has chosen these CPUs."""

    picker: str
    cpus: CPUSet

    def kubelet_error(self) -> str:
        return f"CPU picker {self.picker} picks CPUs {self.cpus}"

    def sentence(self) -> str:
        return f"custom CPU picker {self.picker} picks CPUs {self.cpus}"


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
CPUEvidence: TypeAlias = PickedBy | CPUsNotFree | CPUsStranded | DistributionOverwritten


# ---------------------------------------------------------------- the machine


class CPUCountUnknown(ManagerFact, frozen=True, kw_only=True):
    """The machine description has no CPU count."""

    def kubelet_error(self) -> str:
        return "could not detect number of cpus"

    def sentence(self) -> str:
        return "the machine description has no CPU count"


class CoreWithoutThreads(ManagerFact, frozen=True, kw_only=True):
    """A core of the machine lists no CPU."""

    numa: int
    core: int

    def kubelet_error(self) -> str:
        return "no cpus provided"

    def sentence(self) -> str:
        return f"core {self.core} of NUMA node {self.numa} lists no CPU"


class CoreThreadsRepeated(ManagerFact, frozen=True, kw_only=True):
    """A core of the machine lists a CPU more than once."""

    numa: int
    core: int
    threads: tuple[int, ...]

    def kubelet_error(self) -> str:
        return "cpus provided are not unique"

    def sentence(self) -> str:
        return (
            f"core {self.core} of NUMA node {self.numa} lists a CPU more than once: {_listed(self.threads)}"
        )


CPUMachineFault: TypeAlias = CPUCountUnknown | CoreWithoutThreads | CoreThreadsRepeated


# ---------------------------------------------------------------- the policy and its options


class CPUPolicyUnknown(ManagerFact, frozen=True, kw_only=True):
    """There is no CPU manager policy of this name."""

    policy: str

    def kubelet_error(self) -> str:
        return f'unknown policy: "{self.policy}"'

    def sentence(self) -> str:
        return f"there is no CPU manager policy {self.policy!r}"


class CPUPolicyTakesNoOptions(ManagerFact, frozen=True, kw_only=True):
    """Options are configured for the policy `none`, which has none."""

    options: tuple[tuple[str, str], ...]

    def kubelet_error(self) -> str:
        unsupported = text_map(dict(self.options))
        return f"new none policy error: None policy: received unsupported options={unsupported}"

    def sentence(self) -> str:
        return f"the CPU manager policy none takes no options: {_listed(name for name, _ in self.options)}"


class CPUOptionUnknown(ManagerFact, frozen=True, kw_only=True):
    """There is no CPU manager policy option of this name."""

    option: str

    def kubelet_error(self) -> str:
        return f"{_STATIC}unknown CPU Manager Policy option: {quoted(self.option)}"

    def sentence(self) -> str:
        return f"there is no CPU manager policy option {self.option!r}"


class CPUOptionGated(ManagerFact, frozen=True, kw_only=True):
    """The feature gate for options of this maturity is off."""

    option: str
    stage: str
    """`Alpha` or `Beta`."""

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}CPU Manager Policy {self.stage}-level Options not enabled, "
            f"but option {quoted(self.option)} provided"
        )

    def sentence(self) -> str:
        return (
            f"the option {self.option} needs the feature gate CPUManagerPolicy{self.stage}Options, "
            "which is off"
        )


class CPUOptionValueInvalid(ManagerFact, frozen=True, kw_only=True):
    """The option's value is not a boolean."""

    option: str
    value: str

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}bad value for option {quoted(self.option)}: "
            f"strconv.ParseBool: parsing {quoted(self.value)}: invalid syntax"
        )

    def sentence(self) -> str:
        return f"the option {self.option} is {self.value!r}, neither true nor false"


class CPUOptionsExclusive(ManagerFact, frozen=True, kw_only=True):
    """Two options are on that exclude each other."""

    one: str
    other: str

    def kubelet_error(self) -> str:
        return f"{_STATIC}static policy options {self.one} and {self.other} can not be used at the same time"

    def sentence(self) -> str:
        return f"the options {self.one} and {self.other} exclude each other"


class AlignBySocketAgainstPolicy(ManagerFact, frozen=True, kw_only=True):
    """The option align-by-socket is incompatible with this topology manager policy."""

    policy: str

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}Topolgy manager {self.policy} policy is incompatible with "
            "CPUManager align-by-socket policy option"
        )

    def sentence(self) -> str:
        return f"the option align-by-socket is incompatible with the topology manager policy {self.policy}"


class AlignBySocketAgainstMachine(ManagerFact, frozen=True, kw_only=True):
    """The option align-by-socket is incompatible with a machine of more sockets than NUMA nodes."""

    sockets: int
    numa_nodes: int

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}Align by socket is not compatible with hardware where "
            "number of sockets are more than number of NUMA"
        )

    def sentence(self) -> str:
        return (
            f"the option align-by-socket is incompatible with {counted(self.sockets, 'socket')} "
            f"on {counted(self.numa_nodes, 'NUMA node')}"
        )


class CPUReservationMissing(ManagerFact, frozen=True, kw_only=True):
    """The static policy needs a CPU reservation, and none is configured."""

    def kubelet_error(self) -> str:
        return "[cpumanager] unable to determine reserved CPU resources for static policy"

    def sentence(self) -> str:
        return "the static policy needs CPUs in kubeReserved or systemReserved; there are none"


class CPUReservationZero(ManagerFact, frozen=True, kw_only=True):
    """The static policy needs a CPU reservation above zero."""

    def kubelet_error(self) -> str:
        return (
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu "
            "to be greater than zero"
        )

    def sentence(self) -> str:
        return "the static policy needs CPUs in kubeReserved or systemReserved; they are zero"


class CPUReservationUnmet(ManagerFact, frozen=True, kw_only=True):
    """The number of reserved CPUs differs from the configured reservation.

    Units: CPUs, the reservation rounded up.
    """

    reserved: CPUSet
    wanted: int

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {self.reserved} did not equal {self.wanted})"
        )

    def sentence(self) -> str:
        reserved = f"{len(self.reserved)} ({self.reserved})" if self.reserved else "none"
        return f"the reservation is {counted(self.wanted, 'CPU')}, but the reserved CPUs are {reserved}"


class ReservedCPUUnknown(ManagerFact, frozen=True, kw_only=True):
    """The list of reserved CPUs names a CPU that the machine does not have."""

    cpu: int

    def kubelet_error(self) -> str:
        return (
            f"{_STATIC}[cpumanager] unable to build the reserved physical CPUs "
            f"from the reserved set: unknown CPU ID: {self.cpu}"
        )

    def sentence(self) -> str:
        return f"reserved CPU {self.cpu} does not exist on the machine"


CPUPolicyFault: TypeAlias = (
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


# ---------------------------------------------------------------- the stored state


class SharedPoolEmpty(ManagerFact, frozen=True, kw_only=True):
    """The state has assignments, but no CPUs in the shared pool."""

    def kubelet_error(self) -> str:
        return "default cpuset cannot be empty"

    def sentence(self) -> str:
        return "the state has assignments and an empty shared pool"


class ReservedCPUsNotShared(ManagerFact, frozen=True, kw_only=True):
    """Some reserved CPUs are missing from the shared pool of the state."""

    reserved: CPUSet
    shared: CPUSet

    def kubelet_error(self) -> str:
        return f'not all reserved cpus: "{self.reserved}" are present in defaultCpuSet: "{self.shared}"'

    def sentence(self) -> str:
        missing = self.reserved - self.shared
        return f"reserved CPUs {missing} are missing from the state's shared pool {self.shared}"


class ReservedCPUsShared(ManagerFact, frozen=True, kw_only=True):
    """Strictly reserved CPUs are in the shared pool of the state."""

    reserved: CPUSet
    """The reserved CPUs that are in the shared pool."""
    shared: CPUSet

    def kubelet_error(self) -> str:
        return (
            f'some of strictly reserved cpus: "{self.reserved}" are present in defaultCpuSet: "{self.shared}"'
        )

    def sentence(self) -> str:
        return f"strictly reserved CPUs {self.reserved} are in the state's shared pool {self.shared}"


class AssignmentShared(ManagerFact, frozen=True, kw_only=True):
    """A container's exclusive CPUs are also in the shared pool of the state."""

    pod: str
    container: str
    cpus: CPUSet
    shared: CPUSet

    def kubelet_error(self) -> str:
        return (
            f'pod: {self.pod}, container: {self.container} cpuset: "{self.cpus}" '
            f'overlaps with default cpuset "{self.shared}"'
        )

    def sentence(self) -> str:
        both = self.cpus & self.shared
        return f"CPUs {both} of {self.pod}/{self.container} are also in the state's shared pool"


class MachineCPUsChanged(ManagerFact, frozen=True, kw_only=True):
    """The CPUs in the state are not exactly the expected ones."""

    expected: CPUSet
    found: CPUSet

    def kubelet_error(self) -> str:
        return f'current set of available CPUs "{self.expected}" doesn\'t match with CPUs in state "{self.found}"'

    def sentence(self) -> str:
        differences = [
            f"{word} {cpus}"
            for word, cpus in (
                ("lacks CPUs", self.expected - self.found),
                ("has other CPUs", self.found - self.expected),
            )
            if cpus
        ]
        return f"the state does not match the machine: it {' and '.join(differences)}"


CPUStateFault: TypeAlias = (
    SharedPoolEmpty | ReservedCPUsNotShared | ReservedCPUsShared | AssignmentShared | MachineCPUsChanged
)

CPUReason: TypeAlias = CPUMachineFault | CPUPolicyFault | CPUStateFault | CPURefusal | CPUEvidence


def _usage_by_numa(nodes: Iterable[CPUsOfNUMA]) -> str:
    """How the CPUs of each NUMA node are used.

    >>> _usage_by_numa([CPUsOfNUMA(numa=0, free=CPUSet.of(3), reserved=CPUSet.of(0), holders=())])
    '; NUMA node 0: 3 free, 0 reserved'
    """
    return "".join(f"; NUMA node {node.numa}: {', '.join(_usage(node))}" for node in nodes)


def _usage(node: CPUsOfNUMA) -> Iterator[str]:
    yield f"{node.free or 'none'} free"
    if node.reserved:
        yield f"{node.reserved} reserved"
    for holder in node.holders:
        yield f"{holder.cpus} used by {holder.pod}{'/' if holder.container else ''}{holder.container}"


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
