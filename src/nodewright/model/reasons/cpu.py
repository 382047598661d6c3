"""The facts that decide which CPUs a container gets."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from nodewright.model.reasons.cpu_start import CPUMachineFault, CPUPolicyFault, CPUStateFault
from nodewright.model.reasons.fact import KubeletText, ManagerFact
from nodewright.model.values.idset import CPUSet, NUMASet

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
        return f"{self.requested} CPUs requested, {self.available} available{_usage_by_numa(self.where)}"


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
            f"{self.requested} CPUs requested, but full-pcpus-only allocates whole cores of "
            f"{self.cpus_per_core} CPUs"
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
            f"{self.requested} CPUs requested, {self.available} are free on cores without a reserved CPU, "
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
            f"of the pod's {self.pod_cpus} CPUs {self.exclusive} are exclusive; "
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
            f"custom CPU picker {self.picker} refuses {self.requested} CPUs though CPUs {self.free} are free: "
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
