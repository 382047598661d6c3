"""The merge of all providers' hints into one, without trying every combination.

The kubelet takes one hint of each list in every possible way, ANDs the masks and keeps the best
result. The order of its comparison is total, so the result can be computed piecewise.

A *preferred* result needs hints that are all preferred and all name the same nodes, so the preferred
results are the masks that all lists prefer: an intersection of lists. Only if there is none, the best
other result is searched among the intersections of some choice of hints, first those of the largest minimum
size of any list.

Also the topology manager's decision about a container or, in the pod scope, about a pod.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb

import msgspec

from nodewright.engine.core.topology.manager_config import (
    BEST_EFFORT,
    NONE_POLICY,
    SINGLE_NUMA_NODE,
    TopologyManager,
)
from nodewright.engine.core.topology.sparse_merge import (
    SearchBounds,
    best_common,
    best_common_by_search,
    best_intersection,
    best_intersection_by_search,
    rule_size,
)
from nodewright.model.reasons.topology import DistanceMissing, HintsMerged, JudgedBy, NoCommonNUMA
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import MAX_PLACES, NUMADistances, StepBudget, singletons
from nodewright.model.values.topology_hints import (
    Fitting,
    Hint,
    Offer,
    ResourceHintList,
    hint_on,
    resource_hint_lists,
)

DENSE_NODE_LIMIT = 8
"""Up to this number of NUMA nodes all sets are enumerated, which is fastest."""
SEARCH_BUDGET = 1_500
"""On more nodes, up to 16, a search runs first; after so many steps all sets are enumerated after all."""

_MAX_SETS = 16
"""Up to this number of sets, each is tried by itself; for more, families are faster."""
_MAX_PAIRS = 2_000
"""Up to this number of pairs, masks are intersected one by one; for more, families are faster."""


class MergedHint(msgspec.Struct, frozen=True):
    """The merged hint of all providers."""

    hint: Hint
    admit: bool
    proved: bool = True
    """False if a search over dozens of NUMA nodes was cut short: there may be a better hint."""


def merged_hint(manager: TopologyManager, offers: Iterable[Offer]) -> MergedHint:
    """The best common hint of the offers under the policy, and whether it admits.

    Follows: v1.36, topologymanager/policy.go, HintMerger.Merge; policy_single_numa_node.go; policy_restricted.go.
    Departs: never enumerates combinations; the answer is the same. `proved` may be False on machines with
        more than 16 NUMA nodes, where the kubelet would not finish at all.
    """
    if manager.policy == NONE_POLICY:
        return MergedHint(Hint(None, preferred=False), admit=True)
    offers = tuple(offers)
    all_nodes = manager.numa.mask
    single = _preferred_alone_by_all(offers, all_nodes) if manager.distances is None else 0
    # The policy single-numa-node has no hint where the single node is the whole machine.
    if single and (manager.policy != SINGLE_NUMA_NODE or all_nodes & (all_nodes - 1)):
        return MergedHint(hint_on(single & -single, preferred=True), admit=True)
    return merged_lists(manager, resource_hint_lists(offers))


def merged_lists(manager: TopologyManager, lists: Sequence[ResourceHintList]) -> MergedHint:
    """As `merged_hint`, whose first step it does not need: the slow way to the same answer.

    Raises ValueError for a rule with NUMA nodes that the machine does not have; listed hints may name such nodes.
    """
    all_nodes = manager.numa.mask
    for hint_list in lists:
        if hint_list.fitting and hint_list.fitting.nodes.mask & ~all_nodes:
            raise ValueError(
                f"{hint_list.provider}: the rule for hints of {hint_list.resource} names the NUMA nodes "
                f"{hint_list.fitting.nodes}; the machine has {manager.numa}"
            )
    if manager.policy == SINGLE_NUMA_NODE:
        mask = _single(lists, all_nodes)
        hint = Hint(None if mask in {0, all_nodes} else NUMASet(mask), preferred=mask != 0)
        return MergedHint(hint, hint.preferred)
    budget = StepBudget()
    mask = best_preferred(lists, all_nodes, manager.distances, budget)
    if mask:
        return MergedHint(
            hint_on(mask, preferred=True),
            admit=True,
            proved=not budget.is_exhausted and _sizes_proved(lists),
        )
    mask, proved = best_not_preferred(lists, all_nodes, manager.distances, budget)
    hint = hint_on(mask or all_nodes, preferred=False)
    proved = proved and not budget.is_exhausted and _sizes_proved(lists)
    return MergedHint(hint, manager.policy == BEST_EFFORT, proved)


def _preferred_alone_by_all(offers: Iterable[Offer], everything: int) -> int:
    """The nodes that every provider with an opinion prefers alone: under each policy the lowest is the best hint.

    0 if there are none, if no provider has an opinion, and for hints that are not proved, have no opinion on the
    nodes or name nodes that the machine does not have.
    """
    single, has_opinion = everything, False
    for offer in offers:
        previous = None
        for hints in (offer.hints or {}).values():
            if hints is None or hints is previous:
                continue
            previous, has_opinion = hints, True
            rule, alone = hints.fitting, 0
            if rule is not None:
                if not rule.proved or rule.nodes.mask & ~everything:
                    return 0
                alone = rule.preferred_single_nodes()
            for hint in hints.listed:
                if hint.numa is None:
                    return 0
                if hint.preferred:
                    mask = hint.numa.mask
                    if mask & ~everything:
                        return 0
                    alone |= 0 if mask & (mask - 1) else mask
            single &= alone
            if not single:
                return 0
    return single if has_opinion else 0


def best_preferred(
    lists: Sequence[ResourceHintList], everything: int, distances: NUMADistances | None, budget: StepBudget
) -> int:
    """The best mask that every list prefers; 0: there is none."""
    strict = [hint_list for hint_list in lists if not hint_list.any_preferred]
    for hint_list in strict:
        if not (hint_list.preferred or hint_list.fitting):
            return 0
    single = _common_single_nodes(strict, everything)
    if single:
        return single & -single if distances is None else _best(singletons(single), 0, distances)
    candidates = {
        mask
        for hint_list in strict or lists
        for mask in hint_list.preferred
        if all(other.prefers(mask) for other in lists)
    }
    if not strict:
        candidates.add(everything)
        for hint_list in lists:
            if hint_list.fitting:
                candidates.add(_common([hint_list.fitting], distances, budget))
    elif all(hint_list.fitting for hint_list in strict):
        candidates.add(
            _common([hint_list.fitting for hint_list in strict if hint_list.fitting], distances, budget)
        )
    return _best({mask & everything for mask in candidates} - {0}, 0, distances)


def _common_single_nodes(lists: Sequence[ResourceHintList], everything: int) -> int:
    """The nodes that each of the lists prefers alone: the best of them is better than any larger set.

    0 without lists, and where a hint names nodes that the machine does not have: those are cut off later.
    """
    single = everything if lists else 0
    for hint_list in lists:
        single &= hint_list.preferred_single_nodes()
        if not single:
            return 0
        for mask in hint_list.preferred:
            if mask & ~everything:
                return 0
    return single


def best_not_preferred(
    lists: Sequence[ResourceHintList], everything: int, distances: NUMADistances | None, budget: StepBudget
) -> tuple[int, bool]:
    """The best intersection of some choice of hints (0: there is none), and whether it is proved.

    The kubelet also distinguishes preferred results here, but this is called only if there are none.
    """
    sizes = [hint_list.fewest_nodes() for hint_list in lists]
    narrowest = max((size for size, _ in sizes), default=0)
    proved = all(certain for _, certain in sizes)
    common = everything
    for hint_list in lists:
        named = hint_list.named_nodes()
        common &= everything if named is None else named
    if common == 0:
        return 0, True
    if not any(hint_list.fitting for hint_list in lists):
        intersections = _intersections(lists, common)
        if intersections is not None:
            return _best(intersections, narrowest, distances), proved
    count = common.bit_count()
    if count > DENSE_NODE_LIMIT:
        search_budget = StepBudget(SEARCH_BUDGET) if count <= MAX_PLACES else budget
        results = best_intersection_by_search(
            lists, common, SearchBounds(narrowest, distances, search_budget, small=DENSE_NODE_LIMIT)
        )
        if count > MAX_PLACES or not search_budget.is_exhausted:
            return _best(set(results) - {0}, narrowest, distances), proved
    order = [*range(min(narrowest, count), 0, -1), *range(narrowest + 1, count + 1)]
    return best_intersection(lists, common, order, distances), proved


def _intersections(lists: Sequence[ResourceHintList], common: int) -> set[int] | None:
    """All intersections of some choice of listed hints; None: too many pairs to try."""
    max_pairs = _MAX_PAIRS if common.bit_count() <= MAX_PLACES else 100 * _MAX_PAIRS
    intersections = {common}
    for hint_list in lists:
        masks = {mask & common for mask in hint_list.listed} | ({common} if hint_list.any_nodes else set())
        if len(intersections) * len(masks) > max_pairs:
            return None
        intersections = {left & right for left in intersections for right in masks} - {0}
    return intersections


def _common(fittings: Sequence[Fitting], distances: NUMADistances | None, budget: StepBudget) -> int:
    """The best mask that all rules prefer; 0: there is none."""
    common = fittings[0].nodes.mask
    sizes = set(range(1, common.bit_count() + 1))
    for fitting in fittings:
        common &= fitting.nodes.mask
        if not fitting.sockets:
            sizes &= {fitting.preferred_size}
    candidate_sizes = sorted(size for size in sizes if size <= common.bit_count())
    if not candidate_sizes:
        return 0
    count = common.bit_count()
    if sum([comb(count, size) for size in candidate_sizes]) <= _MAX_SETS:
        return _best_of_few(fittings, singletons(common), candidate_sizes, distances)
    if count > DENSE_NODE_LIMIT:
        search_budget = StepBudget(SEARCH_BUDGET) if count <= MAX_PLACES else budget
        mask = best_common_by_search(fittings, common, candidate_sizes, distances, search_budget)
        if count > MAX_PLACES or not search_budget.is_exhausted:
            return mask
    return best_common(fittings, common, candidate_sizes, distances)


def _best_of_few(
    fittings: Sequence[Fitting], nodes: Sequence[int], sizes: Iterable[int], distances: NUMADistances | None
) -> int:
    """The best mask that all rules prefer, each tried by itself; 0: there is none."""
    for size in sizes:
        masks = [
            mask
            for mask in map(sum, combinations(nodes, size))
            if all(fitting.prefers(mask) and fitting.fits(mask) for fitting in fittings)
        ]
        if masks:
            return _best(masks, 0, distances)
    return 0


def _best(masks: Iterable[int], narrowest: int, distances: NUMADistances | None) -> int:
    """The best of the masks; 0: there is none. Fewest nodes first, or closest below `narrowest` if it is set."""
    return min(
        masks,
        key=lambda mask: (*_size_rank(mask.bit_count(), narrowest), _distance_sum(mask, distances), mask),
        default=0,
    )


def _size_rank(size: int, narrowest: int) -> tuple[bool, int]:
    return (True, size) if size > narrowest else (False, -size)


def _distance_sum(mask: int, distances: NUMADistances | None) -> int:
    """The sum of all distances within the mask; for masks of one size it orders like their average."""
    if distances is None:
        return 0
    nodes = list(NUMASet(mask))
    return sum([distances[node][other] for node in nodes for other in nodes])


def _single(lists: Sequence[ResourceHintList], everything: int) -> int:
    """The lowest node that every list prefers alone; all nodes without any preference; 0: there is none.

    Follows: v1.36, topologymanager/policy_single_numa_node.go, filterSingleNumaHints.
    """
    if all(hint_list.any_preferred for hint_list in lists):
        named = 0
        for hint_list in lists:
            named |= hint_list.preferred_single_nodes() & everything
        return named & -named or everything
    common = everything
    for hint_list in lists:
        if not hint_list.any_preferred:
            common &= hint_list.preferred_single_nodes()
    return common & -common


def _sizes_proved(lists: Sequence[ResourceHintList]) -> bool:
    return all(hint_list.fitting.proved for hint_list in lists if hint_list.fitting is not None)


def numa_affinity(
    manager: TopologyManager, offers: Iterable[Offer], *, container: str = "", pod_level: bool = False
) -> Verdict[Hint]:
    """The hint for the allocation, or the refusal (TopologyAffinityError).

    In the container scope, hints are collected container by container, each after the allocation of the
    previous one; in the pod scope once for the pod (``container`` is empty then), and all its containers use
    the same hint. ``pod_level``: the pod has pod-level resources and the gate PodLevelResourceManagers is on.

    Follows: v1.36, topologymanager/{scope_container,scope_pod}.go, Admit.
    """
    all_offers = tuple(offers)
    for offer in all_offers:
        if offer.hints:
            return _affinity_of_hints(manager, all_offers, container, pod_level=pod_level)
    # Most containers need no exclusive resources; their result is cached.
    silence = tuple([(offer.provider, offer.hints is None) for offer in all_offers])
    return _affinity_without_hints(manager.policy, manager.numa, manager.judged_by, silence)


@lru_cache(maxsize=256)
def _affinity_without_hints(
    policy: str, numa: NUMASet, judged_by: JudgedBy | None, silence: tuple[tuple[str, bool], ...]
) -> Verdict[Hint]:
    """The result if no provider has a preference; True in ``silence``: the provider returned no hints at all."""
    manager = TopologyManager(policy=policy, numa=numa, judged_by=judged_by)
    offers = tuple(Offer(provider, None if is_silent else {}) for provider, is_silent in silence)
    return _affinity_of_hints(manager, offers, "", pod_level=False)


def _affinity_of_hints(
    manager: TopologyManager, offers: tuple[Offer, ...], container: str, *, pod_level: bool
) -> Verdict[Hint]:
    crash = _missing_distance(manager, offers)
    if crash is not None:
        return Refused((crash,))
    merged = merged_hint(manager, offers)
    evidence = HintsMerged(
        policy=manager.policy,
        numa=manager.numa,
        offers=offers,
        hint=merged.hint,
        proved=merged.proved,
        judged_by=manager.judged_by,
    )
    if merged.admit:
        return Granted(merged.hint, (evidence,))
    refusal = NoCommonNUMA(scope=manager.scope, container=container, pod_level=pod_level, merged=evidence)
    return Refused((refusal,))


def _missing_distance(manager: TopologyManager, offers: Iterable[Offer]) -> DistanceMissing | None:
    """The missing distance that the kubelet looks up.

    Follows: v1.36, topologymanager/numa_info.go, CalculateAverageFor.
    Departs: reported wherever a hint names such a node; the kubelet only fails if it compares two sets of one size.
    """
    if not manager.missing_distances or manager.policy == SINGLE_NUMA_NODE:
        return None
    named = 0
    for hint_list in resource_hint_lists(offers):
        named |= hint_list.named_nodes() or 0
    return next(
        (
            distance
            for distance in manager.missing_distances
            if named >> distance.numa & named >> distance.other & 1
        ),
        None,
    )


def combination_count(merged: HintsMerged) -> int:
    """How many combinations of hints the kubelet merges one by one for this answer.

    Departs: counts a rule over more than 16 NUMA nodes as if every set of them fitted.
    Follows: v1.36, topologymanager/policy.go, iterateAllProviderTopologyHints.
    """
    product = 1
    for hint_list in resource_hint_lists(merged.offers):
        if merged.policy == SINGLE_NUMA_NODE:
            single = hint_list.preferred_single_nodes() & merged.numa.mask
            product *= single.bit_count() + hint_list.any_preferred
        else:
            product *= (
                len(hint_list.listed)
                + hint_list.any_nodes
                + (rule_size(hint_list.fitting) if hint_list.fitting else 0)
            )
    return product
