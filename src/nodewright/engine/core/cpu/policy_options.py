"""How the options of the static policy are read, and the feature gates of the CPU manager."""

from collections.abc import Mapping
from typing import Self

from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.requests.managed_pods import ManagerGates
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
from nodewright.model.releases.release_rules import POLICY_OPTIONS, CPUOptions

_BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)
"""The texts that Go's strconv.ParseBool accepts."""

SINGLE_NUMA_NODE_POLICY = "single-numa-node"


class CPUGates(ManagerGates, frozen=True, kw_only=True):
    """The feature gates that the CPU manager reads, with their defaults."""

    alpha_options: bool = False
    """CPUManagerPolicyAlphaOptions."""
    beta_options: bool = True
    """CPUManagerPolicyBetaOptions."""

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """The CPU manager's part of these feature gates."""
        return replace(
            super().of(gates),
            alpha_options=gates["CPUManagerPolicyAlphaOptions"],
            beta_options=gates["CPUManagerPolicyBetaOptions"],
        )


DEFAULT_CPU_GATES = CPUGates()


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
