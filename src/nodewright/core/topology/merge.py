"""Which NUMA nodes suit all providers: their hints merged into one, without trying every combination.

The kubelet takes one hint of each list in every possible way, ANDs the masks and keeps the best
result. The order by which it compares is total, so the answer can be had piecewise.

A *preferred* result needs hints that are all preferred and all name the same nodes, so the preferred
results are the masks that all lists prefer: an intersection of lists. Only if there is none, the best
other result is looked for among the masks that some choice of hints has in common, those of the size
that the neediest list asks for first.
"""

from collections.abc import Iterable, Sequence

import msgspec

from nodewright.core.topology.dense import best_common, best_intersection
from nodewright.core.topology.lists import ResourceList, resource_lists
from nodewright.core.topology.policy import BEST_EFFORT, NONE, SINGLE_NUMA_NODE, TopologyManager
from nodewright.core.topology.sparse import Search, search_common, search_intersections
from nodewright.model.hints import Fitting, Hint, Offer
from nodewright.values.families import LARGEST
from nodewright.values.idset import NUMASet
from nodewright.values.search import Budget, Distances

SMALL = 8
"""Over so few NUMA nodes all sets are written out: that is quickest."""
QUICK = 1_500
"""Over more, up to 16, a search comes first; after so many steps all sets are written out after all."""

_FEW = 2_000
"""Up to so many pairs of masks are met one by one; for more, families are quicker."""


class Merged(msgspec.Struct, frozen=True):
    """The hint that all providers' hints come to."""

    hint: Hint
    admit: bool
    proved: bool = True
    """False where a search over dozens of NUMA nodes was cut short: there may be a better hint."""


def merge(manager: TopologyManager, offers: Iterable[Offer]) -> Merged:
    """The best hint that the offers have in common under the policy, and whether it admits.

    Follows: v1.36, topologymanager/policy.go, HintMerger.Merge; policy_single_numa_node.go; policy_restricted.go.
    Departs: never enumerates combinations; the answer is the same. `proved` may be False on machines with
        more than 16 NUMA nodes, where the kubelet would not come to an answer at all.
    """
    if manager.policy == NONE:
        return Merged(Hint(None, preferred=False), admit=True)
    lists = resource_lists(offers)
    everything = manager.numa.mask
    if manager.policy == SINGLE_NUMA_NODE:
        mask = _single(lists, everything)
        hint = Hint(None if mask in {0, everything} else NUMASet(mask), preferred=mask != 0)
        return Merged(hint, hint.preferred)
    budget = Budget()
    mask = best_preferred(lists, everything, manager.distances, budget)
    if mask:
        return Merged(
            Hint(NUMASet(mask), preferred=True), admit=True, proved=not budget.spent and _sizes_proved(lists)
        )
    mask, proved = best_other(lists, everything, manager.distances, budget)
    hint = Hint(NUMASet(mask or everything), preferred=False)
    proved = proved and not budget.spent and _sizes_proved(lists)
    return Merged(hint, manager.policy == BEST_EFFORT, proved)


def best_preferred(
    lists: Sequence[ResourceList], everything: int, distances: Distances | None, budget: Budget
) -> int:
    """The best mask that every list prefers; 0: there is none."""
    if not all(one.can_be_preferred for one in lists):
        return 0
    strict = [one for one in lists if not one.any_preferred]
    candidates = {
        mask
        for one in strict or lists
        for mask in one.preferred
        if all(other.prefers(mask) for other in lists)
    }
    if not strict:
        candidates.add(everything)
        for one in lists:
            if one.fitting:
                candidates.add(_common([one.fitting], distances, budget))
    elif all(one.fitting for one in strict):
        candidates.add(_common([one.fitting for one in strict if one.fitting], distances, budget))
    return _best({mask & everything for mask in candidates} - {0}, 0, distances)


def best_other(
    lists: Sequence[ResourceList], everything: int, distances: Distances | None, budget: Budget
) -> tuple[int, bool]:
    """The best mask that some choice of hints has in common (0: there is none), and whether that is proved.

    The kubelet tells preferred from other results here, too, but where this is asked there are no
    preferred ones.
    """
    sizes = [one.narrowest() for one in lists]
    narrowest = max((size for size, _ in sizes), default=0)
    proved = all(certain for _, certain in sizes)
    common = everything
    for one in lists:
        reach = one.reach()
        common &= everything if reach is None else reach
    if common == 0:
        return 0, True
    if not any(one.fitting for one in lists):
        met = _met_one_by_one(lists, common)
        if met is not None:
            return _best(met, narrowest, distances), proved
    count = common.bit_count()
    if count > SMALL:
        spend = Budget(QUICK) if count <= LARGEST else budget
        found = search_intersections(lists, common, Search(narrowest, distances, spend, small=SMALL))
        if count > LARGEST or not spend.spent:
            return _best(set(found) - {0}, narrowest, distances), proved
    order = [*range(min(narrowest, count), 0, -1), *range(narrowest + 1, count + 1)]
    return best_intersection(lists, common, order, distances), proved


def _met_one_by_one(lists: Sequence[ResourceList], common: int) -> set[int] | None:
    """All masks that some choice of listed hints has in common; None: too many pairs to try."""
    few = _FEW if common.bit_count() <= LARGEST else 100 * _FEW
    met = {common}
    for one in lists:
        masks = {mask & common for mask in one.listed} | ({common} if one.any_nodes else set())
        if len(met) * len(masks) > few:
            return None
        met = {left & right for left in met for right in masks} - {0}
    return met


def _common(fittings: Sequence[Fitting], distances: Distances | None, budget: Budget) -> int:
    """The best mask that all rules prefer; 0: there is none."""
    common = fittings[0].nodes.mask
    sizes = set(range(1, common.bit_count() + 1))
    for fitting in fittings:
        common &= fitting.nodes.mask
        if not fitting.sockets:
            sizes &= {fitting.preferred_size}
    wanted = sorted(size for size in sizes if size <= common.bit_count())
    if not wanted:
        return 0
    count = common.bit_count()
    if count > SMALL:
        spend = Budget(QUICK) if count <= LARGEST else budget
        found = search_common(fittings, common, wanted, distances, spend)
        if count > LARGEST or not spend.spent:
            return found
    return best_common(fittings, common, wanted, distances)


def _best(masks: Iterable[int], narrowest: int, distances: Distances | None) -> int:
    """The best of the masks; 0: there is none. Fewest nodes first, or nearest below `narrowest` if that is given."""
    return min(
        masks,
        key=lambda mask: (*_size_rank(mask.bit_count(), narrowest), _sum(mask, distances), mask),
        default=0,
    )


def _size_rank(size: int, narrowest: int) -> tuple[bool, int]:
    return (True, size) if size > narrowest else (False, -size)


def _sum(mask: int, distances: Distances | None) -> int:
    """All distances within the mask; between masks of one size it orders as their average does."""
    if distances is None:
        return 0
    nodes = list(NUMASet(mask))
    return sum([distances[one][other] for one in nodes for other in nodes])


def _single(lists: Sequence[ResourceList], everything: int) -> int:
    """The lowest node that every list prefers alone; all nodes if no list cares; 0: there is none.

    Follows: v1.36, topologymanager/policy_single_numa_node.go, filterSingleNumaHints.
    """
    if all(one.any_preferred for one in lists):
        named = [mask for one in lists for mask in alone(one, everything)]
        return min(named, default=everything)
    able = everything
    for one in lists:
        if not one.any_preferred:
            able &= sum(alone(one, everything))
    return able & -able


def alone(one: ResourceList, everything: int) -> set[int]:
    """The nodes, each as a set of its own, that are preferred hints of the list."""
    found = {mask for mask in one.preferred if mask & everything and mask & (mask - 1) == 0}
    left = one.fitting.nodes.mask & everything if one.fitting else 0
    while left:
        lowest = left & -left
        left ^= lowest
        if one.rule_prefers(lowest):
            found.add(lowest)
    return found


def _sizes_proved(lists: Sequence[ResourceList]) -> bool:
    return all(one.fitting is None or one.fitting.proved for one in lists)
