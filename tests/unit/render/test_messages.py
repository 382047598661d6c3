import pytest

from nodewright.model.objects import Taint
from nodewright.model.reasons import (
    HostPortsTaken,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeFeaturesMissing,
    NodeNameMismatch,
    NodeUnavailable,
    NotJudged,
    NoVictimsSuffice,
    OSFieldMismatch,
    OSLabelMismatch,
    OtherPredicate,
    PluginUpdateFailed,
    PodLevelResourcesDisabled,
    Reason,
    SupplementalGroupsPolicyUnsupported,
    SysctlForbidden,
    UntoleratedTaints,
)
from nodewright.render.messages import message, predicate

MESSAGES: list[tuple[Reason, str, str]] = [
    (NodeUnavailable(error="x"), "InvalidNodeInfo", "Kubelet cannot get node info."),
    (
        OSLabelMismatch(wanted="windows", actual="linux"),
        "PodOSSelectorNodeLabelDoesNotMatch",
        "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    ),
    (
        OSFieldMismatch(wanted="windows", actual="linux"),
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    ),
    (
        SupplementalGroupsPolicyUnsupported(policy="Strict"),
        "SupplementalGroupsPolicyNotSupported",
        "SupplementalGroupsPolicy=Strict is not supported in this node",
    ),
    (
        PluginUpdateFailed(error="no socket"),
        "UnexpectedAdmissionError",
        "Update plugin resources failed due to no socket, which is unexpected.",
    ),
    (
        InsufficientResource(resource="cpu", requested=2000, used=2500, capacity=4000),
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 4000",
    ),
    (
        InsufficientResource(resource="example.com/gpu", requested=1, used=0, capacity=0),
        "OutOfexample.com/gpu",
        "Node didn't have enough resource: example.com/gpu, requested: 1, used: 0, capacity: 0",
    ),
    (
        NodeAffinityMismatch(node="node1"),
        "NodeAffinity",
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    ),
    (
        NodeNameMismatch(wanted="a", actual="b"),
        "NodeName",
        "Predicate NodeName failed: node(s) didn't match the requested node name",
    ),
    (
        HostPortsTaken(conflicts=()),
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    ),
    (
        UntoleratedTaints(taints=(Taint(key="a"),)),
        "TaintToleration",
        "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    ),
    (OtherPredicate(predicate="Mood", description="bad day"), "Mood", "Predicate Mood failed: bad day"),
    (
        NoVictimsSuffice(unmet=(("cpu", 100), ("pods", 1))),
        "UnexpectedAdmissionError",
        (
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set "
            "of pods to preempt: no set of running pods found to reclaim resources: "
            "[(res: cpu, q: 100), (res: pods, q: 1), ]"
        ),
    ),
    (
        SysctlForbidden(sysctl="net.core.somaxconn"),
        "SysctlForbidden",
        'forbidden sysctl: "net.core.somaxconn" not allowlisted',
    ),
    (
        SysctlForbidden(sysctl="net.a", host_namespace="Net"),
        "SysctlForbidden",
        'forbidden sysctl: "net.a" not allowed with host Net enabled',
    ),
    (
        NodeFeaturesMissing(features=("A", "B")),
        "PodFeatureUnsupported",
        "Pod requires node features that are not available: A, B",
    ),
    (
        PodLevelResourcesDisabled(),
        "PodLevelResourcesNotSupported",
        "PodLevelResources feature gate is disabled",
    ),
    (NotJudged(what="cpu manager", because="static"), "Undecided", "cpu manager is not judged: static"),
]


@pytest.mark.parametrize(("reason", "name", "text"), MESSAGES, ids=lambda value: type(value).__name__)
def test_the_kubelets_words_are_given_to_the_letter(reason: Reason, name: str, text: str) -> None:
    assert message(reason) == (name, text)


def test_a_shortage_has_a_name_among_the_predicates_too() -> None:
    short = InsufficientResource(resource="cpu", requested=1, used=0, capacity=0)
    assert predicate(short) == OtherPredicate(predicate="OutOfcpu", description="Insufficient cpu")
