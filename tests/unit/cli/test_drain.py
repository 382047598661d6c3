"""`nodewright drain`: of files and of a cluster."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.example_cluster import NODES, add_pod, example_cluster, node_object
from tests.support.fake_api_server import FakeApiServer

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

SHOP = "examples/drain/shop.yaml"
KUBELET = ["--kubelet-config", "examples/drain/kubelet.yaml"]


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = run(["drain", *words, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)


def outcomes(drain: Any) -> dict[str, tuple[str, str]]:
    return {pod["name"]: (pod["outcome"], pod.get("node", "")) for pod in drain["pods"]}


def test_each_pod_of_the_node_has_its_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = report(capsys, "node/worker-1", "-f", SHOP, *KUBELET)
    (drain,) = document["drains"]
    assert code == NO
    assert outcomes(drain) == {
        "kube-proxy-worker-1": ("kept", ""),
        "logs-x7": ("kept", ""),
        "cart-0": ("moved", "worker-3"),
        "ledger-0": ("blocked", ""),
        "search-0": ("no place", ""),
        "shell": ("not replaced", ""),
        "web-0": ("moved", "worker-2"),
        "web-1": ("moved", "worker-3"),
    }
    assert drain["command"] == "kubectl drain worker-1 --ignore-daemonsets --delete-emptydir-data --force"
    message = "cannot delete Pods with local storage (use --delete-emptydir-data to override)"
    assert drain["refusals"][message] == ["shop/cart-0"]


def test_a_shutdown_grants_the_periods_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    _, document = report(capsys, "node/worker-1", "-f", SHOP, *KUBELET)
    (drain,) = document["drains"]
    grants = {
        pod["name"]: (pod["beginsBySeconds"], pod["askedSeconds"], pod["grantedSeconds"])
        for pod in drain["pods"]
    }
    assert drain["shutdownSeconds"] == 40
    assert grants["search-0"] == (0, 120, 30)
    assert grants["shell"] == (0, 30, 30)
    assert grants["logs-x7"] == grants["kube-proxy-worker-1"] == (30, 30, 10)
    _, document = report(capsys, "node/worker-1", "-f", SHOP)
    assert document["drains"][0]["shutdownSeconds"] == 0
    assert "grantedSeconds" not in document["drains"][0]["pods"][0]


def test_nodes_are_drained_one_after_the_other_and_all_cordoned_at_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, document = report(capsys, "--nodes", "worker-1,worker-2", "-f", SHOP)
    first, second = document["drains"]
    assert {place for _, place in outcomes(first).values()} <= {"", "worker-3"}
    assert outcomes(second)["web-2"] == ("moved", "worker-3")
    assert run(["drain", "--nodes", "worker-1,worker-2", "-f", SHOP]) == NO
    assert "kubectl waits for worker-1" in capsys.readouterr().out


def test_a_clean_drain_is_yes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        each
        for each in yaml.safe_load_all(Path(SHOP).read_text())
        if each["kind"] == "Node" or (each["kind"] == "Pod" and each["spec"]["nodeName"] == "worker-2")
    ]
    path = tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump_all(items))
    assert run(["drain", "node/worker-1", "-f", str(path)]) == YES
    assert "node/worker-1: 0 pods" in capsys.readouterr().out


def test_a_host_port_that_other_pods_hold_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names of pods in a node's state are numbers while the drain is simulated."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    port = {"containerPort": 80, "hostPort": 80}
    items: list[dict[str, Any]] = []
    for name in ("old", "new"):
        status = {"capacity": amounts, "allocatable": amounts}
        items.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}
        meta = {"name": f"web-{name}", "namespace": "shop", "ownerReferences": [owner]}
        container = {"name": "main", "image": "a", "ports": [port], "resources": {"requests": {"cpu": "1"}}}
        spec = {"nodeName": name, "containers": [container]}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    code, document = report(capsys, "node/old", "-f", str(path))
    assert code == NO
    (pod,) = document["drains"][0]["pods"]
    assert pod["outcome"] == "no place"
    assert "without the pod shop/web-new" in json.dumps(pod)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["-f", SHOP], USAGE, "name the nodes to drain"),
        (["worker-1"], USAGE, "specify nodes and pods with -f FILE, or --context"),
        (["node/", "-f", SHOP], USAGE, "name the nodes to drain"),
        (["node/worker-9", "-f", SHOP], ERROR, "node/worker-9: there is no such node"),
        (["worker-1", "-f", "no.yaml"], ERROR, "no.yaml"),
    ],
)
def test_bad_words_are_refused(
    words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drain", *words]) == code
    assert text in capsys.readouterr().err


def test_a_faulty_status_of_a_budget_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(Path(SHOP).read_text().replace("disruptionsAllowed: 1", "disruptionsAllowed: some"))
    assert run(["drain", "worker-1", "-f", str(path)]) == ERROR
    assert "shop.yaml:315:48: status.disruptionsAllowed: Expected `int`, got `str`" in capsys.readouterr().err


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield server


def owned(name: str, node: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts}}
    meta = {
        "name": name,
        "namespace": "shop",
        "uid": name,
        "labels": {"app": "web"},
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [container], **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_node_of_the_cluster_is_drained_with_the_configuration_of_its_kubelet(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, owned("web-0", "worker-4"))
    code = run(["drain", "node/worker-4", "-o", "json"])
    printed = capsys.readouterr()
    (drain,) = json.loads(printed.out)["drains"]
    assert (code, outcomes(drain)) == (YES, {"web-0": ("moved", "worker-3")})
    assert "/configz of 1 kubelet: not read" in printed.err
    assert "2 nodes, 5 pods" in printed.err


@pytest.mark.parametrize("words", [["--nodes", "node/worker-4"], ["--context", "shop", "worker-4"]])
def test_the_cluster_is_meant_where_its_nodes_are_named(
    words: list[str], server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, owned("web-0", "worker-4"))
    _, document = report(capsys, *words)
    assert outcomes(document["drains"][0]) == {"web-0": ("moved", "worker-3")}
    assert run(["drain", "node/worker-4"], prog_name="kubectl nodewright") == YES


def test_a_budget_of_a_cluster_without_a_bound_allows_nothing(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, owned("web-0", "worker-4"))
    meta = {"name": "odd", "namespace": "shop", "generation": 1}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta}
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "expectedPods": 0}
    path = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
    server.add(path, budget | {"spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": status})
    code, document = report(capsys, "node/worker-4")
    (pod,) = document["drains"][0]["pods"]
    assert (code, pod["outcome"], pod["code"], pod["budget"]) == (NO, "blocked", 429, "odd")
    assert pod["why"][1] == "The disruption budget odd does not allow evicting pods currently"


def test_mirror_pods_of_a_cluster_are_kept(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    pod = copy.deepcopy(owned("proxy-worker-4", "worker-4"))
    pod["metadata"]["annotations"] = {
        "kubernetes.io/config.mirror": "abc",
        "kubernetes.io/config.source": "file",
    }
    pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "v1", "kind": "Node", "name": "worker-4"}
    add_pod(server, pod)
    _, document = report(capsys, "node/worker-4")
    assert outcomes(document["drains"][0]) == {"proxy-worker-4": ("kept", "")}


def test_a_pod_with_a_local_volume_of_the_cluster_has_no_other_place(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    add_pod(server, owned("db-0", "worker-4", volumes=volumes))
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "shop"},
    }
    server.add("/api/v1/namespaces/shop/persistentvolumeclaims", claim | {"spec": {"volumeName": "pv-1"}})
    names = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-4"]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": names}]}}
    persistent = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"}}
    server.add("/api/v1/persistentvolumes", persistent | {"spec": {"nodeAffinity": affinity}})
    code, document = report(capsys, "node/worker-4")
    (pod,) = document["drains"][0]["pods"]
    assert (code, pod["outcome"]) == (NO, "no place")
    assert "VolumeBinding (data): 1 node" in pod["why"]
    assert pod["changes"][0]["text"].startswith("a node that PersistentVolume `pv-1` is accessible from")


def test_a_closed_node_is_not_chosen(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add(NODES, node_object("worker-5", unschedulable=True))
    add_pod(server, owned("web-0", "worker-4", cpu="19"))
    code, document = report(capsys, "node/worker-4")
    (pod,) = document["drains"][0]["pods"]
    assert (code, pod["outcome"]) == (NO, "no place")
    assert {"node": "worker-5", "kind": "NodeUnschedulable", "text": "`kubectl uncordon` of the node"} in pod[
        "changes"
    ]
