"""Why the kubelet's CPU manager does not start: the machine, the policy with its options, or the stored state."""

from collections.abc import Iterable
from typing import TypeAlias

from nodewright.model.reasons.fact import ManagerFact
from nodewright.model.values.golang import quoted, text_map
from nodewright.model.values.idset import CPUSet

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

_STATIC = "new static policy error: "


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
            f"the option align-by-socket is incompatible with {self.sockets} sockets "
            f"on {self.numa_nodes} NUMA nodes"
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
        return f"the reservation is {self.wanted} CPUs, but the reserved CPUs are {reserved}"


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


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
