"""Objects of other systems that a cluster has: read in the version that its API server prefers, absent where it has none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support import fake_api_server as fake
from tests.support.example_cluster import EXAMPLES, example_cluster
from tests.support.fake_api_server import FakeApiServer

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

FOLDER = EXAMPLES / "other-systems"
KINDS = {
    "NodePool": "nodepools",
    "EC2NodeClass": "ec2nodeclasses",
    "ClusterQueue": "clusterqueues",
    "ResourceFlavor": "resourceflavors",
    "VerticalPodAutoscaler": "verticalpodautoscalers",
    "VirtualMachine": "virtualmachines",
}
fake.KINDS.update({plural: kind for kind, plural in KINDS.items()})


def install(server: FakeApiServer, *objects: dict[str, Any]) -> None:
    """Creates the objects in the only version of their API group."""
    for each in objects:
        group = each["apiVersion"].partition("/")[0]
        server.serve(f"/apis/{group}", {"preferredVersion": {"groupVersion": each["apiVersion"]}})
        namespace = each["metadata"].get("namespace")
        scope = f"namespaces/{namespace}/" if namespace else ""
        server.add(f"/apis/{each['apiVersion']}/{scope}{KINDS[each['kind']]}", each)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield server


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


def test_without_kueue_there_are_no_queues(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", "--node", "nodes", "-o", "json"]) == YES
    out, err = capsys.readouterr()
    assert json.loads(out)["queues"] == []
    assert "clusterqueues" not in err
    assert any(request.path == "/apis/kueue.x-k8s.io" for request in cluster.requests)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_queues_of_the_cluster_are_compared_with_its_nodes(
    version: str, cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    queue, *flavors = documents("queue.yaml")
    queue["spec"]["resourceGroups"][0]["flavors"] = queue["spec"]["resourceGroups"][0]["flavors"][:1]
    flavors[0]["spec"]["nodeLabels"] = {}
    install(cluster, *({**each, "apiVersion": f"kueue.x-k8s.io/{version}"} for each in (queue, flavors[0])))
    assert run(["fit", "--node", "nodes", "-o", "json"]) == YES
    rows = json.loads(capsys.readouterr().out)["queues"]
    assert [(row["queue"], row["nodes"], row["resource"], row["byQuota"]) for row in rows] == [
        ("research", 2, "cpu", 768_000),
        ("research", 2, "memory", 8 << 40),
        ("research", 2, "nvidia.com/gpu", 32),
    ]
    assert run(["fit", "--node", "nodes", "-f", str(FOLDER / "queue.yaml"), "-o", "json"]) == YES
    given = json.loads(capsys.readouterr().out)["queues"]
    assert {row["flavors"][0] for row in given} == {"h100", "h200"}, "queues of files are judged alone"


def test_queues_that_the_user_may_not_list_are_named(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    install(cluster, *documents("queue.yaml"))
    cluster.forbidden.add(("list", "clusterqueues"))
    assert run(["fit", "--node", "nodes"]) == YES
    err = capsys.readouterr().err
    assert "warning: clusterqueues: not read: " in err
    assert 'cannot list resource "clusterqueues"' in err


def test_the_pools_of_karpenter_are_nodes_that_do_not_exist_yet(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    install(cluster, *documents("karpenter.yaml"))
    cluster.serve("/apis/karpenter.sh/v1/nodeclaims", {"metadata": {}, "items": []})
    assert run(["fit", "--nodes", "karpenter", "-o", "json"]) == YES
    out, err = capsys.readouterr()
    assert "nodes that do not exist yet: batch-m5-large, batch-m6idn-32xlarge" in err
    in_cluster = json.loads(out)["groups"]
    assert run(["fit", "--nodes", str(FOLDER / "karpenter.yaml"), "-o", "json"]) == YES
    assert json.loads(capsys.readouterr().out)["groups"] == in_cluster


def test_without_karpenter_there_are_no_pools(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fit", "--nodes", "karpenter"]) == ERROR
    assert "no nodes" in capsys.readouterr().err
    assert run(["fit", "--nodes", "nodepool/batch"]) == ERROR
    assert "nodepool/batch: the cluster has no nodepools" in capsys.readouterr().err
    install(cluster, *documents("karpenter.yaml"))
    cluster.forbidden.add(("list", "nodepools"))
    assert run(["fit", "--nodes", "karpenter"]) == ERROR
    assert 'cannot list resource "nodepools"' in capsys.readouterr().err


def test_recommendations_of_the_cluster_resize_pods(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    node = str(FOLDER / "autoscaled-node.yaml")
    read = documents("recommendations.yaml")
    install(cluster, *(each for each in read if each["kind"] == "VerticalPodAutoscaler"))
    assert run(["admit", "--resize", "--node", node, "vpa", "-A", "-o", "json"]) in (YES, NO)
    pods = json.loads(capsys.readouterr().out)["pods"]
    assert {pod["outcome"] for pod in pods} >= {"Done", "Infeasible"}


def test_a_virtual_machine_of_the_cluster_is_its_launcher_pod(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    file = "virtual-machine.yaml"
    install(cluster, *documents(file))
    node = ["--node", "2x1x16x2", "-o", "json"]
    code = run(["admit", "vm/pbx", "-n", "telephony", *node])
    of_cluster = json.loads(capsys.readouterr().out)["pods"]
    assert run(["admit", "-f", str(FOLDER / file), *node]) == code
    assert json.loads(capsys.readouterr().out)["pods"] == of_cluster


def test_a_group_without_a_readable_answer_is_an_error(
    cluster: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.serve("/apis/karpenter.sh", {"message": "broken", "code": 500}, status=500)
    assert run(["fit", "--nodes", "nodepools"]) == ERROR
    assert "/apis/karpenter.sh" in capsys.readouterr().err
