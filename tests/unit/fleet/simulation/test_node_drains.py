"""Drains: rounds of evictions, disruption budgets across nodes, and where the replacements go."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodewright.engine.core.disruption.pod_eviction import BudgetStatus, EvictionFacts
from nodewright.fleet.runner import Options, fleet_result, fleet_simulation, run
from nodewright.fleet.simulation.fleet_simulation import FleetSimulation, ScheduledDrain
from nodewright.fleet.simulation.node_drains import counted_budget
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.workload import DisruptionBudget, FleetPod, IntOrPercent
from nodewright.testing.fleets import a_template, some_nodes, some_pods

WEB = a_template("cpu=1", {"app": "web"})
OWNED = EvictionFacts(owner_kind="ReplicaSet", owner_name="web")
SELECTOR = {"matchLabels": {"app": "web"}}


def on(node: str, count: int, name: str = "p", template: Any = WEB, **facts: Any) -> list[FleetPod]:
    eviction = EvictionFacts(**{"owner_kind": "ReplicaSet", "owner_name": "web", **facts})
    has_controller = bool(eviction.owner_kind)
    return some_pods(count, template, name, node=node, eviction=eviction, has_controller=has_controller)


def available(count: int, *, is_percent: bool = False, **fields: Any) -> DisruptionBudget:
    bound = IntOrPercent(count, is_percent=is_percent)
    return DisruptionBudget(name="web", namespace="default", selector=SELECTOR, min_available=bound, **fields)


def drained(
    pods: Sequence[FleetPod], *nodes: int, count: int = 3, budgets: Sequence[DisruptionBudget] = ()
) -> FleetSimulation:
    simulation = fleet_simulation(some_nodes(count), Options(budgets=tuple(budgets), until_s=0))
    simulation.run(iter(pods))
    simulation.cordon(nodes)
    for node in nodes:
        simulation.drains.begin(node)
        simulation.settle()
        simulation.drains.end_all()
    fleet_result(simulation, complete=True)
    return simulation


def places(simulation: FleetSimulation) -> dict[str, str]:
    return {
        record.pod.name: f"n{record.node}" if record.outcome is PodOutcome.RUNNING else str(record.outcome)
        for record in simulation.records.records.values()
    }


def test_replacements_go_where_the_scheduler_and_the_kubelet_have_room() -> None:
    simulation = drained([*on("n0", 2), *on("n1", 5, "q")], 0)
    assert places(simulation)["p0"] == places(simulation)["p1"] == "n2"


def test_a_pod_without_a_controller_is_gone() -> None:
    assert places(drained(on("n0", 1, owner_kind=""), 0)) == {"p0": "drained"}


@pytest.mark.parametrize("facts", [{"is_daemon": True}, {"is_mirror": True}])
def test_pods_of_daemon_sets_and_mirror_pods_stay(facts: dict[str, Any]) -> None:
    assert places(drained(on("n0", 1, **facts), 0)) == {"p0": "n0"}


@pytest.mark.parametrize(("owner", "place"), [("ReplicaSet", "drained"), ("StatefulSet", "n1")])
def test_a_pod_that_is_being_deleted_is_replaced_once(owner: str, place: str) -> None:
    assert places(drained(on("n0", 1, owner_kind=owner, is_deleting=True), 0)) == {"p0": place}


def test_a_budget_lets_pods_go_when_the_replacements_of_others_run() -> None:
    simulation = drained(on("n0", 3), 0, budgets=[available(2)])
    rounds = [eviction.round for eviction in simulation.drains.evictions.values()]
    assert (rounds, set(places(simulation).values()) & {"n0"}) == ([1, 2, 3], set())


def test_a_budget_blocks_the_rest_when_a_replacement_has_no_place() -> None:
    simulation = drained(on("n0", 3), 0, count=1, budgets=[available(2)])
    answers = [eviction.answer for eviction in simulation.drains.evictions.values()]
    assert places(simulation) == {"p0": "waiting", "p1": "n0", "p2": "n0"}
    assert [answer.code for answer in answers] == [201, 429, 429]
    assert answers[1].cause == "The disruption budget web needs 2 healthy pods and has 2 currently"


def test_budgets_count_across_the_nodes_that_are_drained_one_after_the_other() -> None:
    pods = [*on("n0", 1), *on("n1", 1, "q"), *on("n2", 6, "full", a_template("cpu=1"))]
    simulation = drained(pods, 0, 1, budgets=[available(1)])
    assert places(simulation)["p0"] == "n2"
    assert places(simulation)["q0"] == "n2"
    crowded = [*on("n0", 1), *on("n1", 1, "q"), *on("n2", 8, "full", a_template("cpu=1"))]
    assert places(drained(crowded, 0, 1, budgets=[available(1)]))["q0"] == "n1"


def test_the_status_of_a_budget_counts_pods_that_the_files_do_not_have() -> None:
    status = BudgetStatus(
        name="web", disruptions_allowed=1, current_healthy=5, desired_healthy=4, expected_pods=5
    )
    simulation = drained(on("n0", 2), 0, budgets=[available(4, status=status)])
    assert [eviction.round for eviction in simulation.drains.evictions.values()] == [1, 2]


def test_a_pod_that_tolerates_the_cordon_is_evicted_once() -> None:
    tolerant = a_template("cpu=1", tolerations=[{"operator": "Exists"}])
    simulation = drained(on("n0", 1, template=tolerant), 0, count=1)
    assert places(simulation) == {"p0": "n0"}


def test_a_drain_is_an_event_of_a_fleet() -> None:
    options = Options(drains=(ScheduledDrain("n0", 60),))
    result = run(some_nodes(2), on("n0", 2, owner_kind="Job"), options)
    assert [(pod.outcome, pod.node, pod.placements) for pod in result.pods] == [
        (PodOutcome.RUNNING, 1, 2)
    ] * 2
    assert result.ended_s == 60


def test_a_blocked_eviction_goes_on_when_there_is_a_place_for_replacements() -> None:
    filler = some_pods(1, a_template("cpu=8"), "filler", node="n1", runs_s=100.0)
    options = Options(drains=(ScheduledDrain("n0", 60),), budgets=(available(2),))
    result = run(some_nodes(2), [*on("n0", 2), *filler], options)
    assert [pod.node for pod in result.pods[:2]] == [0, 0]
    options = Options(drains=(ScheduledDrain("n0", 60),), budgets=(available(1),))
    result = run(some_nodes(2), [*on("n0", 2), *filler], options)
    assert [pod.node for pod in result.pods[:2]] == [1, 1]


COUNTED = {
    "a number": (available(2), [OWNED] * 3, (2, 3, 1, "")),
    "a percentage of the replicas": (available(50, is_percent=True), [OWNED] * 3, (2, 3, 1, "")),
    "bare pods of a percentage": (available(50, is_percent=True), [EvictionFacts()] * 3, (0, 0, 0, "")),
    "bare pods of a number": (available(2), [EvictionFacts()] * 3, (2, 3, 1, "")),
    "more than there are": (available(9), [OWNED], (9, 1, 0, "")),
    "a Job": (
        available(50, is_percent=True),
        [EvictionFacts(owner_kind="Job")],
        (0, 0, 0, "jobs.batch does not implement the scale subresource"),
    ),
}


@pytest.mark.parametrize("case", COUNTED)
def test_a_budget_without_status_is_counted_as_the_controller_does(case: str) -> None:
    budget, facts, expected = COUNTED[case]
    pods = [FleetPod(name=f"p{at}", pod=WEB, eviction=each) for at, each in enumerate(facts)]
    status = counted_budget(budget, pods, len(pods))
    counts = (status.desired_healthy, status.expected_pods, status.disruptions_allowed, status.failure)
    assert counts == expected
