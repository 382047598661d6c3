"""Merging over few NUMA nodes: all sets of them at once, as families (see `values.families`)."""

from collections.abc import Iterable, Sequence

from nodewright.core.topology.lists import ResourceList, demands_of
from nodewright.model.hints import Fitting
from nodewright.values.families import (
    LARGEST,
    at_least_of_size,
    family,
    intersections,
    meeting,
    members,
    of_size,
    pair_sums,
    smallest_member,
)
from nodewright.values.search import Distances
from nodewright.values.subsets import Demand, bits


class Frame:
    """Some NUMA nodes numbered from 0, so that sets of them are small ints."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.nodes = bits(mask)
        self.places = len(self.nodes)
        self._gapless = mask == (1 << self.places) - 1

    def pack(self, mask: int) -> int:
        """The set of nodes, those beyond the frame left out, by number in the frame."""
        if self._gapless:
            return mask & self.mask
        return sum([1 << at for at, node in enumerate(self.nodes) if node & mask])

    def unpack(self, packed: int) -> int:
        """The set of nodes again."""
        if self._gapless:
            return packed
        return sum([node for at, node in enumerate(self.nodes) if packed >> at & 1])

    def best(self, these: int, distances: Distances | None) -> int:
        """The best set of a family whose sets are equally large: the closest, then the smallest."""
        if distances is None:
            return self.unpack(smallest_member(these))
        ids = [node.bit_length() - 1 for node in self.nodes]
        sums = pair_sums([[distances[one][other] for other in ids] for one in ids])
        return self.unpack(min(members(these), key=sums.__getitem__))


def best_common(
    fittings: Sequence[Fitting], common: int, sizes: Iterable[int], distances: Distances | None
) -> int:
    """The best set of nodes that all rules have as a preferred hint; 0: there is none."""
    frame = Frame(common)
    these = (1 << (1 << frame.places)) - 1
    for fitting in fittings:
        these &= _preferred(fitting, frame)
    for demand in {demand for fitting in fittings for demand in demands_of(fitting)}:
        these &= meeting(frame.places, _within(demand, frame))
    for size in sizes:
        layer = these & of_size(frame.places, size)
        if layer:
            return frame.best(layer, distances)
    return 0


def best_intersection(
    lists: Sequence[ResourceList], common: int, order: Iterable[int], distances: Distances | None
) -> int:
    """The best set of nodes that one hint of each list have in common; 0: there is none."""
    frame = Frame(common)
    families = []
    for one in lists:
        these = family({frame.pack(mask) for mask in one.listed})
        if one.any_nodes:
            these |= 1 << (1 << frame.places) - 1
        if one.fitting is not None:
            these |= _projected(one.fitting, frame)
        families.append(these)
    return _first_of_size(families, frame, order, distances)


def rules_intersection(
    fittings: Sequence[Fitting], frame: Frame, order: Iterable[int], distances: Distances | None
) -> int:
    """The best set of nodes that one set of each rule have in common within the frame."""
    return _first_of_size([_projected(fitting, frame) for fitting in fittings], frame, order, distances)


def rule_size(fitting: Fitting) -> int:
    """How many sets a rule stands for; on more NUMA nodes than can be written out: how many there are at most."""
    count = len(fitting.nodes)
    if count > LARGEST:
        return (1 << count) - 1
    return _projected(fitting, Frame(fitting.nodes.mask)).bit_count()


def _first_of_size(
    families: Sequence[int], frame: Frame, order: Iterable[int], distances: Distances | None
) -> int:
    met = intersections(families, frame.places)
    for size in order:
        layer = met & of_size(frame.places, size)
        if layer:
            return frame.best(layer, distances)
    return 0


def _projected(fitting: Fitting, frame: Frame) -> int:
    """What the rule's sets have in common with the frame."""
    # Nodes beyond the frame drop out anyway, so a hint may as well have them all.
    beyond = fitting.nodes.mask & ~frame.mask
    these = at_least_of_size(frame.places, fitting.at_least - beyond.bit_count())
    for demand in demands_of(fitting):
        these &= meeting(frame.places, _within(demand, frame, beyond))
    strange = frame.mask & ~fitting.nodes.mask
    if strange:
        these &= ~meeting(frame.places, Demand(1, ((frame.pack(strange), 1),)))
    return these


def _within(demand: Demand, frame: Frame, beyond: int = 0) -> Demand:
    """The demand in the frame's numbers, where the nodes beyond it are chosen already."""
    needed, shares = demand.needed, []
    for where, amount in demand.shares:
        if where & beyond:
            needed -= amount
        elif where & frame.mask:
            shares.append((frame.pack(where), amount))
    return Demand(needed, tuple(shares))


def _preferred(fitting: Fitting, frame: Frame) -> int:
    size = fitting.preferred_size
    these = of_size(frame.places, size) if size >= fitting.at_least else 0
    if fitting.sockets:
        shares = tuple((frame.pack(socket), 1) for socket in fitting.sockets)
        many = meeting(frame.places, Demand(fitting.preferred_sockets, shares))
        more = meeting(frame.places, Demand(fitting.preferred_sockets + 1, shares))
        these |= many & ~more & at_least_of_size(frame.places, fitting.at_least)
    return these
