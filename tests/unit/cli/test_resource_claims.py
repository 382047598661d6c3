"""Pods with resource claims in the commands: from files, and from a cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.example_cluster import add_pod, example_cluster
from tests.support.fake_api_server import FakeApiServer

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, UNSCHEDULABLE, YES

V1 = {"apiVersion": "resource.k8s.io/v1"}
API = "/apis/resource.k8s.io/v1"
CLASS = V1 | {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "extendedResourceName": "example.com/gpu",
    },
}
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
TEMPLATE = V1 | {
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu", "namespace": "shop"},
    "spec": {"spec": REQUESTS},
}


def slice_of(node: str, *devices: str) -> dict[str, Any]:
    spec = {"driver": "gpu.example.com", "nodeName": node, "devices": [{"name": name} for name in devices]}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return V1 | {"kind": "ResourceSlice", "metadata": {"name": f"{node}-gpus"}, "spec": spec | {"pool": pool}}


def claim(name: str, **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return V1 | {"kind": "ResourceClaim", "metadata": meta, "spec": REQUESTS, "status": status}


def held(name: str, device: str, node: str, *pods: str) -> dict[str, Any]:
    """A claim that has a device."""
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": device}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return claim(name, allocation=allocation, reservedFor=reserved)


def pod(name: str, **source: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"claims": [{"name": "gpu"}]} if source else {}
    if not source:
        resources = {"limits": {"example.com/gpu": "1"}}
    claims = {"resourceClaims": [{"name": "gpu", **source}]} if source else {}
    container = {"name": "main", "image": "i", "resources": resources}
    meta = {"name": name, "namespace": "shop"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **claims},
    }


OWN = {"resourceClaimTemplateName": "one-gpu"}


def answers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *objects: Any, command: str = "admit", **options: Any
) -> dict[str, tuple[str, list[str]]]:
    """Each pod's verdict with its devices."""
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    run([command, "--node", "uma-4c", "-f", str(path), "-o", "json"])
    pods = json.loads(capsys.readouterr().out)["pods"]
    return {
        each["name"]: (each["verdict"], [f"{item['claim']}={item['device']}" for item in each["devices"]])
        for each in pods
    }


@pytest.mark.parametrize("command", ["admit", "explain"])
def test_pods_get_one_device_after_the_other(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = (CLASS, TEMPLATE, slice_of("uma-4c", "gpu-0", "gpu-1"))
    pods = [pod(f"train-{number}", **OWN) for number in range(3)]
    assert answers(capsys, tmp_path, *cluster, *pods, command=command) == {
        "train-0": ("admitted", ["train-0-gpu=gpu-0"]),
        "train-1": ("admitted", ["train-1-gpu=gpu-1"]),
        "train-2": ("unschedulable", []),
    }


def test_a_claim_by_name_is_shared_and_one_in_use_keeps_its_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = (CLASS, TEMPLATE, slice_of("uma-4c", "gpu-0", "gpu-1"), held("old", "gpu-0", "uma-4c", "p"))
    pods = (
        pod("a", resourceClaimName="new"),
        pod("b", resourceClaimName="new"),
        pod("c", resourceClaimName="old"),
        pod("d", **OWN),
    )
    assert answers(capsys, tmp_path, *cluster, claim("new"), *pods) == {
        "a": ("admitted", ["new=gpu-1"]),
        "b": ("admitted", ["new=gpu-1"]),
        "c": ("admitted", ["old=gpu-0"]),
        "d": ("unschedulable", []),
    }


def test_a_class_serves_an_extended_resource(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = (CLASS, slice_of("uma-4c", "gpu-0"))
    assert answers(capsys, tmp_path, *cluster, pod("a"), pod("b")) == {
        "a": ("admitted", ["a-extended-resources=gpu-0"]),
        "b": ("unschedulable", []),
    }


@pytest.mark.parametrize(
    ("objects", "missing"),
    [
        ((), "ResourceSlice, DeviceClass"),
        ((CLASS,), "ResourceSlice, resource claim template"),
        ((CLASS, slice_of("uma-4c", "gpu-0")), 'resourceclaimtemplate.resource.k8s.io "one-gpu" not found'),
        ((TEMPLATE, slice_of("uma-4c", "gpu-0")), "DeviceClass gpu.example.com"),
    ],
)
def test_what_is_missing_in_the_files_is_named(
    objects: tuple[Any, ...], missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all([*objects, pod("train", **OWN)]))
    assert run(["explain", "--node", "uma-4c", "-f", str(path)]) == NO
    printed = " ".join(capsys.readouterr().out.split())
    assert "shop/train: undecided" in printed
    assert missing in printed


def test_the_kubelet_alone_does_not_look_at_claims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod("train", **OWN)))
    assert run(["admit", "--kubelet-only", "--node", "uma-4c", "-f", str(path)]) == YES


# ---------------------------------------------------------------- from a cluster


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.setenv("COLUMNS", "200")
        server.add(f"{API}/deviceclasses", CLASS)
        for name in ("worker-3", "worker-4"):
            server.add(f"{API}/resourceslices", slice_of(name, "gpu-0"))
        server.add(f"{API}/namespaces/shop/resourceclaims", held("old", "gpu-0", "worker-3", "infer-0"))
        server.add(f"{API}/namespaces/shop/resourceclaimtemplates", TEMPLATE)
        yield server


def test_the_claims_of_a_cluster_are_read_for_a_pod_of_a_file(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod("train", **OWN)))
    assert run(["admit", "-f", str(path), "--node", "nodes", "-o", "name"]) == YES
    assert capsys.readouterr().out == "node/worker-4\n"
    assert run(["admit", "-f", str(path), "--node", "node/worker-3"]) == UNSCHEDULABLE
    assert run(["admit", "-f", str(path), "--node", "node/worker-4"]) == YES


def test_a_pending_pod_with_a_claim_is_explained(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, pod("train", **OWN))
    assert run(["explain", "pod/train", "-n", "shop"]) == YES
    printed = capsys.readouterr().out
    assert "1 of 2 nodes takes it now" in printed
    assert "the scheduler does not choose it" in printed


@pytest.mark.parametrize("kind", ["resourceslices", "deviceclasses", "resourceclaims"])
def test_lists_that_cannot_be_read_leave_the_answer_open(
    kind: str, server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, pod("train", **OWN))
    server.forbidden.add(("list", kind))
    run(["explain", "pod/train", "-n", "shop"])
    printed = capsys.readouterr()
    assert f"warning: {kind}: not read" in printed.err
    if kind != "resourceclaims":
        assert "undecided" in printed.out


def test_a_claim_is_explained(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add("/api/v1/namespaces/shop/pods", pod("next", resourceClaimName="old"))
    assert run(["explain", "resourceclaim/old", "-n", "shop"]) == YES
    printed = capsys.readouterr().out
    for text in (
        "shop/old (ResourceClaim old): 1 of 2 nodes takes it now",
        "allocated: gpu.example.com/worker-3/gpu-0 for request gpu",
        "only pods on node worker-3 can use it",
        "reserved for pod/infer-0",
        "pod/next uses it and has no reservation yet",
    ):
        assert text in printed


def test_what_a_claim_of_a_file_has_is_not_said_to_be_of_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "claims.json"
    path.write_text(json.dumps(held("old", "gpu-0", "uma-4c", "p")))
    run(["explain", "--node", "uma-4c", "-f", str(path)])
    out = capsys.readouterr().out
    assert "What the claim has" in out
    assert "reserved for pod/p" in out
    assert "cluster reports" not in out


@pytest.mark.parametrize("options", [[], ["--exact"]])
@pytest.mark.parametrize("source", [{}, OWN])
def test_copies_of_a_node_have_its_devices(
    options: list[str], source: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node"},
        "status": {"allocatable": amounts},
    }
    nodes, pods = tmp_path / "nodes.yaml", tmp_path / "pods.yaml"
    nodes.write_text(yaml.safe_dump_all([node, CLASS, TEMPLATE, slice_of("node", "gpu-0", "gpu-1")]))
    pods.write_text(yaml.safe_dump_all(pod(f"p-{number}", **source) for number in range(5)))
    assert run(["fleet", "minimise", "--nodes", str(nodes), "--pods", str(pods), *options]) == YES
    assert "3 nodes for the workload" in capsys.readouterr().out
