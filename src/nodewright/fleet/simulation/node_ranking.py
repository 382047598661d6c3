"""Nodes ordered by their score for a shape of pods, updated incrementally where nodes have changed.

Also the best node for pods with soft spread constraints: equal to `InterPodView.spread_scores`, at less cost.
"""

import math
import sys
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush

from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import fits_resources, may_fit
from nodewright.fleet.simulation.inter_pod import HOSTNAME, is_counted, matching_pods_by_node
from nodewright.fleet.simulation.pod_shapes import PodShape
from nodewright.fleet.simulation.pod_terms import TopologySpreadConstraint
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE, PURE_SCORES, SCORE_BOUNDS

_INFEASIBLE = -1
_NOT_RANKED = -2
_DEFERRED = -3
_UNBOUNDED = 2**31
_NO_ENTRY = sys.maxsize
"""Ranks after every entry of a node."""
_NOT_REMEMBERED = sys.maxsize
"""Beyond the end of every list of scores."""


class NodeRanking:
    """The best node for a shape, the first of equals. An update costs as much as nodes have changed.

    A node whose bound is below the best score is deferred: its score is computed only once the best score falls to
    the bound. A node that has too little for the shape even without pods is not ranked.
    """

    def __init__(
        self,
        shape: PodShape,
        slots: Sequence[NodeSlot],
        cluster: ClusterView,
        score: Callable[[PodShape, NodeSlot], int],
    ) -> None:
        self._shape, self._cluster, self._score = shape, cluster, score
        self._number = cluster.score_number(score, shape) if score in PURE_SCORES else _NOT_REMEMBERED
        """By which its scores are remembered."""
        self._bound = SCORE_BOUNDS.get(score, _no_bound)
        # One integer orders nodes by score and then by number: cheaper to compare than a pair.
        self._width = len(cluster.nodes)
        self._scores = [_NOT_RANKED] * self._width
        self._count = 0
        may_fit_by_kind: dict[int, bool] = {}
        for slot in slots:
            kind = id(slot.allocatable)
            if kind not in may_fit_by_kind:
                may_fit_by_kind[kind] = may_fit(shape, slot)
            if may_fit_by_kind[kind]:
                self._scores[slot.number] = _INFEASIBLE
                self._count += 1
        self._seen_generation: int | None = None
        """None: nothing has been computed yet."""
        self._heap: list[int] = []
        self._deferred: list[int] = []
        """A heap of nodes by their bounds; entries of other bounds, or of nodes whose score is not `_DEFERRED`, are outdated."""

    def best(self, excluded: Container[int] = ()) -> int | None:
        """The number of the best feasible node that is not excluded; None: there is none."""
        self._update()
        best = self._first()
        if best is None or best not in excluded:
            return best
        skipped = []
        while best is not None and best in excluded:
            skipped.append(heappop(self._heap))
            best = self._first()
        for entry in skipped:
            heappush(self._heap, entry)
        return best

    def scores(self) -> Sequence[int]:
        """The scores of all nodes by number; negative: the pod does not fit, or the node is not ranked."""
        self._update()
        while self._deferred:
            self._resolve(heappop(self._deferred) % self._width)
        return self._scores

    def _update(self) -> None:
        cluster, seen = self._cluster, self._seen_generation
        if seen == cluster.generation:
            return
        self._rank(range(self._width) if seen is None else cluster.changed_since(seen))
        self._seen_generation = cluster.generation
        if len(self._heap) + len(self._deferred) > 4 * self._count + 64:
            self._rebuild()

    def _rank(self, numbers: Iterable[int]) -> None:
        """Ranks nodes that may have changed: `fits_resources` is inlined, because this is the hottest loop."""
        cluster, scores, heap, deferred = self._cluster, self._scores, self._heap, self._deferred
        shape, score, score_number, bound_of = self._shape, self._score, self._number, self._bound
        cpu, memory, others, ports = shape.filter_cpu, shape.filter_memory, shape.other_requests, shape.ports
        width, slots, top = self._width, cluster.nodes, self._top_entry()
        for number in numbers:
            before = scores[number]
            if before == _NOT_RANKED:
                continue
            slot = slots[number]
            fits = cpu <= slot.free_cpu and memory <= slot.free_memory and slot.free_pods > 0
            if fits and others:
                allocatable, requested = slot.allocatable, slot.requested
                for name, amount in others:
                    if amount > allocatable.get(name, 0) - requested.get(name, 0):
                        fits = False
            if not fits or (ports and not fits_resources(shape, slot)):
                scores[number] = _INFEASIBLE
                continue
            known = slot.scores if slot.scores is not None else cluster.scores_of(slot)
            now = known[score_number] if score_number < len(known) else None
            if now is None:
                if slot.bound_entry is None:
                    slot.bound_entry = number - bound_of(slot) * width
                if slot.bound_entry > top:
                    scores[number] = _DEFERRED
                    heappush(deferred, slot.bound_entry)
                    continue
                now = score(shape, slot)
                _remember(known, score_number, now)
            if now != before:
                scores[number], entry = now, number - now * width
                heappush(heap, entry)
                if entry < top:  # noqa: PLR1730 - no call for each node
                    top = entry

    def _top_entry(self) -> int:
        """The entry of the best node whose score is known, after outdated entries are removed; `_NO_ENTRY`: there is none."""
        scores, heap, width = self._scores, self._heap, self._width
        while heap:
            entry = heap[0]
            number = entry % width
            if number - scores[number] * width == entry:
                return entry
            heappop(heap)
        return _NO_ENTRY

    def _first(self) -> int | None:
        """The number of the best node, deferred ones included; None: no node is feasible."""
        deferred, slots, width, top = self._deferred, self._cluster.nodes, self._width, self._top_entry()
        # An entry by a bound orders like the best score that the node may have; one of an earlier bound is outdated.
        while deferred and deferred[0] <= top:
            entry = heappop(deferred)
            if slots[entry % width].bound_entry in (entry, None):  # None: after a trial
                top = min(top, self._resolve(entry % width))
        return None if top == _NO_ENTRY else top % width

    def _resolve(self, number: int) -> int:
        """The entry of a node by its score, which is computed; `_NO_ENTRY`: it is not deferred any more.

        The pod fits, because the node has not changed since it was deferred.
        """
        if self._scores[number] != _DEFERRED:
            return _NO_ENTRY
        slot, score_number = self._cluster.nodes[number], self._number
        known = slot.scores if slot.scores is not None else self._cluster.scores_of(slot)
        score = known[score_number] if score_number < len(known) else None
        if score is None:
            score = self._score(self._shape, slot)
            _remember(known, score_number, score)
        self._scores[number], entry = score, number - score * self._width
        heappush(self._heap, entry)
        return entry

    def _rebuild(self) -> None:
        width, slots = self._width, self._cluster.nodes
        self._heap = [number - score * width for number, score in enumerate(self._scores) if score >= 0]
        self._deferred = [
            number - self._bound(slots[number]) * width
            for number, score in enumerate(self._scores)
            if score == _DEFERRED
        ]
        heapify(self._heap)
        heapify(self._deferred)


def _remember(known: list[int | None], number: int, score: int) -> None:
    """Adds a score to those of nodes with equal amounts, if it has a number."""
    if number == _NOT_REMEMBERED:
        return
    if number >= len(known):
        known += [None] * (number + 1 - len(known))
    known[number] = score


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

    def best(self, scores: Sequence[int], excluded: Collection[int] = (), *, weight: int) -> int | None:
        """The number of the node with the best sum of scores, spread weighted by ``weight``; the first of equals.

        ``scores`` are the other scores by node number; negative: the pod does not fit.
        """
        self._update(scores)
        with self._excluding(excluded, scores):
            best = None
            for group, spread in self._spread():
                top = group.best(scores, self._group, self._width)
                # Of equal scores, the lowest number ranks highest.
                rank = (scores[top] + weight * spread, -top)
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

    def _update(self, scores: Sequence[int]) -> None:
        cluster, seen_generation = self._cluster, self._seen_generation
        if seen_generation == cluster.generation:
            return
        for number in self._numbers if seen_generation is None else cluster.changed_since(seen_generation):
            for spread in self._spreads if seen_generation is not None else ():
                spread.recount(cluster, cluster.nodes[number])
            self._move(number, scores)
        self._seen_generation = cluster.generation

    def _move(self, number: int, scores: Sequence[int]) -> None:
        """Moves the node to the group of its present state."""
        score, old = scores[number], self._group[number]
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
                new.rebuild(scores, self._group, self._width)

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
    def _excluding(self, excluded: Collection[int], scores: Sequence[int]) -> Iterator[None]:
        """Within this context, these nodes belong to no group."""
        excluded_numbers = [number for number in self._numbers if number in excluded] if excluded else []
        for number in excluded_numbers:
            group, self._group[number] = self._group[number], None
            if group is not None:
                group.size -= 1
        yield
        for number in excluded_numbers:
            self._move(number, scores)


class _SpreadGroup:
    """Nodes with equal spread scores, as a heap by their other scores that may hold stale entries."""

    __slots__ = ("has_all_labels", "heap", "key", "size")

    def __init__(self, key: tuple[int | str | None, ...], *, has_all_labels: bool) -> None:
        self.key, self.has_all_labels = key, has_all_labels
        """Whether its nodes have the topology labels of all constraints."""
        self.heap: list[int] = []
        self.size = 0

    def best(self, scores: Sequence[int], groups: Sequence["_SpreadGroup | None"], width: int) -> int:
        """The number of the best node of a group that is not empty."""
        while True:
            negative, number = divmod(self.heap[0], width)
            if scores[number] == -negative and groups[number] is self:
                return number
            heappop(self.heap)

    def rebuild(self, scores: Sequence[int], groups: Sequence["_SpreadGroup | None"], width: int) -> None:
        """Removes stale entries."""
        self.heap = [
            entry
            for entry in set(self.heap)
            if scores[entry % width] == -(entry // width) and groups[entry % width] is self
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


def _no_bound(slot: NodeSlot) -> int:
    """The bound of a score without a known one: no node is deferred."""
    del slot
    return _UNBOUNDED
