"""The options of the static policy: one table of names, stages and exclusions, and how they are read."""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

import msgspec

from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.requests.effective_resources import allocated_in_status
from nodewright.model.reasons.cpu import (
    AlignBySocketAgainstMachine,
    AlignBySocketAgainstPolicy,
    CPUOptionGated,
    CPUOptionsExclusive,
    CPUOptionUnknown,
    CPUOptionValueInvalid,
    CPUPolicyFault,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import AllocatedInStatus, ReleaseRules
from nodewright.model.releases.release_table import NEWEST

_BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
"""The texts that Go's strconv.ParseBool accepts."""

SINGLE_NUMA_NODE_POLICY = "single-numa-node"


class CPUGates(msgspec.Struct, frozen=True, kw_only=True):
    """The feature gates that the CPU manager reads, with their defaults."""

    alpha_options: bool = False
    """CPUManagerPolicyAlphaOptions."""
    beta_options: bool = True
    """CPUManagerPolicyBetaOptions."""
    pod_level_resources: bool = True
    """PodLevelResources."""
    pod_level_managers: bool = False
    """PodLevelResourceManagers."""
    allocated_in_status: AllocatedInStatus = AllocatedInStatus.NO_CONTAINER
    """Whose allocated resources count, by release and InPlacePodVerticalScaling."""
    rules: ReleaseRules = NEWEST.rules

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """The CPU manager's part of these feature gates."""
        return cls(
            alpha_options=gates["CPUManagerPolicyAlphaOptions"],
            beta_options=gates["CPUManagerPolicyBetaOptions"],
            pod_level_resources=gates["PodLevelResources"],
            pod_level_managers=gates["PodLevelResourceManagers"],
            allocated_in_status=allocated_in_status(gates),
            rules=gates.rules,
        )


DEFAULT_CPU_GATES = CPUGates()


class PolicyOption(msgspec.Struct, frozen=True, kw_only=True):
    """A key of `cpuManagerPolicyOptions`."""

    name: str
    excludes: tuple[str, ...] = ()
    """Options that cannot be on at the same time."""


class CPUOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the static policy that are on.

    This is the table of all options: name and exclusions are declared at each field, and `POLICY_OPTIONS` is derived
    from it; the maturity of each is in `ReleaseRules`. Pairs of exclusive options are reported in the order of the rows.

    Follows: v1.36, cpumanager/policy_options.go, StaticPolicyOptions, alphaOptions, betaOptions, stableOptions.
    """

    full_pcpus_only: Annotated[
        bool, PolicyOption(name="full-pcpus-only", excludes=("distribute-cpus-across-cores",))
    ] = False
    """Allocate whole cores only."""
    distribute_across_numa: Annotated[
        bool, PolicyOption(name="distribute-cpus-across-numa", excludes=("distribute-cpus-across-cores",))
    ] = False
    """Allocate equal shares from several NUMA nodes where one does not suffice."""
    align_by_socket: Annotated[bool, PolicyOption(name="align-by-socket")] = False
    """Count NUMA nodes of one socket as aligned."""
    distribute_across_cores: Annotated[bool, PolicyOption(name="distribute-cpus-across-cores")] = False
    """Allocate CPUs of different cores rather than whole cores."""
    strict_reservation: Annotated[bool, PolicyOption(name="strict-cpu-reservation")] = False
    """Exclude the reserved CPUs from the shared pool, too."""
    prefer_uncore_cache: Annotated[
        bool,
        PolicyOption(
            name="prefer-align-cpus-by-uncorecache",
            excludes=("distribute-cpus-across-cores", "distribute-cpus-across-numa"),
        ),
    ] = False
    """Allocate CPUs that share a last-level cache where possible."""

    @classmethod
    def of(cls, names: Collection[str]) -> Self:
        """The options of these names on, all others off."""
        return cls(**{field_name: option.name in names for field_name, option in _OPTION_BY_FIELD.items()})

    def by_name(self) -> dict[str, bool]:
        """Whether each option of the policy is on, in the order of the table."""
        return {option.name: getattr(self, field_name) for field_name, option in _OPTION_BY_FIELD.items()}


_OPTION_BY_FIELD: Mapping[str, PolicyOption] = {
    name: row.__metadata__[0] for name, row in CPUOptions.__annotations__.items()
}
POLICY_OPTIONS: Mapping[str, PolicyOption] = {option.name: option for option in _OPTION_BY_FIELD.values()}
"""All options of the static policy by name."""


def read_options(texts: Mapping[str, str], gates: CPUGates) -> Verdict[CPUOptions]:
    """The options that `cpuManagerPolicyOptions` turns on, or the first fault in it.

    Follows: v1.36, cpumanager/policy_options.go, NewStaticPolicyOptions, CheckPolicyOptionAvailable.
    Departs: of several invalid options, the first by name is reported; the kubelet reports any of them.
    """
    on: set[str] = set()
    for name in sorted(texts):
        fault = _unavailable(name, gates)
        if fault is None and texts[name] not in _BOOLEANS:
            fault = CPUOptionValueInvalid(option=name, value=texts[name])
        if fault is not None:
            return Refused((fault,))
        if _BOOLEANS[texts[name]]:
            on.add(name)
    for option in POLICY_OPTIONS.values():
        for excluded in option.excludes:
            if option.name in on and excluded in on:
                return Refused((CPUOptionsExclusive(one=option.name, other=excluded),))
    return Granted(CPUOptions.of(on))


def unsuitable_option(
    options: CPUOptions, topology: CPUTopology, topology_policy: str
) -> CPUPolicyFault | None:
    """The conflict of the options with the machine or the topology manager's policy; None if there is none.

    Follows: v1.36, cpumanager/policy_options.go, ValidateStaticPolicyOptions.
    """
    if not options.align_by_socket:
        return None
    if topology_policy == SINGLE_NUMA_NODE_POLICY:
        return AlignBySocketAgainstPolicy(policy=topology_policy)
    if topology.num_sockets > topology.num_numa_nodes:
        return AlignBySocketAgainstMachine(sockets=topology.num_sockets, numa_nodes=topology.num_numa_nodes)
    return None


def _unavailable(name: str, gates: CPUGates) -> CPUPolicyFault | None:
    stage = gates.rules.cpu_options.get(name)
    if stage is None:
        return CPUOptionUnknown(option=name)
    if (stage == "Alpha" and not gates.alpha_options) or (stage == "Beta" and not gates.beta_options):
        return CPUOptionGated(option=name, stage=stage)
    return None
