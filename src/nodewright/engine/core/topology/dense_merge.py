"""Merging over few NUMA nodes: families of sets, handled all at once (see `values.set_families`)."""

from collections.abc import Iterable, Sequence

from nodewright.model.values.hint_lists import ResourceHintList, demands_of
from nodewright.model.values.set_families import (
    MAX_PLACES,
    family,
    intersections,
    members,
    pair_sums,
    sets_meeting,
    sets_of_min_size,
    sets_of_size,
    smallest_member,
)
from nodewright.model.values.subsets import Demand, NUMADistances, singletons
from nodewright.model.values.topology_hints import Fitting


class NodeFrame:
    """A subset of NUMA nodes renumbered from 0, so that sets of them are small integers."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self.nodes = singletons(mask)
        self.places = len(self.nodes)
        self._gapless = mask == (1 << self.places) - 1

    def pack(self, mask: int) -> int:
        """The set of nodes in the frame's numbers, without nodes outside the frame."""
        if self._gapless:
            return mask & self.mask
        return sum([1 << at for at, node in enumerate(self.nodes) if node & mask])

    def unpack(self, packed: int) -> int:
        """The set of nodes in the machine's numbers."""
        if self._gapless:
            return packed
        return sum([node for at, node in enumerate(self.nodes) if packed >> at & 1])

    def best(self, candidates: int, distances: NUMADistances | None) -> int:
        """The best set of a family of equally large sets: the closest, then the smallest."""
        if distances is None:
            return self.unpack(smallest_member(candidates))
        ids = [node.bit_length() - 1 for node in self.nodes]
        sums = pair_sums([[distances[id_][other] for other in ids] for id_ in ids])
        return self.unpack(min(members(candidates), key=sums.__getitem__))


def best_common(
    fittings: Sequence[Fitting], common: int, sizes: Iterable[int], distances: NUMADistances | None
) -> int:
    """The best set of nodes that is a preferred hint of all rules; 0: there is none."""
    frame = NodeFrame(common)
    candidates = (1 << (1 << frame.places)) - 1
    for fitting in fittings:
        candidates &= _preferred(fitting, frame)
    for demand in {demand for fitting in fittings for demand in demands_of(fitting)}:
        candidates &= sets_meeting(frame.places, _demand_in_frame(demand, frame))
    for size in sizes:
        layer = candidates & sets_of_size(frame.places, size)
        if layer:
            return frame.best(layer, distances)
    return 0


def best_intersection(
    lists: Sequence[ResourceHintList], common: int, order: Iterable[int], distances: NUMADistances | None
) -> int:
    """The best intersection of one hint of each list; 0: there is none."""
    frame = NodeFrame(common)
    families = []
    for list_ in lists:
        sets = family({frame.pack(mask) for mask in list_.listed})
        if list_.any_nodes:
            sets |= 1 << (1 << frame.places) - 1
        if list_.fitting is not None:
            sets |= _projection(list_.fitting, frame)
        families.append(sets)
    return _first_of_size(families, frame, order, distances)


def best_rule_intersection(
    fittings: Sequence[Fitting], frame: NodeFrame, order: Iterable[int], distances: NUMADistances | None
) -> int:
    """The best intersection of one set of each rule within the frame."""
    return _first_of_size([_projection(fitting, frame) for fitting in fittings], frame, order, distances)


def rule_size(fitting: Fitting) -> int:
    """The number of sets that fit a rule; an upper bound on too many NUMA nodes to enumerate."""
    count = len(fitting.nodes)
    if count > MAX_PLACES:
        return (1 << count) - 1
    return _projection(fitting, NodeFrame(fitting.nodes.mask)).bit_count()


def _first_of_size(
    families: Sequence[int], frame: NodeFrame, order: Iterable[int], distances: NUMADistances | None
) -> int:
    common = intersections(families, frame.places)
    for size in order:
        layer = common & sets_of_size(frame.places, size)
        if layer:
            return frame.best(layer, distances)
    return 0


def _projection(fitting: Fitting, frame: NodeFrame) -> int:
    """The intersections of the rule's sets with the frame."""
    # Nodes outside the frame are dropped anyway, so a hint may contain all of them.
    outside = fitting.nodes.mask & ~frame.mask
    sets = sets_of_min_size(frame.places, fitting.at_least - outside.bit_count())
    for demand in demands_of(fitting):
        sets &= sets_meeting(frame.places, _demand_in_frame(demand, frame, outside))
    foreign = frame.mask & ~fitting.nodes.mask
    if foreign:
        sets &= ~sets_meeting(frame.places, Demand(1, ((frame.pack(foreign), 1),)))
    return sets


def _demand_in_frame(demand: Demand, frame: NodeFrame, outside: int = 0) -> Demand:
    """The demand in the frame's numbers, with the nodes outside it already chosen."""
    needed, shares = demand.needed, []
    for mask, amount in demand.shares:
        if mask & outside:
            needed -= amount
        elif mask & frame.mask:
            shares.append((frame.pack(mask), amount))
    return Demand(needed, tuple(shares))


def _preferred(fitting: Fitting, frame: NodeFrame) -> int:
    size = fitting.preferred_size
    sets = sets_of_size(frame.places, size) if size >= fitting.at_least else 0
    if fitting.sockets:
        shares = tuple((frame.pack(socket), 1) for socket in fitting.sockets)
        at_least_so_many = sets_meeting(frame.places, Demand(fitting.preferred_sockets, shares))
        at_least_one_more = sets_meeting(frame.places, Demand(fitting.preferred_sockets + 1, shares))
        sets |= at_least_so_many & ~at_least_one_more & sets_of_min_size(frame.places, fitting.at_least)
    return sets
