"""The configuration of the topology manager: policy, scope, options, and the machine's NUMA nodes."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from nodewright.model.hardware import NUMANode
from nodewright.model.reasons.topology import (
    DistanceMissing,
    JudgedBy,
    NUMADistancesUnknown,
    TooManyNUMANodes,
    TopologyFault,
    TopologyLimitTooLow,
    TopologyOptionGated,
    TopologyOptionMalformed,
    TopologyOptionUnknown,
    TopologyPolicyUnknown,
    TopologyScopeUnknown,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.golang import saturated_int
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import fits_int64
from nodewright.model.values.subsets import NUMADistances

NONE_POLICY, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = (
    "none",
    "best-effort",
    "restricted",
    "single-numa-node",
)
CONTAINER_SCOPE, POD_SCOPE = "container", "pod"
PREFER_CLOSEST, MAX_NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
DEFAULT_MAX_NODES = 8
NO_NODES = NUMASet()

_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}


class TopologyManager(msgspec.Struct, frozen=True, kw_only=True):
    """A valid configuration of the topology manager."""

    policy: str = NONE_POLICY
    scope: str = CONTAINER_SCOPE
    numa: NUMASet = NO_NODES
    """All NUMA nodes of the machine."""
    distances: NUMADistances | None = None
    """Set with prefer-closest-numa-nodes; by node id, 0 where none is listed."""
    missing_distances: tuple[DistanceMissing, ...] = ()
    """Distances that the machine does not list."""
    judged_by: JudgedBy | None = None
    """The custom policy that chose this one for the pod."""


class TopologyOptions(msgspec.Struct, frozen=True):
    """The policy options."""

    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


def topology_manager(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    topology: Sequence[NUMANode],
    *,
    gates: FeatureGates = DEFAULT_GATES,
    is_overruled: bool = False,
) -> Verdict[TopologyManager]:
    """The topology manager of these settings on the machine, or why the kubelet does not start.

    ``is_overruled``: a custom policy decides, which needs the machine whatever the kubelet's policy is.

    Follows: v1.36, topologymanager/topology_manager.go, NewManager: policy none looks at nothing else.
    """
    if policy == NONE_POLICY and not is_overruled:
        return Granted(TopologyManager())
    read = topology_options(options, gates)
    if isinstance(read, Refused):
        return read
    numa = NUMASet.from_ids(node.node_id for node in topology)
    distances: NUMADistances | None = None
    unlisted: tuple[DistanceMissing, ...] = ()
    if read.value.prefer_closest:
        if not all(node.distances for node in topology):
            return Refused((NUMADistancesUnknown(),))
        distances, unlisted = _distances(topology)
    refusal: TopologyFault | None = None
    if policy != NONE_POLICY and len(topology) > read.value.max_nodes:
        refusal = TooManyNUMANodes(nodes=len(topology), limit=read.value.max_nodes)
    elif policy not in {NONE_POLICY, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE}:
        refusal = TopologyPolicyUnknown(policy=policy)
    elif scope not in {CONTAINER_SCOPE, POD_SCOPE}:
        refusal = TopologyScopeUnknown(scope=scope)
    if refusal is not None:
        return Refused((refusal,))
    return Granted(
        TopologyManager(
            policy=policy, scope=scope, numa=numa, distances=distances, missing_distances=unlisted
        )
    )


def _distances(topology: Sequence[NUMANode]) -> tuple[NUMADistances, tuple[DistanceMissing, ...]]:
    """The distances by node id, and the missing ones: the lists are indexed by id, even if the ids have gaps."""
    size = max((node.node_id for node in topology), default=0) + 1
    padded = {node.node_id: (*node.distances, *([0] * (size - len(node.distances)))) for node in topology}
    unlisted = tuple(
        DistanceMissing(numa=node.node_id, other=other.node_id, listed=len(node.distances))
        for node in topology
        for other in topology
        if other.node_id >= len(node.distances)
    )
    return padded, unlisted


def topology_options(
    options: Mapping[str, str], gates: FeatureGates = DEFAULT_GATES
) -> Verdict[TopologyOptions]:
    """The options as the kubelet parses them, or the first one that it rejects.

    Follows: v1.36, topologymanager/policy_options.go, NewPolicyOptions.
    Departs: iterates over the options by name, where the kubelet walks a map in random order.
    """
    prefer_closest, max_nodes = False, DEFAULT_MAX_NODES
    for name, value in sorted(options.items()):
        stage = gates.rules.topology_options.get(name)
        if stage == "Beta" and not gates["TopologyManagerPolicyBetaOptions"]:
            is_lower_case = gates.rules.topology_options_lower_case
            return Refused((TopologyOptionGated(option=name, is_lower_case=is_lower_case),))
        if name == PREFER_CLOSEST:
            if value not in _TRUE | _FALSE:
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="no truth value"),))
            prefer_closest = value in _TRUE
        elif name == MAX_NODES:
            if not re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII):
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="no number"),))
            max_nodes = saturated_int(value)
            if not fits_int64(max_nodes):
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="beyond 64 bits"),))
            if max_nodes < DEFAULT_MAX_NODES:
                return Refused((TopologyLimitTooLow(option=name, least=DEFAULT_MAX_NODES),))
        else:
            return Refused((TopologyOptionUnknown(option=name),))
    return Granted(TopologyOptions(prefer_closest, max_nodes))
