"""The options of the static policy: their stages, their values, and what they exclude."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from nodewright.core.cpu.topology import CPUTopology
from nodewright.model.cpu_reasons import (
    AlignBySocketAgainstMachine,
    AlignBySocketAgainstPolicy,
    CPUOptionGated,
    CPUOptionsExclusive,
    CPUOptionUnknown,
    CPUOptionValueInvalid,
    PolicyFault,
)
from nodewright.model.gates import FeatureGates
from nodewright.model.verdict import Granted, Refused, Verdict

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
ALIGN_BY_SOCKET = "align-by-socket"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"

_STAGES = {
    ALIGN_BY_SOCKET: "Alpha",
    DISTRIBUTE_ACROSS_CORES: "Alpha",
    DISTRIBUTE_ACROSS_NUMA: "Beta",
    FULL_PCPUS_ONLY: "",
    STRICT_RESERVATION: "",
    PREFER_UNCORE_CACHE: "",
}
_EXCLUSIVE = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
    (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE_CACHE, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE_CACHE, DISTRIBUTE_ACROSS_NUMA),
)
_BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
"""What Go's strconv.ParseBool takes."""

SINGLE_NUMA_NODE = "single-numa-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUGates:
    """The feature gates that the CPU manager looks at, with their defaults."""

    alpha_options: bool = False
    """CPUManagerPolicyAlphaOptions."""
    beta_options: bool = True
    """CPUManagerPolicyBetaOptions."""
    pod_level_resources: bool = True
    """PodLevelResources."""
    pod_level_managers: bool = False
    """PodLevelResourceManagers."""

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """What these feature gates come to."""
        return cls(
            alpha_options=gates["CPUManagerPolicyAlphaOptions"],
            beta_options=gates["CPUManagerPolicyBetaOptions"],
            pod_level_resources=gates["PodLevelResources"],
            pod_level_managers=gates["PodLevelResourceManagers"],
        )


DEFAULT_CPU_GATES = CPUGates()


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptions:
    """The options of the static policy that are on."""

    full_pcpus_only: bool = False
    """Whole cores only."""
    distribute_across_numa: bool = False
    """Equal shares from several NUMA nodes, where one does not suffice."""
    align_by_socket: bool = False
    """Count NUMA nodes of one socket as aligned."""
    distribute_across_cores: bool = False
    """CPUs of different cores rather than whole cores."""
    strict_reservation: bool = False
    """Keep the shared pool off the reserved CPUs, too."""
    prefer_uncore_cache: bool = False
    """CPUs that share a last-level cache, where possible."""


_FIELDS = {
    FULL_PCPUS_ONLY: "full_pcpus_only",
    DISTRIBUTE_ACROSS_NUMA: "distribute_across_numa",
    ALIGN_BY_SOCKET: "align_by_socket",
    DISTRIBUTE_ACROSS_CORES: "distribute_across_cores",
    STRICT_RESERVATION: "strict_reservation",
    PREFER_UNCORE_CACHE: "prefer_uncore_cache",
}


def read_options(texts: Mapping[str, str], gates: CPUGates) -> Verdict[CPUOptions]:
    """The options as `cpuManagerPolicyOptions` writes them.

    Follows: v1.36, cpumanager/policy_options.go, NewStaticPolicyOptions, CheckPolicyOptionAvailable.
    Departs: of several that are wrong, the first by name is reported; the kubelet reports any of them.
    """
    on: set[str] = set()
    for option in sorted(texts):
        fault = _unavailable(option, gates)
        if fault is None and texts[option] not in _BOOLEANS:
            fault = CPUOptionValueInvalid(option=option, value=texts[option])
        if fault is not None:
            return Refused((fault,))
        if _BOOLEANS[texts[option]]:
            on.add(option)
    for one, other in _EXCLUSIVE:
        if one in on and other in on:
            return Refused((CPUOptionsExclusive(one=one, other=other),))
    return Granted(CPUOptions(**{_FIELDS[option]: True for option in on}))


def misfit(options: CPUOptions, topology: CPUTopology, topology_policy: str) -> PolicyFault | None:
    """Why the options do not suit the machine or the topology manager's policy, if they do not.

    Follows: v1.36, cpumanager/policy_options.go, ValidateStaticPolicyOptions.
    """
    if not options.align_by_socket:
        return None
    if topology_policy == SINGLE_NUMA_NODE:
        return AlignBySocketAgainstPolicy(policy=topology_policy)
    if topology.num_sockets > topology.num_numa_nodes:
        return AlignBySocketAgainstMachine(sockets=topology.num_sockets, numa_nodes=topology.num_numa_nodes)
    return None


def _unavailable(option: str, gates: CPUGates) -> PolicyFault | None:
    if option not in _STAGES:
        return CPUOptionUnknown(option=option)
    stage = _STAGES[option]
    if (stage == "Alpha" and not gates.alpha_options) or (stage == "Beta" and not gates.beta_options):
        return CPUOptionGated(option=option, stage=stage)
    return None
