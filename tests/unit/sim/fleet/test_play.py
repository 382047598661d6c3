"""Fleets through their time."""

from collections import Counter

import pytest

from nodewright.fleet import Options, run
from nodewright.model.fleet import FleetPod
from nodewright.sim.fleet.play import Progress, Retry
from nodewright.sim.fleet.values import Fate, Happening, Lack
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
    return ",".join(one.fate for one in run(some_nodes(count), pods, options or Options()).pods)


def test_pods_go_where_most_is_left() -> None:
    result = run(some_nodes(3), some_pods(4, SMALL))
    assert [one.node for one in result.pods] == [0, 1, 2, 0]
    packed = run(some_nodes(3), some_pods(4, SMALL), Options(scores="best-fit"))
    assert [one.node for one in packed.pods] == [0, 0, 0, 0]


def test_what_a_pod_is_given_is_told() -> None:
    pod = run(some_nodes(1, SINGLE), some_pods(1, SMALL)).pods[0]
    assert str(pod.placement.containers[0].cpus) == "1-2"


def test_a_pod_waits_until_another_leaves() -> None:
    first, second = some_pods(2, a_template("cpu=6"), runs_s=10)
    result = run(some_nodes(1), [first, second])
    assert [(one.placed_s, one.left_s) for one in result.pods] == [(0, 10), (10, 20)]
    assert result.ended_s == 20
    assert result.complete


def test_a_pod_without_a_node_says_why() -> None:
    pod = run(some_nodes(2), some_pods(1, a_template("cpu=6 memory=20Gi"))).pods[0]
    assert (pod.fate, pod.lacks) == (Fate.WAITING, (Lack("NodeResourcesFit", "memory", 2),))


def test_of_pods_that_come_together_the_important_go_first() -> None:
    pods = [*some_pods(1, a_template("cpu=6")), *some_pods(1, a_template("cpu=6", priority=9), "q")]
    assert fates(pods) == "waiting,running"


def test_a_pod_that_its_node_refuses_is_gone_if_nothing_makes_another() -> None:
    result = run(some_nodes(1, SINGLE), some_pods(1, WIDE))
    pod = result.pods[0]
    assert (pod.fate, pod.tries, pod.refused_by) == (Fate.REFUSED, 1, 0)
    assert [(one.shape, one.count) for one in result.refusals] == [("small", 1)]


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (Retry.SAME, (Fate.LOOPING, -1)),
        (Retry.ELSEWHERE, (Fate.RUNNING, 1)),
        (Retry.NEVER, (Fate.REFUSED, -1)),
    ],
)
def test_a_controller_makes_another_one(retry: Retry, expected: tuple[Fate, int]) -> None:
    nodes = [*some_nodes(1, SINGLE), *some_nodes(2)[1:]]
    there = some_pods(1, SMALL, "s", node="n1")
    pods = run(nodes, [*there, *some_pods(1, WIDE, controlled=True)], Options(retry=retry)).pods
    assert (pods[1].fate, pods[1].node) == expected


def test_a_loop_ends_when_the_node_changes() -> None:
    node = a_profile(
        cpuManagerPolicy="static", reservedSystemCPUs="0,4", topologyManagerPolicy="single-numa-node"
    )
    # Two of the three CPUs of each NUMA node are taken: the four that are left are in two places.
    there = some_pods(2, SMALL, runs_s=5)
    late = some_pods(1, a_template("cpu=2 memory=1Gi", priority=1), "q", controlled=True, arrives_s=1)
    happened: list[Happening] = []
    run(some_nodes(1, node), [*there, *late], Options(preempts=False), sink=happened.append)
    assert [(one.at_s, one.kind.value) for one in happened if one.pod == 2] == [
        (1, "refused"),
        (1, "looping"),
        (5, "placed"),
    ]


def test_refusals_name_pods_and_not_their_places() -> None:
    node = a_profile(
        cpuManagerPolicy="static",
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
        reservedSystemCPUs="0",
    )
    threads = some_pods(1, a_template("cpu=7 memory=1Gi"))
    result = run(some_nodes(1, node), [*threads, *some_pods(1, a_template("cpu=1 memory=1Gi"), "q")])
    assert [one.fate for one in result.pods] == [Fate.RUNNING, Fate.WAITING]


def test_pods_that_run_already_are_counted() -> None:
    there = some_pods(1, a_template("cpu=6"), node="n0")
    result = run(some_nodes(2), [*there, *some_pods(1, a_template("cpu=6"), "q")])
    assert [one.node for one in result.pods] == [0, 1]


def test_a_pod_that_is_meant_for_one_node_is_asked_about_there_and_nowhere_else() -> None:
    nodes = some_nodes(3)
    fits, wide = a_template("cpu=2 memory=1Gi"), a_template("cpu=9 memory=1Gi")
    pods = [one for pod in (fits, wide) for node in "012" for one in some_pods(1, pod, only_on=f"n{node}")]
    result = run(nodes, pods)
    assert [one.node for one in result.pods] == [0, 1, 2, -1, -1, -1]
    assert {(one.filter, one.nodes) for one in result.pods[3].lacks} == {
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
    }
    cordoned = some_nodes(1, unschedulable=True)
    assert [one.node for one in run(cordoned, some_pods(1, fits, only_on="n0")).pods] == [0]
    assert [one.node for one in run(cordoned, some_pods(1, fits)).pods] == [-1]


def test_a_loop_of_a_pod_that_is_meant_for_one_node_is_told() -> None:
    strict = a_profile(
        cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy="single-numa-node"
    )
    pods = some_pods(1, a_template("cpu=5 memory=1Gi"), only_on="n1", controlled=True)
    (pod,) = run(some_nodes(2, strict), pods).pods
    assert (pod.fate, pod.refusals, pod.refused_by) == (Fate.LOOPING, 1, 1)


def test_less_important_pods_make_way() -> None:
    low = some_pods(2, a_template("cpu=4 memory=1Gi"), controlled=True)
    high = some_pods(1, a_template("cpu=6 memory=1Gi", priority=5), "q", arrives_s=3)
    result = run(some_nodes(2), [*low, *high])
    # The first finds room beside the second.
    assert [(one.node, one.stays) for one in result.pods] == [(1, 2), (1, 1), (0, 1)]
    assert result.preemptions == 1
    assert fates([*low, *high], 2, Options(preempts=False)) == "running,running,waiting"


def test_pods_that_must_not_preempt_wait() -> None:
    low = some_pods(1, a_template("cpu=6"))
    high = some_pods(1, a_template("cpu=6", priority=5, preemptionPolicy="Never"), "q", arrives_s=1)
    assert fates([*low, *high]) == "running,waiting"


def test_nobody_is_sent_away_in_vain() -> None:
    low = some_pods(1, a_template("cpu=6"))
    high = some_pods(1, a_template("cpu=600", priority=5), "q", arrives_s=1)
    assert fates([*low, *high]) == "running,waiting"


def test_victims_that_need_not_go_stay() -> None:
    low = some_pods(3, a_template("cpu=2 memory=1Gi"))
    high = some_pods(1, a_template("cpu=4 memory=1Gi", priority=5), "q", arrives_s=1)
    # Of pods that are equally important, those that came first are spared first.
    assert fates([*low, *high]) == "running,running,preempted,running"


def test_a_run_can_be_broken_off_and_read() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return len(seen) < 2

    result = run(some_nodes(4), some_pods(200, a_template("cpu=10m")), watch=watch)
    assert not result.complete
    assert Counter(one.fate for one in result.pods) == {Fate.RUNNING: 128, Fate.WAITING: 72}
    assert (result.pods[199].lacks, result.ended_s) == ((), 0)


def test_nodes_that_are_alike_decide_once() -> None:
    result = run(some_nodes(5), some_pods(5, SMALL))
    assert (result.steps, result.remembered) == (1, 4)


def test_pods_that_ask_for_labels_are_decided_about_with_those_of_the_node() -> None:
    nodes = [*some_nodes(1, labels={"disk": "hdd"}), *some_nodes(2, labels={"disk": "ssd"})[1:]]
    pods = some_pods(2, a_template("cpu=1", nodeSelector={"disk": "ssd"}))
    assert [one.node for one in run(nodes, pods).pods] == [1, 1]
