"""The best node for pods with soft spread constraints: equal to `InterPodView.spread_scores`, at less cost."""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.inter_pod import HOSTNAME, is_counted, matching_pods_by_node
from nodewright.fleet.simulation.pod_templates import PodShape, TopologySpreadConstraint
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE

NodeScores: TypeAlias = Callable[[int], int]
"""The score of a node by its number; negative: the pod does not fit."""


class SpreadRanking:
    """Nodes of a shape in groups that are equal with regard to its spread constraints."""

    def __init__(self, shape: PodShape, slots: Sequence[NodeSlot], cluster: ClusterView) -> None:
        required = () if shape.spreads_by_default else shape.topology_spreads
        self._cluster, self._width = cluster, len(cluster.nodes)
        self._numbers = [slot.number for slot in slots]
        self._has_all = [
            all(spread.topology_key in slot.labels for spread in required) for slot in cluster.nodes
        ]
        self._spreads = [
            _SpreadConstraint(shape, spread, cluster, self._has_all) for spread in shape.topology_spreads
        ]
        self._groups: dict[Hashable, _SpreadGroup] = {}
        self._group: list[_SpreadGroup | None] = [None] * self._width
        """The group of each node on which the pod fits."""
        self._known_scores = [-1] * self._width
        """The other scores at the last update."""
        self._seen_generation: int | None = None

    def best(self, score_of: NodeScores, excluded: Collection[int] = (), *, weight: int) -> int | None:
        """The number of the node with the best sum of scores, spread weighted by ``weight``; the first of equals.

        ``score_of`` are the other scores.
        """
        self._update(score_of)
        with self._excluding(excluded, score_of):
            best = None
            for group, spread in self._spread():
                top = group.best(score_of, self._group, self._width)
                # Of equal scores, the lowest number ranks highest.
                rank = (score_of(top) + weight * spread, -top)
                best = rank if best is None else max(best, rank)
        return None if best is None else -best[1]

    def _spread(self) -> Iterator[tuple["_SpreadGroup", int]]:
        """Each group that has nodes, with its spread score."""
        groups = [group for group in self._groups.values() if group.size]
        eligible = [group for group in groups if group.has_all_labels]
        node_count = sum(group.size for group in eligible)
        weights = [
            math.log((node_count if spread.is_by_node else len({group.key[at] for group in eligible})) + 2)
            for at, spread in enumerate(self._spreads)
        ]
        raw = [math.floor(self._sum(group, weights) + 0.5) for group in eligible]
        highest, lowest = max(raw, default=0), min(raw, default=0)
        for group, value in zip(eligible, raw, strict=True):
            yield group, MAX_NODE_SCORE * (highest + lowest - value) // highest if highest else MAX_NODE_SCORE
        for group in groups:
            if not group.has_all_labels:
                yield group, 0

    def _sum(self, group: "_SpreadGroup", weights: Sequence[float]) -> float:
        total = 0.0
        for spread, value, weight in zip(self._spreads, group.key, weights, strict=True):
            if value is not None:
                total += spread.count(value) * weight + spread.offset
        return total

    def _update(self, score_of: NodeScores) -> None:
        cluster, seen_generation = self._cluster, self._seen_generation
        if seen_generation == cluster.generation:
            return
        for number in self._numbers if seen_generation is None else cluster.changed_since(seen_generation):
            for spread in self._spreads if seen_generation is not None else ():
                spread.recount(cluster, cluster.nodes[number])
            self._move(number, score_of)
        self._seen_generation = cluster.generation

    def _move(self, number: int, score_of: NodeScores) -> None:
        """Moves the node to the group of its present state."""
        score, old = score_of(number), self._group[number]
        new = self._group_of(number) if score >= 0 else None
        if old is new and (new is None or score == self._known_scores[number]):
            return
        self._known_scores[number] = score
        self._group[number] = new
        if old is not None and old is not new:
            old.size -= 1
        if new is not None:
            new.size += old is not new
            heappush(new.heap, number - score * self._width)
            if len(new.heap) > 4 * new.size + 64:
                new.rebuild(score_of, self._group, self._width)

    def _group_of(self, number: int) -> "_SpreadGroup":
        has_all = self._has_all[number]
        key = tuple(spread.key(number) for spread in self._spreads) if has_all else ()
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) > 2 * len(self._numbers) + 64:
                self._groups = {other: nonempty for other, nonempty in self._groups.items() if nonempty.size}
            group = self._groups[key] = _SpreadGroup(key, has_all_labels=has_all)
        return group

    @contextmanager
    def _excluding(self, excluded: Collection[int], score_of: NodeScores) -> Iterator[None]:
        """Within this context, these nodes belong to no group."""
        excluded_numbers = [number for number in self._numbers if number in excluded] if excluded else []
        for number in excluded_numbers:
            group, self._group[number] = self._group[number], None
            if group is not None:
                group.size -= 1
        yield
        for number in excluded_numbers:
            self._move(number, score_of)


class _SpreadGroup:
    """Nodes with equal spread scores, as a heap by their other scores that may hold stale entries."""

    __slots__ = ("has_all_labels", "heap", "key", "size")

    def __init__(self, key: tuple[int | str | None, ...], *, has_all_labels: bool) -> None:
        self.key, self.has_all_labels = key, has_all_labels
        """Whether its nodes have the topology labels of all constraints."""
        self.heap: list[int] = []
        self.size = 0

    def best(self, score_of: NodeScores, groups: Sequence["_SpreadGroup | None"], width: int) -> int:
        """The number of the best node of a group that is not empty."""
        while True:
            negative, number = divmod(self.heap[0], width)
            if score_of(number) == -negative and groups[number] is self:
                return number
            heappop(self.heap)

    def rebuild(self, score_of: NodeScores, groups: Sequence["_SpreadGroup | None"], width: int) -> None:
        """Removes stale entries."""
        self.heap = [
            entry
            for entry in set(self.heap)
            if score_of(entry % width) == -(entry // width) and groups[entry % width] is self
        ]
        heapify(self.heap)


class _SpreadConstraint:
    """One spread constraint, with the number of matching pods by node and by value of the topology label."""

    __slots__ = (
        "_counts",
        "_counts_by_node",
        "_matching_shapes",
        "_shape",
        "_spread",
        "_totals",
        "_values",
        "is_by_node",
        "offset",
    )

    def __init__(
        self, shape: PodShape, spread: TopologySpreadConstraint, cluster: ClusterView, has_all: Sequence[bool]
    ) -> None:
        self._shape, self._spread = shape, spread
        self.is_by_node, self.offset = spread.topology_key == HOSTNAME, spread.max_skew - 1
        self._values = [slot.labels.get(spread.topology_key) for slot in cluster.nodes]
        self._counts = [
            has and is_counted(shape, spread, slot) for has, slot in zip(has_all, cluster.nodes, strict=True)
        ]
        self._matching_shapes: dict[int, bool] = {}
        """Whether pods of a shape match, by the shape's number."""
        self._counts_by_node = matching_pods_by_node(shape, cluster, spread)
        self._totals: dict[str | None, int] = {}
        for number, count in self._counts_by_node.items():
            self._add(number, count)

    def key(self, number: int) -> int | str | None:
        """The key that determines the node's spread score; None: it does not have the label."""
        value = self._values[number]
        return value if value is None or not self.is_by_node else self._counts_by_node.get(number, 0)

    def count(self, key: int | str) -> int:
        """Number of matching pods for this key."""
        return key if isinstance(key, int) else self._totals.get(key, 0)

    def recount(self, cluster: ClusterView, slot: NodeSlot) -> None:
        """Recounts the matching pods of this node."""
        number, now = slot.number, 0
        for other, count in slot.pods_by_shape.items():
            is_match = self._matching_shapes.get(other)
            if is_match is None:
                is_match = self._matching_shapes[other] = self._is_match(cluster.shapes[other])
            now += count if is_match else 0
        before = self._counts_by_node.get(number, 0)
        if now != before:
            self._counts_by_node[number] = now
            self._add(number, now - before)

    def _add(self, number: int, by: int) -> None:
        if self._counts[number]:
            value = self._values[number]
            self._totals[value] = self._totals.get(value, 0) + by

    def _is_match(self, shape: PodShape) -> bool:
        selector = self._spread.selector
        return (
            not selector.is_empty
            and shape.namespace == self._shape.namespace
            and selector.matches(shape.labels)
        )
