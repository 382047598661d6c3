"""Which pods' preemption would violate their PodDisruptionBudgets, as the API server shows them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nodewright.fleet.simulation.pod_templates import LabelMatcher
from nodewright.model.kubernetes.objects import Pod


class ClusterBudget(NamedTuple):
    """A PodDisruptionBudget and its status."""

    namespace: str
    selector: LabelMatcher
    disruptions_allowed: int
    disrupted_pods: frozenset[str]
    """The names of pods whose eviction is in progress: the status has counted them."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "ClusterBudget":
        """The budget that an object describes.

        >>> budget = {"metadata": {"namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
        >>> ClusterBudget.of(budget | {"status": {"disruptionsAllowed": 2}}).disruptions_allowed
        2
        """
        status = document.get("status") or {}
        return cls(
            namespace=str(document["metadata"].get("namespace") or ""),
            selector=LabelMatcher((document.get("spec") or {}).get("selector")),
            disruptions_allowed=int(status.get("disruptionsAllowed") or 0),
            disrupted_pods=frozenset(status.get("disruptedPods") or ()),
        )

    def counts(self, pod: Pod) -> bool:
        """Whether the preemption of the pod is charged to the budget."""
        labels = pod.metadata.labels
        return (
            bool(labels)
            and pod.metadata.namespace == self.namespace
            and not self.selector.is_empty
            and self.selector.matches(labels)
            and pod.metadata.name not in self.disrupted_pods
        )


def violating_uids(pods: Iterable[Pod], budgets: Iterable[ClusterBudget]) -> frozenset[str]:
    """The uids of those pods whose preemption, after that of the pods before them, violates a budget.

    Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go,
        filterPodsWithPDBViolation.
    """
    known = tuple(budgets)
    left, violating = [budget.disruptions_allowed for budget in known], set[str]()
    for pod in pods if known else ():
        for place, budget in enumerate(known):
            if budget.counts(pod):
                left[place] -= 1
                if left[place] < 0:
                    violating.add(pod.uid)
    return frozenset(violating)
