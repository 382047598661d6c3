import pytest

from nodewright.model.cpu_reasons import NotEnoughCPUs
from nodewright.model.objects import Taint
from nodewright.model.reasons import (
    HostPortsTaken,
    InsufficientResource,
    LabelMissing,
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
    PortConflict,
    Reason,
    RequirementUnmet,
    SupplementalGroupsPolicyUnsupported,
    SysctlForbidden,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.topology_reasons import TopologyScopeUnknown
from nodewright.render.sentences import sentence

GI = 1 << 30
EVERYWHERE = "0.0.0.0"  # noqa: S104 - an address in a table

SHORTAGES = """
    cpu              2000 2500 4000 -> cpu: 2 asked for, 1.5 of 4 left: 0.5 short
    cpu              100  4500 4000 -> cpu: 0.1 asked for, nothing of 4 left: 0.6 short
    pods             1    110  110  -> pods: 110 are here, the node takes 110
    example.com/gpu  1    0    0    -> example.com/gpu: 1 asked for, the node has none
    example.com/gpu  2    3    4    -> example.com/gpu: 2 asked for, 1 of 4 left: 1 short
"""


@pytest.mark.parametrize("line", SHORTAGES.strip().splitlines())
def test_a_shortage_says_what_is_asked_for_and_what_is_left(line: str) -> None:
    numbers, _, text = line.strip().partition(" -> ")
    name, requested, used, capacity = numbers.split()
    short = InsufficientResource(
        resource=name, requested=int(requested), used=int(used), capacity=int(capacity)
    )
    assert sentence(short) == text


def test_a_shortage_of_one_byte_shows() -> None:
    short = InsufficientResource(resource="memory", requested=GI + 1, used=GI, capacity=2 * GI)
    assert sentence(short) == "memory: 1073741825 asked for, 1073741824 of 2147483648 left: 1 short"


def unmet(operator: str, *values: str, actual: str | None = None, **how: bool) -> RequirementUnmet:
    return RequirementUnmet(key="zone", operator=operator, values=values, actual=actual, **how)


SENTENCES: list[tuple[Reason, str]] = [
    (
        NoVictimsSuffice(unmet=(("cpu", 1500), ("memory", GI))),
        "all the pods that it may push out together leave missing: cpu 1.5, memory 1Gi",
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
        "host port 80/TCP on 10.0.0.1: default/web has it; host port 53/UDP: default/dns has it on ::",
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
    (NodeUnavailable(error="not found"), "the node object cannot be had: not found"),
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
        "the node does not declare what the pod needs: A, B",
    ),
    (
        PodLevelResourcesDisabled(),
        "the pod has pod-level resources and the feature gate PodLevelResources is off",
    ),
    (
        NotEnoughCPUs(requested=2, available=1),
        "2 CPUs asked for, 1 can be given",
    ),
    (TopologyScopeUnknown(scope="rack"), 'unknown scope: "rack"'),
]


@pytest.mark.parametrize(("reason", "text"), SENTENCES, ids=lambda value: type(value).__name__)
def test_every_reason_has_a_sentence_with_its_facts(reason: Reason, text: str) -> None:
    assert sentence(reason) == text
