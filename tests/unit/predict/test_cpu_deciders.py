"""Nodes whose CPUs something else than the kubelet decides: their pods are not judged."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright import Node
from nodewright.cli.app import run
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.output.terminal import NO
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import read_node, read_topology
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.engine.node.step import Decision
from nodewright.fleet.load.fleet_input import bound_profiles
from nodewright.model.kubernetes.node_profile import is_nri_policy, nri_decider
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from nodewright.model.reasons.reason import sentence
from nodewright.model.values.quantity import Quantity

SHARED_POOLS = '[{"socket":0,"node":0,"cpuset":"0-15"}]'
WEB = {"cpu": Quantity.parse("2"), "memory": Quantity.parse("1Gi")}


def pod(
    name: str,
    requests: Mapping[str, Quantity] = {},
    *,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
) -> Pod:
    container = Container(name="app", image="app", resources=ResourceRequirements(requests=dict(requests)))
    meta = ObjectMeta(
        name=name, namespace="shop", uid=name, labels=dict(labels), annotations=dict(annotations)
    )
    return Pod(metadata=meta, spec=PodSpec(containers=(container,)))


def node_object(labels: Mapping[str, str], annotations: Mapping[str, str]) -> InputFile:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    value = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "w1", "labels": dict(labels), "annotations": dict(annotations)},
        "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": "v1.36.0"}},
    }
    return InputFile("node.json", json.dumps(value).encode())


def node_with(
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    topology: dict[str, Any] | None = None,
) -> Node:
    read = None
    if topology is not None:
        value = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", **topology}
        read = read_topology(InputFile("nrt.json", json.dumps(value).encode()), "w1")
    sources = NodeSources(node=read_node(node_object(labels, annotations)), topology=read)
    return Node.from_profile(captured_node(sources).profile)


def decider_of(node: Node) -> str:
    result = node.admit(pod("web", WEB))
    texts = [sentence(reason) for reason in result.because if "decided by" in sentence(reason)]
    assert bool(texts) == (result.decision is Decision.UNDECIDED)
    return texts[0].partition("decided by ")[2].rstrip(")") if texts else ""


@pytest.mark.parametrize(
    ("labels", "annotations", "decider"),
    [
        ({"config.nri/group": "high-memory"}, {}, "an NRI resource policy"),
        ({"config.nri/group": "topology-aware"}, {}, "NRI policy topology-aware"),
        ({}, {"resource-policy.nri.io/policy": "balloons"}, "NRI policy balloons"),
        ({}, {"balloons.resource-policy.nri.io/config": "{}"}, "NRI policy balloons"),
        ({"cri-resource-manager.intel.com/group": "a"}, {}, "CRI Resource Manager"),
        ({"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}, {}, "Koordinator"),
        ({}, {"node.koordinator.sh/cpu-shared-pools": SHARED_POOLS}, "Koordinator"),
        ({}, {"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"none"}'}, "Koordinator"),
        ({}, {"katalyst.kubewharf.io/overcommit_allocatable_cpu": "16"}, "Katalyst"),
        ({"katalyst.kubewharf.io/overcommit_node_pool": "a"}, {}, "Katalyst"),
        ({"topology.crane.io/topology-awareness": "true"}, {}, "Crane"),
        ({"cmk.intel.com/cmk-node": "true"}, {}, "CMK"),
        ({"node.kubernetes.io/instance-type": "drama.nri"}, {"nrisk.example/group": "balloons"}, ""),
        ({"example.com/koordinator.sh": "x", "team": "katalyst"}, {}, ""),
    ],
)
def test_labels_and_annotations_of_a_node_name_what_decides(
    labels: dict[str, str], annotations: dict[str, str], decider: str
) -> None:
    assert decider_of(node_with(labels, annotations)) == decider


@pytest.mark.parametrize(
    ("running", "decider"),
    [
        (pod("nri-resource-policy-balloons-7xk2p"), "NRI policy balloons"),
        (pod("policy-agent", labels={"app.kubernetes.io/name": "nri-resource-policy-topology-aware"}), "NRI policy topology-aware"),
        (pod("koordlet-8rb2x"), "Koordinator"),
        (pod("agent-1", labels={"koord-app": "koordlet"}), "Koordinator"),
        (pod("lsr", annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}), "Koordinator"),
        (pod("katalyst-agent-x2v9q"), "Katalyst"),
        (pod("db", annotations={"katalyst.kubewharf.io/qos_level": "dedicated_cores"}), "Katalyst"),
        (pod("dracpu-bq4zk"), "the DRA driver dra.cpu"),
        (pod("nri-memory-qos-abcde"), ""),
        (pod("web", labels={"app": "drawing"}), ""),
    ],
)  # fmt: skip
def test_pods_on_a_node_name_what_decides(running: Pod, decider: str) -> None:
    profile = find_profile("uma-4c")
    node = Node.from_profile(replace(profile, spec=replace(profile.spec, pods=(running,))))
    assert decider_of(node) == decider


def test_the_topology_object_of_an_nri_policy_names_it_though_its_zones_are_no_numa_nodes() -> None:
    topology = {
        "metadata": {"name": "w1"},
        "attributes": [{"name": "TopologyPolicy", "value": "balloons"}],
        "zones": [{"name": "reserved[0]", "type": "balloon", "resources": []}],
    }
    assert decider_of(node_with(topology=topology)) == "NRI policy balloons"


def test_annotations_of_the_topology_object_name_koordinator() -> None:
    zone = {
        "name": "node-0",
        "type": "Node",
        "resources": [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}],
    }
    meta = {"name": "w1", "annotations": {"node.koordinator.sh/cpu-shared-pools": SHARED_POOLS}}
    assert decider_of(node_with(topology={"metadata": meta, "zones": [zone]})) == "Koordinator"


def test_what_the_kubelet_refuses_whatever_its_cpus_stays_refused() -> None:
    node = node_with({"node.koordinator.sh/cpu-bind-policy": "None"})
    result = node.admit(pod("large", {"memory": Quantity.parse("64Gi"), "cpu": Quantity.parse("1")}))
    assert (result.decision, result.reason) == (Decision.REFUSED, "OutOfmemory")


def test_a_pod_without_cpu_requests_is_judged() -> None:
    assert node_with({"cmk.intel.com/cmk-node": "true"}).admit(pod("idler")).admitted


def test_admit_says_what_decides(capsys: pytest.CaptureFixture[str]) -> None:
    node = "examples/other-systems/balloons-node.yaml"
    assert run(["admit", "--node", node, "-f", "examples/admission/pods.yaml"]) == NO
    text = "not judged: CPU manager (CPUs on this node are decided by NRI policy balloons)"
    assert text in capsys.readouterr().out


def policy(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "config.nri/v1alpha1", "kind": kind, "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("labels", "policies", "decider"),
    [
        ({}, [policy("BalloonsPolicy", "default")], "NRI policy balloons"),
        ({}, [policy("TopologyAwarePolicy", "node.w1")], "NRI policy topology-aware"),
        ({}, [policy("TopologyAwarePolicy", "node.w2")], ""),
        ({"config.nri/group": "a"}, [policy("BalloonsPolicy", "group.a")], "NRI policy balloons"),
        ({}, [policy("BalloonsPolicy", "group.a")], ""),
        (
            {},
            [policy("BalloonsPolicy", "default"), policy("TopologyAwarePolicy", "default")],
            "NRI policy balloons or topology-aware",
        ),
        ({}, [{**policy("BalloonsPolicy", "default"), "apiVersion": "example.com/v1"}], ""),
    ],
)
def test_the_object_that_configures_a_policy_for_the_node_tells(
    labels: dict[str, str], policies: list[dict[str, Any]], decider: str, tmp_path: Path
) -> None:
    node = json.loads(node_object(labels, {}).content)
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, *policies]}).encode()
    assert nri_decider(list(filter(is_nri_policy, policies)), "w1", labels) == decider
    captured = captured_node(NodeSources(node=read_node(InputFile("node.json", content))))
    named = [part.because for part in captured.profile.spec.not_judged if "decided by" in part.because]
    assert named == ([f"CPUs on this node are decided by {decider}"] if decider else [])
    path = tmp_path / "cluster.json"
    path.write_bytes(content)
    ((profile, _),), warnings = bound_profiles([str(path)], None)
    reasons = [part.because for part in profile.spec.not_judged]
    if decider:
        assert f"CPUs on this node are decided by {decider}" in reasons
        assert f"CPUs of 1 node are decided by {decider}: what their kubelets place is not judged" in warnings
    else:
        assert reasons == []
