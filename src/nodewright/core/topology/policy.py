"""The topology manager as it is configured: policy, scope, options, and the machine's NUMA nodes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodewright.model.machine import NUMANode
from nodewright.model.topology_reasons import (
    DistanceMissing,
    JudgedBy,
    NUMADistancesUnknown,
    TooManyNUMANodes,
    TopologyFault,
    TopologyLimitTooLow,
    TopologyOptionMalformed,
    TopologyOptionUnknown,
    TopologyPolicyUnknown,
    TopologyScopeUnknown,
)
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet
from nodewright.values.search import Distances
from nodewright.values.units import fits_int64

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"
CONTAINER, POD = "container", "pod"
PREFER_CLOSEST, MAX_NODES = "prefer-closest-numa-nodes", "max-allowable-numa-nodes"
DEFAULT_MAX_NODES = 8
NO_NODES = NUMASet()

_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyManager:
    """A topology manager that the kubelet would start with."""

    policy: str = NONE
    scope: str = CONTAINER
    numa: NUMASet = NO_NODES
    """All NUMA nodes of the machine."""
    distances: Distances | None = None
    """Where prefer-closest-numa-nodes makes them count; by node id, 0 where none is listed."""
    unlisted: tuple[DistanceMissing, ...] = ()
    """Distances that the machine does not list."""
    judged_by: JudgedBy | None = None
    """A policy that is not the kubelet's and has chosen this one for the pod."""


@dataclass(frozen=True, slots=True)
class TopologyOptions:
    """The policy options that there are."""

    prefer_closest: bool = False
    max_nodes: int = DEFAULT_MAX_NODES


def topology_manager(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    topology: Sequence[NUMANode],
    *,
    is_overruled: bool = False,
) -> Verdict[TopologyManager]:
    """The topology manager that these settings give on the machine, or why the kubelet does not start.

    ``is_overruled``: a policy that is not the kubelet's judges, and needs the machine whatever the kubelet's is.

    Follows: v1.36, topologymanager/topology_manager.go, NewManager: policy none looks at nothing else.
    """
    if policy == NONE and not is_overruled:
        return Granted(TopologyManager())
    read = topology_options(options)
    if isinstance(read, Refused):
        return read
    numa = NUMASet.from_ids(node.node_id for node in topology)
    distances: Distances | None = None
    unlisted: tuple[DistanceMissing, ...] = ()
    if read.value.prefer_closest:
        if not all(node.distances for node in topology):
            return Refused((NUMADistancesUnknown(),))
        distances, unlisted = _distances(topology)
    refusal: TopologyFault | None = None
    if policy != NONE and len(topology) > read.value.max_nodes:
        refusal = TooManyNUMANodes(nodes=len(topology), limit=read.value.max_nodes)
    elif policy not in {NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE}:
        refusal = TopologyPolicyUnknown(policy=policy)
    elif scope not in {CONTAINER, POD}:
        refusal = TopologyScopeUnknown(scope=scope)
    if refusal is not None:
        return Refused((refusal,))
    return Granted(
        TopologyManager(policy=policy, scope=scope, numa=numa, distances=distances, unlisted=unlisted)
    )


def _distances(topology: Sequence[NUMANode]) -> tuple[Distances, tuple[DistanceMissing, ...]]:
    """The distances by node id, and those that are not listed: lists are indexed by id, whatever the ids are."""
    size = max((node.node_id for node in topology), default=0) + 1
    padded = {node.node_id: (*node.distances, *([0] * (size - len(node.distances)))) for node in topology}
    unlisted = tuple(
        DistanceMissing(numa=node.node_id, other=other.node_id, listed=len(node.distances))
        for node in topology
        for other in topology
        if other.node_id >= len(node.distances)
    )
    return padded, unlisted


def topology_options(options: Mapping[str, str]) -> Verdict[TopologyOptions]:
    """The options as the kubelet reads them, or the first that it does not take.

    Follows: v1.36, topologymanager/policy_options.go, NewPolicyOptions.
    Departs: goes through the options by name, where the kubelet walks a map in random order.
    """
    prefer_closest, max_nodes = False, DEFAULT_MAX_NODES
    for name, value in sorted(options.items()):
        if name == PREFER_CLOSEST:
            if value not in _TRUE | _FALSE:
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="no truth value"),))
            prefer_closest = value in _TRUE
        elif name == MAX_NODES:
            if not re.fullmatch(r"[+-]?[0-9]+", value, re.ASCII):
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="no number"),))
            max_nodes = int(value)
            if not fits_int64(max_nodes):
                return Refused((TopologyOptionMalformed(option=name, value=value, fault="beyond 64 bits"),))
            if max_nodes < DEFAULT_MAX_NODES:
                return Refused((TopologyLimitTooLow(option=name, least=DEFAULT_MAX_NODES),))
        else:
            return Refused((TopologyOptionUnknown(option=name),))
    return Granted(TopologyOptions(prefer_closest, max_nodes))
