"""Drains of nodes: pods are evicted in rounds, as their disruption budgets allow it when the replacements run.

Follows: v1.36, kubectl/pkg/drain/drain.go, evictPods.
Departs: the pods of a round are evicted in the order of namespace and name, where kubectl evicts them concurrently; the next
    round begins when the scheduler and the kubelets have decided about all replacements. A replacement that runs is as
    ready as the pod that it replaces.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.disruption.pod_eviction import (
    SYNC_FAILED,
    BudgetStatus,
    EvictionAnswer,
    eviction_answer,
)
from nodewright.fleet.simulation.cluster_view import ClusterView
from nodewright.fleet.simulation.outcomes import FleetPodRecord, PodOutcome, PodRecords
from nodewright.fleet.simulation.pod_templates import LabelMatcher
from nodewright.fleet.workload import DisruptionBudget, FleetPod
from nodewright.model.kubernetes.objects import PodCondition

_WITHOUT_SCALE = {"Job": "jobs.batch", "DaemonSet": "daemonsets.apps", "Node": "nodes"}
"""Resources of controllers whose number of pods the disruption controller cannot read."""


class Eviction(msgspec.Struct, frozen=True):
    """The last attempt to evict a pod."""

    node: int
    """Number of the node that is drained."""
    round: int
    """The round of the attempt, from 1."""
    answer: EvictionAnswer


class NodeDrain(msgspec.Struct):
    """The drain of a node."""

    node: int
    pods: list[int]
    """The numbers of the pods that are still to be evicted."""
    round: int = 0


class NodeDrains:
    """The drains of a simulation. Changed in place."""

    def __init__(
        self,
        cluster: ClusterView,
        records: PodRecords,
        evict: Callable[[FleetPodRecord], None],
        budgets: Sequence[DisruptionBudget],
    ) -> None:
        """``evict`` removes a pod from its node; its controller replaces it."""
        self._cluster, self._records, self._evict = cluster, records, evict
        self._budgets = [(budget, LabelMatcher(budget.selector)) for budget in budgets]
        self._counts: dict[int, BudgetCount] = {}
        """By the index of the budget."""
        self._drains: list[NodeDrain] = []
        """Those that go on."""
        self.evictions: dict[int, Eviction] = {}
        """The last attempt for each pod, by its number, in the order of the first attempts."""

    def begin(self, node: int) -> None:
        """Begins to drain a node, which is cordoned already: of the pods that it has now."""
        on_node = [pod.pod_number for pod in self._cluster.nodes[node].pods.values()]
        pods = [number for number in on_node if not self._records[number].pod.eviction.stays]
        self._drains.append(
            NodeDrain(node, sorted(pods, key=lambda number: self._records[number].pod.full_name))
        )

    def end_all(self) -> None:
        """Ends the drains; pods that could not be evicted stay."""
        self._drains.clear()

    def evict_round(self) -> bool:
        """Evicts what the budgets allow now; whether that was any pod."""
        counts = [self._evict_from(drain) for drain in self._drains]
        return any(counts)

    def _evict_from(self, drain: "NodeDrain") -> int:
        """Evicts the pods of one node; how many."""
        drain.pods = [number for number in drain.pods if self._is_on(drain.node, number)]
        if not drain.pods:
            return 0
        drain.round += 1
        matching = {number: self._matching(self._records[number].pod) for number in drain.pods}
        statuses = {index: self._recounted(index) for indexes in matching.values() for index in indexes}
        evicted = []
        for number, indexes in matching.items():
            record = self._records[number]
            answer = eviction_answer(record.pod.eviction, [statuses[index] for index in indexes])
            self.evictions[number] = Eviction(drain.node, drain.round, answer)
            if not answer.is_evicted:
                continue
            evicted.append(number)
            if answer.budget:
                left = statuses[indexes[0]].disruptions_allowed - 1
                statuses[indexes[0]] = replace(statuses[indexes[0]], disruptions_allowed=left)
            self._evict(record)
        drain.pods = [number for number in drain.pods if number not in evicted]
        return len(evicted)

    def _is_on(self, node: int, number: int) -> bool:
        record = self._records.get(number)
        return record is not None and record.node == node and record.outcome is PodOutcome.RUNNING

    def _matching(self, pod: FleetPod) -> tuple[int, ...]:
        """The budgets that the eviction API finds for the pod.

        Follows: v1.36, pkg/registry/core/pod/storage/eviction.go, getPodDisruptionBudgets: unlike the scheduler it finds
            those with an empty selector, too.
        """
        labels = pod.pod.metadata.labels
        return tuple(
            index
            for index, (budget, selector) in enumerate(self._budgets)
            if budget.namespace == pod.namespace and selector.matches(labels)
        )

    def _recounted(self, index: int) -> BudgetStatus:
        """The budget as the disruption controller counts it now; at first as its status has it."""
        budget, selector = self._budgets[index]
        known = self._counts.get(index)
        if known is not None:
            return known.status.recounted(known.uncounted + self._healthy(known.members))
        members = tuple(
            number
            for number, record in self._records.records.items()
            if record.pod.namespace == budget.namespace and selector.matches(record.pod.pod.metadata.labels)
        )
        pods = [self._records[number].pod for number in members]
        healthy = self._healthy(members)
        status = budget.status or counted_budget(budget, pods, healthy)
        self._counts[index] = BudgetCount(status, members, status.current_healthy - healthy)
        return status

    def _healthy(self, members: Iterable[int]) -> int:
        records = filter(None, map(self._records.get, members))
        return sum(
            record.outcome is PodOutcome.RUNNING and record.pod.eviction.is_healthy for record in records
        )


class BudgetCount(msgspec.Struct, frozen=True):
    """A budget and the pods that it selects."""

    status: BudgetStatus
    """When the first of the pods was to be evicted."""
    members: tuple[int, ...]
    """Their numbers."""
    uncounted: int
    """How many more healthy pods the status had than are known."""


def counted_budget(budget: DisruptionBudget, pods: Sequence[FleetPod], healthy: int) -> BudgetStatus:
    """The status that the disruption controller gives a budget, of whose pods so many are healthy.

    Follows: v1.36, pkg/controller/disruption/disruption.go, getExpectedPodCount, getExpectedScale, failSafe.
    Departs: a controller has as many replicas as pods that are not being deleted.
    """
    bound = budget.min_available
    by_scale = bound is None or bound.is_percent
    unscaled = [_WITHOUT_SCALE.get(pod.eviction.owner_kind) for pod in pods] if by_scale else []
    status = BudgetStatus(name=budget.name, evicts_unhealthy=budget.evicts_unhealthy)
    for resource in filter(None, unscaled):
        message = f"{resource} does not implement the scale subresource"
        return replace(status, conditions=(PodCondition(reason=SYNC_FAILED, message=message),))
    expected = sum(1 for pod in pods if not by_scale or _is_replica(pod))
    desired = budget.desired_healthy(expected)
    return replace(status, desired_healthy=desired, expected_pods=expected).recounted(healthy)


def _is_replica(pod: FleetPod) -> bool:
    return bool(pod.eviction.owner_kind) and not pod.eviction.is_deleting
