"""Reviews of pods: which no node can ever hold, and what an API server gets to read."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodePart, NodeProfile, UnknownNodePart
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.pod_review import EmptyNodes, decode_review, encode_review
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

SMALL, LARGE = a_profile(1, 4, **STATIC_CPUS), a_profile(2, 4, **STATIC_CPUS)
SINGLE = a_profile(2, 4, **STATIC_CPUS, topologyManagerPolicy="single-numa-node")


def nodes(**profiles: NodeProfile | None) -> EmptyNodes:
    known = EmptyNodes()
    for name, profile in profiles.items():
        known.put(name, profile)
    return known


def full(profile: NodeProfile) -> NodeProfile:
    pods = tuple(a_guaranteed_pod(f"p{index}", "1/1Gi") for index in range(3))
    return replace(profile, spec=replace(profile.spec, pods=pods))


FINDINGS: list[tuple[EmptyNodes, Pod, str]] = [
    (nodes(a=SMALL, b=LARGE), a_pod("web", "7/1Gi"), ""),
    (nodes(a=full(SMALL)), a_pod("web", "3/1Gi"), ""),
    (nodes(a=SMALL), a_pod("web", "9/1Gi"),
     ("the only node cannot ever hold this pod, not even without other pods: "
     "cpu: 9 requested, 3 of 3 left: 6 short, more than the node has for all pods")),
    (nodes(a=SMALL, b=LARGE, c=LARGE), a_pod("web", "9/1Gi"),
     ("none of the 3 nodes can ever hold this pod, not even without other pods: "
     "cpu: 9 requested, 7 of 7 left: 2 short, more than the node has for all pods (2 of them); "
     "cpu: 9 requested, 3 of 3 left: 6 short, more than the node has for all pods (1 of them)")),
    (nodes(), a_pod("web", "9/1Gi"), ""),
    (nodes(a=SMALL, b=None), a_pod("web", "9/1Gi"), ""),
    # Labels and taints may change, so they are no reason.
    (nodes(a=SMALL), a_pod("web", "1/1Gi", nodeSelector={"pool": "other"}), ""),
]  # fmt: skip


@pytest.mark.parametrize(("known", "pod", "finding"), FINDINGS)
def test_a_finding_is_about_every_node(known: EmptyNodes, pod: Pod, finding: str) -> None:
    assert known.finding(pod) == finding
    # The second answer is remembered.
    assert known.finding(replace(pod, metadata=replace(pod.metadata, name="other"))) == finding


def test_a_topology_that_can_never_be_aligned_is_found() -> None:
    finding = nodes(a=SINGLE).finding(a_guaranteed_pod("wide", "5/1Gi"))
    assert finding.startswith("the only node cannot ever hold this pod")
    assert not nodes(a=SINGLE, b=LARGE).finding(a_guaranteed_pod("wide", "5/1Gi"))


def test_a_node_whose_machine_is_assumed_is_not_judged() -> None:
    unknown = (UnknownNodePart(part=NodePart.CONFIGURATION, because="none was given"),)
    profile = replace(SINGLE, spec=replace(SINGLE.spec, not_judged=unknown))
    assert not nodes(a=profile).finding(a_guaranteed_pod("wide", "5/1Gi"))


def test_a_node_that_comes_or_goes_changes_the_finding() -> None:
    known, pod = nodes(a=SMALL), a_pod("web", "7/1Gi")
    assert known.finding(pod)
    known.put("b", LARGE)
    assert not known.finding(pod)
    known.remove("b")
    assert known.finding(pod)
    known.put("a", None)
    assert not known.finding(pod)


def review(**request: Any) -> bytes:
    pod = {
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "a"}], "newField": 1},
    }
    document = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "7", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod, **request},
    }
    return msgspec.json.encode(document)


def test_only_the_creation_of_pods_is_reviewed() -> None:
    assert decode_review(review()).pod is not None
    for other in ({"operation": "UPDATE"}, {"subResource": "binding"}, {"kind": {"kind": "Node"}}):
        assert decode_review(review(**other)).pod is None


def test_findings_warn_or_deny() -> None:
    assert msgspec.json.decode(encode_review("7", "", denies=True))["response"] == {
        "uid": "7",
        "allowed": True,
    }
    warned = msgspec.json.decode(encode_review("7", "x" * 300, denies=False))["response"]
    assert (warned["allowed"], len(warned["warnings"][0])) == (True, 250)
    denied = msgspec.json.decode(encode_review("7", "why", denies=True))["response"]
    assert denied["status"] == {"code": 403, "reason": "Forbidden", "message": "why"}
    assert not denied["allowed"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\xff", b"[" * 100_000, review(object={"spec": {"containers": 1}}),
     review().replace(b"AdmissionReview", b"Other")],
)  # fmt: skip
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        decode_review(body)
