"""The topology manager's decision about a container or, in the pod scope, about a pod."""

from collections.abc import Iterable
from functools import lru_cache

from nodewright.core.topology.lists import resource_lists
from nodewright.core.topology.merge import merge
from nodewright.core.topology.policy import SINGLE_NUMA_NODE, TopologyManager
from nodewright.model.hints import Hint, Offer
from nodewright.model.topology_reasons import DistanceMissing, HintsMerged, JudgedBy, NoCommonNUMA
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet


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
    # Most containers get nothing for themselves: what comes of that is known, and nobody is turned away for it.
    if not any(offer.hints for offer in given):
        asked = tuple([(one.provider, one.hints is None) for one in given])
        return _of_no_opinions(manager.policy, manager.numa, manager.judged_by, asked)
    return _of_hints(manager, given, container, pod_level=pod_level)


@lru_cache(maxsize=256)
def _of_no_opinions(
    policy: str, numa: NUMASet, judged_by: JudgedBy | None, asked: tuple[tuple[str, bool], ...]
) -> Verdict[Hint]:
    """What it comes to if none of these providers wants anything in particular; True: it said nothing at all."""
    manager = TopologyManager(policy=policy, numa=numa, judged_by=judged_by)
    given = tuple(Offer(provider, None if is_silent else {}) for provider, is_silent in asked)
    return _of_hints(manager, given, "", pod_level=False)


def _of_hints(
    manager: TopologyManager, given: tuple[Offer, ...], container: str, *, pod_level: bool
) -> Verdict[Hint]:
    crash = _missing_distance(manager, given)
    if crash is not None:
        return Refused((crash,))
    merged = merge(manager, given)
    evidence = HintsMerged(
        policy=manager.policy,
        numa=manager.numa,
        offers=given,
        hint=merged.hint,
        proved=merged.proved,
        judged_by=manager.judged_by,
    )
    if merged.admit:
        return Granted(merged.hint, (evidence,))
    refusal = NoCommonNUMA(scope=manager.scope, container=container, pod_level=pod_level, merged=evidence)
    return Refused((refusal,))


def _missing_distance(manager: TopologyManager, offers: Iterable[Offer]) -> DistanceMissing | None:
    """The distance that the kubelet looks up and that is not there.

    Follows: v1.36, topologymanager/numa_info.go, CalculateAverageFor.
    Departs: wherever a hint names such a node; the kubelet gets by if it never has two sets of one size to compare.
    """
    if not manager.unlisted or manager.policy == SINGLE_NUMA_NODE:
        return None
    named = 0
    for one in resource_lists(offers):
        named |= one.reach() or 0
    return next((one for one in manager.unlisted if named >> one.numa & named >> one.other & 1), None)
