"""Filter, scores and victims over tracked nodes."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import GPU, a_numa_pod, a_small_profile
from tests.unit.scheduling.verdicts.test_tracked_cluster import (
    STATIC,
    a_cluster,
    a_profile,
    a_query,
    with_pods,
)

from nodewright.engine.node.step import Decision
from nodewright.scheduling.verdicts.placement_decisions import (
    ProposedVictims,
    filtered_nodes,
    node_scores,
    sufficient_victims,
)
from nodewright.scheduling.verdicts.pod_queries import pod_query
from nodewright.scheduling.verdicts.tracked_cluster import Basis, ClusterBudget, TrackedCluster


def test_filter_tells_preemption_from_never() -> None:
    low = a_numa_pod("low", {"cpu": 4000, "memory": 16}, priority=1)
    cluster = a_cluster(a_profile(), "free")
    cluster.put_export("full", with_pods(a_profile(), low), generation=1, now_s=0.0)
    small, large = a_query("small", 4, priority=5), a_query("large", 5, priority=5)
    answer = filtered_nodes(cluster, small, ["free", "full", "nowhere"])
    assert answer.passed == ("free", "nowhere")
    assert list(answer.failed) == ["full"]
    assert answer.failed["full"].startswith("TopologyAffinityError: ")
    assert answer.decisions[Decision.REFUSED, Basis.EXACT] == 1
    never = filtered_nodes(cluster, large, ["free", "full"])
    assert (never.passed, list(never.unresolvable)) == ((), ["free", "full"])
    assert list(filtered_nodes(cluster, small, ["nowhere"], strict=True).failed) == ["nowhere"]


def test_pods_of_equal_priority_cannot_be_preempted() -> None:
    cluster = TrackedCluster()
    equal = a_numa_pod("equal", {"cpu": 4000, "memory": 16}, priority=5)
    cluster.put_export("full", with_pods(a_profile(), equal), generation=1, now_s=0.0)
    answer = filtered_nodes(cluster, a_query("pod", 4, priority=5), ["full"])
    assert list(answer.unresolvable) == ["full"]


def test_scores_prefer_near_numa_nodes_then_full_ones() -> None:
    spread: dict[str, Any] = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "best-effort"}
    three = a_numa_pod("three", {"cpu": 3000, "memory": 16})
    cluster = a_cluster(a_small_profile(numa=2, cores=4, **spread), "empty")
    both = a_numa_pod("other", {"cpu": 2000, "memory": 16}), a_numa_pod("more", {"cpu": 2000, "memory": 16})
    profile = a_small_profile(numa=2, cores=4, **spread)
    cluster.put_export("filled", with_pods(profile, three), generation=1, now_s=0.0)
    cluster.put_export("split", with_pods(profile, *both), generation=1, now_s=0.0)
    scores = node_scores(cluster, a_query("pod", 4), ["empty", "filled", "split", "nowhere"])
    assert scores["split"] < scores["filled"]
    assert scores["nowhere"] == 0
    assert max(scores.values()) == 10


def test_a_custom_scorer_replaces_the_scores() -> None:
    cluster = a_cluster(a_profile(), "n1", "n2")
    scores = node_scores(
        cluster, a_query("pod", 1), ["n1", "n2"], lambda _query, name: 55 if name == "n1" else 100
    )
    assert scores == {"n1": 5, "n2": 10}


def a_crowded_cluster() -> TrackedCluster:
    """Both NUMA nodes are half used, by pods of priority 1 to 4."""
    pods = [a_numa_pod(f"p{at}", {"cpu": 2000, "memory": 16}, priority=at) for at in (1, 2, 3)]
    cluster = TrackedCluster()
    for pod in pods:
        cluster.pod_bound("n1", pod_query(pod), now_s=0.0)
    cluster.put_export("n1", with_pods(a_profile(), *pods), generation=1, now_s=0.0)
    return cluster


def test_victims_of_the_scheduler_that_make_room_stay_as_they_are() -> None:
    cluster = a_crowded_cluster()
    query = a_query("urgent", 2, priority=100)
    proposal = {"n1": ProposedVictims(("uid-p3",), 1)}
    assert sufficient_victims(cluster, query, proposal) == proposal


def test_further_victims_are_the_fewest_of_least_importance() -> None:
    cluster = a_crowded_cluster()
    query = a_query("urgent", 4, priority=100)
    assert cluster.verdict("n1", query).decision is Decision.REFUSED
    chosen = sufficient_victims(cluster, query, {"n1": ProposedVictims(("uid-p1",))})["n1"]
    gone = cluster.state_after_reservations("n1").without(
        [pod.number for pod in cluster.pods_on("n1") if pod.uid in chosen.uids]
    )
    assert gone.verdict(query).decision is Decision.ADMITTED
    for spared in chosen.uids[1:]:
        rest = [pod.number for pod in cluster.pods_on("n1") if pod.uid in chosen.uids and pod.uid != spared]
        assert (
            cluster.state_after_reservations("n1").without(rest).verdict(query).decision is Decision.REFUSED
        )


def a_full_cluster() -> TrackedCluster:
    """No CPU is free: `p1` to `p3` have two each, `small` has one."""
    pods = [a_numa_pod(f"p{at}", {"cpu": 2000, "memory": 16}, priority=at) for at in (1, 2, 3)]
    pods.append(a_numa_pod("small", {"cpu": 1000, "memory": 16}, priority=0))
    cluster = TrackedCluster()
    for pod in pods:
        labelled = replace(pod, metadata=replace(pod.metadata, labels={"name": pod.metadata.name}))
        cluster.pod_bound("n1", pod_query(labelled), now_s=0.0)
    cluster.put_export("n1", with_pods(a_profile(), *pods), generation=1, now_s=0.0)
    return cluster


def a_budget(*names: str, allowed: int) -> ClusterBudget:
    selector = {"matchExpressions": [{"key": "name", "operator": "In", "values": list(names)}]}
    metadata, status = {"name": "b", "namespace": "default"}, {"disruptionsAllowed": allowed}
    return ClusterBudget.of({"metadata": metadata, "spec": {"selector": selector}, "status": status})


@pytest.mark.parametrize(
    ("budgets", "victims", "violations"),
    [
        ([], ("uid-small", "uid-p1"), 1),
        ([a_budget("p1", allowed=0)], ("uid-small", "uid-p2"), 0),
        ([a_budget("p1", "p2", "p3", allowed=0)], ("uid-small", "uid-p1"), 1),
        # The more important pods use what the budget allows up.
        ([a_budget("p1", "p2", "p3", allowed=2)], ("uid-small", "uid-p2"), 0),
        ([a_budget("small", allowed=0), a_budget("p1", allowed=1)], ("uid-small", "uid-p1"), 1),
    ],
)
def test_victims_whose_budgets_are_violated_are_reprieved_first(
    budgets: list[ClusterBudget], victims: tuple[str, ...], violations: int
) -> None:
    cluster = a_full_cluster()
    cluster.budgets = {str(place): budget for place, budget in enumerate(budgets)}
    proposal = {"n1": ProposedVictims(("uid-small",), 1)}
    chosen = sufficient_victims(cluster, a_query("urgent", 2, priority=100), proposal)["n1"]
    assert (chosen.uids, chosen.violations) == (victims, violations)


def test_nodes_where_no_victims_make_room_are_left_out() -> None:
    cluster = a_crowded_cluster()
    cluster.put_prediction("guess", a_profile(), note="no export")
    proposals = {
        "n1": ProposedVictims(("uid-p1",)),
        "guess": ProposedVictims(("uid-x",)),
        "n2": ProposedVictims(()),
    }
    query = a_query("huge", 5, priority=100)
    assert list(sufficient_victims(cluster, query, proposals)) == ["guess"]
    assert list(sufficient_victims(cluster, query, proposals, strict=True)) == []


def test_only_pods_that_the_scheduler_knows_become_victims() -> None:
    pods = [a_numa_pod(f"p{at}", {"cpu": 2000, "memory": 16}, priority=1) for at in (1, 2)]
    cluster = TrackedCluster()
    cluster.pod_bound("n1", pod_query(pods[0]), now_s=0.0)
    cluster.put_export("n1", with_pods(a_profile(), *pods), generation=1, now_s=0.0)
    query = a_query("urgent", 4, priority=100)
    chosen = sufficient_victims(cluster, query, {"n1": ProposedVictims(("uid-p1",))})
    assert "uid-p2" not in {uid for victims in chosen.values() for uid in victims.uids}


def test_devices_count_for_distance() -> None:
    profile = a_small_profile(numa=2, cores=4, gpus=2, **{**STATIC, "topologyManagerPolicy": "none"})
    cluster = a_cluster(profile, "n1")
    pod = a_numa_pod("gpus", {"cpu": 1000, "memory": 16, GPU: 3})
    assert cluster.verdict("n1", pod_query(pod)).verdict.cost.distance == 150
