"""The scheduler: filters nodes, scores the feasible ones and chooses the best, of equal scores the first.

Follows: v1.36, pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod, prioritizeNodes.
Departs: all nodes are considered, however many there are (percentageOfNodesToScore is 100); of nodes with equal
    scores the first is chosen, where the scheduler chooses one at random.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.fleet.simulation.cluster_view import ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import (
    FilterStatus,
    fits_resources,
    intolerable_taint_count,
    resource_filter_status,
    static_filter_status,
)
from nodewright.fleet.simulation.inter_pod import InterPodView, SpreadRanking
from nodewright.fleet.simulation.node_ranking import NodeGroups, NodeRanking
from nodewright.fleet.simulation.outcomes import FilterRejections
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE, SCORED_STATES

NodeScore: TypeAlias = Callable[[PodTemplate, NodeSlot], int]
"""Score of a node that depends on the pod and the node only: a weighted sum of scores from 0 to 100."""

TAINT_WEIGHT, AFFINITY_WEIGHT, SPREAD_WEIGHT, INTER_POD_AFFINITY_WEIGHT = 3, 2, 2, 2
"""Weights of TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity.

Follows: v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins.
"""
_MAX_CACHED_SCORES = 2_000_000
"""Maximum number of cached node scores, for all templates together."""


class Scheduler(Protocol):
    """Chooses nodes for pods."""

    def choose(self, template: PodTemplate, excluded: Collection[int] = ()) -> int | None:
        """The number of the best feasible node that is not excluded; None: there is none."""


class ExhaustiveScheduler(msgspec.Struct, frozen=True):
    """Evaluates every node for every pod: the reference for `IncrementalScheduler`."""

    cluster: ClusterView
    score: NodeScore

    def choose(self, template: PodTemplate, excluded: Collection[int] = ()) -> int | None:
        """See Scheduler."""
        inter_pod = InterPodView(template, self.cluster)
        feasible = [
            slot
            for slot in self.cluster.nodes
            if slot.number not in excluded and filter_status(template, slot, inter_pod) is None
        ]
        return best_node(template, feasible, inter_pod, self.score)


class IncrementalScheduler:
    """Makes the same choices at less cost: nodes that are equal are scored once, and scores are cached.

    This applies to pods without terms on other pods that are not matched by terms of others, which is most of them;
    for the rest, every node is evaluated.
    """

    def __init__(self, cluster: ClusterView, score: NodeScore) -> None:
        self._cluster, self._score = cluster, score
        self._by_name = {slot.name: slot for slot in cluster.nodes}
        self._has_filters = any(slot.unschedulable or slot.taints for slot in cluster.nodes)
        """Whether static filters can reject a pod that does not select nodes."""
        self._rankings: dict[Hashable, NodeRanking] = {}
        """Rankings, by what determines the choice; templates share them."""
        self._candidates: dict[int, FeasibleNodes] = {}
        """By template, the nodes that pass the static filters."""
        self._candidates_by_numbers: dict[tuple[int, ...], FeasibleNodes] = {}
        self._groups = WeakValueDictionary[int, NodeGroups]()
        """By the number of the feasible nodes, as long as a ranking uses them."""
        self._spread_rankings: dict[int, SpreadRanking] = {}
        """By template, rankings with spread scores."""

    def choose(self, template: PodTemplate, excluded: Collection[int] = ()) -> int | None:
        """See Scheduler."""
        candidates = self._candidates.get(template.number)
        if candidates is None:
            candidates = self._candidates[template.number] = self._static_candidates(template)
        if self._is_independent(template, candidates):
            if template.required_node and not template.has_required_pod_terms:
                numbers = [node.number for node in candidates.nodes if fits_resources(template, node)]
                return numbers[0] if numbers and numbers[0] not in excluded else None
            if not template.needs_cluster_scores:
                return self._ranking(template, candidates).best(excluded)
            if template.has_only_soft_spreads:
                return self._best_spread(template, candidates, excluded)
        inter_pod = InterPodView(template, self._cluster)
        feasible = [
            slot
            for slot in candidates.nodes
            if slot.number not in excluded
            and fits_resources(template, slot)
            and inter_pod.filter_status(slot) is None
        ]
        return best_node(template, feasible, inter_pod, self._score)

    def _static_candidates(self, template: PodTemplate) -> "FeasibleNodes":
        slots: Sequence[NodeSlot] = self._cluster.nodes
        if template.required_node:
            slots = [self._by_name[template.required_node]] if template.required_node in self._by_name else []
        if (
            self._has_filters
            or template.selects_nodes
            or template.required_names is not None
            or template.volumes
        ):
            slots = [slot for slot in slots if static_filter_status(template, slot) is None]
        has_soft_taint = any(slot.taints and intolerable_taint_count(template, slot) for slot in slots)
        key = (has_soft_taint, *(slot.number for slot in slots))
        return self._candidates_by_numbers.setdefault(
            key, FeasibleNodes(len(self._candidates_by_numbers), slots, has_soft_taint)
        )

    def _is_independent(self, template: PodTemplate, candidates: "FeasibleNodes") -> bool:
        """Whether no PreferNoSchedule taint and no term of an assigned pod affects its placement."""
        others = self._cluster.templates_with_pod_terms
        return not candidates.has_soft_taint and not (
            others and any(_has_term_for(other, template) for other in others.values())
        )

    def _best_spread(
        self, template: PodTemplate, candidates: "FeasibleNodes", excluded: Collection[int]
    ) -> int | None:
        ranking = self._spread_rankings.pop(template.number, None)
        if ranking is None:
            self._evict_rankings(self._spread_rankings)
            ranking = SpreadRanking(template, candidates.nodes, self._cluster)
        self._spread_rankings[template.number] = ranking
        others = self._ranking(template, candidates)
        others.update()
        return ranking.best(others.score_of, excluded, weight=SPREAD_WEIGHT)

    def _ranking(self, template: PodTemplate, candidates: "FeasibleNodes") -> NodeRanking:
        is_shared = self._score in SCORED_STATES
        key = (candidates.number, template.amounts_key if is_shared else template.number)
        ranking = self._rankings.pop(key, None)
        if ranking is None:
            self._evict_rankings(self._rankings)
            ranking = NodeRanking(
                template, self._groups_of(candidates), len(self._cluster.nodes), self._score
            )
        self._rankings[key] = ranking
        return ranking

    def _groups_of(self, candidates: "FeasibleNodes") -> NodeGroups:
        groups = self._groups.get(candidates.number)
        if groups is None:
            groups = NodeGroups(candidates.nodes, self._cluster, SCORED_STATES.get(self._score))
            self._groups[candidates.number] = groups
        return groups

    def _evict_rankings(self, rankings: dict[Any, Any]) -> None:
        """Removes the least recently used rankings until one more is within the limit."""
        while rankings and (len(rankings) + 1) * len(self._cluster.nodes) > _MAX_CACHED_SCORES:
            del rankings[next(iter(rankings))]


class FeasibleNodes(NamedTuple):
    """The nodes that pass the static filters, and whether one of them has a PreferNoSchedule taint for the pod."""

    number: int
    nodes: Sequence[NodeSlot]
    has_soft_taint: bool


def filter_status(template: PodTemplate, slot: NodeSlot, inter_pod: InterPodView) -> FilterStatus | None:
    """The first rejection of the node by a filter; None: it is feasible."""
    return (
        static_filter_status(template, slot)
        or resource_filter_status(template, slot)
        or inter_pod.filter_status(slot)
    )


def best_node(
    template: PodTemplate, slots: Sequence[NodeSlot], inter_pod: InterPodView, score: NodeScore
) -> int | None:
    """The number of the node with the highest score; None: there are no nodes."""
    if not slots:
        return None
    totals = total_scores(template, slots, inter_pod, score)
    return slots[totals.index(max(totals))].number


def total_scores(
    template: PodTemplate, slots: Sequence[NodeSlot], inter_pod: InterPodView, score: NodeScore
) -> list[int]:
    """The score of each of these nodes, of which there is at least one: the weighted sum of all plugins' scores."""
    taint_scores = normalized_scores(
        [intolerable_taint_count(template, slot) for slot in slots], reverse=True
    )
    affinity_scores = normalized_scores([node_affinity_score(template, slot) for slot in slots])
    spread_scores, inter_pod_scores = inter_pod.spread_scores(slots), inter_pod.affinity_scores(slots)
    return [
        score(template, slot)
        + TAINT_WEIGHT * taint_scores[index]
        + AFFINITY_WEIGHT * affinity_scores[index]
        + SPREAD_WEIGHT * spread_scores[index]
        + INTER_POD_AFFINITY_WEIGHT * inter_pod_scores[index]
        for index, slot in enumerate(slots)
    ]


def filter_rejections(
    template: PodTemplate, cluster: ClusterView, claim_obstacle: Callable[[int], str] | None = None
) -> tuple[FilterRejections, ...]:
    """Why no node is feasible for the pod: the first filter to reject each node, most frequent first.

    A node that has too little of several resources counts for each of them. ``claim_obstacle``: why a node has no devices for its claims; empty: it has.
    """
    inter_pod, counts = InterPodView(template, cluster), dict[tuple[str, str], int]()
    for slot in cluster.nodes:
        status = filter_status(template, slot, inter_pod)
        if status is None and claim_obstacle is not None and (why := claim_obstacle(slot.number)):
            status = FilterStatus("DynamicResources", (why,), is_unresolvable=True)
        if status is not None:
            for detail in status.details:
                key = (status.plugin, detail)
                counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(FilterRejections(plugin, detail, count) for (plugin, detail), count in ranked)


def node_affinity_score(template: PodTemplate, slot: NodeSlot) -> int:
    """Sum of the weights of the preferred node affinity terms that the node matches.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go, Score.
    """
    return sum(
        term.weight
        for term in template.preferred
        if affinity_mismatch(term.required_spec, slot.name, slot.labels) is None
    )


def normalized_scores(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """The scores scaled to 0 to 100, where the highest is 100; ``reverse``: where the highest is 0.

    Follows: v1.36, pkg/scheduler/framework/plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    highest = max(scores)
    normalized = [MAX_NODE_SCORE * score // highest if highest else 0 for score in scores]
    return [MAX_NODE_SCORE - score for score in normalized] if reverse else normalized


def _has_term_for(assigned: PodTemplate, template: PodTemplate) -> bool:
    """Whether a term of an assigned pod matches this pod."""
    terms = assigned.pod_terms
    return any(
        term.matches(template.namespace, template.labels)
        for term in (
            *terms.required_affinity,
            *terms.required_anti_affinity,
            *terms.preferred_affinity,
            *terms.preferred_anti_affinity,
        )
    )
