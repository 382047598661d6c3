"""Hints: which sets of NUMA nodes could serve a request, and which of them are preferred.

For whoever makes hints (CPU, memory and device managers). A provider answers with
`ProviderHints`: a list for each resource, or None for "no opinion at all". A list is a `HintList`:

- the hints one by one in `listed`, and beside them, if there is one,
- `fitting`: the rule "all sets of NUMA nodes that have enough", which stands for up to 2**n hints
  without making them. Give the rule wherever you can: the merge never expands it.

>>> cpu = HintList(fitting=Fitting.of(nodes=NUMASet.of(0, 1), needed=2, free={0: 4, 1: 1}, total={0: 4, 1: 4}))
>>> [(str(hint.numa), hint.preferred) for hint in cpu]
[('0', True), ('0-1', False)]

None for a resource is "no opinion, anything is preferred"; an empty list is "impossible".
"""

from collections.abc import Iterator, Mapping
from typing import Self, TypeAlias

import msgspec

from nodewright.values.idset import NUMASet
from nodewright.values.subsets import Demand, fewest, masks


class Hint(msgspec.Struct, frozen=True):
    """NUMA nodes that could serve a request; None stands for no opinion on which."""

    numa: NUMASet | None
    preferred: bool

    def __str__(self) -> str:
        where = "any" if self.numa is None else f"{{{self.numa}}}"
        return f"{where} {'preferred' if self.preferred else 'not preferred'}"


class Fitting(msgspec.Struct, frozen=True):
    """All sets of these NUMA nodes that meet the demands, as a rule instead of a list.

    The larger a set the better it fits: whatever contains a fitting set fits, too.
    """

    nodes: NUMASet
    """The nodes that sets are made of."""
    demands: tuple[Demand, ...]
    """What a set must have (NUMA node i is place i): the amounts that are free now."""
    preferred_size: int
    """A set with this many nodes is preferred: the fewest that would do if nothing were taken."""
    touching: tuple[int, ...] = ()
    """A set must touch each of these groups of nodes (where reusable CPUs and devices are)."""
    at_least: int = 1
    """A set has at least as many nodes."""
    sockets: tuple[int, ...] = ()
    """The NUMA nodes of each socket, where alignment by socket counts."""
    preferred_sockets: int = 0
    """A set that touches this many sockets is preferred, too."""
    proved: bool = True
    """Whether `preferred_size` is certain; on machines of dozens of nodes the search for it has a bound."""

    @classmethod
    def of(cls, *, nodes: NUMASet, needed: int, free: Mapping[int, int], total: Mapping[int, int]) -> Self:
        """The rule for one amount by NUMA node: enough of it free, preferred if no smaller set has enough in all."""
        smallest = fewest(nodes.mask, [by_node(needed, total)])
        return cls(nodes, (by_node(needed, free),), smallest.size, proved=smallest.proved)

    def fits(self, mask: int) -> bool:
        """Whether the set of nodes is a hint."""
        if mask & ~self.nodes.mask or mask.bit_count() < self.at_least:
            return False
        return all(group & mask for group in self.touching) and all(
            need.met_by(mask) for need in self.demands
        )

    def prefers(self, mask: int) -> bool:
        """Whether the set, if it is a hint, is a preferred one."""
        if mask.bit_count() == self.preferred_size:
            return True
        return (
            bool(self.sockets)
            and sum(1 for socket in self.sockets if socket & mask) == self.preferred_sockets
        )

    def __iter__(self) -> Iterator[Hint]:
        for mask in masks(self.nodes.mask):
            if self.fits(mask):
                yield Hint(NUMASet(mask), self.prefers(mask))


class HintList(msgspec.Struct, frozen=True):
    """The hints for one resource: those listed and those of the rule. Without any: impossible."""

    listed: tuple[Hint, ...] = ()
    fitting: Fitting | None = None

    def __bool__(self) -> bool:
        return bool(self.listed) or (self.fitting is not None and self.fitting.fits(self.fitting.nodes.mask))

    def __iter__(self) -> Iterator[Hint]:
        """Every hint, those of the rule by number of nodes, then lexicographic, as the kubelet makes them."""
        yield from self.listed
        yield from self.fitting or ()


IMPOSSIBLE = HintList()
"""No NUMA nodes would do."""

ProviderHints: TypeAlias = Mapping[str, HintList | None]
"""What one provider says: a list by resource; None: no opinion on it. Without entries: no opinion at all."""


class Offer(msgspec.Struct, frozen=True):
    """What a provider (`cpu`, `memory`, `devices`) answered when it was asked for hints."""

    provider: str
    hints: ProviderHints | None


def by_node(needed: int, amounts: Mapping[int, int]) -> Demand:
    """The demand for one amount that each NUMA node has a part of."""
    return Demand(needed, tuple((1 << node, amount) for node, amount in sorted(amounts.items())))
