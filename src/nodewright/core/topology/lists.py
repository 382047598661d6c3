"""What providers answered, as the merge sees it: one list for each resource, with what it always needs of it."""

from collections.abc import Iterable, Sequence

import msgspec

from nodewright.model.hints import Fitting, Hint, HintList, Offer
from nodewright.values.subsets import Demand, fewest

NO_OPINION = HintList((Hint(None, True),))
NOTHING_DOES = HintList((Hint(None, False),))


class ResourceList(msgspec.Struct):
    """The hints for one resource of one provider, those listed as sets of masks."""

    provider: str
    resource: str
    """Empty: the provider had no opinion at all."""
    listed: set[int]
    preferred: set[int]
    any_nodes: bool
    """Whether a hint leaves the NUMA nodes open."""
    any_preferred: bool
    fitting: Fitting | None

    @property
    def can_be_preferred(self) -> bool:
        """Whether there may be a preferred hint."""
        return self.any_preferred or bool(self.preferred) or self.fitting is not None

    def prefers(self, mask: int) -> bool:
        """Whether that very set of nodes is a preferred hint, or one that leaves the nodes open is."""
        return self.any_preferred or mask in self.preferred or self.rule_prefers(mask)

    def rule_prefers(self, mask: int) -> bool:
        """Whether the rule has that set of nodes as a preferred hint."""
        return self.fitting is not None and self.fitting.prefers(mask) and self.fitting.fits(mask)

    def reach(self) -> int | None:
        """All nodes that some hint names; None: every node."""
        if self.any_nodes:
            return None
        reached = self.fitting.nodes.mask if self.fitting else 0
        for mask in self.listed:
            reached |= mask
        return reached

    def narrowest(self) -> tuple[int, bool]:
        """The fewest nodes of a hint that names any (0: none does), and whether that is proved."""
        sizes = [mask.bit_count() for mask in self.listed]
        if self.fitting is None:
            return min(sizes, default=0), True
        rule = fewest(self.fitting.nodes.mask, demands_of(self.fitting))
        size = max(rule.size, self.fitting.at_least)
        if sizes and min(sizes) <= size:
            # Fewer may do for the rule only if it was not proved; what is listed is certain.
            return min(sizes), rule.proved
        return size, rule.proved


def resource_lists(offers: Iterable[Offer]) -> list[ResourceList]:
    """One list for each resource of each provider; no opinion and impossible are lists, too.

    Follows: v1.36, topologymanager/policy.go, filterProvidersHints.
    """
    lists = []
    for offer in offers:
        if not offer.hints:
            lists.append(_list(offer.provider, "", NO_OPINION))
            continue
        for resource, hints in sorted(offer.hints.items()):
            lists.append(
                _list(offer.provider, resource, NO_OPINION if hints is None else hints or NOTHING_DOES)
            )
    return lists


def demands_of(fitting: Fitting) -> Sequence[Demand]:
    """All that a fitting set must have; a group that must be touched is a demand for one of it."""
    return [*fitting.demands, *(Demand(1, ((group, 1),)) for group in fitting.touching)]


def _list(provider: str, resource: str, hints: HintList) -> ResourceList:
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
    return ResourceList(provider, resource, listed, preferred, any_nodes, any_preferred, rule)
