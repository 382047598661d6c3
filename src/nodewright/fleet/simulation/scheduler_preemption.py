"""Preemption by the scheduler: the victims on a node that let a pod of higher priority fit.

Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode;
    pkg/scheduler/framework/preemption/preemption.go, pickOneNodeForPreemption.
Departs: all nodes are candidates, of equal ones the first is chosen (there: a tenth of the nodes, at least 100,
    from a random one on); victims are removed at once.

Victims whose PodDisruptionBudgets would be violated are avoided where possible.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from nodewright.fleet.simulation.cluster_view import AssignedPod, ClusterView, NodeSlot
from nodewright.fleet.simulation.filters import fits_resources, static_filter_status
from nodewright.fleet.simulation.inter_pod import InterPodView
from nodewright.fleet.simulation.pod_templates import LabelMatcher, PodTemplate
from nodewright.fleet.workload import DisruptionBudget

PendingCounts: TypeAlias = Mapping[int, tuple[PodTemplate, int]]
"""Templates and their numbers of pending pods, by template number."""
_PRIORITY_OFFSET = 2**31
"""Added to each priority, so that further victims of negative priority never reduce the cost."""


class DisruptionBudgets:
    """The PodDisruptionBudgets of a fleet."""

    def __init__(self, budgets: Sequence[DisruptionBudget] = ()) -> None:
        self._budgets = [(budget, LabelMatcher(budget.selector)) for budget in budgets]
        self._budgets_by_template: dict[int, tuple[int, ...]] = {}

    def disruptions_allowed(self, cluster: ClusterView, waiting: PendingCounts) -> list[int]:
        """Number of disruptions that each budget allows; ``waiting`` counts pending pods by template number."""
        if not self._budgets:
            return []
        healthy, pending = [0] * len(self._budgets), [0] * len(self._budgets)
        for number, template in cluster.templates.items():
            for at in self._budget_indexes(template):
                healthy[at] += cluster.pods_by_template[number]
        for template, count in waiting.values():
            for at in self._budget_indexes(template):
                pending[at] += count
        return [
            max(running - budget.desired_healthy(running + waiting_count), 0)
            if running + waiting_count
            else 0
            for (budget, _), running, waiting_count in zip(self._budgets, healthy, pending, strict=True)
        ]

    def violating_uids(
        self, pods: Iterable[tuple[str, AssignedPod]], disruptions_allowed: Sequence[int]
    ) -> frozenset[str]:
        """Uids of the pods whose removal, after that of the pods before them, would violate their budgets."""
        remaining, violating = list(disruptions_allowed), set[str]()
        for uid, pod in pods if remaining else ():
            for at in self._budget_indexes(pod.template):
                remaining[at] -= 1
                if remaining[at] < 0:
                    violating.add(uid)
        return frozenset(violating)

    def _budget_indexes(self, template: PodTemplate) -> tuple[int, ...]:
        """Indexes of the budgets for pods of this template; none match pods without labels, and an empty selector matches none."""
        indexes = self._budgets_by_template.get(template.number)
        if indexes is None:
            indexes = self._budgets_by_template[template.number] = tuple(
                at
                for at, (budget, selector) in enumerate(self._budgets)
                if budget.namespace == template.namespace
                and template.labels
                and not selector.is_empty
                and selector.matches(template.labels)
            )
        return indexes


NO_BUDGETS = DisruptionBudgets()


class PreemptionPlan(NamedTuple):
    """A node and the uids of the pods to preempt on it, the most important first."""

    node: int
    uids: tuple[str, ...]


class NodeVictims(NamedTuple):
    """The victims on a node, the most important first, and how many of them violate their budgets."""

    uids: tuple[str, ...]
    violations: int


def preemption_plan(
    template: PodTemplate,
    cluster: ClusterView,
    budgets: DisruptionBudgets = NO_BUDGETS,
    waiting: PendingCounts = MappingProxyType({}),
    excluded: Collection[int] = (),
) -> PreemptionPlan | None:
    """The best preemption for a pod of this template; None: it may not preempt, or preemption would not help.

    ``waiting`` counts pending pods by template number: budgets count them as expected pods.
    ``excluded``: nodes that are no candidates.
    """
    if not template.may_preempt or not cluster.has_pods_below(template.priority):
        return None
    best: tuple[tuple[float, ...], PreemptionPlan] | None = None
    budget_state = BudgetState(budgets, budgets.disruptions_allowed(cluster, waiting))
    for slot in cluster.nodes:
        if not any(pod.template.priority < template.priority for pod in slot.pods.values()):
            continue
        if slot.number in excluded or static_filter_status(template, slot) is not None:
            continue
        victims = _victims(template, cluster, slot, budget_state)
        if victims.uids:
            cost = (*_cost(slot, victims), slot.number)
            if best is None or cost < best[0]:
                best = (cost, PreemptionPlan(slot.number, victims.uids))
    return best[1] if best else None


class BudgetState(NamedTuple):
    """The budgets, and the disruptions that each allows."""

    budgets: DisruptionBudgets
    disruptions_allowed: Sequence[int]


def _victims(
    template: PodTemplate, cluster: ClusterView, slot: NodeSlot, budget_state: BudgetState
) -> NodeVictims:
    """The fewest necessary victims on this node; empty: preemption does not help.

    Pods whose budgets would be violated are reprieved first. The cluster view is unchanged afterwards.
    """
    before = dict(slot.pods)
    candidates = sorted(
        (uid for uid, pod in before.items() if pod.template.priority < template.priority),
        key=lambda uid: _importance(before[uid]),
    )
    violating = budget_state.budgets.violating_uids(
        ((uid, before[uid]) for uid in candidates), budget_state.disruptions_allowed
    )
    victims: set[str] = set()
    with cluster.restored_afterwards(slot):
        for uid in candidates:
            cluster.remove_pod(slot, uid)
        removed: Iterable[str] = candidates
        if _fits(template, cluster, slot):
            for uid in sorted(candidates, key=lambda uid: uid not in violating):
                cluster.add_pod(slot, uid, before[uid])
                if not _fits(template, cluster, slot):
                    cluster.remove_pod(slot, uid)
                    victims.add(uid)
            removed = sorted(victims)
        for uid in removed:
            cluster.add_pod(slot, uid, before[uid])
    return NodeVictims(tuple(uid for uid in candidates if uid in victims), len(victims & violating))


def _fits(template: PodTemplate, cluster: ClusterView, slot: NodeSlot) -> bool:
    if not fits_resources(template, slot):
        return False
    if not template.has_required_pod_terms and not cluster.templates_with_pod_terms:
        return True
    return InterPodView(template, cluster).filter_status(slot) is None


def _importance(pod: AssignedPod) -> tuple[float, ...]:
    """Follows: v1.36, pkg/scheduler/util/utils.go, MoreImportantPod."""
    return (-pod.template.priority, pod.started_at_s, pod.pod_number)


def _cost(slot: NodeSlot, victims: NodeVictims) -> tuple[float, ...]:
    """Sort key, lowest is best: violations, highest priority, sum of priorities, number of victims, earliest start."""
    pods = [slot.pods[uid] for uid in victims.uids]
    highest = max(pod.template.priority for pod in pods)
    earliest = min(pod.started_at_s for pod in pods if pod.template.priority == highest)
    total = sum(pod.template.priority + _PRIORITY_OFFSET for pod in pods)
    return (victims.violations, highest, total, len(pods), -earliest)
