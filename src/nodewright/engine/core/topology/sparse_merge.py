"""Merging without the enumeration of sets, over few NUMA nodes or over dozens.

Few: families of sets, handled all at once (see `values.subsets`). Dozens: a search over rules. A set of nodes T is the
intersection of the chosen hints if every other node is missing from at least one of them. So each node outside T is denied to
one of the rules, and each rule must still fit the remaining nodes. Every superset of such a T is such a set, too, which prunes
the search.
"""

from collections.abc import Iterable, Sequence

import msgspec

from nodewright.model.values.subsets import (
    MAX_PLACES,
    ColexSearch,
    Demand,
    DemandRule,
    NUMADistances,
    StepBudget,
    family,
    intersections,
    members,
    pair_sums,
    sets_meeting,
    sets_of_min_size,
    sets_of_size,
    singletons,
    smallest_member,
)
from nodewright.model.values.topology_hints import Fitting, ResourceHintList, demands_of

SearchState = tuple[int, tuple[int, ...]]
"""The intersection of the listed hints chosen so far, and the lists (by index) that use their rule."""


def best_common_by_search(
    fittings: Sequence[Fitting],
    common: int,
    sizes: Iterable[int],
    distances: NUMADistances | None,
    budget: StepBudget,
) -> int:
    """The best set of nodes that is a preferred hint of all rules; 0: there is none."""
    rule = _CommonPreference(common, fittings)
    search = ColexSearch(common, rule, budget, distances)
    for size in sizes:
        mask = search.find(size)
        if mask or budget.is_exhausted:
            return mask
    return 0


class SearchBounds(msgspec.Struct, frozen=True):
    """The target and the limits of a search."""

    narrowest: int
    """The target size: the largest minimum size of any list."""
    distances: NUMADistances | None
    budget: StepBudget
    small: int = MAX_PLACES
    """Up to this number of nodes, all sets are enumerated instead."""


def best_intersection_by_search(
    lists: Sequence[ResourceHintList], common: int, search: SearchBounds
) -> list[int]:
    """Intersections of one hint of each list, the best of all among them."""
    states: set[SearchState] = {(common, ())}
    for index, hint_list in enumerate(lists):
        listed = {mask & common for mask in hint_list.listed} | ({common} if hint_list.any_nodes else set())
        search.budget.remaining_steps -= len(states) * len(listed) // 8
        if search.budget.is_exhausted:
            return []
        next_states = {(nodes & mask, rules) for nodes, rules in states for mask in listed if nodes & mask}
        if hint_list.fitting is not None:
            rule_nodes = hint_list.fitting.nodes.mask
            next_states |= {
                (nodes & rule_nodes, (*rules, index)) for nodes, rules in states if nodes & rule_nodes
            }
        states = next_states
    return [
        _best_of(nodes, [fitting for index in rules if (fitting := lists[index].fitting)], search)
        for nodes, rules in sorted(states)
    ]


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
    for hint_list in lists:
        sets = family({frame.pack(mask) for mask in hint_list.listed})
        if hint_list.any_nodes:
            sets |= 1 << (1 << frame.places) - 1
        if hint_list.fitting is not None:
            sets |= _projection(hint_list.fitting, frame)
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


def _best_of(nodes: int, fittings: Sequence[Fitting], search: SearchBounds) -> int:
    """The best intersection of one set of each rule within the nodes; all the nodes are always one."""
    count = nodes.bit_count()
    if not fittings or count == 1:
        return nodes
    if count <= search.small:
        order = [*range(min(search.narrowest, count), 0, -1), *range(search.narrowest + 1, count + 1)]
        return best_rule_intersection(fittings, NodeFrame(nodes), order, search.distances)
    colex_search = ColexSearch(
        nodes, _CommonIntersection(nodes, fittings, search.budget), search.budget, search.distances
    )
    # Sets smaller than the target size can only be solutions if sets of that size are.
    for size in range(search.narrowest, count):
        mask = colex_search.find(size)
        if mask or search.budget.is_exhausted:
            return mask or nodes
    return nodes


class _CommonPreference(DemandRule):
    """Accepts sets that are a preferred hint of every list."""

    def __init__(self, mask: int, fittings: Sequence[Fitting]) -> None:
        super().__init__(mask, list({demand for fitting in fittings for demand in demands_of(fitting)}))
        self.fittings = fittings

    def accepts(self, mask: int) -> bool:
        """Whether every rule fits and prefers the set."""
        return all(fitting.prefers(mask) and fitting.fits(mask) for fitting in self.fittings)


class _CommonIntersection:
    """Accepts sets that are the intersection of fitting sets, one of each rule."""

    def __init__(self, mask: int, fittings: Sequence[Fitting], budget: StepBudget) -> None:
        self.mask, self.nodes, self.budget = mask, singletons(mask), budget
        self.rules = [_SpareCapacity(fitting, self.nodes) for fitting in fittings]
        self.below = [0]
        for node in self.nodes:
            self.below.append(self.below[-1] | node)
        parts = [[rule.part(index) for rule in self.rules] for index in range(len(self.nodes))]
        self.least = [min(row) for row in parts]
        # Nodes that some rule can hardly spare are denied first, to the rule with the smallest loss.
        self.order = sorted(range(len(self.nodes)), key=lambda index: (-max(parts[index]), index))
        self.rule_order = [sorted(range(len(row)), key=row.__getitem__) for row in parts]

    def can_complete(self, picked: Sequence[int], left: int) -> bool:
        """Whether all nodes below together with the picked ones are accepted: then fewer may be."""
        assert left > 0
        return self.accepts(sum([self.nodes[index] for index in picked]) | self.below[picked[-1]])

    def completing_nodes(self, picked: Sequence[int], limit: int) -> int:
        """Any node can be the last one."""
        assert len(picked) < len(self.nodes)
        return (1 << limit) - 1

    def accepts(self, mask: int) -> bool:
        """Whether each node outside the set can be denied to one of the rules."""
        outside = [index for index in self.order if not self.nodes[index] & mask]
        if any(rule.can_spare(outside, self.mask & ~mask) for rule in self.rules):
            return True
        # Parts are floating-point quotients; the margin prevents rounding from excluding a set.
        if sum([self.least[index] for index in outside]) > len(self.rules) + 1e-6:
            return False
        start = tuple((rule.spare, rule.everything) for rule in self.rules)
        return self._deny(outside, 0, start, set())

    def _deny(
        self, outside: Sequence[int], at: int, left: "_Remaining", dead: set[tuple[int, "_Remaining"]]
    ) -> bool:
        """Whether the nodes from `at` on can be denied; `dead` are states known to fail."""
        if at == len(outside):
            return True
        self.budget.remaining_steps -= 1
        if self.budget.is_exhausted or (at, left) in dead:
            return False
        index = outside[at]
        for which in self.rule_order[index]:
            without = self.rules[which].without(index, *left[which])
            if without and self._deny(outside, at + 1, (*left[:which], without, *left[which + 1 :]), dead):
                return True
        dead.add((at, left))
        return False


class _SpareCapacity:
    """The capacity that a rule can spare: amounts where each belongs to one node, otherwise the nodes themselves."""

    def __init__(self, fitting: Fitting, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        self.everything = fitting.nodes.mask
        demands = [
            *demands_of(fitting),
            Demand(fitting.at_least, tuple((singleton, 1) for singleton in singletons(self.everything))),
        ]
        self.jointly = [need for need in demands if any(where & (where - 1) for where, _ in need.shares)]
        simple = [need for need in demands if need not in self.jointly]
        self.worth = [tuple([need.total(node) for need in simple]) for node in nodes]
        self.spare = tuple([need.total(self.everything) - need.needed for need in simple])
        if not self.jointly:
            # Then the amounts decide; which nodes remain makes no difference.
            self.everything = 0

    def part(self, index: int) -> float:
        """The fraction of the spare capacity that the node takes; more than 1 if it cannot be denied."""
        parts = [
            takes / spare if spare else float("inf")
            for takes, spare in zip(self.worth[index], self.spare, strict=True)
            if takes
        ]
        return max(parts, default=0.0)

    def can_spare(self, outside: Sequence[int], mask: int) -> bool:
        """Whether all those nodes can be denied to this rule alone."""
        for at, spare in enumerate(self.spare):
            if sum([self.worth[index][at] for index in outside]) > spare:
                return False
        return all(need.met_by(self.everything & ~mask) for need in self.jointly)

    def without(self, index: int, spare: tuple[int, ...], mask: int) -> tuple[tuple[int, ...], int] | None:
        """The spare capacity without the node; None: the rule no longer fits."""
        left = tuple([have - takes for have, takes in zip(spare, self.worth[index], strict=True)])
        if left and min(left) < 0:
            return None
        mask &= ~self.nodes[index]
        return (left, mask) if all(need.met_by(mask) for need in self.jointly) else None


_Remaining = tuple[tuple[tuple[int, ...], int], ...]
"""For each rule its spare capacity, and its remaining nodes where they matter."""


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
