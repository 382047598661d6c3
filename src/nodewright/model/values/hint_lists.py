"""Hints of providers prepared for merging: one list per resource."""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import msgspec

from nodewright.model.values.subsets import Demand, minimum_size
from nodewright.model.values.topology_hints import Fitting, Hint, HintList, Offer

NO_OPINION = HintList((Hint(None, True),))


class ResourceHintList(msgspec.Struct, frozen=True):
    """The hints for one resource of one provider; listed hints are sets of masks."""

    provider: str
    resource: str
    """Empty: the provider has no opinion at all."""
    listed: Collection[int]
    preferred: Collection[int]
    any_nodes: bool
    """Whether a hint has no opinion on the NUMA nodes."""
    any_preferred: bool
    fitting: Fitting | None

    def prefers(self, mask: int) -> bool:
        """Whether exactly this set of nodes, or a hint without an opinion on the nodes, is preferred."""
        return self.any_preferred or mask in self.preferred or self.rule_prefers(mask)

    def rule_prefers(self, mask: int) -> bool:
        """Whether the rule has this set of nodes as a preferred hint."""
        return self.fitting is not None and self.fitting.prefers(mask) and self.fitting.fits(mask)

    def preferred_single_nodes(self) -> int:
        """The nodes that are preferred hints alone, as a mask."""
        single = self.fitting.preferred_single_nodes() if self.fitting is not None else 0
        for mask in self.preferred:
            if mask & (mask - 1) == 0:
                single |= mask
        return single

    def named_nodes(self) -> int | None:
        """All nodes that hints name; None: every node."""
        if self.any_nodes:
            return None
        nodes = self.fitting.nodes.mask if self.fitting else 0
        for mask in self.listed:
            nodes |= mask
        return nodes

    def fewest_nodes(self) -> tuple[int, bool]:
        """The fewest nodes that a hint names (0: no hint names any), and whether that is proved."""
        sizes = [mask.bit_count() for mask in self.listed]
        if self.fitting is None:
            return min(sizes, default=0), True
        rule = minimum_size(self.fitting.nodes.mask, demands_of(self.fitting))
        size = max(rule.size, self.fitting.at_least)
        if sizes and min(sizes) <= size:
            # The rule may need fewer only if its size is not proved; listed hints are certain.
            return min(sizes), rule.proved
        return size, rule.proved


def resource_hint_lists(offers: Iterable[Offer]) -> list[ResourceHintList]:
    """One list for each resource of each provider, including "no opinion" and "impossible".

    Follows: v1.36, topologymanager/policy.go, filterProvidersHints.
    """
    lists = []
    for offer in offers:
        if not offer.hints:
            lists.append(_without_opinion(offer.provider, ""))
            continue
        for resource, hints in sorted(offer.hints.items()):
            lists.append(
                _without_opinion(offer.provider, resource)
                if hints is None
                else _list(offer.provider, resource, hints)
            )
    return lists


def demands_of(fitting: Fitting) -> Sequence[Demand]:
    """All demands on a fitting set; a group that it must intersect is a demand for one of its nodes."""
    return [*fitting.demands, *(Demand(1, ((group, 1),)) for group in fitting.touching)]


@lru_cache(maxsize=256)
def _without_opinion(provider: str, resource: str) -> ResourceHintList:
    return _list(provider, resource, NO_OPINION)


def _list(provider: str, resource: str, hints: HintList) -> ResourceHintList:
    listed, preferred = set(), set()
    any_nodes = any_preferred = False
    for hint in hints.listed:
        if hint.numa is None:
            any_nodes, any_preferred = True, any_preferred or hint.preferred
        else:
            listed.add(hint.numa.mask)
            if hint.preferred:
                preferred.add(hint.numa.mask)
    rule = hints.fitting
    if rule is not None and not rule.fits(rule.nodes.mask):
        rule = None
    if not hints.listed and rule is None:
        # No hint at all counts as one without an opinion that is not preferred.
        any_nodes = True
    return ResourceHintList(provider, resource, listed, preferred, any_nodes, any_preferred, rule)
