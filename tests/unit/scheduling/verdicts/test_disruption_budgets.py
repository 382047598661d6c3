"""PodDisruptionBudgets: which preemptions violate them, by what the budgets' status allows."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import a_numa_pod

from nodewright.model.kubernetes.objects import Pod
from nodewright.scheduling.verdicts.tracked_cluster import ClusterBudget, violating_uids

WEB = {"matchLabels": {"app": "web"}}


def a_pod(name: str, **labels: str) -> Pod:
    pod = a_numa_pod(name, {"cpu": 1000})
    return replace(pod, metadata=replace(pod.metadata, labels=labels))


PODS = [a_pod("a", app="web"), a_pod("b", app="web"), a_pod("c"), a_pod("d", app="db")]


def a_budget(selector: Any, allowed: int, namespace: str = "default", **status: Any) -> ClusterBudget:
    metadata = {"name": "b", "namespace": namespace}
    spec, shown = {"selector": selector}, {"disruptionsAllowed": allowed, **status}
    return ClusterBudget.of({"metadata": metadata, "spec": spec, "status": shown})


CASES = [
    ([], set()),
    ([a_budget(WEB, 2)], set()),
    ([a_budget(WEB, 1)], {"uid-b"}),
    ([a_budget(WEB, 0)], {"uid-a", "uid-b"}),
    # An eviction in progress has been counted.
    ([a_budget(WEB, 0, disruptedPods={"a": "2026-01-01T00:00:00Z"})], {"uid-b"}),
    # An empty selector, or none, matches nothing here; nor does any match a pod without labels.
    ([a_budget({}, 0), a_budget(None, 0)], set()),
    ([a_budget({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, 1)], {"uid-b", "uid-d"}),
    ([a_budget({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, 0)], set()),
    ([a_budget(WEB, 0, "other")], set()),
    ([a_budget(WEB, 1), a_budget(WEB, 0)], {"uid-a", "uid-b"}),
]


@pytest.mark.parametrize(("budgets", "violating"), CASES)
def test_budgets_are_used_up_in_order(budgets: list[ClusterBudget], violating: set[str]) -> None:
    assert violating_uids(PODS, budgets) == violating
