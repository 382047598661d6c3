"""Why a merged hint is what it is: what each provider forced, and what stood in the way of a preferred one."""

from collections.abc import Iterable
from itertools import islice
from typing import Literal

from nodewright.core.topology.dense import rule_size
from nodewright.core.topology.lists import ResourceList, resource_lists
from nodewright.core.topology.merge import alone
from nodewright.core.topology.policy import SINGLE_NUMA_NODE
from nodewright.model.topology_reasons import (
    HintsMerged,
    NothingPreferred,
    Obstacle,
    PreferencesDiffer,
    ResourceHints,
)
from nodewright.values.idset import NUMASet
from nodewright.values.subsets import masks

_SHOWN = 8
_TRIED = 4_096
"""So many sets of a rule are looked at for examples; on more nodes there may be others."""


def resource_hints(merged: HintsMerged) -> tuple[ResourceHints, ...]:
    """What each provider said of each resource, in their order."""
    alone = merged.policy == SINGLE_NUMA_NODE
    return tuple(_seen(one, single_only=alone) for one in resource_lists(merged.offers))


def obstacles(merged: HintsMerged) -> tuple[Obstacle, ...]:
    """What kept the merged hint from being preferred; nothing if it is."""
    if merged.hint.preferred:
        return ()
    seen = resource_hints(merged)
    stuck = [one for one in seen if one.says != "no opinion" and not one.preferred]
    if stuck:
        return tuple(NothingPreferred(hints=one) for one in stuck)
    return (PreferencesDiffer(hints=tuple(one for one in seen if one.says == "hints")),)


def combinations(merged: HintsMerged) -> int:
    """How many combinations of hints the kubelet merges one by one for this answer.

    Departs: counts a rule over more than 16 NUMA nodes as if every set of them fitted.
    Follows: v1.36, topologymanager/policy.go, iterateAllProviderTopologyHints.
    """
    product = 1
    for one in resource_lists(merged.offers):
        if merged.policy == SINGLE_NUMA_NODE:
            product *= len(alone(one, merged.numa.mask)) + one.any_preferred
        else:
            product *= len(one.listed) + one.any_nodes + (rule_size(one.fitting) if one.fitting else 0)
    return product


def _seen(one: ResourceList, *, single_only: bool) -> ResourceHints:
    if one.any_nodes:
        says: Literal["no opinion", "impossible"] = "no opinion" if one.any_preferred else "impossible"
        return ResourceHints(provider=one.provider, resource=one.resource, says=says)
    listed = sorted(one.preferred, key=_by_size)
    rule = [mask for mask in _examples(one) if one.rule_prefers(mask)]
    preferred = [mask for mask in dict.fromkeys([*listed, *rule]) if not single_only or mask.bit_count() == 1]
    return ResourceHints(
        provider=one.provider,
        resource=one.resource,
        says="hints",
        preferred=tuple(map(NUMASet, preferred[:_SHOWN])),
        narrowest=_narrowest(one),
    )


def _examples(one: ResourceList) -> Iterable[int]:
    return islice(masks(one.fitting.nodes.mask), _TRIED) if one.fitting else ()


def _narrowest(one: ResourceList) -> NUMASet | None:
    known = list(one.listed)
    if one.fitting is not None:
        fits = one.fitting.fits
        known += islice((mask for mask in _examples(one) if fits(mask)), 1)
    return NUMASet(min(known, key=_by_size)) if known else None


def _by_size(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask
