"""Questions about a whole cluster: which nodes take a pod, why pods wait, what quotas, fleets and audits say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.example_cluster import (
    NODES,
    Document,
    add_pod,
    document,
    example_cluster,
    node_object,
    proxy,
)
from tests.support.fake_api_server import CannedAnswer, FakeApiServer

from nodewright.cli.app import run
from nodewright.cli.cluster.cluster_answers import cluster_sources
from nodewright.cluster.objects.all_nodes import AllNodes
from nodewright.documents.output.terminal import ERROR, NO, UNSCHEDULABLE, USAGE, YES
from nodewright.model.kubernetes.node_profile import ReadSource

RESTARTED = {
    "restartPolicy": "Never",
    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
}
NEW_PODS = "examples/worker-3/new-pods.yaml"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield server


def pod_file(tmp_path: Path, cpu: str = "500m", **spec: Any) -> str:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod | {"spec": {"containers": [container], **spec}}))
    return str(path)


def report(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def groups(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """The nodes by outcome, of the only pod of a report."""
    (pod,) = report(capsys)["pods"]
    nodes: dict[str, list[str]] = {}
    for group in pod["groups"]:
        nodes.setdefault(group["outcome"], []).extend(group["nodes"])
    return nodes


@pytest.mark.slow
def test_all_nodes_answer_as_each_node_alone(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["admit", "-f", NEW_PODS, "--node", "nodes", "-o", "json"]) == NO
    answers = report(capsys)["pods"]
    for pod in answers:
        for group in pod["groups"]:
            for node in group["nodes"]:
                run(["admit", "-f", f"{NEW_PODS}", "--node", f"node/{node}", "-o", "json"])
                alone = next(each for each in report(capsys)["pods"] if each["name"] == pod["name"])
                expected = {"now": "admitted", "undecided": "undecided"}.get(group["outcome"], "refused")
                assert alone["verdict"] == expected, (pod["name"], node)
                assert alone.get("reason") == group.get("reason")


@pytest.mark.parametrize(
    ("pod", "outcomes", "text"),
    [
        ({"cpu": "500m"}, {"now": ["worker-3", "worker-4"]}, "2 of 2 nodes take it now"),
        (
            {"nodeSelector": {"disk": "ssd"}},
            {"after a change": ["worker-3", "worker-4"]},
            "- the node with the label disk=ssd",
        ),
        ({"cpu": "20"}, {"now": ["worker-4"], "after a change": ["worker-3"]}, "- container main: 17.4 CPUs"),
    ],
)
def test_nodes_are_grouped_by_when_they_take_the_pod(
    pod: dict[str, Any],
    outcomes: dict[str, list[str]],
    text: str,
    server: FakeApiServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = pod_file(tmp_path, **pod)
    code = run(["admit", "-f", path, "--node", "nodes", "-o", "json"])
    assert groups(capsys) == outcomes
    assert code == (YES if "now" in outcomes else NO)
    run(["admit", "-f", path, "--node", "nodes"])
    printed = capsys.readouterr()
    assert text in printed.out
    assert "context shop: 2 nodes, 4 pods" in printed.err
    assert "/configz of 1 kubelet: not read" in printed.err


def test_failures_of_many_kinds_are_shown_in_a_few_lines() -> None:
    failures = {
        f"node-{number}": ReadSource(
            name="/configz", error=f"dial 10.0.0.{number // 2}: refused", assumed="defaults"
        )
        for number in range(15)
    }
    cluster = AllNodes(nodes=(), pods={}, configurations={}, topologies={}, failures=failures)
    _, _, *lines = cluster_sources(cluster, "")
    assert [line.name for line in lines[:5]] == ["/configz of 2 kubelets"] * 5
    assert [(line.name, line.error) for line in lines[5:]] == [
        ("/configz of 5 more kubelets", "dial 10.0.0.5: refused; others for other reasons")
    ]


def test_what_the_scheduler_heeds_is_named(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(NODES, node_object("worker-5", unschedulable=True))
    server.add(
        NODES,
        node_object("worker-6", taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
    )
    assert run(["admit", "-f", pod_file(tmp_path), "--node", "nodes", "-o", "name"]) == YES
    assert capsys.readouterr().out == "node/worker-3\nnode/worker-4\n"
    run(["admit", "-f", pod_file(tmp_path), "--node", "nodes"])
    printed = capsys.readouterr().out
    assert "the scheduler does not choose it: the node is cordoned" in printed
    assert "the scheduler does not choose it: not tolerated: dedicated=gpu:NoSchedule" in printed


def test_the_volumes_of_a_pod_of_the_cluster_are_read(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    claimed = {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}
    meta = {"name": "db", "namespace": "shop"}
    spec = {"containers": [container], "volumes": [claimed]}
    add_pod(server, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "name": "data"}}
    server.add("/api/v1/namespaces/shop/persistentvolumeclaims", claim | {"spec": {"volumeName": "pv-1"}})
    arguments = ["admit", "pod/db", "--node", "nodes", "-o", "name"]
    assert run(arguments) == YES
    assert "1 PersistentVolume of claims not given" in capsys.readouterr().err
    names = [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-4"]}]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": names}]}}
    persistent = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"}}
    server.add("/api/v1/persistentvolumes", persistent | {"spec": {"nodeAffinity": affinity}})
    assert run(arguments) == YES
    printed = capsys.readouterr()
    assert printed.out == "node/worker-4\n"
    assert "not given" not in printed.err
    assert run(["admit", "pod/db", "--node", "node/worker-3"]) == UNSCHEDULABLE


@pytest.mark.parametrize("as_plugin", [True, False])
def test_the_cluster_is_meant_where_it_is_named_and_no_node_is(
    as_plugin: bool, server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["admit", "-f", pod_file(tmp_path), "-o", "name"]
    if as_plugin:
        assert run(words, prog_name="kubectl nodewright") == YES
    else:
        assert run([*words, "--context", "shop"]) == YES
    assert capsys.readouterr().out == "node/worker-3\nnode/worker-4\n"


def test_a_malformed_node_is_undecided_and_the_others_answer(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = node_object("worker-5")
    broken["status"]["capacity"]["cpu"] = "many"
    server.add(NODES, broken)
    run(["admit", "-f", pod_file(tmp_path), "--node", "nodes", "-o", "json"])
    assert groups(capsys) == {"now": ["worker-3", "worker-4"], "undecided": ["worker-5"]}


def test_a_pod_without_a_node_is_explained_on_all_of_them(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = document("failed/unschedulable.yaml")
    pod["metadata"] |= {"namespace": "shop", "name": "waiting"}
    add_pod(server, pod)
    assert run(["explain", "pod/waiting"]) in (YES, NO)
    printed = capsys.readouterr().out
    assert "shop/waiting: " in printed
    assert "no node is assigned, so no kubelet has decided about it" in printed
    assert " of 2 nodes take" in printed
    run(["explain", "pod/waiting", "-o", "json"])
    (waiting,) = report(capsys)["pods"]
    assert waiting["observed"]
    assert not any("being deleted" in text for text in waiting["observed"])
    assert sum(len(group["nodes"]) for group in waiting["groups"]) == 2


def test_pods_with_and_without_a_node_are_explained_each_in_its_way(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = document("failed/unschedulable.yaml")
    pod["metadata"] |= {"namespace": "shop", "name": "waiting"}
    add_pod(server, pod)
    run(["explain", "pods"])
    printed = capsys.readouterr().out
    assert "runs on worker-3; if it arrived now" in printed
    assert "shop/waiting: " in printed


def test_a_deferred_resize_is_tried_on_the_node(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = document("failed/resize-deferred.yaml")
    pod["spec"]["nodeName"] = "worker-4"
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "29"
    pod["status"]["containerStatuses"] = [
        {"name": "app", "resources": {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {}}}
    ]
    add_pod(server, pod)
    other = document("failed/out-of-cpu.yaml")
    other["metadata"] |= {"name": "other", "uid": "other"}
    other["spec"]["nodeName"] = "worker-4"
    other["status"] = {"phase": "Running"}
    add_pod(server, other)
    assert run(["explain", "pod/resize-deferred"]) == NO
    printed = " ".join(capsys.readouterr().out.split())
    assert "the resize now: Deferred (the kubelet retries" in printed
    assert "would be applied immediately (tried): " in printed


def test_evictions_use_the_summary_of_the_kubelet(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evict", "node/worker-3", "-o", "json"]) == YES
    assert report(capsys)["ranking"]
    assert server.requests[-1].path == proxy("worker-3", "stats/summary")
    assert run(["evict", "node/worker-4"]) == ERROR
    assert "stats/summary: 403 Forbidden" in capsys.readouterr().err


def test_an_audit_compares_what_the_cluster_reports(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "node/worker-3"]) == YES
    assert "0 facts disagree of 8 compared" in capsys.readouterr().out
    extra: Document = {
        "metadata": {"name": "ghost", "namespace": "shop", "uid": "ghost"},
        "spec": {"nodeName": "worker-3", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    pods = json.loads(server.fixed[proxy("worker-3", "pods")].body)["items"]
    forwarder = next(pod for pod in pods if pod["metadata"]["name"] == "forwarder-0")
    forwarder["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi"
    remaining = [pod for pod in pods if not pod["metadata"]["name"].startswith("trainer")]
    body = {"kind": "PodList", "apiVersion": "v1", "items": [*remaining, extra]}
    server.serve(proxy("worker-3", "pods"), body)
    assert run(["audit", "node/worker-3", "-o", "json"]) == NO
    findings = {finding["pod"]: finding for finding in report(capsys)["findings"]}
    assert findings["shop/ghost"]["said"] == {"kubelet": "there", "pods": "missing"}
    assert findings["ml/trainer-x7k2p"]["said"] == {"kubelet": "missing", "pods": "running"}
    assert findings["telco/forwarder-0"]["kind"] == "requests"


def test_an_audit_of_a_node_whose_kubelet_is_closed_compares_what_is_left(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "node/worker-4"]) == ERROR
    printed = capsys.readouterr().err
    assert "not compared: pods of the kubelet: GET " in printed
    assert "nothing to compare" in printed


def test_quotas_have_what_is_in_use_now(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", "-n", "shop"]) == ERROR
    nothing = "context shop: there are no limitranges, resourcequotas in namespace shop\n"
    assert capsys.readouterr().err == f"error: {nothing}"
    assert run(["quota", "-n", "shop", "--allow-empty"]) == YES
    assert capsys.readouterr().err == nothing
    assert run(["quota", "-A"]) == ERROR
    assert "no limitranges, resourcequotas in any namespace" in capsys.readouterr().err
    quota: Document = {
        "metadata": {"name": "compute", "namespace": "shop"},
        "spec": {"hard": {"requests.cpu": "4"}},
        "status": {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "3500m"}},
    }
    server.add("/api/v1/namespaces/shop/resourcequotas", quota)
    assert run(["quota", "-n", "shop", "-o", "json"]) == YES
    (shown,) = report(capsys)["namespaces"][0]["quotas"]
    assert shown["used"]["requests.cpu"] == "3500m"


def test_the_usage_of_a_quota_without_a_status_is_unknown(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    quota: Document = {"metadata": {"name": "compute", "namespace": "shop"}, "spec": {"hard": {"pods": "4"}}}
    server.add("/api/v1/namespaces/shop/resourcequotas", quota)
    assert run(["quota", "-n", "shop"]) == YES
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["shop", "compute", "pods", "4", *["unknown"] * 3]
    assert "ResourceQuota shop/compute: `status` does not have what is in use of pods" in printed.err
    assert run(["quota", "-n", "shop", "-o", "json"]) == YES
    (shown,) = report(capsys)["namespaces"][0]["quotas"]
    assert (shown["hard"], shown["used"], shown["usedBefore"]) == ({"pods": "4"}, {}, {})


def test_the_objects_of_all_namespaces_are_linted(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.forbidden.add(("list", "limitranges"))
    assert run(["lint", "-A"]) == YES
    printed = capsys.readouterr()
    assert "no findings in 4 objects" in printed.out
    assert "skipped: 1 ended pod\n" in printed.err
    assert "warning: limitranges: not read: " in printed.err
    assert run(["lint"]) == USAGE


def test_live_objects_are_named_where_files_have_positions(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, {"metadata": {"name": "odd", "namespace": "shop", "uid": "o"}, "spec": RESTARTED})
    assert run(["lint", "-A", "--fail-on", "error"]) == YES
    assert capsys.readouterr().out.startswith("Pod/shop/odd: ")
    assert run(["lint", "-A", "-o", "junit", "--fail-on", "never"]) == YES
    assert 'file="Pod/shop/odd"' in capsys.readouterr().out
    assert run(["lint", "-A", "--fix"]) == USAGE
    baseline = str(tmp_path / "baseline.json")
    assert run(["lint", "-A", "--write-baseline", baseline]) == YES
    assert run(["lint", "-A", "--baseline", baseline]) == YES


@pytest.mark.parametrize("words", [["--context", "shop"], ["--nodes", "nodes", "--pods", "pods"]])
def test_a_fleet_is_that_of_the_cluster(
    words: list[str], server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["fleet", "run", *words, "-o", "json"]) == YES
    assert {pod["node"] for pod in report(capsys)["pods"]} <= {"worker-3", "worker-4"}


def test_clusters_that_do_not_answer_are_one_line(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admit = ["admit", "-f", pod_file(tmp_path), "--node", "nodes", "--request-timeout", "200ms"]
    for answer in (
        CannedAnswer(200, b"<html>Sign in</html>", (("Content-Type", "text/html"),)),
        CannedAnswer(200, b'{"kind": "NodeList", "items": [{"meta'),
        CannedAnswer(hangs=True),
        CannedAnswer(200, b'{"kind": "NodeList", "apiVersion": "v1", "items": []}'),
    ):
        server.fixed[NODES] = answer
        assert run(admit) == ERROR
        printed = capsys.readouterr()
        assert not printed.out
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1


@pytest.mark.slow
def test_only_get_requests_are_sent(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["admit", "-f", pod_file(tmp_path), "--node", "nodes"],
        ["evict", "node/worker-3"],
        ["audit", "node/worker-3"],
        ["upgrade", "node/worker-3"],
        ["lint", "-A"],
        ["fleet", "--context", "shop"],
    ):
        assert run(words) in (YES, NO), capsys.readouterr()
    assert {request.verb for request in server.requests} == {"GET"}


@pytest.mark.parametrize(
    "words", [["evict"], ["rehearse"], ["upgrade"], ["node", "show"], ["preempt", "-f", NEW_PODS]]
)
def test_where_a_cluster_is_meant_this_machine_is_not(
    words: list[str], server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words, prog_name="kubectl nodewright") == USAGE
    assert "name the node of the cluster: node/NAME" in capsys.readouterr().err
    assert not server.requests


def test_files_need_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    for words in (["requests", "-f", NEW_PODS], ["lint", "-f", NEW_PODS]):
        assert run(words, prog_name="kubectl nodewright") in (YES, NO)


def test_nodes_of_the_cluster_are_upgraded_together(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["upgrade", "--nodes", "nodes", "--nodes", "pods", "-A", "--from", "1.34", "-o", "json"]
    assert run(words) in (YES, NO)
    assert {name for group in report(capsys)["groups"] for name in group["nodes"]} == {"worker-3", "worker-4"}
