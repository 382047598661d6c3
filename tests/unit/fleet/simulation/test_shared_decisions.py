"""Decisions that nodes share because their pods leave the same resources."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_state import EvictionState
from nodewright.engine.node.events import PodAdded, PodRemoved
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import step
from nodewright.fleet import Options, run
from nodewright.fleet.simulation import node_ranking as node_groups
from nodewright.fleet.simulation import shared_decisions
from nodewright.fleet.simulation.shared_decisions import PodHoldings, SharedDecisions
from nodewright.fleet.workload import FleetPod
from nodewright.model.reasons.verdict import Granted
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod

STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "single-numa-node",
    "maxPods": 20,
}


@pytest.fixture
def start() -> NodeState:
    parts, _ = node_parts(a_profile(devices={"example.com/gpu": "gpu-0 gpu-1"}, **STATIC))
    started = initial_node(parts)
    assert isinstance(started, Granted)
    return started.value


def test_a_node_whose_pods_have_ended_takes_the_decisions_of_an_idle_node() -> None:
    small = a_template("cpu=2 memory=1Gi")
    pods = [pod for at in range(5) for pod in some_pods(1, small, f"p{at}", arrives_s=at * 10, runs_s=5)]
    result = run(some_nodes(1, a_profile(**STATIC)), pods)
    assert (result.steps, result.cached_steps) == (1, 4)


def test_pods_that_hold_nothing_do_not_prevent_sharing() -> None:
    small, shared = a_template("cpu=2 memory=1Gi"), a_template("memory=1Gi")
    pods: list[FleetPod] = [*some_pods(3, shared, "s"), *some_pods(1, small)]
    result = run(some_nodes(1, a_profile(**STATIC)), pods)
    assert (result.steps, result.cached_steps) == (2, 2)


def test_what_a_pod_leaves_does_not_depend_on_the_names_of_the_others(start: NodeState) -> None:
    decisions = SharedDecisions()
    first, second = a_guaranteed_pod("first", "2/1Gi"), a_guaranteed_pod("second", "2/1Gi")
    states = [step(start, PodAdded(pod)).state for pod in (first, second)]
    assert len({decisions.free_resources(start, state.held) for state in states}) == 1


def test_nodes_of_one_configuration_share_decisions_whatever_pressure_they_have_seen(
    start: NodeState,
) -> None:
    decisions = SharedDecisions()
    later = replace(start, eviction=EvictionState(can_rank=False))
    other = replace(start, config=replace(start.config))
    assert decisions.free_resources(start, start.held) is decisions.free_resources(later, start.held)
    assert decisions.free_resources(start, start.held) is not decisions.free_resources(other, start.held)


def test_what_is_forgotten_is_decided_again_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [a_template(f"cpu={cpus} memory=1Gi") for cpus in ("1", "2", "500m")]
    pods = [
        pod
        for at in range(30)
        for pod in some_pods(2, shapes[at % 3], f"p{at}", arrives_s=at * 3, runs_s=5 + at % 7)
    ]
    nodes = some_nodes(3, a_profile(numa=2, **STATIC))
    expected = [(pod.node, pod.placement) for pod in run(nodes, pods, Options(exhaustive=True)).pods]
    remembering = run(nodes, pods)
    monkeypatch.setattr(shared_decisions, "_MAX_DECISIONS", 3)
    monkeypatch.setattr(node_groups, "_MAX_EMPTY_GROUPS", -1)
    forgetful = run(nodes, pods)
    assert forgetful.steps > remembering.steps
    for result in (remembering, forgetful):
        assert [(pod.node, pod.placement) for pod in result.pods] == expected


def test_a_release_is_that_of_a_removed_pod(start: NodeState) -> None:
    decisions = SharedDecisions()
    state = start
    for name in ("first", "second"):
        state = step(
            state, PodAdded(a_guaranteed_pod(name, {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}))
        ).state
    after = step(state, PodRemoved("first")).state.without_stale()
    released = decisions.released(
        start, decisions.free_resources(start, state.held), PodHoldings.of(state.held, "first")
    )
    assert released is decisions.free_resources(start, after.held)
    holdings = {"second": PodHoldings.of(after.held, "second")}
    assert released.holdings_of(holdings).devices.in_use == after.held.devices.in_use
    assert released.holdings_of(holdings).cpu.assignments == after.held.cpu.assignments
