"""What the topology manager finds, in plain sentences."""

from nodewright.core.topology import obstacles, resource_hints
from nodewright.model import topology_reasons as topology
from nodewright.render.topology_messages import start_error
from nodewright.values.idset import NUMASet


def topology_sentence(reason: topology.TopologyReason) -> str:
    """The reason in words, without a full stop."""
    if isinstance(reason, topology.HintsMerged):
        return _merged(reason)
    if isinstance(reason, topology.PodUnfit):
        return f"{_judge(reason)} does not take the pod: {reason.said}"
    if isinstance(reason, topology.DistanceMissing):
        return (
            f"the kubelet crashes: it looks up the distance from NUMA node {reason.numa} to {reason.other} "
            f"in a list of {reason.listed}"
        )
    if isinstance(reason, topology.NoCommonNUMA):
        whose = f"container {reason.container}" if reason.container else "the pod as a whole"
        by = reason.merged.judged_by
        if by is not None and by.policy == reason.merged.policy:
            return f"{_judge(by)} has no NUMA nodes for {whose}: {by.said or _obstacles(reason.merged)}"
        chosen = f" ({chosen_by(by)})" if by is not None else ""
        return (
            f"policy {reason.merged.policy}{chosen} takes only preferred NUMA nodes, "
            f"and there are none for {whose}: {_obstacles(reason.merged)}"
        )
    return start_error(reason)


def chosen_by(by: topology.JudgedBy) -> str:
    """Who chose a policy of the kubelet's, and why."""
    return f"chosen by {by.policy}, which is not the kubelet's{f': {by.said}' if by.said else ''}"


def _judge(by: topology.JudgedBy | topology.PodUnfit) -> str:
    return f"topology policy {by.policy}, which is not the kubelet's,"


def _merged(reason: topology.HintsMerged) -> str:
    by = reason.judged_by
    if by is None:
        return _agreed(reason)
    if by.policy != reason.policy:
        return f"{_agreed(reason)} (policy {reason.policy}, {chosen_by(by)})"
    where = _nodes(reason.hint.numa) if reason.hint.numa else "any NUMA nodes"
    return f"{_judge(by)} says {where}{f': {by.said}' if by.said else ''}"


def _agreed(reason: topology.HintsMerged) -> str:
    unproved = "" if reason.proved else "; the search was cut short, there may be better ones"
    names = [one.resource for one in resource_hints(reason) if one.says == "hints"]
    if not names:
        return "no resource asks for certain NUMA nodes"
    if reason.hint.preferred:
        where = _nodes(reason.hint.numa) if reason.hint.numa else "any NUMA node"
        return f"{_and(names)} {'agree' if len(names) > 1 else 'settles'} on {where}{unproved}"
    where = _nodes(reason.hint.numa) if reason.hint.numa else "no NUMA nodes"
    return f"{where} for {_and(names)}, not preferred: {_obstacles(reason)}{unproved}"


def _obstacles(merged: topology.HintsMerged) -> str:
    return "; ".join(map(_obstacle, obstacles(merged)))


def _obstacle(one: topology.Obstacle) -> str:
    if isinstance(one, topology.PreferencesDiffer):
        wishes = [f"{hints.resource} prefers {_sets(hints.preferred)}" for hints in one.hints]
        return f"no set of NUMA nodes is preferred for all: {', '.join(wishes)}"
    hints = one.hints
    if hints.says == "impossible" or hints.narrowest is None:
        return f"no NUMA nodes have enough {hints.resource} free"
    count = len(hints.narrowest)
    return f"{hints.resource} prefers none that is possible now: it takes {_count(count)}, for example {hints.narrowest}"


def _sets(preferred: tuple[NUMASet, ...]) -> str:
    return " or ".join(f"{{{numa}}}" for numa in preferred)


def _nodes(numa: NUMASet) -> str:
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"


def _count(count: int) -> str:
    return "1 NUMA node" if count == 1 else f"{count} NUMA nodes"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
