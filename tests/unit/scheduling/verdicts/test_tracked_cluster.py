"""Nodes as the extender tracks them: exports, reservations, guesses, and orders of arrival."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import a_numa_pod, a_small_profile

from nodewright.engine.node.step import Decision
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import current_profile
from nodewright.scheduling.verdicts.pod_queries import PodQuery, pod_query
from nodewright.scheduling.verdicts.shared_states import StatePool
from nodewright.scheduling.verdicts.tracked_cluster import Basis, TrackedCluster

STATIC: dict[str, Any] = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


def a_query(name: str, cpu: int, **spec: Any) -> PodQuery:
    return pod_query(a_numa_pod(name, {"cpu": cpu * 1000, "memory": 16}, **spec))


def a_profile(**kubelet: Any) -> NodeProfile:
    """Two NUMA nodes of four CPUs, of which CPU 0 is reserved."""
    return a_small_profile(numa=2, cores=4, **{**STATIC, **kubelet})


def with_pods(profile: NodeProfile, *pods: Pod) -> NodeProfile:
    """The profile of the node after it has admitted these pods, with what they hold."""
    node = Node.from_profile(profile)
    for pod in pods:
        node = node.admit(pod).node
    return current_profile(profile, node.state)


def a_cluster(profile: NodeProfile, *names: str) -> TrackedCluster:
    cluster = TrackedCluster()
    for name in names:
        named = replace(profile, metadata=replace(profile.metadata, name=name))
        cluster.put_export(name, named, generation=1, now_s=0.0)
    return cluster


def test_a_verdict_is_the_kubelets_own() -> None:
    cluster = a_cluster(a_profile(), "n1")
    assert cluster.verdict("n1", a_query("small", 4)).decision is Decision.ADMITTED
    refused = cluster.verdict("n1", a_query("large", 5))
    assert (refused.decision, refused.verdict.reason) == (Decision.REFUSED, "TopologyAffinityError")
    assert refused.verdict.text.startswith("TopologyAffinityError: policy single-numa-node")


def test_nodes_alike_share_verdicts() -> None:
    cluster = a_cluster(a_profile(), "n1", "n2", "n3")
    for name in ("n1", "n2", "n3"):
        cluster.verdict(name, a_query(f"pod-for-{name}", 4))
    assert cluster.pool.counts.computed == 1
    assert cluster.pool.counts.shared == 2


def test_a_reservation_takes_its_place() -> None:
    cluster = a_cluster(a_profile(), "n1")
    cluster.reserve("n1", a_query("first", 4), now_s=0.0)
    assert cluster.verdict("n1", a_query("second", 4)).decision is Decision.REFUSED
    assert cluster.verdict("n1", a_query("second", 3)).decision is Decision.ADMITTED
    cluster.release("n1", "uid-first")
    assert cluster.verdict("n1", a_query("second", 4)).decision is Decision.ADMITTED


def test_a_pod_does_not_compete_with_its_own_reservation() -> None:
    cluster = a_cluster(a_profile(), "n1")
    cluster.reserve("n1", a_query("first", 4), now_s=0.0)
    assert cluster.verdict("n1", a_query("first", 4)).decision is Decision.ADMITTED


def test_an_export_that_shows_the_pod_ends_its_reservation() -> None:
    profile, query = a_profile(), a_query("first", 4)
    cluster = a_cluster(profile, "n1")
    cluster.reserve("n1", query, now_s=0.0)
    cluster.put_export("n1", profile, generation=2, now_s=1.0)
    assert len(list(cluster.reservations())) == 1
    cluster.put_export("n1", with_pods(profile, query.pod), generation=3, now_s=2.0)
    assert list(cluster.reservations()) == []
    assert cluster.verdict("n1", a_query("second", 4)).decision is Decision.REFUSED


def test_a_pod_that_the_node_has_shown_and_no_longer_holds_is_not_reserved_again() -> None:
    profile, query = a_profile(), a_query("first", 4)
    cluster = a_cluster(profile, "n1")
    cluster.pod_bound("n1", query, now_s=0.0)
    cluster.put_export("n1", with_pods(profile, query.pod), generation=2, now_s=1.0)
    cluster.put_export("n1", profile, generation=3, now_s=2.0)
    cluster.pod_bound("n1", query, now_s=3.0)
    assert list(cluster.reservations()) == []
    assert cluster.verdict("n1", a_query("second", 4)).decision is Decision.ADMITTED


def test_only_reservations_without_binding_expire() -> None:
    cluster = a_cluster(a_profile(), "n1")
    cluster.reserve("n1", a_query("waiting", 1), now_s=0.0)
    cluster.pod_bound("n1", a_query("bound", 1), now_s=0.0)
    assert cluster.expire_reservations(now_s=59.0) == ()
    assert [each.query.uid for each in cluster.expire_reservations(now_s=60.0)] == ["uid-waiting"]
    assert [each.query.uid for each in cluster.reservations()] == ["uid-bound"]
    cluster.pod_gone("n1", "uid-bound")
    assert list(cluster.reservations()) == []


def test_a_pod_is_refused_where_another_order_of_arrival_would_reject_one() -> None:
    # Three CPUs are free on the first NUMA node, four on the second: 3, 2, 2 fit in this order, 2, 2, 3 do not.
    cluster = a_cluster(a_profile(), "n1")
    cluster.reserve("n1", a_query("three", 3), now_s=0.0)
    cluster.reserve("n1", a_query("two", 2), now_s=0.0)
    refused = cluster.verdict("n1", a_query("another", 2)).verdict
    assert (refused.reason, refused.is_unresolvable) == ("PodsOnTheirWay", False)
    assert cluster.verdict("n1", a_query("one", 1)).decision is Decision.ADMITTED


def test_a_guess_refuses_nothing_unless_strict() -> None:
    cluster = TrackedCluster()
    cluster.put_prediction("n1", a_profile(), note="no export for 40 s")
    guess = cluster.verdict("n1", a_query("large", 5))
    assert (guess.decision, guess.basis) == (Decision.REFUSED, Basis.PREDICTED)
    assert (guess.refuses(strict=False), guess.refuses(strict=True)) == (False, True)
    nothing = cluster.verdict("elsewhere", a_query("large", 5))
    assert (nothing.decision, nothing.basis) == (Decision.UNDECIDED, Basis.UNKNOWN)
    assert (nothing.refuses(strict=False), nothing.refuses(strict=True)) == (False, True)


def test_a_state_that_cannot_be_makes_the_node_unknown() -> None:
    profile, query = a_profile(), a_query("first", 4)
    cluster = a_cluster(profile, "n1")
    held = with_pods(profile, query.pod)
    impossible = replace(held, spec=replace(held.spec, allocations=(*(held.spec.allocations or ()) * 2,)))
    with pytest.raises(InputError):
        cluster.put_export("n1", impossible, generation=2, now_s=1.0)
    assert cluster.verdict("n1", query).basis is Basis.UNKNOWN


def test_exports_grow_old() -> None:
    cluster = a_cluster(a_profile(), "n1")
    assert list(cluster.stale_nodes(now_s=10.0, after_s=10.0)) == []
    assert list(cluster.stale_nodes(now_s=10.1, after_s=10.0)) == ["n1"]
    cluster.confirm_export("n1", now_s=10.1)
    assert list(cluster.stale_nodes(now_s=20.0, after_s=10.0)) == []


def test_a_selector_is_judged_for_each_node_though_states_are_shared() -> None:
    cluster = a_cluster(a_profile(), "n1", "n2")
    cluster.set_labels("n1", {"disk": "ssd"})
    query = a_query("picky", 1, nodeSelector={"disk": "ssd"})
    assert cluster.verdict("n1", query).decision is Decision.ADMITTED
    refused = cluster.verdict("n2", query).verdict
    assert (refused.reason, refused.is_unresolvable) == ("NodeAffinity", True)


def test_a_node_that_the_cluster_does_not_have_is_remembered_only_while_pods_name_it() -> None:
    cluster = TrackedCluster()
    first, second = a_query("first", 1), a_query("second", 1)
    cluster.reserve("n1", first, now_s=0.0)
    cluster.pod_bound("n1", second, now_s=0.0)
    assert not cluster.nodes
    assert [each.query.uid for each in cluster.reservations()] == [first.uid, second.uid]
    cluster.release("n1", first.uid)
    cluster.pod_gone("n1", second.uid)
    assert cluster.holds_nothing


def test_pods_bound_to_a_deleted_node_have_their_places_on_the_next_one_of_that_name() -> None:
    cluster, query = a_cluster(a_profile(), "n1"), a_query("first", 4)
    cluster.pod_bound("n1", query, now_s=0.0)
    cluster.remove_node("n1")
    assert cluster.verdict("n1", query).note == "the cluster has no such node"
    cluster.put_export("n1", a_profile(), generation=1, now_s=0.0)
    assert [each.query.uid for each in cluster.reservations()] == [query.uid]
    assert cluster.verdict("n1", a_query("second", 4)).decision is Decision.REFUSED


def test_at_the_limit_only_the_longest_unused_facts_are_forgotten() -> None:
    pool = StatePool(max_verdicts=4)
    first, second = pool.state_of(a_profile()), pool.state_of(a_profile(cpuManagerPolicy="none"))
    for cpu in (1, 2):
        first.verdict(a_query("any", cpu))
    for cpu in (1, 2):
        second.verdict(a_query("any", cpu))
    assert pool.counts.computed == 4
    second.verdict(a_query("any", 3))
    for cpu in (1, 2, 3):
        second.verdict(a_query("any", cpu))
    assert pool.counts.computed == 5
    first.verdict(a_query("any", 1))
    assert pool.counts.computed == 6
