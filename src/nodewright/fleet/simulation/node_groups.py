"""Nodes in groups that are equal to every pod, so that rankings compare groups instead of nodes."""

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot

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
    """The number of the first node, when it was asked for last or came since."""
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
        self._cluster, self._state_of = cluster, state_of
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

    def slot_of(self, group: NodeGroup) -> NodeSlot:
        """One of the group's nodes, of which there must be some."""
        is_current = self._group_of[group.lowest] is group
        return self._cluster.nodes[group.lowest if is_current else self.first(group)]

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
        if not skipped:
            group.lowest = first
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
        slots, kinds, state_of = self._cluster.nodes, self._kinds, self._state_of
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
