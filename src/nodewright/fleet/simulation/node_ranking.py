"""Nodes ordered by their score for a pod template, updated incrementally where nodes have changed.

Nodes that are equal to every pod are a group, so that rankings compare groups instead of nodes.
"""

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

import msgspec

from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import fits_resources
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.scores import SCORE_BOUNDS

_INFEASIBLE = _NO_NODE = -1
_UNKNOWN = -2
_UNBOUNDED = 2**31
_GROUP_BITS = 32
_GROUP_MASK = 2**_GROUP_BITS - 1
_NO_ENTRY = sys.maxsize
"""Ranks after every entry of a node."""
_MAX_EMPTY_GROUPS = 4096
"""So many groups beyond the number of nodes are remembered, with what rankings know of them."""
_FITS_NOTHING = -(2**64)


class NodeGroup(msgspec.Struct, gc=False, eq=False):
    """Nodes that are equal to every pod: it fits on each or on none, with the same score. Changed by `NodeGroups` only.

    Units: cpu in thousandths, memory in bytes.
    """

    number: int
    free_cpu: int
    free_memory: int
    lowest: int
    """The number of the first node, or of the last one that has left."""
    size: int = 1
    bound: int | None = None
    """No pod has a higher score on the nodes; None: not computed yet."""
    heap: list[int] | None = None
    """Numbers of nodes, and of some that have left the group; None: it has not had two nodes at once."""


class NodeGroups:
    """The groups of some nodes, updated where nodes have changed, at a cost that does not depend on the rankings."""

    def __init__(
        self,
        slots: Sequence[NodeSlot],
        cluster: ClusterView,
        state_of: Callable[[NodeSlot], tuple[Hashable, ...]] | None,
    ) -> None:
        """``state_of``: what the score depends on, as in `SCORED_STATES`; None: anything, so that no nodes are equal."""
        self._cluster, self.slots, self._state_of = cluster, cluster.nodes, state_of
        self.shares_scores = state_of is not None
        kinds: dict[Hashable, int] = {}
        self._kinds = {
            slot.number: kinds.setdefault(frozenset(slot.allocatable.items()), len(kinds)) for slot in slots
        }
        """Nodes of equal allocatable amounts have the same kind."""
        self._group_of: list[NodeGroup | None] = [None] * len(cluster.nodes)
        self._by_state: dict[Hashable, NodeGroup] = {}
        self.all: list[NodeGroup] = []
        """By number, also those that have no nodes any more."""
        self.epoch = 0
        """Groups have other numbers in each epoch."""
        self._scores: dict[Hashable, list[int]] = {}
        self.log: list[NodeGroup] = []
        """The groups that got their lowest node in this epoch, in order."""
        self._move(self._kinds)
        self._seen_generation = cluster.generation

    def group_of(self, node: int) -> NodeGroup | None:
        """The group of a node; None: the node is none of these."""
        return self._group_of[node]

    def scores(self, key: Hashable) -> list[int]:
        """What is known of scores by group in this epoch; rankings of the same key share it and add to it."""
        return self._scores.setdefault(key, [])

    def first(self, group: NodeGroup, excluded: Collection[int] = ()) -> int:
        """The lowest number of a node of a group that is not excluded; `sys.maxsize`: there is none."""
        heap, group_of, skipped = group.heap, self._group_of, list[int]()
        if heap is None:
            return group.lowest if group.size and group.lowest not in excluded else sys.maxsize
        while heap:
            node = heap[0]
            if group_of[node] is not group:
                heappop(heap)
            elif node in excluded:
                skipped.append(heappop(heap))
            else:
                break
        first = heap[0] if heap else sys.maxsize
        for node in skipped:
            heappush(heap, node)
        return first

    def update(self) -> None:
        """Moves the nodes that have changed to the groups of their present states."""
        cluster = self._cluster
        if self._seen_generation != cluster.generation:
            self._move(cluster.changed_since(self._seen_generation))
            self._seen_generation = cluster.generation
            if max(len(self.all), len(self.log) // 16) > len(self._kinds) + _MAX_EMPTY_GROUPS:
                self._begin_epoch()

    def _move(self, nodes: Iterable[int]) -> None:
        slots, kinds, state_of = self.slots, self._kinds, self._state_of
        group_of, by_state = self._group_of, self._by_state
        for node in nodes:
            kind = kinds.get(node)
            if kind is None:
                continue
            slot, before = slots[node], group_of[node]
            state = (node, slot.generation) if state_of is None else (kind, *state_of(slot))
            group = by_state.get(state)
            if group is None:
                free_cpu = slot.free_cpu if slot.free_pods > 0 else _FITS_NOTHING
                group = by_state[state] = NodeGroup(len(self.all), free_cpu, slot.free_memory, node)
                self.all.append(group)
                self.log.append(group)
            elif group is not before:
                self._add(node, group)
            else:
                continue
            group_of[node] = group
            if before is not None:
                before.size -= 1
                if before.lowest == node and before.size:
                    before.lowest = self.first(before)

    def _add(self, node: int, group: NodeGroup) -> None:
        group.size += 1
        if group.heap is None and group.size > 1:
            group.heap = [group.lowest]
        if group.heap is not None:
            heappush(group.heap, node)
            if len(group.heap) > 2 * group.size + 16:
                nodes = {other for other in group.heap if self._group_of[other] is group}
                group.heap = [node, *nodes]
                heapify(group.heap)
        if group.size == 1 or node < group.lowest:
            group.lowest = node
            self.log.append(group)

    def _begin_epoch(self) -> None:
        """Forgets groups without nodes."""
        self._by_state = {state: group for state, group in self._by_state.items() if group.size}
        self.all = list(self._by_state.values())
        for number, group in enumerate(self.all):
            group.number = number
        self.log, self._scores = list(self.all), {}
        self.epoch += 1


class NodeRanking:
    """The best node for a template, the first of equals. An update costs as much as groups of nodes have changed.

    A group whose bound is below the best score is deferred: its score is computed only once the best score falls to
    the bound. Entries of groups order by score and then by the first node; one is outdated once the group has
    another first node, which is corrected when it comes to the top.
    """

    def __init__(
        self,
        template: PodTemplate,
        groups: NodeGroups,
        width: int,
        score: Callable[[PodTemplate, NodeSlot], int],
    ) -> None:
        """``width``: the number of all nodes."""
        self._template, self._groups, self._score, self._width = template, groups, score, width
        self._bound_of = SCORE_BOUNDS.get(score, _no_bound)
        self._score_key = template.scored_amounts if groups.shares_scores else template.number
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
            score = self._scores[group.number] = self._score(self._template, self._groups.slots[group.lowest])
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
        template, width, slots = self._template, self._width, self._groups.slots
        score_of, bound_of = self._score, self._bound_of
        cpu, memory, needs_more = (
            template.filter_cpu,
            template.filter_memory,
            template.other_requests or template.ports,
        )
        # It may be outdated: then more groups are deferred than need be.
        top = heap[0] >> _GROUP_BITS if heap else _NO_ENTRY
        for group in groups:
            number, lowest = group.number, group.lowest
            if entry_nodes[number] <= lowest or not group.size:
                continue
            if (
                cpu > group.free_cpu
                or memory > group.free_memory
                or (needs_more and not fits_resources(template, slots[lowest]))
            ):
                entry_nodes[number] = _NO_NODE
                continue
            score = scores[number]
            if score == _UNKNOWN:
                bound = group.bound
                if bound is None:
                    bound = group.bound = bound_of(slots[lowest])
                rank = lowest - bound * width
                if rank > top:
                    entry_nodes[number] = lowest
                    heappush(deferred, rank << _GROUP_BITS | number)
                    continue
                score = scores[number] = score_of(template, slots[lowest])
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
                first = group.lowest
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
