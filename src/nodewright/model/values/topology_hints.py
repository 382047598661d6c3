"""Hints: which sets of NUMA nodes could serve a request, and which of them are preferred.

A hint provider (the CPU, memory or device manager) returns `ProviderHints`: a list for each resource, or
None for "no opinion at all". A list is a `HintList`:

- `listed` has single hints, and, optionally,
- `fitting` is the rule "all sets of NUMA nodes that have enough", which represents up to 2**n hints
  without listing them. Prefer the rule: the merge never expands it.

>>> cpu = HintList(fitting=Fitting.of(nodes=NUMASet.of(0, 1), needed=2, free={0: 4, 1: 1}, total={0: 4, 1: 4}))
>>> [(str(hint.numa), hint.preferred) for hint in cpu]
[('0', True), ('0-1', False)]

None for a resource is "no opinion, anything is preferred"; an empty list is "impossible".

For merging, the hints of providers become one list per resource.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Self, TypeAlias

import msgspec

from nodewright.model.values.bounded_cache import MAX_TEXT_LENGTH
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand, minimum_size, nonempty_subsets, singletons


class Hint(msgspec.Struct, frozen=True):
    """NUMA nodes that could serve a request; None means no opinion on which."""

    numa: NUMASet | None
    preferred: bool

    def __str__(self) -> str:
        where = "any" if self.numa is None else f"{{{self.numa}}}"
        return f"{where} {'preferred' if self.preferred else 'not preferred'}"


@lru_cache(maxsize=4096)
def hint_on(mask: int, *, preferred: bool) -> Hint:
    """The hint for these NUMA nodes (bit i is node i); the same few of a machine recur in every decision."""
    return Hint(NUMASet(mask), preferred)


class Fitting(msgspec.Struct, frozen=True):
    """All sets of these NUMA nodes that meet the demands, as a rule instead of a list.

    Every superset of a fitting set also fits.
    """

    nodes: NUMASet
    """The nodes that sets consist of; the machine has all of them."""
    demands: tuple[Demand, ...]
    """The amounts that must be free on a set now (NUMA node i is place i)."""
    preferred_size: int
    """A set with this many nodes is preferred: the fewest that would suffice if nothing were in use."""
    touching: tuple[int, ...] = ()
    """A set must intersect each of these groups of nodes, which have reusable CPUs and devices."""
    at_least: int = 1
    """A set has at least this many nodes."""
    sockets: tuple[int, ...] = ()
    """The NUMA nodes of each socket, if alignment by socket counts."""
    preferred_sockets: int = 0
    """A set that intersects this many sockets is also preferred."""
    proved: bool = True
    """Whether `preferred_size` is certain; on machines with dozens of NUMA nodes the search for it is bounded."""

    @classmethod
    def of(cls, *, nodes: NUMASet, needed: int, free: Mapping[int, int], total: Mapping[int, int]) -> Self:
        """The rule for one amount by NUMA node: enough of it free, preferred if no smaller set has enough in total."""
        smallest = minimum_size(nodes.mask, [demand_by_numa_node(needed, total)])
        return cls(nodes, (demand_by_numa_node(needed, free),), smallest.size, proved=smallest.proved)

    def fits(self, mask: int) -> bool:
        """Whether the set of nodes is a hint."""
        if mask & ~self.nodes.mask or mask.bit_count() < self.at_least:
            return False
        # Loops instead of `all`: this is called for each set that is tried.
        for group in self.touching:
            if not group & mask:
                return False
        for demand in self.demands:  # noqa: SIM110 - as above
            if not demand.met_by(mask):
                return False
        return True

    def prefers(self, mask: int) -> bool:
        """Whether the set, if it is a hint, is a preferred one."""
        if mask.bit_count() == self.preferred_size:
            return True
        return (
            bool(self.sockets)
            and sum(1 for socket in self.sockets if socket & mask) == self.preferred_sockets
        )

    def preferred_single_nodes(self) -> int:
        """The nodes that are preferred hints alone, as a mask: what `fits` and `prefers` accept, all at once."""
        if self.at_least > 1 or not (self.preferred_size == 1 or self.sockets):
            return 0
        single = self.nodes.mask
        for group in self.touching:
            single &= group
        for demand in self.demands:
            single = demand.single_places(single)
        return single if self.preferred_size == 1 else sum(filter(self.prefers, singletons(single)))

    def __iter__(self) -> Iterator[Hint]:
        for mask in nonempty_subsets(self.nodes.mask):
            if self.fits(mask):
                yield Hint(NUMASet(mask), self.prefers(mask))


class HintList(msgspec.Struct, frozen=True):
    """The hints for one resource: listed ones and those of the rule. None at all: impossible."""

    listed: tuple[Hint, ...] = ()
    fitting: Fitting | None = None

    def __bool__(self) -> bool:
        return bool(self.listed) or (self.fitting is not None and self.fitting.fits(self.fitting.nodes.mask))

    def __iter__(self) -> Iterator[Hint]:
        """Every hint, those of the rule by number of nodes, then lexicographic, as the kubelet generates them."""
        yield from self.listed
        yield from self.fitting or ()


def demand_by_numa_node(needed: int, amounts: Mapping[int, int]) -> Demand:
    """The demand for an amount that is distributed over NUMA nodes."""
    return Demand(needed, tuple((1 << node, amount) for node, amount in sorted(amounts.items())))


IMPOSSIBLE = HintList()
"""No NUMA nodes are possible."""

ProviderHints: TypeAlias = Mapping[str, HintList | None]
"""The hints of one provider by resource; None: no opinion on it. Without entries: no opinion at all."""


class Offer(msgspec.Struct, frozen=True):
    """The hints of a provider (`cpu`, `memory`, `devices`)."""

    provider: str
    hints: ProviderHints | None


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
                if hints is None and len(resource) <= MAX_TEXT_LENGTH
                else _list(offer.provider, resource, NO_OPINION if hints is None else hints)
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
