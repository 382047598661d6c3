from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.predicates.predicate_check import (
    NO_USAGE,
    NodeUsage,
    NodeView,
    PredicateRules,
    alternative_failures,
    check_predicates,
    node_usage,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import (
    HostPortsTaken,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeNameMismatch,
    UntoleratedTaints,
)
from nodewright.model.reasons.reason import (
    NodeUnavailable,
    OSFieldMismatch,
    OSLabelMismatch,
    PluginUpdateFailed,
    Reason,
    SupplementalGroupsPolicyUnsupported,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_rules import ClaimedInPredicates
from nodewright.testing.objects import a_node, a_pod, a_static_pod

GPU = "example.com/gpu"


def view(*allocatable: Any, **node: Any) -> NodeView:
    return NodeView.of(a_node(*allocatable, **node))


def refusal(
    pod: Pod, node: NodeView | NodeUnavailable, others: NodeUsage = NO_USAGE, **how: Any
) -> list[Reason]:
    verdict = check_predicates(pod, node, others, **how).verdict
    return list(verdict.because) if isinstance(verdict, Refused) else []


def kinds(reasons: list[Reason]) -> list[type]:
    return [type(reason) for reason in reasons]


def test_a_pod_that_asks_for_half_a_cpu_more_than_is_left_does_not_fit() -> None:
    others = node_usage([a_pod("db", {"cpu": "2500m"})])
    assert refusal(a_pod("web", {"cpu": 2}), view({"cpu": 4}), others) == [
        InsufficientResource(resource="cpu", requested=2000, used=2500, capacity=4000)
    ]
    assert check_predicates(a_pod("web", {"cpu": "1500m"}), view({"cpu": 4}), others).verdict == Granted(None)


def test_without_the_node_nothing_is_judged() -> None:
    gone = NodeUnavailable(error="not found")
    judgement = check_predicates(a_pod(requests={"cpu": 1}), gone, NO_USAGE)
    assert judgement.verdict == Refused((gone,))
    assert judgement.failures == ()


def test_it_is_the_pods_label_for_the_operating_system_that_counts_and_not_the_nodes() -> None:
    windows = a_pod(metadata={"labels": {"kubernetes.io/os": "windows"}})
    mislabelled = view(labels={"kubernetes.io/os": "windows"})
    wrong = [OSLabelMismatch(wanted="windows", actual="linux")]
    assert (
        refusal(windows, view())
        == refusal(windows, mislabelled)
        == refusal(windows, view(labels={}))
        == wrong
    )
    assert refusal(windows, view(), rules=PredicateRules(os="windows")) == []
    assert refusal(a_pod(), mislabelled) == []


def test_a_wrong_label_for_the_operating_system_is_put_right_but_none_is_put_where_there_are_no_labels() -> (
    None
):
    choosy = a_pod(nodeSelector={"kubernetes.io/os": "linux"})
    assert refusal(choosy, view(labels={"kubernetes.io/os": "plan9"})) == []
    assert refusal(choosy, view(labels={"zone": "a"})) == []
    assert kinds(refusal(choosy, view(labels={}))) == [NodeAffinityMismatch]


def test_a_node_fetched_again_keeps_its_wrong_label() -> None:
    choosy = a_pod(nodeSelector={"kubernetes.io/os": "linux", "zone": "b"})
    fresh = view(labels={"kubernetes.io/os": "plan9", "zone": "b"})
    assert kinds(refusal(choosy, view(labels={"zone": "a"}), fresh=fresh)) == [NodeAffinityMismatch]


def test_a_pod_made_for_another_operating_system_is_refused() -> None:
    assert refusal(a_pod(os={"name": "windows"}), view()) == [
        OSFieldMismatch(wanted="windows", actual="linux")
    ]
    assert refusal(a_pod(os={"name": "linux"}), view()) == []


@pytest.mark.parametrize(
    ("features", "refused"),
    [
        (None, True),
        ({}, True),
        ({"supplementalGroupsPolicy": False}, True),
        ({"supplementalGroupsPolicy": True}, False),
    ],
)
def test_strict_supplemental_groups_need_a_node_that_declares_them(features: Any, refused: bool) -> None:
    node = decode({"status": {"allocatable": {"pods": 1}, "features": features}}, APINode)
    strict = a_pod(securityContext={"supplementalGroupsPolicy": "Strict"})
    merge = a_pod(securityContext={"supplementalGroupsPolicy": "Merge"})
    unsupported = [SupplementalGroupsPolicyUnsupported(policy="Strict")]
    assert refusal(strict, NodeView.of(node)) == (unsupported if refused else [])
    assert refusal(merge, NodeView.of(node)) == []


def test_a_device_manager_in_trouble_refuses_every_pod_that_gets_so_far() -> None:
    assert refusal(a_pod(), view(), plugin_error="no socket") == [PluginUpdateFailed(error="no socket")]
    assert kinds(refusal(a_pod(os={"name": "windows"}), view(), plugin_error="x")) == [OSFieldMismatch]


def test_refusals_before_the_comparison_leave_nothing_for_preemption() -> None:
    assert check_predicates(a_pod(requests={"cpu": 9}), view(), NO_USAGE, plugin_error="x").failures == ()
    assert len(check_predicates(a_pod(requests={"cpu": 9}), view(), NO_USAGE).failures) == 1


def test_extended_resources_that_the_node_has_never_heard_of_are_passed_over() -> None:
    assert refusal(a_pod(requests={GPU: 1}), view()) == []
    assert kinds(refusal(a_pod(requests={GPU: 1}), view({GPU: 0}))) == [InsufficientResource]


def test_overhead_counts_even_of_extended_resources_that_the_node_has_never_heard_of() -> None:
    assert refusal(a_pod(requests={GPU: 4}, overhead={GPU: 1}), view()) == [
        InsufficientResource(resource=GPU, requested=1, used=0, capacity=0)
    ]


def test_huge_pages_are_never_passed_over() -> None:
    assert refusal(a_pod(requests={"hugepages-2Mi": "4Mi"}), view()) == [
        InsufficientResource(resource="hugepages-2Mi", requested=4 << 20, used=0, capacity=0)
    ]


def test_extended_resources_are_looked_up_in_the_cached_node_even_if_a_fresh_one_is_compared() -> None:
    pod = a_pod(requests={GPU: 1}, nodeSelector={"zone": "b"})
    cached, fresh = view(labels={"zone": "a"}), view(labels={"zone": "b"})
    assert refusal(pod, cached, fresh=fresh) == []
    knowing = view({GPU: 2}, labels={"zone": "a"})
    assert kinds(refusal(pod, knowing, fresh=fresh)) == [InsufficientResource]


def test_what_a_resource_claim_provides_is_not_asked_of_the_node() -> None:
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "r"}
    pod = a_pod(
        requests={GPU: 1, "cpu": 1}, status={"extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    )
    full = view({GPU: 0, "cpu": 4})
    assert refusal(pod, full) == []
    assert len(refusal(pod, full, rules=PredicateRules(claimed_resources=ClaimedInPredicates.COUNTED))) == 1
    other = {**mapping, "containerName": "other"}
    unclaimed = a_pod(requests={GPU: 1}, status={"extendedResourceClaimStatus": {"requestMappings": [other]}})
    assert len(refusal(unclaimed, full)) == 1


def test_a_device_class_asked_for_by_name_is_provided_by_its_claim() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    mappings = [{"containerName": "main", "resourceName": resource} for resource in (name, "cpu")]
    pod = a_pod(
        requests={name: 1, "cpu": 5}, status={"extendedResourceClaimStatus": {"requestMappings": mappings}}
    )
    assert refusal(pod, view({"cpu": 4})) == [
        InsufficientResource(resource="cpu", requested=5000, used=0, capacity=4000)
    ]


def test_devices_that_are_handed_out_are_allocatable_whatever_the_node_says() -> None:
    others = node_usage([a_pod("other", {GPU: 2})])
    node = view({GPU: 1, "example.com/nic": 3})
    raised = node.with_allocated_devices({GPU: 3, "example.com/nic": 3, "example.com/tpu": 0})
    assert len(refusal(a_pod(requests={GPU: 1}), node, others)) == 1
    assert refusal(a_pod(requests={GPU: 1}), raised, others) == []
    assert raised.allocatable["example.com/tpu"] == 0
    assert node.with_allocated_devices({GPU: 1}) is node


def test_all_failures_are_named_in_the_kubelets_order() -> None:
    node = view(
        {"pods": 1, "cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", GPU: 0},
        taints=[{"key": "maintenance", "effect": "NoExecute"}],
    )
    port = {"containerPort": 80, "hostPort": 80}
    holder = a_pod("holder", containers=[{"name": "main", "ports": [port]}])
    requests = {GPU: 1, "ephemeral-storage": "2Gi", "hugepages-2Mi": "2Mi", "memory": "2Gi", "cpu": 2}
    pod = a_pod(
        containers=[{"name": "main", "ports": [port], "resources": {"requests": requests}}],
        nodeSelector={"zone": "a"},
        nodeName="node2",
    )
    reasons = refusal(pod, node, node_usage([holder]))
    short = [reason.resource for reason in reasons if isinstance(reason, InsufficientResource)]
    assert short == ["pods", "cpu", "memory", "ephemeral-storage", GPU, "hugepages-2Mi"]
    assert kinds(reasons)[6:] == [NodeAffinityMismatch, NodeNameMismatch, HostPortsTaken, UntoleratedTaints]
    assert reasons[7] == NodeNameMismatch(wanted="node2", actual="node1")


def test_static_pods_put_up_with_every_taint() -> None:
    tainted = view(taints=[{"key": "maintenance", "effect": "NoExecute"}])
    assert kinds(refusal(a_pod(), tainted)) == [UntoleratedTaints]
    assert refusal(a_static_pod(), tainted) == []


def test_a_toleration_lets_a_pod_onto_a_tainted_node() -> None:
    tainted = view(taints=[{"key": "maintenance", "effect": "NoExecute"}])
    assert refusal(a_pod(tolerations=[{"key": "maintenance", "operator": "Exists"}]), tainted) == []


def test_the_node_is_fetched_again_only_if_nothing_but_its_labels_speaks_against_the_pod() -> None:
    choosy = a_pod(requests={"cpu": 1}, nodeSelector={"zone": "b"})
    cached = view({"cpu": 1}, labels={"zone": "a"})
    judgement = check_predicates(choosy, cached, NO_USAGE, fresh=view({"cpu": 1}, labels={"zone": "b"}))
    assert judgement.verdict == Granted(None)
    assert judgement.refetched
    full = check_predicates(
        choosy, view(labels={"zone": "a"}), NO_USAGE, fresh=view({"cpu": 1}, labels={"zone": "b"})
    )
    assert kinds(list(full.failures)) == [InsufficientResource, NodeAffinityMismatch]
    assert not full.refetched


def test_a_fresh_node_is_judged_anew_with_its_own_resources() -> None:
    choosy = a_pod(requests={"cpu": 1}, nodeSelector={"zone": "b"})
    judgement = check_predicates(
        choosy, view({"cpu": 1}, labels={"zone": "a"}), NO_USAGE, fresh=view(labels={"zone": "b"})
    )
    assert kinds(list(judgement.failures)) == [InsufficientResource]
    assert judgement.refetched


def test_a_fetch_that_fails_leaves_the_first_answer() -> None:
    judgement = check_predicates(a_pod(nodeSelector={"zone": "b"}), view(), NO_USAGE, fresh=None)
    assert kinds(list(judgement.failures)) == [NodeAffinityMismatch]
    assert judgement.refetched


def test_the_kubelet_may_name_another_scalar_resource_first_but_nothing_that_comes_before() -> None:
    both = a_pod(requests={GPU: 1, "hugepages-2Mi": "2Mi"}, nodeSelector={"zone": "x"})
    failures = check_predicates(both, view({GPU: 0}), NO_USAGE).failures
    assert [
        failure.resource
        for failure in alternative_failures(failures)
        if isinstance(failure, InsufficientResource)
    ] == ["hugepages-2Mi"]
    with_cpu = check_predicates(a_pod(requests={"cpu": 1, GPU: 1}), view({GPU: 0}), NO_USAGE).failures
    assert alternative_failures(with_cpu) == ()
    assert alternative_failures(()) == ()
