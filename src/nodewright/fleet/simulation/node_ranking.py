"""Nodes ordered by their score for a shape of pods, updated incrementally where nodes have changed."""

import sys
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush, heapreplace

from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.filters import fits_resources
from nodewright.fleet.simulation.node_ranking import NodeGroup, NodeGroups
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.simulation.scores import SCORE_BOUNDS

_INFEASIBLE = _NO_NODE = -1
_UNKNOWN = -2
_UNBOUNDED = 2**31
_GROUP_BITS = 32
_GROUP_MASK = 2**_GROUP_BITS - 1
_NO_ENTRY = sys.maxsize
"""Ranks after every entry of a node."""


class NodeRanking:
    """The best node for a shape, the first of equals. An update costs as much as groups of nodes have changed.

    A group whose bound is below the best score is deferred: its score is computed only once the best score falls to
    the bound. Entries of groups order by score and then by the first node; one is outdated once the group has
    another first node, which is corrected when it comes to the top.
    """

    def __init__(
        self,
        shape: PodShape,
        groups: NodeGroups,
        width: int,
        score: Callable[[PodShape, NodeSlot], int],
    ) -> None:
        """``width``: the number of all nodes."""
        self._shape, self._groups, self._score, self._width = shape, groups, score, width
        self._bound_of = SCORE_BOUNDS.get(score, _no_bound)
        self._score_key = shape.scored_amounts if groups.shares_scores else shape.number
        self._scores = groups.scores(self._score_key)
        """By group, where the pod fits; or `_UNKNOWN`."""
        self._entry_nodes: list[int] = []
        """By group, the node of its valid entry; `_NO_NODE`: the pod does not fit; ``width``: it has none."""
        self._heap: list[int] = []
        """Entries of groups by their scores."""
        self._deferred: list[int] = []
        """Entries of groups by their bounds."""
        self._epoch = groups.epoch
        self._seen = 0
        """How much of the log of groups was ranked."""

    def best(self, excluded: Collection[int] = ()) -> int | None:
        """The number of the best feasible node that is not excluded; None: there is none."""
        self.update()
        entry = self._top_entry()
        if entry is None:
            return None
        node = (entry >> _GROUP_BITS) % self._width
        return node if node not in excluded else self._best_of_others(excluded)

    def score_of(self, node: int) -> int:
        """The score of a node at the last update; negative: the pod does not fit, or the node is none of the candidates."""
        group = self._groups.group_of(node)
        if group is None or self._entry_nodes[group.number] == _NO_NODE:
            return _INFEASIBLE
        return self._computed_score(group)

    def _computed_score(self, group: NodeGroup) -> int:
        score = self._scores[group.number]
        if score == _UNKNOWN:
            score = self._scores[group.number] = self._score(self._shape, self._groups.slot_of(group))
        return score

    def update(self) -> None:
        """Ranks the groups that have changed."""
        groups = self._groups
        groups.update()
        if self._epoch != groups.epoch or len(self._heap) + len(self._deferred) > 2 * len(groups.all) + 64:
            # Groups have other numbers, or most entries are outdated.
            self._epoch, self._seen = groups.epoch, 0
            self._scores = groups.scores(self._score_key)
            self._entry_nodes, self._heap, self._deferred = [], [], []
        if self._seen == len(groups.log):
            return
        self._scores += [_UNKNOWN] * (len(groups.all) - len(self._scores))
        self._entry_nodes += [self._width] * (len(groups.all) - len(self._entry_nodes))
        is_short = len(groups.log) - self._seen < len(groups.all)
        self._rank(groups.log[self._seen :] if is_short else groups.all)
        self._seen = len(groups.log)

    def _rank(self, groups: Iterable[NodeGroup]) -> None:
        """Adds entries of groups that have changed: what is usual is inlined, because this is the hottest loop."""
        scores, entry_nodes, heap, deferred = self._scores, self._entry_nodes, self._heap, self._deferred
        shape, width = self._shape, self._width
        cpu, memory, needs_more = shape.filter_cpu, shape.filter_memory, shape.other_requests or shape.ports
        # It may be outdated: then more groups are deferred than need be.
        top = heap[0] >> _GROUP_BITS if heap else _NO_ENTRY
        for group in groups:
            number, lowest = group.number, group.lowest
            if entry_nodes[number] <= lowest or not group.size:
                continue
            if (
                cpu > group.free_cpu
                or memory > group.free_memory
                or (needs_more and not fits_resources(shape, self._groups.slot_of(group)))
            ):
                entry_nodes[number] = _NO_NODE
                continue
            score = scores[number]
            if score == _UNKNOWN:
                if group.bound is None:
                    group.bound = self._bound_of(self._groups.slot_of(group))
                rank = lowest - group.bound * width
                if rank > top:
                    entry_nodes[number] = lowest
                    heappush(deferred, rank << _GROUP_BITS | number)
                    continue
                score = self._computed_score(group)
            entry_nodes[number], rank = lowest, lowest - score * width
            # One integer orders groups by score and then by their first nodes: cheaper to compare than a tuple.
            heappush(heap, rank << _GROUP_BITS | number)
            if rank < top:  # noqa: PLR1730 - no call for each group
                top = rank

    def _top_entry(self) -> int | None:
        """The entry of the group with the best node, deferred ones included; None: no node is feasible."""
        top, deferred, groups = self._valid_top(self._heap), self._deferred, self._groups.all
        while deferred and (top is None or deferred[0] < top):
            bound = self._valid_top(deferred)
            if bound is None or (top is not None and top < bound):
                break
            heappop(deferred)
            group = groups[bound & _GROUP_MASK]
            node = (bound >> _GROUP_BITS) % self._width
            entry = (node - self._computed_score(group) * self._width) << _GROUP_BITS | group.number
            heappush(self._heap, entry)
            if top is None or entry < top:
                top = entry
        return top

    def _valid_top(self, heap: list[int]) -> int | None:
        """The top entry, after outdated ones are corrected or removed; None: there is none."""
        entry_nodes, groups, width = self._entry_nodes, self._groups.all, self._width
        first_of = self._groups.first
        while heap:
            entry = heap[0]
            number, rank = entry & _GROUP_MASK, entry >> _GROUP_BITS
            node, group = rank % width, groups[number]
            if entry_nodes[number] != node:
                heappop(heap)
            elif not group.size:
                heappop(heap)
                entry_nodes[number] = width
            else:
                first = first_of(group)
                if first == node:
                    return entry
                entry_nodes[number] = first
                heapreplace(heap, (rank + first - node) << _GROUP_BITS | number)
        return None

    def _best_of_others(self, excluded: Collection[int]) -> int | None:
        """The best node that is not excluded, where the best one is."""
        width, best, skipped = self._width, None, []
        while (entry := self._top_entry()) is not None:
            rank = entry >> _GROUP_BITS
            if best is not None and best < rank:
                break
            skipped.append(heappop(self._heap))
            first = self._groups.first(self._groups.all[entry & _GROUP_MASK], excluded)
            if first < width:
                other = rank + first - rank % width
                best = other if best is None else min(best, other)
        for entry in skipped:
            heappush(self._heap, entry)
        return None if best is None else best % width


def _no_bound(slot: NodeSlot) -> int:
    """The bound of a score without a known one: no group is deferred."""
    del slot
    return _UNBOUNDED
