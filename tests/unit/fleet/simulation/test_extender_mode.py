"""A scheduler that asks each kubelet first: no rejections, and never fewer pods on nodes that it can use."""

import random

import pytest
from msgspec.structs import replace

from nodewright.fleet import Options, run
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.workload import FleetPod
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

SINGLE = a_profile(
    cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node", maxPods=20
)
"""Three CPUs of the first NUMA node and four of the second can be allocated."""


def fragmenting_pods(seed: int, count: int = 60) -> list[FleetPod]:
    """Pods that arrive one after the other and run for different times."""
    draw = random.Random(seed)
    templates = {cpus: a_template(f"cpu={cpus} memory=64Mi") for cpus in (1, 2, 3, 4)}
    pods = []
    for number in range(count):
        pod = some_pods(1, templates[draw.choice((1, 2, 3, 4))], f"p{number}", has_controller=True)[0]
        pods.append(replace(pod, arrives_s=number * 1.0, runs_s=draw.uniform(5, 20)))
    return pods


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_exhaustive", [False, True])
def test_no_kubelet_rejects_a_pod_that_it_was_asked_about(seed: int, is_exhaustive: bool) -> None:
    pods = fragmenting_pods(seed)
    alone = run(some_nodes(4, SINGLE), pods, Options(exhaustive=is_exhaustive))
    fleet_result = run(some_nodes(4, SINGLE), pods, Options(exhaustive=is_exhaustive, extender=True))
    assert sum(refusal.count for refusal in alone.refusals) > 0
    assert sum(refusal.count for refusal in fleet_result.refusals) == 0
    assert all(pod.outcome is PodOutcome.ENDED for pod in fleet_result.pods)


def test_it_takes_a_node_that_is_second_best_by_amounts() -> None:
    nodes = [*some_nodes(1, SINGLE), *some_nodes(2)[1:]]
    there = some_pods(1, a_template("cpu=2 memory=1Gi"), "s", node="n1")
    wide = some_pods(1, a_template("cpu=5 memory=1Gi"), has_controller=True)
    pods = run(nodes, [*there, *wide], Options(extender=True)).pods
    assert (pods[1].outcome, pods[1].node, pods[1].refusals) == (PodOutcome.RUNNING, 1, 0)


def test_pods_are_preempted_only_where_that_makes_room() -> None:
    # Seven CPUs are free for the scheduler, but for no kubelet at one NUMA node.
    low = some_pods(3, a_template("cpu=2 memory=64Mi"), "low", has_controller=True)
    urgent = some_pods(
        1, a_template("cpu=6 memory=64Mi", priority=9), "urgent", has_controller=True, arrives_s=1
    )
    alone = run(some_nodes(1, SINGLE), [*low, *urgent])
    fleet_result = run(some_nodes(1, SINGLE), [*low, *urgent], Options(extender=True))
    assert alone.pods[3].refusals > 0
    assert [pod.outcome for pod in fleet_result.pods[:3]] == [PodOutcome.RUNNING] * 3
    assert fleet_result.pods[3].outcome is PodOutcome.WAITING
