import pytest

from nodewright.model.kubernetes.objects import Taint
from nodewright.model.reasons.cpu import NotEnoughCPUs
from nodewright.model.reasons.predicates import (
    HostPortsTaken,
    InsufficientResource,
    LabelMissing,
    NodeAffinityMismatch,
    NodeNameMismatch,
    NoVictimsSuffice,
    OtherPredicate,
    PortConflict,
    RequirementUnmet,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.reasons.reason import (
    AppArmorNotEnabled,
    NodeFeaturesMissing,
    NodeUnavailable,
    NotJudged,
    OSFieldMismatch,
    OSLabelMismatch,
    PluginUpdateFailed,
    PodLevelResourcesDisabled,
    Reason,
    SupplementalGroupsPolicyUnsupported,
    SysctlForbidden,
    kubelet_text,
    sentence,
)
from nodewright.model.reasons.topology import TopologyScopeUnknown

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
        AppArmorNotEnabled(),
        "AppArmor",
        "Cannot enforce AppArmor: AppArmor is not enabled on the host",
    ),
    (
        PodLevelResourcesDisabled(),
        "PodLevelResourcesNotSupported",
        "PodLevelResources feature gate is disabled",
    ),
    (NotJudged(what="cpu manager", because="static"), "Undecided", "cpu manager is not judged: static"),
]


@pytest.mark.parametrize(("reason", "name", "text"), MESSAGES, ids=lambda value: type(value).__name__)
def test_the_kubelets_texts_are_exact(reason: Reason, name: str, text: str) -> None:
    assert kubelet_text(reason) == (name, text)


GI = 1 << 30
EVERYWHERE = "0.0.0.0"  # noqa: S104 - an address in a table

SHORTAGES = """
    cpu              2000 2500 4000 -> cpu: 2 requested, 1.5 of 4 left: 0.5 short
    cpu              100  4500 4000 -> cpu: 0.1 requested, none of 4 left: 0.6 short
    pods             1    110  110  -> pods: 110 on the node, which allows 110
    example.com/gpu  1    0    0    -> example.com/gpu: 1 requested, the node has none
    example.com/gpu  2    3    4    -> example.com/gpu: 2 requested, 1 of 4 left: 1 short
"""


@pytest.mark.parametrize("line", SHORTAGES.strip().splitlines())
def test_a_shortage_names_what_is_requested_and_what_is_left(line: str) -> None:
    numbers, _, text = line.strip().partition(" -> ")
    name, requested, used, capacity = numbers.split()
    short = InsufficientResource(
        resource=name, requested=int(requested), used=int(used), capacity=int(capacity)
    )
    assert sentence(short) == text


def test_a_shortage_of_one_byte_is_visible() -> None:
    short = InsufficientResource(resource="memory", requested=GI + 1, used=GI, capacity=2 * GI)
    assert sentence(short) == "memory: 1.000000001Gi requested, 1Gi of 2Gi left: 1 short"


def unmet(operator: str, *values: str, actual: str | None = None, **how: bool) -> RequirementUnmet:
    return RequirementUnmet(key="zone", operator=operator, values=values, actual=actual, **how)


SENTENCES: list[tuple[Reason, str]] = [
    (
        NoVictimsSuffice(unmet=(("cpu", 1500), ("memory", GI))),
        "preempting every eligible pod would still leave missing: cpu 1.5, memory 1Gi",
    ),
    (
        NodeAffinityMismatch(
            node="n",
            selector=(
                LabelMissing(key="disk", wanted="ssd", actual=None),
                LabelMissing(key="zone", wanted="b", actual="a"),
            ),
        ),
        "node selector disk=ssd: the node has no such label; node selector zone=b: the node has a",
    ),
    (
        NodeAffinityMismatch(
            node="n",
            terms=(
                TermUnmet(index=0, unmet=(unmet("In", "b", "c", actual="a"), unmet("Exists"))),
                TermUnmet(index=1, unmet=()),
                TermUnmet(index=2, unmet=(unmet("Like", "x", invalid=True), unmet("In", "x", on_field=True))),
            ),
        ),
        (
            "required node affinity: zone In b,c (the node has a) and zone Exists (the node has no such label); "
            "or an empty term, which matches no node; "
            "or zone Like x (not valid, so it matches no node) and zone In x (the node has no such field)"
        ),
    ),
    (NodeAffinityMismatch(node="n"), "required node affinity lists no terms, so it matches no node"),
    (NodeNameMismatch(wanted="a", actual="b"), "spec.nodeName is a, this node is b"),
    (
        HostPortsTaken(
            conflicts=(
                PortConflict(
                    port=80, protocol="TCP", host_ip="10.0.0.1", holder="default/web", holder_ip=EVERYWHERE
                ),
                PortConflict(
                    port=53, protocol="UDP", host_ip=EVERYWHERE, holder="default/dns", holder_ip="::"
                ),
            )
        ),
        "host port 80/TCP on 10.0.0.1: used by default/web; host port 53/UDP: used by default/dns on ::",
    ),
    (
        UntoleratedTaints(
            taints=(Taint(key="a", value="b", effect="NoExecute"), Taint(key="c", effect="NoExecute"))
        ),
        "not tolerated: a=b:NoExecute, c:NoExecute",
    ),
    (OtherPredicate(predicate="Mood", description="bad day"), "Mood: bad day"),
    (
        NotJudged(what="cpu manager", because="cpuManagerPolicy: static"),
        "not judged: cpu manager (cpuManagerPolicy: static)",
    ),
    (NodeUnavailable(error="not found"), "the node object is not available: not found"),
    (
        OSLabelMismatch(wanted="windows", actual="linux"),
        "the pod's label kubernetes.io/os is windows, this kubelet runs on linux",
    ),
    (
        OSFieldMismatch(wanted="windows", actual="linux"),
        "spec.os.name is windows, this kubelet runs on linux",
    ),
    (
        SupplementalGroupsPolicyUnsupported(policy="Strict"),
        "supplementalGroupsPolicy is Strict, which the node's runtime does not declare",
    ),
    (
        PluginUpdateFailed(error="no socket"),
        "the device manager could not update its resources: no socket",
    ),
    (SysctlForbidden(sysctl="a.b"), "sysctl a.b is neither safe nor among allowedUnsafeSysctls"),
    (
        SysctlForbidden(sysctl="net.a", host_namespace="Net"),
        "sysctl net.a cannot be set by a pod that shares the host's Net namespace",
    ),
    (
        NodeFeaturesMissing(features=("A", "B")),
        "the node does not declare features that the pod needs: A, B",
    ),
    (
        AppArmorNotEnabled(),
        "the pod has an AppArmor profile and AppArmor is not enabled on the node",
    ),
    (
        PodLevelResourcesDisabled(),
        "the pod has pod-level resources and the feature gate PodLevelResources is off",
    ),
    (
        NotEnoughCPUs(requested=2, available=1),
        "2 CPUs requested, 1 available",
    ),
    (TopologyScopeUnknown(scope="rack"), 'unknown scope: "rack"'),
]


@pytest.mark.parametrize(("reason", "text"), SENTENCES, ids=lambda value: type(value).__name__)
def test_every_reason_has_a_sentence_with_its_facts(reason: Reason, text: str) -> None:
    assert sentence(reason) == text
