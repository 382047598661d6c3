"""Filter and scores that depend on other pods: topology spread, pod affinity and anti-affinity.

`SpreadRanking` gives the best node for pods with soft spread constraints: equal to `InterPodView.spread_scores`, at less
cost.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import FilterStatus, untolerated_taint
from nodewright.fleet.simulation.pod_templates import (
    AffinityTerm,
    PodTemplate,
    TopologySpreadConstraint,
    matches_all,
)
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE

HOSTNAME = "kubernetes.io/hostname"
HARD_AFFINITY_WEIGHT = 1
"""Score weight of a required affinity term of an assigned pod that matches the incoming pod.

Follows: v1.36, pkg/scheduler/apis/config/v1/defaults.go, SetDefaults_InterPodAffinityArgs.
"""
TopologyPairCounts: TypeAlias = dict[tuple[str, str], int]
"""Number of pods on nodes with a label, by the label's key and value."""
NodeScores: TypeAlias = Callable[[int], int]
"""The score of a node by its number; negative: the pod does not fit."""


class InterPodView:
    """The assigned pods as they affect the placement of one incoming pod."""

    def __init__(self, template: PodTemplate, cluster: ClusterView) -> None:
        self.template, self.cluster = template, cluster
        self.hard_constraints = [spread for spread in template.topology_spreads if spread.is_hard]
        self._counts_by_value = [
            self._spread_counts(constraint, self.hard_constraints) for constraint in self.hard_constraints
        ]
        self._excluded_pairs = self._existing_anti_affinity()
        self._affinity_counts, self._anti_affinity_counts = self._required_term_counts()

    def filter_status(self, slot: NodeSlot) -> FilterStatus | None:
        """The rejection of the node because of other pods; None: they do not reject it."""
        for spread, counts in zip(self.hard_constraints, self._counts_by_value, strict=True):
            value = slot.labels.get(spread.topology_key)
            if value is None:
                detail = f"{spread.topology_key} (missing required label)"
                return FilterStatus("PodTopologySpread", (detail,), is_unresolvable=True)
            fewest = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
            matches_itself = spread.selector.matches(self.template.labels)
            if counts.get(value, 0) + matches_itself - fewest > spread.max_skew:
                return FilterStatus("PodTopologySpread", (spread.topology_key,))
        if not self._satisfies_affinity(slot):
            return FilterStatus("InterPodAffinity", ("affinity",), is_unresolvable=True)
        labels = slot.labels
        if any(
            term.topology_key in labels
            and self._anti_affinity_counts.get((term.topology_key, labels[term.topology_key]), 0)
            for term in self.template.pod_terms.required_anti_affinity
        ):
            return FilterStatus("InterPodAffinity", ("anti-affinity",))
        if self._excluded_pairs and any(
            self._excluded_pairs.get(pair, 0) > 0 for pair in slot.labels.items()
        ):
            return FilterStatus("InterPodAffinity", ("anti-affinity of existing pods",))
        return None

    def _spread_counts(
        self, spread: TopologySpreadConstraint, required_keys: Sequence[TopologySpreadConstraint]
    ) -> dict[str, int]:
        """Number of matching pods by the topology label's value, on the nodes that count for the constraint.

        Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/filtering.go, calPreFilterState.
        """
        counts: dict[str, int] = {}
        counts_by_node = matching_pods_by_node(self.template, self.cluster, spread)
        for slot in self.cluster.nodes:
            if all(each.topology_key in slot.labels for each in required_keys) and is_counted(
                self.template, spread, slot
            ):
                value = slot.labels.get(spread.topology_key, "")
                counts[value] = counts.get(value, 0) + counts_by_node.get(slot.number, 0)
        return counts

    def _existing_anti_affinity(self) -> TopologyPairCounts:
        """Topology pairs excluded by the required anti-affinity of assigned pods."""
        counts: TopologyPairCounts = {}
        for template in self.cluster.templates.values():
            for term in template.pod_terms.required_anti_affinity:
                if term.matches(self.template.namespace, self.template.labels):
                    self._add_pods(counts, template, term, 1)
        return counts

    def _required_term_counts(self) -> tuple[TopologyPairCounts, TopologyPairCounts]:
        """Topology pairs that match this pod's required affinity, and those that match its anti-affinity."""
        affinity: TopologyPairCounts = {}
        anti_affinity: TopologyPairCounts = {}
        terms = self.template.pod_terms
        for template in (
            self.cluster.templates.values() if terms.required_affinity or terms.required_anti_affinity else ()
        ):
            if matches_all(terms.required_affinity, template.namespace, template.labels):
                for term in terms.required_affinity:
                    self._add_pods(affinity, template, term, 1)
            for term in terms.required_anti_affinity:
                if term.matches(template.namespace, template.labels):
                    self._add_pods(anti_affinity, template, term, 1)
        return affinity, anti_affinity

    def _add_pods(
        self, counts: TopologyPairCounts, template: PodTemplate, term: AffinityTerm, weight: int
    ) -> None:
        """Adds the pods of a template, with a weight, to the topology pairs of the nodes on which they run."""
        for node, count in self.cluster.pods_by_template_and_node[template.number].items():
            value = self.cluster.nodes[node].labels.get(term.topology_key)
            if value is not None:
                pair = (term.topology_key, value)
                counts[pair] = counts.get(pair, 0) + count * weight

    def _satisfies_affinity(self, slot: NodeSlot) -> bool:
        """Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/filtering.go, satisfyPodAffinity."""
        affinity = self.template.pod_terms.required_affinity
        if any(term.topology_key not in slot.labels for term in affinity):
            return False
        if all(
            self._affinity_counts.get((term.topology_key, slot.labels[term.topology_key]), 0)
            for term in affinity
        ):
            return True
        # The first pod of a group with affinity to itself is allowed.
        return not self._affinity_counts and matches_all(
            affinity, self.template.namespace, self.template.labels
        )

    def affinity_scores(self, slots: Sequence[NodeSlot]) -> list[int]:
        """Scores of nodes by preferred affinity, of this pod and of assigned pods.

        Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/scoring.go.
        """
        counts: TopologyPairCounts = {}
        for template, term, weight in self._preferred_terms():
            self._add_pods(counts, template, term, weight)
        if not counts:
            return [0] * len(slots)
        keys = {key for key, _ in counts}
        sums = [
            sum(counts.get((key, slot.labels[key]), 0) for key in keys if key in slot.labels)
            for slot in slots
        ]
        lowest, span = min(sums), max(sums) - min(sums)
        return [int(MAX_NODE_SCORE * ((value - lowest) / span)) if span else 0 for value in sums]

    def _preferred_terms(self) -> Iterator[tuple[PodTemplate, AffinityTerm, int]]:
        terms_of_pod, namespace, labels = (
            self.template.pod_terms,
            self.template.namespace,
            self.template.labels,
        )
        for template in self.cluster.templates.values():
            for sign, terms in (
                (1, terms_of_pod.preferred_affinity),
                (-1, terms_of_pod.preferred_anti_affinity),
            ):
                for term in terms:
                    if term.matches(template.namespace, template.labels):
                        yield template, term, sign * term.weight
            terms_of_other = template.pod_terms
            for sign, terms in (
                (HARD_AFFINITY_WEIGHT, terms_of_other.required_affinity),
                (1, terms_of_other.preferred_affinity),
                (-1, terms_of_other.preferred_anti_affinity),
            ):
                for term in terms:
                    if term.matches(namespace, labels):
                        yield template, term, sign * (term.weight or 1)

    def spread_scores(self, slots: Sequence[NodeSlot]) -> list[int]:
        """Scores of nodes by soft topology spread constraints: the fewer matching pods, the higher.

        Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/scoring.go.
        """
        soft = [spread for spread in self.template.topology_spreads if not spread.is_hard]
        if not soft:
            return [0] * len(slots)
        # With the system defaults, nodes with only some of the topology labels count as well.
        required_keys = () if self.template.spreads_by_default else soft
        eligible = [
            slot for slot in slots if all(spread.topology_key in slot.labels for spread in required_keys)
        ]
        sums = {slot.number: 0.0 for slot in eligible}
        for spread in soft:
            self._add_spread(spread, required_keys, eligible, sums)
        rounded = {number: math.floor(value + 0.5) for number, value in sums.items()}
        highest, lowest = max(rounded.values(), default=0), min(rounded.values(), default=0)
        return [
            0
            if slot.number not in rounded
            else MAX_NODE_SCORE * (highest + lowest - rounded[slot.number]) // highest
            if highest
            else MAX_NODE_SCORE
            for slot in slots
        ]

    def _add_spread(
        self,
        spread: TopologySpreadConstraint,
        required_keys: Sequence[TopologySpreadConstraint],
        eligible: Sequence[NodeSlot],
        sums: dict[int, float],
    ) -> None:
        if spread.topology_key == HOSTNAME:
            counts_by_node, sizes = matching_pods_by_node(self.template, self.cluster, spread), len(eligible)
            counts: Mapping[str, int] = {}
        else:
            counts_by_node = {}
            counts, sizes = (
                self._spread_counts(spread, required_keys),
                len({slot.labels.get(spread.topology_key) for slot in eligible}),
            )
        weight = math.log(sizes + 2)
        for slot in eligible:
            value = slot.labels.get(spread.topology_key)
            if value is not None:
                count = (
                    counts_by_node.get(slot.number, 0)
                    if spread.topology_key == HOSTNAME
                    else counts.get(value, 0)
                )
                sums[slot.number] += count * weight + (spread.max_skew - 1)


def matching_pods_by_node(
    template: PodTemplate, cluster: ClusterView, spread: TopologySpreadConstraint
) -> dict[int, int]:
    """Number of pods that match the constraint, by node; nodes without such pods are left out."""
    counts: dict[int, int] = {}
    # An empty selector counts no pods here.
    for other in () if spread.selector.is_empty else cluster.templates.values():
        if other.namespace == template.namespace and spread.selector.matches(other.labels):
            for node, count in cluster.pods_by_template_and_node[other.number].items():
                counts[node] = counts.get(node, 0) + count
    return counts


def is_counted(template: PodTemplate, spread: TopologySpreadConstraint, slot: NodeSlot) -> bool:
    """Whether pods on this node count, by nodeAffinityPolicy and nodeTaintsPolicy of the constraint."""
    if (
        spread.honors_node_affinity
        and affinity_mismatch(template.pod.spec, slot.name, slot.labels) is not None
    ):
        return False
    return not spread.honors_taints or untolerated_taint(template, slot) is None


class SpreadRanking:
    """Nodes of a template in groups that are equal with regard to its spread constraints."""

    def __init__(self, template: PodTemplate, slots: Sequence[NodeSlot], cluster: ClusterView) -> None:
        required = () if template.spreads_by_default else template.topology_spreads
        self._cluster, self._width = cluster, len(cluster.nodes)
        self._numbers = [slot.number for slot in slots]
        self._has_all = [
            all(spread.topology_key in slot.labels for spread in required) for slot in cluster.nodes
        ]
        self._spreads = [
            _SpreadConstraint(template, spread, cluster, self._has_all)
            for spread in template.topology_spreads
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
                spread.recount(cluster.nodes[number])
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
        "_matching_templates",
        "_spread",
        "_template",
        "_totals",
        "_values",
        "is_by_node",
        "offset",
    )

    def __init__(
        self,
        template: PodTemplate,
        spread: TopologySpreadConstraint,
        cluster: ClusterView,
        has_all: Sequence[bool],
    ) -> None:
        self._template, self._spread = template, spread
        self.is_by_node, self.offset = spread.topology_key == HOSTNAME, spread.max_skew - 1
        self._values = [slot.labels.get(spread.topology_key) for slot in cluster.nodes]
        self._counts = [
            has and is_counted(template, spread, slot)
            for has, slot in zip(has_all, cluster.nodes, strict=True)
        ]
        self._matching_templates: dict[int, bool] = {}
        """Whether pods of a template match, by the template's number."""
        self._counts_by_node = matching_pods_by_node(template, cluster, spread)
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

    def recount(self, slot: NodeSlot) -> None:
        """Recounts the matching pods of this node."""
        number, now = slot.number, 0
        for pod in slot.pods.values():
            other = pod.template.number
            is_match = self._matching_templates.get(other)
            if is_match is None:
                is_match = self._matching_templates[other] = self._is_match(pod.template)
            now += is_match
        before = self._counts_by_node.get(number, 0)
        if now != before:
            self._counts_by_node[number] = now
            self._add(number, now - before)

    def _add(self, number: int, by: int) -> None:
        if self._counts[number]:
            value = self._values[number]
            self._totals[value] = self._totals.get(value, 0) + by

    def _is_match(self, template: PodTemplate) -> bool:
        selector = self._spread.selector
        return (
            not selector.is_empty
            and template.namespace == self._template.namespace
            and selector.matches(template.labels)
        )
