"""Filter and scores that depend on other pods: topology spread, pod affinity and anti-affinity."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import FilterStatus, untolerated_taint
from nodewright.fleet.simulation.pod_templates import (
    AffinityTerm,
    PodShape,
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


class InterPodView:
    """The assigned pods as they affect the placement of one incoming pod."""

    def __init__(self, shape: PodShape, cluster: ClusterView) -> None:
        self.shape, self.cluster = shape, cluster
        self.hard_constraints = [spread for spread in shape.topology_spreads if spread.is_hard]
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
            matches_itself = spread.selector.matches(self.shape.labels)
            if counts.get(value, 0) + matches_itself - fewest > spread.max_skew:
                return FilterStatus("PodTopologySpread", (spread.topology_key,))
        if not self._satisfies_affinity(slot):
            return FilterStatus("InterPodAffinity", ("affinity",), is_unresolvable=True)
        labels = slot.labels
        if any(
            term.topology_key in labels
            and self._anti_affinity_counts.get((term.topology_key, labels[term.topology_key]), 0)
            for term in self.shape.pod_terms.required_anti_affinity
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
        counts_by_node = matching_pods_by_node(self.shape, self.cluster, spread)
        for slot in self.cluster.nodes:
            if all(each.topology_key in slot.labels for each in required_keys) and is_counted(
                self.shape, spread, slot
            ):
                value = slot.labels.get(spread.topology_key, "")
                counts[value] = counts.get(value, 0) + counts_by_node.get(slot.number, 0)
        return counts

    def _existing_anti_affinity(self) -> TopologyPairCounts:
        """Topology pairs excluded by the required anti-affinity of assigned pods."""
        counts: TopologyPairCounts = {}
        for shape in self.cluster.shapes.values():
            for term in shape.pod_terms.required_anti_affinity:
                if term.matches(self.shape.namespace, self.shape.labels):
                    self._add_pods(counts, shape, term, 1)
        return counts

    def _required_term_counts(self) -> tuple[TopologyPairCounts, TopologyPairCounts]:
        """Topology pairs that match this pod's required affinity, and those that match its anti-affinity."""
        affinity: TopologyPairCounts = {}
        anti_affinity: TopologyPairCounts = {}
        terms = self.shape.pod_terms
        for shape in (
            self.cluster.shapes.values() if terms.required_affinity or terms.required_anti_affinity else ()
        ):
            if matches_all(terms.required_affinity, shape.namespace, shape.labels):
                for term in terms.required_affinity:
                    self._add_pods(affinity, shape, term, 1)
            for term in terms.required_anti_affinity:
                if term.matches(shape.namespace, shape.labels):
                    self._add_pods(anti_affinity, shape, term, 1)
        return affinity, anti_affinity

    def _add_pods(self, counts: TopologyPairCounts, shape: PodShape, term: AffinityTerm, weight: int) -> None:
        """Adds the pods of a shape, with a weight, to the topology pairs of the nodes on which they run."""
        for node, count in self.cluster.pods_by_shape_and_node[shape.number].items():
            value = self.cluster.nodes[node].labels.get(term.topology_key)
            if value is not None:
                pair = (term.topology_key, value)
                counts[pair] = counts.get(pair, 0) + count * weight

    def _satisfies_affinity(self, slot: NodeSlot) -> bool:
        """Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/filtering.go, satisfyPodAffinity."""
        affinity = self.shape.pod_terms.required_affinity
        if any(term.topology_key not in slot.labels for term in affinity):
            return False
        if all(
            self._affinity_counts.get((term.topology_key, slot.labels[term.topology_key]), 0)
            for term in affinity
        ):
            return True
        # The first pod of a group with affinity to itself is allowed.
        return not self._affinity_counts and matches_all(affinity, self.shape.namespace, self.shape.labels)

    def affinity_scores(self, slots: Sequence[NodeSlot]) -> list[int]:
        """Scores of nodes by preferred affinity, of this pod and of assigned pods.

        Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/scoring.go.
        """
        counts: TopologyPairCounts = {}
        for shape, term, weight in self._preferred_terms():
            self._add_pods(counts, shape, term, weight)
        if not counts:
            return [0] * len(slots)
        keys = {key for key, _ in counts}
        sums = [
            sum(counts.get((key, slot.labels[key]), 0) for key in keys if key in slot.labels)
            for slot in slots
        ]
        lowest, span = min(sums), max(sums) - min(sums)
        return [int(MAX_NODE_SCORE * ((value - lowest) / span)) if span else 0 for value in sums]

    def _preferred_terms(self) -> Iterator[tuple[PodShape, AffinityTerm, int]]:
        terms_of_pod, namespace, labels = self.shape.pod_terms, self.shape.namespace, self.shape.labels
        for shape in self.cluster.shapes.values():
            for sign, terms in (
                (1, terms_of_pod.preferred_affinity),
                (-1, terms_of_pod.preferred_anti_affinity),
            ):
                for term in terms:
                    if term.matches(shape.namespace, shape.labels):
                        yield shape, term, sign * term.weight
            terms_of_other = shape.pod_terms
            for sign, terms in (
                (HARD_AFFINITY_WEIGHT, terms_of_other.required_affinity),
                (1, terms_of_other.preferred_affinity),
                (-1, terms_of_other.preferred_anti_affinity),
            ):
                for term in terms:
                    if term.matches(namespace, labels):
                        yield shape, term, sign * (term.weight or 1)

    def spread_scores(self, slots: Sequence[NodeSlot]) -> list[int]:
        """Scores of nodes by soft topology spread constraints: the fewer matching pods, the higher.

        Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/scoring.go.
        """
        soft = [spread for spread in self.shape.topology_spreads if not spread.is_hard]
        if not soft:
            return [0] * len(slots)
        # With the system defaults, nodes with only some of the topology labels count as well.
        required_keys = () if self.shape.spreads_by_default else soft
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
            counts_by_node, sizes = matching_pods_by_node(self.shape, self.cluster, spread), len(eligible)
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
    shape: PodShape, cluster: ClusterView, spread: TopologySpreadConstraint
) -> dict[int, int]:
    """Number of pods that match the constraint, by node; nodes without such pods are left out."""
    counts: dict[int, int] = {}
    # An empty selector counts no pods here.
    for other in () if spread.selector.is_empty else cluster.shapes.values():
        if other.namespace == shape.namespace and spread.selector.matches(other.labels):
            for node, count in cluster.pods_by_shape_and_node[other.number].items():
                counts[node] = counts.get(node, 0) + count
    return counts


def is_counted(shape: PodShape, spread: TopologySpreadConstraint, slot: NodeSlot) -> bool:
    """Whether pods on this node count, by nodeAffinityPolicy and nodeTaintsPolicy of the constraint."""
    if spread.honors_node_affinity and affinity_mismatch(shape.pod.spec, slot.name, slot.labels) is not None:
        return False
    return not spread.honors_taints or untolerated_taint(shape, slot) is None
