"""Which nodes a pod can go to, which are best, and which pods have to be preempted for it."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.node.step import Decision
from nodewright.scheduling.verdicts.pod_queries import PodQuery
from nodewright.scheduling.verdicts.shared_states import SharedState
from nodewright.scheduling.verdicts.tracked_cluster import (
    BasedVerdict,
    Basis,
    PodOnNode,
    TrackedCluster,
    refuses_pod,
    violating_uids,
)

MAX_SCORE = 10
"""Follows: v1.36, kube-scheduler/extender/v1/types.go, MaxExtenderPriority."""

NodeScores: TypeAlias = Mapping[str, int]
Scorer: TypeAlias = Callable[[PodQuery, str], int]
"""The score of a node from 0 to 100, by its name."""


class FilteredNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a pod can be bound to, and why not to the others."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    """The texts of refusals, by node; the preemption of pods may help."""
    unresolvable: Mapping[str, str]
    """The texts of refusals that the preemption of pods does not change."""
    decisions: Mapping[tuple[Decision, Basis], int]
    """The number of verdicts, by decision and basis."""

    def with_passed(self, names: Collection[str]) -> "FilteredNodes":
        """The answer in which these nodes pass as well."""
        failed = {name: text for name, text in self.failed.items() if name not in names}
        unresolvable = {name: text for name, text in self.unresolvable.items() if name not in names}
        return replace(self, passed=(*self.passed, *names), failed=failed, unresolvable=unresolvable)


def filtered_nodes(
    cluster: TrackedCluster, query: PodQuery, names: Sequence[str], *, strict: bool = False
) -> FilteredNodes:
    """The candidates that do not refuse the pod. A guess refuses no node, unless ``strict``."""
    answers = cluster.verdicts(names, query)
    kinds = [(answer.verdict.decision, answer.basis) for answer in answers]
    decisions = Counter(kinds)
    refusing = {kind for kind in decisions if refuses_pod(*kind, strict=strict)}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name, answer, kind in zip(names, answers, kinds, strict=True) if refusing else ():
        if kind in refusing:
            texts = unresolvable if answer.verdict.is_unresolvable else failed
            texts[name] = refusal_text(answer)
    passed = (
        tuple(name for name in names if name not in failed and name not in unresolvable)
        if refusing
        else tuple(names)
    )
    return FilteredNodes(passed=passed, failed=failed, unresolvable=unresolvable, decisions=decisions)


def admitting_soon(
    cluster: TrackedCluster, query: PodQuery, names: Sequence[str], *, since_s: float, strict: bool = False
) -> tuple[str, ...]:
    """If all candidates refuse the pod: those that refuse it only for pods that have ended ``since_s``.

    The scheduler tries a pod again as soon as another one has ended, and then not until the next event; the export of
    the node follows a moment later.
    """
    if not all(cluster.verdict(name, query).refuses(strict=strict) for name in names):
        return ()
    return tuple(name for name in names if _admits_without_ended(cluster, query, name, since_s))


def _admits_without_ended(cluster: TrackedCluster, query: PodQuery, name: str, since_s: float) -> bool:
    node = cluster.nodes.get(name)
    if node is None or node.basis is not Basis.EXACT or not node.departing:
        return False
    ended = [node.numbers[uid] for uid, ended_s in node.departing.items() if ended_s >= since_s]
    state = cluster.state_after_reservations(name)
    after = state.without(ended)
    return after is not state and query.label_mismatch(name, node.labels) is None and _admits(after, query)


def refusal_text(answer: BasedVerdict) -> str:
    """Why the node is not taken: the kubelet's reason with our sentence, and what is a guess."""
    if answer.basis is Basis.EXACT:
        return answer.verdict.text
    return f"{answer.verdict.text} ({answer.basis}: {answer.note})"


def node_scores(
    cluster: TrackedCluster, query: PodQuery, names: Sequence[str], scorer: Scorer | None = None
) -> NodeScores:
    """The score of each node from 0 to 10.

    Least distance between the pod's NUMA nodes first, then least growth of fragmentation: the best of these nodes has
    10, the worst 0. Nodes that are only predicted, or where the kubelet would preempt pods, have 0 beside exact ones.
    A custom ``scorer`` replaces this.
    """
    if scorer is not None:
        return {name: scorer(query, name) * MAX_SCORE // 100 for name in names}
    return ranked_scores(placement_ranks(cluster, query, names), names)


def placement_ranks(
    cluster: TrackedCluster, query: PodQuery, names: Sequence[str]
) -> dict[str, tuple[int, int]]:
    """What placement costs on those of the nodes that are certain to admit the pod without preemption."""
    return {
        name: answer.verdict.cost
        for name, answer in zip(names, cluster.verdicts(names, query), strict=True)
        if answer.verdict.decision is Decision.ADMITTED
        and answer.basis is Basis.EXACT
        and not answer.verdict.preempts
    }


def ranked_scores(ranks: Mapping[str, tuple[int, int]], names: Sequence[str]) -> NodeScores:
    """The scores of nodes by their ranks: the lowest has 10, the highest 0, and those without a rank have 0."""
    ordered = sorted(set(ranks.values()))
    steps = max(len(ordered) - 1, 1)
    scores = {cost: MAX_SCORE - MAX_SCORE * place // steps for place, cost in enumerate(ordered)}
    return {name: scores[ranks[name]] if name in ranks else 0 for name in names}


class ProposedVictims(msgspec.Struct, frozen=True):
    """The pods that the scheduler would preempt on a node, by uid."""

    uids: tuple[str, ...]
    violations: int = 0
    """How many of them violate a PodDisruptionBudget."""


def sufficient_victims(
    cluster: TrackedCluster,
    query: PodQuery,
    proposals: Mapping[str, ProposedVictims],
    *,
    strict: bool = False,
) -> dict[str, ProposedVictims]:
    """The victims that really make room, by node; nodes where no victims do are left out.

    The scheduler's victims stay: it has counted them. Further ones are pods of lower priority, those first that violate
    no PodDisruptionBudget, the least important before others, and no more than needed. Nodes that are only guessed keep
    the proposal, unless ``strict``.
    """
    chosen: dict[str, ProposedVictims] = {}
    for name, proposal in proposals.items():
        if not proposal.uids:
            continue
        node = cluster.nodes.get(name)
        if node is None or node.state is None or node.basis is not Basis.EXACT:
            if not strict:
                chosen[name] = proposal
            continue
        if query.label_mismatch(name, node.labels) is not None:
            continue
        victims = _enlarged(cluster, query, name, proposal)
        if victims is not None:
            chosen[name] = victims
    return chosen


def _enlarged(
    cluster: TrackedCluster, query: PodQuery, name: str, proposal: ProposedVictims
) -> ProposedVictims | None:
    """The proposal with the pods to preempt beside it; None: no preemption makes room."""
    proposed, api_pods = proposal.uids, cluster.nodes[name].api_pods
    on_node = cluster.pods_on(name)
    numbers = {pod.number for pod in on_node if pod.uid in proposed}
    state = cluster.state_after_reservations(name).without(numbers)
    if _admits(state, query):
        return proposal
    # Only pods of the scheduler's cache can be victims; others make it drop the whole answer.
    candidates = [
        pod
        for pod in on_node
        if pod.uid in api_pods
        and pod.uid not in proposed
        and pod.number in state.state.pods
        and api_pods[pod.uid].priority < query.priority
    ]
    if not _admits(state.without([pod.number for pod in candidates]), query):
        return None
    priorities = {pod.uid: api_pods[pod.uid].priority for pod in on_node if pod.uid in api_pods}
    lower = [pod for pod in on_node if priorities.get(pod.uid, query.priority) < query.priority]
    ranked = sorted(lower, key=lambda pod: (-priorities[pod.uid], pod.number))
    violating = violating_uids((api_pods[pod.uid].pod for pod in ranked), cluster.budgets.values())
    further = _reprieved(state, query, [pod for pod in ranked if pod in candidates], violating)
    uids = (*proposed, *further)
    counted = sum(uid in violating for uid in uids) if cluster.budgets else proposal.violations
    return ProposedVictims(uids, counted)


def _reprieved(
    state: SharedState, query: PodQuery, candidates: Sequence[PodOnNode], violating: Collection[str]
) -> tuple[str, ...]:
    """The fewest of the candidates that must go, which are in order of importance.

    Those whose preemption violates a budget are reprieved first, the most important before others.

    Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode.
    """
    victims = {pod.number: pod.uid for pod in candidates}
    for pod in sorted(candidates, key=lambda each: each.uid not in violating):
        rest = [number for number in victims if number != pod.number]
        if _admits(state.without(rest), query):
            del victims[pod.number]
    return tuple(victims.values())


def _admits(state: SharedState, query: PodQuery) -> bool:
    verdict = state.verdict(query)
    return verdict.decision is Decision.ADMITTED and not verdict.preempts
