"""The topology manager's decision about a container or, in the pod scope, about a pod."""

from collections.abc import Iterable

from nodewright.core.topology.merge import merge
from nodewright.core.topology.policy import TopologyManager
from nodewright.model.hints import Hint, Offer
from nodewright.model.topology_reasons import HintsMerged, NoCommonNUMA
from nodewright.model.verdict import Granted, Refused, Verdict


def affinity(
    manager: TopologyManager, offers: Iterable[Offer], *, container: str = "", pod_level: bool = False
) -> Verdict[Hint]:
    """The hint that allocation is to follow, or the refusal (TopologyAffinityError).

    In the container scope the providers are asked container by container, each after the one before it
    was given its resources; in the pod scope once for the pod (``container`` is empty then), and all its
    containers follow the one hint. ``pod_level``: the pod has resources of its own and the gate
    PodLevelResourceManagers is on.

    Follows: v1.36, topologymanager/{scope_container,scope_pod}.go, Admit.
    """
    given = tuple(offers)
    merged = merge(manager, given)
    evidence = HintsMerged(
        policy=manager.policy, numa=manager.numa, offers=given, hint=merged.hint, proved=merged.proved
    )
    if merged.admit:
        return Granted(merged.hint, (evidence,))
    refusal = NoCommonNUMA(scope=manager.scope, container=container, pod_level=pod_level, merged=evidence)
    return Refused((refusal,))
