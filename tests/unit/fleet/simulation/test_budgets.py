"""Disruption budgets spare pods as far as can be.

Sources: v1.36, pkg/controller/disruption/disruption_test.go;
pkg/scheduler/framework/plugins/defaultpreemption/default_preemption_test.go.
"""

from typing import Any

import pytest

from nodewright.fleet import Options, run
from nodewright.fleet.simulation.cluster_view import AssignedPod
from nodewright.fleet.simulation.scheduler_preemption import DisruptionBudgets
from nodewright.fleet.workload import DisruptionBudget, IntOrPercent
from nodewright.testing.fleets import (
    a_cluster_view,
    a_node_slot,
    a_pod_template,
    a_template,
    some_nodes,
    some_pods,
)

APP = {"matchLabels": {"app": "db"}}
DB = {"app": "db"}


def budget(selector: Any = APP, namespace: str = "default", **bound: Any) -> DisruptionBudget:
    return DisruptionBudget(name="b", namespace=namespace, selector=selector, **bound)


HALF, ONE = IntOrPercent(50, is_percent=True), IntOrPercent(1)
LEFT = [
    # Pods that run, those that wait, the budget, and how many may go.
    (3, 0, budget(min_available=IntOrPercent(2)), 1),
    (3, 0, budget(min_available=IntOrPercent(5)), 0),
    (3, 2, budget(min_available=IntOrPercent(2)), 1),
    (3, 0, budget(min_available=HALF), 1),
    (3, 3, budget(min_available=HALF), 0),
    (3, 0, budget(max_unavailable=ONE), 1),
    (3, 1, budget(max_unavailable=ONE), 0),
    (3, 0, budget(max_unavailable=HALF), 2),
    (0, 0, budget(min_available=IntOrPercent(0)), 0),
    (3, 0, budget(namespace="other", min_available=IntOrPercent(0)), 0),
    (3, 0, budget(selector={}, min_available=IntOrPercent(0)), 0),
    (3, 0, budget(selector=None, min_available=IntOrPercent(0)), 0),
]


@pytest.mark.parametrize(("running", "waiting", "one", "left"), LEFT)
def test_disruptions_allowed_by_a_budget(
    running: int, waiting: int, one: DisruptionBudget, left: int
) -> None:
    template = a_pod_template(0, "", DB)
    board = a_cluster_view([a_node_slot(0)], [(template, "0" * running)])
    assert DisruptionBudgets([one]).disruptions_allowed(board, {0: (template, waiting)}) == [left]


def test_pods_whose_budget_is_used_up_by_those_before_them_are_violations() -> None:
    tenants = [(uid, AssignedPod(0, a_pod_template(0, "", DB), 0.0)) for uid in "abc"]
    tenants.insert(1, ("other", AssignedPod(0, a_pod_template(1, "", {"app": "web"}), 0.0)))
    budgets = DisruptionBudgets([budget(min_available=ONE)])
    assert budgets.violating_uids(tenants, [1]) == {"b", "c"}
    assert DisruptionBudgets([]).violating_uids(tenants, []) == frozenset()


def preempted_pods(*budgets: DisruptionBudget) -> list[str]:
    """Who makes way for a pod that needs half of one of two nodes, each filled by two that are alike."""
    pods = [
        *some_pods(2, a_template("cpu=3 memory=1Gi", DB), "db", node="n0"),
        *some_pods(2, a_template("cpu=3 memory=1Gi", {"app": "web"}, priority=2), "web", node="n1"),
        *some_pods(1, a_template("cpu=3 memory=1Gi", priority=5), "high", arrives_s=1),
    ]
    result = run(some_nodes(2), pods, Options(budgets=budgets))
    return [pod.pod.name for pod in result.pods if pod.outcome == "preempted"]


def test_a_node_where_no_budget_is_violated_is_better_than_one_with_pods_of_less_priority() -> None:
    assert preempted_pods() == ["db1"]
    # One may go: were that the first, the second would be a violation, so it is the second that is spared first.
    assert preempted_pods(budget(min_available=ONE)) == ["db0"]
    assert preempted_pods(budget(min_available=IntOrPercent(2))) == ["web1"]


def test_where_every_node_has_violations_priority_counts_again() -> None:
    web = budget(selector={"matchLabels": {"app": "web"}}, min_available=IntOrPercent(2))
    assert preempted_pods(budget(min_available=IntOrPercent(2)), web) == ["db1"]


def test_pods_without_violations_are_preempted_before_less_important_ones_with_violations() -> None:
    pods = [
        *some_pods(1, a_template("cpu=3 memory=1Gi", DB), "db", node="n0"),
        *some_pods(1, a_template("cpu=3 memory=1Gi", priority=2), "web", node="n0"),
        *some_pods(1, a_template("cpu=3 memory=1Gi", priority=5), "high", arrives_s=1),
    ]
    for budgets, expected in (((), "db0"), ((budget(min_available=ONE),), "web0")):
        result = run(some_nodes(1), pods, Options(budgets=budgets))
        assert [pod.pod.name for pod in result.pods if pod.outcome == "preempted"] == [expected]
