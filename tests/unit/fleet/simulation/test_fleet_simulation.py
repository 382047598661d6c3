"""Fleets through their time."""

from collections import Counter

import pytest
from msgspec.structs import replace

from nodewright.fleet import Options, run
from nodewright.fleet.simulation.fleet_simulation import Progress, Retry
from nodewright.fleet.simulation.outcomes import FilterRejections, FleetEvent, PodOutcome
from nodewright.fleet.workload import FleetPod
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

SINGLE = a_profile(
    cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node", maxPods=20
)
"""CPUs 1-3 and 4-7 are to be had: nobody gets more than 4 at once."""
SMALL = a_template("cpu=2 memory=1Gi")
WIDE = a_template("cpu=5 memory=1Gi")


def fates(pods: list[FleetPod], count: int = 1, options: Options | None = None) -> str:
    """The fates of these pods, as in `running,ended`."""
    return ",".join(pod.outcome for pod in run(some_nodes(count), pods, options or Options()).pods)


def test_pods_are_placed_on_the_least_allocated_node() -> None:
    result = run(some_nodes(3), some_pods(4, SMALL))
    assert [pod.node for pod in result.pods] == [0, 1, 2, 0]
    packed = run(some_nodes(3), some_pods(4, SMALL), Options(scores="best-fit"))
    assert [pod.node for pod in packed.pods] == [0, 0, 0, 0]


def test_the_placement_of_a_pod_is_reported() -> None:
    pod = run(some_nodes(1, SINGLE), some_pods(1, SMALL)).pods[0]
    assert str(pod.placement.containers[0].cpus) == "1-2"


def test_a_pod_waits_until_another_leaves() -> None:
    first, second = some_pods(2, a_template("cpu=6"), runs_s=10)
    result = run(some_nodes(1), [first, second])
    assert [(pod.placed_s, pod.left_s) for pod in result.pods] == [(0, 10), (10, 20)]
    assert result.ended_s == 20
    assert result.complete


def test_a_pod_without_a_node_has_filter_rejections() -> None:
    pod = run(some_nodes(2), some_pods(1, a_template("cpu=6 memory=20Gi"))).pods[0]
    assert (pod.outcome, pod.filter_rejections) == (
        PodOutcome.WAITING,
        (FilterRejections("NodeResourcesFit", "memory", 2),),
    )


def test_of_several_missing_resources_of_a_node_all_are_counted() -> None:
    pod = run(some_nodes(2), some_pods(1, a_template("cpu=600 memory=2000Gi example.com/gpu=3"))).pods[0]
    assert pod.filter_rejections == tuple(
        FilterRejections("NodeResourcesFit", resource, 2) for resource in ("cpu", "example.com/gpu", "memory")
    )


def test_of_pods_that_arrive_together_the_highest_priority_is_first() -> None:
    pods = [*some_pods(1, a_template("cpu=6")), *some_pods(1, a_template("cpu=6", priority=9), "q")]
    assert fates(pods) == "waiting,running"


def test_a_rejected_pod_without_a_controller_is_refused() -> None:
    result = run(some_nodes(1, SINGLE), some_pods(1, WIDE))
    pod = result.pods[0]
    assert (pod.outcome, pod.admission_attempts, pod.refused_by) == (PodOutcome.REFUSED, 1, 0)
    assert [(refusal.shape, refusal.count) for refusal in result.refusals] == [("small", 1)]


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry.SAME, (PodOutcome.LOOPING, -1)),
        (Retry.ELSEWHERE, (PodOutcome.RUNNING, 1)),
        (Retry.NEVER, (PodOutcome.REFUSED, -1)),
    ],
)
def test_a_controller_replaces_a_rejected_pod(retry: Retry, expected: tuple[PodOutcome, int]) -> None:
    nodes = [*some_nodes(1, SINGLE), *some_nodes(2)[1:]]
    there = some_pods(1, SMALL, "s", node="n1")
    pods = run(nodes, [*there, *some_pods(1, WIDE, has_controller=True)], Options(retry=retry)).pods
    assert (pods[1].outcome, pods[1].node) == expected


def test_a_loop_ends_when_the_node_changes() -> None:
    node = a_profile(
        cpuManagerPolicy="static", reservedSystemCPUs="0,4", topologyManagerPolicy="single-numa-node"
    )
    # Two of the three CPUs of each NUMA node are taken: the four that are left are in two places.
    there = some_pods(2, SMALL, runs_s=5)
    late = some_pods(1, a_template("cpu=2 memory=1Gi", priority=1), "q", has_controller=True, arrives_s=1)
    happened: list[FleetEvent] = []
    run(some_nodes(1, node), [*there, *late], Options(preemption=False), sink=happened.append)
    assert [
        (fleet_event.at_s, fleet_event.kind.value) for fleet_event in happened if fleet_event.pod == 2
    ] == [
        (1, "refused"),
        (1, "looping"),
        (5, "placed"),
    ]


def test_refusals_name_pods_and_not_simulated_uids() -> None:
    node = a_profile(
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
        reservedSystemCPUs="0",
    )
    threads = some_pods(1, a_template("cpu=7 memory=1Gi"))
    result = run(some_nodes(1, node), [*threads, *some_pods(1, a_template("cpu=1 memory=1Gi"), "q")])
    assert [pod.outcome for pod in result.pods] == [PodOutcome.RUNNING, PodOutcome.WAITING]


def test_pods_that_run_already_are_counted() -> None:
    there = some_pods(1, a_template("cpu=6"), node="n0")
    result = run(some_nodes(2), [*there, *some_pods(1, a_template("cpu=6"), "q")])
    assert [pod.node for pod in result.pods] == [0, 1]


def test_a_pod_that_requires_one_node_is_tried_only_there() -> None:
    nodes = some_nodes(3)
    fits, wide = a_template("cpu=2 memory=1Gi"), a_template("cpu=9 memory=1Gi")
    pods = [
        some_pod
        for pod in (fits, wide)
        for node in "012"
        for some_pod in some_pods(1, pod, required_node=f"n{node}")
    ]
    result = run(nodes, pods)
    assert [pod.node for pod in result.pods] == [0, 1, 2, -1, -1, -1]
    assert {(rejection.plugin, rejection.nodes) for rejection in result.pods[3].filter_rejections} == {
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
    }
    cordoned = some_nodes(1, unschedulable=True)
    assert [pod.node for pod in run(cordoned, some_pods(1, fits, required_node="n0")).pods] == [0]
    assert [pod.node for pod in run(cordoned, some_pods(1, fits)).pods] == [-1]


def test_a_loop_of_a_pod_that_requires_one_node_is_reported() -> None:
    strict = a_profile(
        cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node"
    )
    pods = some_pods(1, a_template("cpu=5 memory=1Gi"), required_node="n1", has_controller=True)
    (pod,) = run(some_nodes(2, strict), pods).pods
    assert (pod.outcome, pod.refusals, pod.refused_by) == (PodOutcome.LOOPING, 1, 1)


def test_pods_of_lower_priority_are_preempted() -> None:
    low = some_pods(2, a_template("cpu=4 memory=1Gi"), has_controller=True)
    high = some_pods(1, a_template("cpu=6 memory=1Gi", priority=5), "q", arrives_s=3)
    result = run(some_nodes(2), [*low, *high])
    # The first finds room beside the second.
    assert [(pod.node, pod.placements) for pod in result.pods] == [(1, 2), (1, 1), (0, 1)]
    assert result.preemptions == 1
    assert fates([*low, *high], 2, Options(preemption=False)) == "running,running,waiting"


def test_of_equal_victims_the_one_that_was_started_last_is_preempted() -> None:
    template = a_template("cpu=3", priority=1)
    first, second = some_pods(2, template, node="n0")
    started = [replace(first, started_s=-5.0), replace(second, started_s=-9.0)]
    high = some_pods(1, a_template("cpu=3", priority=5), "q", arrives_s=1)
    assert fates([*started, *high]) == "preempted,running,running"
    assert fates([*reversed(started), *high]) == "running,preempted,running"


def test_a_preemptor_goes_to_its_nominated_node_before_others_that_wait() -> None:
    low = some_pods(2, a_template("cpu=6"), has_controller=False)
    waiting = some_pods(1, a_template("cpu=6"), "w", arrives_s=1)
    high = some_pods(1, a_template("cpu=3", priority=5), "q", arrives_s=2)
    result = run(some_nodes(2), [*low, *waiting, *high])
    # The room of the victim is the preemptor's, though the pod that waits came first.
    assert [(pod.outcome, pod.node) for pod in result.pods if pod.outcome != "waiting"] == [
        ("preempted", 0),
        ("running", 1),
        ("running", 0),
    ]


def test_pods_that_must_not_preempt_wait() -> None:
    low = some_pods(1, a_template("cpu=6"))
    high = some_pods(1, a_template("cpu=6", priority=5, preemptionPolicy="Never"), "q", arrives_s=1)
    assert fates([*low, *high]) == "running,waiting"


def test_no_pod_is_preempted_without_effect() -> None:
    low = some_pods(1, a_template("cpu=6"))
    high = some_pods(1, a_template("cpu=600", priority=5), "q", arrives_s=1)
    assert fates([*low, *high]) == "running,waiting"


def test_unnecessary_victims_are_not_preempted() -> None:
    low = some_pods(3, a_template("cpu=2 memory=1Gi"))
    high = some_pods(1, a_template("cpu=4 memory=1Gi", priority=5), "q", arrives_s=1)
    # Of pods that are equally important, those that came first are spared first.
    assert fates([*low, *high]) == "running,running,preempted,running"


def test_an_interrupted_run_has_a_result() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return len(seen) < 2

    result = run(some_nodes(4), some_pods(200, a_template("cpu=10m")), watch=watch)
    assert not result.complete
    assert Counter(pod.outcome for pod in result.pods) == {PodOutcome.RUNNING: 128, PodOutcome.WAITING: 72}
    assert (result.pods[199].filter_rejections, result.ended_s) == ((), 0)


def test_nodes_in_equal_states_decide_once() -> None:
    result = run(some_nodes(5), some_pods(5, SMALL))
    assert (result.steps, result.cached_steps) == (1, 4)


def test_pods_that_select_labels_are_decided_with_the_labels_of_the_node() -> None:
    nodes = [*some_nodes(1, labels={"disk": "hdd"}), *some_nodes(2, labels={"disk": "ssd"})[1:]]
    pods = some_pods(2, a_template("cpu=1", nodeSelector={"disk": "ssd"}))
    assert [pod.node for pod in run(nodes, pods).pods] == [1, 1]
