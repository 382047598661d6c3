"""Merging over dozens of NUMA nodes: rules are met by search instead of by writing sets down.

When is a set of nodes T what the chosen hints have in common? When every other node is missing from at
least one of them. So each node outside T is denied to one of the rules, and each rule must still fit
with what it is left with. Whatever contains such a T is such a set, too, and that prunes the search.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodewright.core.topology.dense import Frame, rules_intersection
from nodewright.core.topology.lists import ResourceList, demands_of
from nodewright.model.hints import Fitting
from nodewright.values.families import LARGEST
from nodewright.values.search import Budget, Colex, Distances, Meeting
from nodewright.values.subsets import Demand, bits

State = tuple[int, tuple[int, ...]]
"""Nodes that the listed hints chosen so far have in common, and the lists (by index) whose rule is used."""


def search_common(
    fittings: Sequence[Fitting],
    common: int,
    sizes: Iterable[int],
    distances: Distances | None,
    budget: Budget,
) -> int:
    """The best set of nodes that all rules have as a preferred hint; 0: there is none."""
    rule = _Common(common, fittings)
    walk = Colex(common, rule, budget, distances)
    for size in sizes:
        found = walk.find(size)
        if found or budget.spent:
            return found
    return 0


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, and how far."""

    narrowest: int
    """The size that is wanted: the most that any list needs at least."""
    distances: Distances | None
    budget: Budget
    small: int = LARGEST
    """Within so few nodes all sets are written down instead."""


def search_intersections(lists: Sequence[ResourceList], common: int, search: Search) -> list[int]:
    """Sets of nodes that one hint of each list have in common, the best one of all among them."""
    states: set[State] = {(common, ())}
    for index, one in enumerate(lists):
        listed = {mask & common for mask in one.listed} | ({common} if one.any_nodes else set())
        search.budget.left -= len(states) * len(listed) // 8
        if search.budget.spent:
            return []
        grown = {(nodes & mask, rules) for nodes, rules in states for mask in listed if nodes & mask}
        if one.fitting is not None:
            reach = one.fitting.nodes.mask
            grown |= {(nodes & reach, (*rules, index)) for nodes, rules in states if nodes & reach}
        states = grown
    return [
        _best_of(nodes, [fitting for index in rules if (fitting := lists[index].fitting)], search)
        for nodes, rules in sorted(states)
    ]


def _best_of(nodes: int, fittings: Sequence[Fitting], search: Search) -> int:
    """The best set among the nodes that sets of these rules have in common; all the nodes always are one."""
    count = nodes.bit_count()
    if not fittings or count == 1:
        return nodes
    if count <= search.small:
        order = [*range(min(search.narrowest, count), 0, -1), *range(search.narrowest + 1, count + 1)]
        return rules_intersection(fittings, Frame(nodes), order, search.distances)
    walk = Colex(nodes, _Shared(nodes, fittings, search.budget), search.budget, search.distances)
    # Smaller sets than the wanted size can only be solutions if sets of that size are.
    for size in range(search.narrowest, count):
        found = walk.find(size)
        if found or search.budget.spent:
            return found or nodes
    return nodes


class _Common(Meeting):
    """The rule that a set is a preferred hint of every list."""

    def __init__(self, mask: int, fittings: Sequence[Fitting]) -> None:
        super().__init__(mask, list({demand for fitting in fittings for demand in demands_of(fitting)}))
        self.fittings = fittings

    def accepts(self, mask: int) -> bool:
        """Whether every rule fits and prefers the set."""
        return all(fitting.prefers(mask) and fitting.fits(mask) for fitting in self.fittings)


class _Shared:
    """The rule that a set is what fitting sets, one of each rule, have in common."""

    def __init__(self, mask: int, fittings: Sequence[Fitting], budget: Budget) -> None:
        self.mask, self.nodes, self.budget = mask, bits(mask), budget
        self.rules = [_Spare(fitting, self.nodes) for fitting in fittings]
        self.below = [0]
        for node in self.nodes:
            self.below.append(self.below[-1] | node)
        parts = [[rule.part(index) for rule in self.rules] for index in range(len(self.nodes))]
        self.least = [min(row) for row in parts]
        # Denied first: what some rule can hardly spare; to the rule that feels it least.
        self.order = sorted(range(len(self.nodes)), key=lambda index: (-max(parts[index]), index))
        self.turns = [sorted(range(len(row)), key=row.__getitem__) for row in parts]

    def hopeful(self, picked: Sequence[int], left: int) -> bool:
        """Whether all nodes below together with those picked are such a set: then fewer may be."""
        assert left > 0
        return self.accepts(sum([self.nodes[index] for index in picked]) | self.below[picked[-1]])

    def able(self, picked: Sequence[int], limit: int) -> int:
        """Any node may be the last one."""
        assert len(picked) < len(self.nodes)
        return (1 << limit) - 1

    def accepts(self, mask: int) -> bool:
        """Whether each node outside the set can be denied to one of the rules."""
        outside = [index for index in self.order if not self.nodes[index] & mask]
        if any(rule.can_spare(outside, self.mask & ~mask) for rule in self.rules):
            return True
        # Parts are quotients in floating point; the margin keeps rounding from ruling anything out.
        if sum([self.least[index] for index in outside]) > len(self.rules) + 1e-6:
            return False
        start = tuple((rule.spare, rule.everything) for rule in self.rules)
        return self._deny(outside, 0, start, set())

    def _deny(self, outside: Sequence[int], at: int, left: "_Left", dead: set[tuple[int, "_Left"]]) -> bool:
        """Whether the nodes from `at` on can be denied; `dead` are situations known to lead nowhere."""
        if at == len(outside):
            return True
        self.budget.left -= 1
        if self.budget.spent or (at, left) in dead:
            return False
        index = outside[at]
        for which in self.turns[index]:
            without = self.rules[which].without(index, *left[which])
            if without and self._deny(outside, at + 1, (*left[:which], without, *left[which + 1 :]), dead):
                return True
        dead.add((at, left))
        return False


class _Spare:
    """What a rule can do without: amounts where each hangs on one node, else the nodes themselves."""

    def __init__(self, fitting: Fitting, nodes: Sequence[int]) -> None:
        self.nodes = nodes
        self.everything = fitting.nodes.mask
        demands = [
            *demands_of(fitting),
            Demand(fitting.at_least, tuple((one, 1) for one in bits(self.everything))),
        ]
        self.jointly = [need for need in demands if any(where & (where - 1) for where, _ in need.shares)]
        simple = [need for need in demands if need not in self.jointly]
        self.worth = [tuple([need.total(node) for need in simple]) for node in nodes]
        self.spare = tuple([need.total(self.everything) - need.needed for need in simple])
        if not self.jointly:
            # Then the amounts tell all: which nodes are left makes no difference.
            self.everything = 0

    def part(self, index: int) -> float:
        """The part of what can be spared that the node takes; more than all of it if it cannot be denied."""
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
        """What is left when the node is denied; None: then the rule fits no more."""
        left = tuple([have - takes for have, takes in zip(spare, self.worth[index], strict=True)])
        if left and min(left) < 0:
            return None
        mask &= ~self.nodes[index]
        return (left, mask) if all(need.met_by(mask) for need in self.jointly) else None


_Left = tuple[tuple[tuple[int, ...], int], ...]
"""For each rule what it can still spare, and the nodes it still has where they matter."""
