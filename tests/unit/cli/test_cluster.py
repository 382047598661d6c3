"""Nodes, pods and manifests of a cluster in place of files, read from a fake API server through the real commands."""

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
    proxy,
)
from tests.support.fake_api_server import CannedAnswer, FakeApiServer

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

AS_FAR = "(as far as the node could be read)"
FORWARDER = "5b0a3c53-52c4-4c4e-9f83-9a6d0d1f2b10"
NEW_PODS = "examples/worker-3/new-pods.yaml"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield server


def refused_pod(node: str) -> Document:
    pod: Document = document("failed/out-of-cpu.yaml")
    pod["spec"]["nodeName"] = node
    return pod


def report(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_node_answers_as_the_files_of_its_cluster(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "capture", "node/worker-3"]) == YES
    profile = tmp_path / "worker-3.yaml"
    profile.write_text(capsys.readouterr().out)
    assert run(["admit", "-f", NEW_PODS, "--node", str(profile), "-o", "json"]) == NO
    from_file = report(capsys)
    assert run(["admit", "-f", NEW_PODS, "--node", "node/worker-3", "-o", "json"]) == NO
    from_cluster = report(capsys)
    for answer in (from_file, from_cluster):
        answer["sources"] = [source["name"] for source in answer["sources"]]
    assert from_cluster == from_file
    assert [pod["verdict"] for pod in from_cluster["pods"]] == [
        "undecided",
        "admitted",
        "admitted",
        "refused",
    ]
    assert from_cluster["sources"] == [
        "Node",
        "pods of the API",
        "/pods of the kubelet",
        "/configz of the kubelet",
        "NodeResourceTopology",
    ]


def test_only_get_requests_are_sent(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    add_pod(server, refused_pod("worker-3"))
    for command in (
        ["explain", "pod/report", "-n", "jobs"],
        ["admit", "-f", NEW_PODS, "--node", "node/worker-3"],
        ["rehearse", "node/worker-3"],
        ["node", "show", "node/worker-3"],
        ["requests", "pods", "-A"],
    ):
        assert run(command) in (YES, NO), capsys.readouterr()
    assert {request.verb for request in server.requests} == {"GET"}


def test_what_cannot_be_read_is_named_with_what_is_assumed(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["admit", "-f", NEW_PODS, "--node", "node/worker-4", "-o", "json"]) in (YES, NO)
    sources = {source["name"]: source for source in report(capsys)["sources"]}
    configz = sources["/configz of the kubelet"]
    assert "403 Forbidden" in configz["error"]
    assert configz["assumed"] == "the kubelet's defaults, with reservations inferred from the Node object"
    assert run(["admit", "-f", NEW_PODS, "--node", "node/worker-4"]) in (YES, NO)
    assert "warning: /configz of the kubelet: not read: GET " in capsys.readouterr().err


@pytest.mark.parametrize("words", [["pod/report"], ["pod", "report"], ["-f", "pod/report"]])
def test_a_refused_pod_is_explained_on_its_node(
    words: list[str], server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, refused_pod("worker-3"))
    assert run(["explain", *words, "-n", "jobs"]) == YES
    printed = capsys.readouterr().out
    assert "jobs/report: admitted now" in printed
    assert "cpu: the other pods held 2.5 then, 12.6 now" in printed


def test_a_running_pod_is_explained_with_its_place_in_evictions(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(
        "/api/v1/namespaces/telco/events",
        {
            "metadata": {"name": "forwarder-0.1", "namespace": "telco"},
            "involvedObject": {"kind": "Pod", "name": "forwarder-0", "namespace": "telco", "uid": FORWARDER},
            "reason": "Started",
            "message": "Started container dpdk",
            "source": {"component": "kubelet"},
            "lastTimestamp": "2026-03-02T08:16:41Z",
        },
        {
            "metadata": {"name": "forwarder-0.0", "namespace": "telco"},
            "involvedObject": {"kind": "Pod", "name": "forwarder-0", "namespace": "telco", "uid": "earlier"},
            "reason": "Evicted",
            "message": "of an earlier pod of this name",
        },
    )
    assert run(["explain", "pod/forwarder-0", "-n", "telco", "-o", "json"]) == YES
    (pod,) = report(capsys)["pods"]
    assert pod["observed"] == [
        "phase Running",
        f"container dpdk holds CPUs 2-5; memory 4Gi on 0; devices example.com/nic=node-0/0 {AS_FAR}",
        "if memory ran out now, it would be number 2 of 3 to be evicted, after shop/web-6d5c8f7b9-l4x8q",
        "it uses 512Mi of memory and requests 4Gi",
        "event of kubelet, 2026-03-02T08:16:41Z: Started: Started container dpdk",
    ]


@pytest.mark.parametrize(
    ("status", "meta", "headline"),
    [
        ({"phase": "Running"}, {}, "runs on worker-3; if it arrived now: undecided"),
        (
            {"phase": "Running"},
            {"deletionTimestamp": "2026-05-04T09:00:00Z"},
            "is being deleted on worker-3; if ",
        ),
        ({"phase": "Pending"}, {}, "is assigned to worker-3; if it arrived now: undecided"),
        ({}, {}, "is assigned to worker-3; if it arrived now: undecided"),
        ({"phase": "Succeeded"}, {}, "has succeeded; if it arrived now: undecided"),
        ({"phase": "Failed"}, {}, "undecided now"),
    ],
)
def test_headings_fit_the_state_of_the_pod(
    status: Document,
    meta: Document,
    headline: str,
    server: FakeApiServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pod = refused_pod("worker-3") | {"status": status}
    pod["metadata"] |= {"uid": "new", **meta}
    limits = {"cpu": "1", "memory": "1Gi"}
    pod["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    add_pod(server, pod)
    run(["explain", "pod/report", "-n", "jobs"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"jobs/report: {headline}")
    assert "Why it is not admitted" not in printed
    assert "Why it is undecided" in printed
    assert "it does not show what failed the pod" in printed or status != {"phase": "Failed"}


def test_a_status_that_names_the_cpus_of_a_core_decides_where_the_layout_is_unknown(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = refused_pod("worker-3")
    limits = {"cpu": "3", "memory": "1Gi"}
    pod["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    error = "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    message = f"Pod was rejected: {error}"
    pod["status"] = {"phase": "Failed", "reason": "SMTAlignmentError", "message": message}
    add_pod(server, pod)
    assert run(["explain", "pod/report", "-n", "jobs"]) == NO
    printed = capsys.readouterr().out
    assert printed.startswith("jobs/report: refused now (SMTAlignmentError)")
    assert "the node as described refuses it with the same message" in printed
    assert "a multiple of 2 CPUs" in printed
    assert "No single change" not in printed


def test_the_status_is_explained_where_the_node_is_gone(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    add_pod(server, refused_pod("worker-9"))
    assert run(["explain", "pod/report", "-n", "jobs"]) == NO
    printed = capsys.readouterr()
    assert "jobs/report: OutOfcpu" in printed.out
    assert "note: without the node: node/worker-9: the cluster has no such node" in printed.err


def test_the_namespace_is_that_of_the_context(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["requests", "pods", "-o", "name"]) == YES
    assert "pod/web-" in capsys.readouterr().out
    assert run(["requests", "pod/report"]) == ERROR
    assert capsys.readouterr().err == "error: pod/report: the cluster has no such object in namespace shop\n"


def test_a_selector_is_the_servers(server: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    pod = refused_pod("worker-4")
    pod["metadata"] |= {"labels": {"app": "report"}, "uid": "r"}
    add_pod(server, pod)
    assert run(["requests", "pods", "-A", "-l", "app=report", "-o", "name"]) == YES
    assert [request.query.get("labelSelector") for request in server.requests] == ["app=report"]


def unreachable(tmp_path: Path) -> Path:
    path = tmp_path / "unreachable"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "t"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
    path.write_text(json.dumps(config | {"clusters": [cluster], "contexts": [context], "users": [user]}))
    return path


def one_line_error(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words]) == ERROR
    printed = capsys.readouterr()
    assert not printed.out
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


@pytest.mark.slow
def test_bad_clusters_are_one_line(
    server: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admit = ("admit", "-f", NEW_PODS, "--node", "node/worker-3")
    assert "missing" in one_line_error(capsys, *admit, "--kubeconfig", str(tmp_path / "missing"))
    assert "nowhere" in one_line_error(capsys, *admit, "--context", "nowhere")
    assert "127.0.0.1:9" in one_line_error(capsys, *admit, "--kubeconfig", str(unreachable(tmp_path)))
    gone = one_line_error(capsys, "admit", "-f", NEW_PODS, "--node", "node/gone")
    assert gone == "error: node/gone: the cluster has no such node\n"
    node = f"{NODES}/worker-3"
    for answer in (
        CannedAnswer(200, b"<html>Sign in</html>", (("Content-Type", "text/html"),)),
        CannedAnswer(200, b'{"kind": "Node", "apiVersion": "v1", "meta'),
        CannedAnswer(401, json.dumps({"kind": "Status", "message": "Unauthorized", "code": 401}).encode()),
    ):
        server.fixed[node] = answer
        assert "worker-3" in one_line_error(capsys, *admit)
    server.fixed[node] = CannedAnswer(hangs=True)
    assert "no answer within 0.2 s" in one_line_error(capsys, *admit, "--request-timeout", "200ms")


def test_a_kubelet_that_answers_nonsense_counts_as_not_read(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("configz", "pods"):
        server.serve(proxy("worker-3", path), {"unexpected": True})
    assert run(["admit", "-f", NEW_PODS, "--node", "node/worker-3"]) in (YES, NO)
    assert "/configz of the kubelet: not read" in capsys.readouterr().err


def test_options_of_a_cluster_that_do_not_go_together(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rehearse", "worker-3"]) == USAGE
    assert run(["admit", "-f", NEW_PODS, "--request-timeout", "soon"]) == USAGE
    assert not server.requests
    assert run(["node", "capture", "node/worker-3", "--node-name", "worker-3"]) == USAGE


def test_pods_that_only_the_kubelet_has_are_on_the_node(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    static: Document = {
        "metadata": {"name": "static-worker-3", "namespace": "kube-system", "uid": "f" * 32},
        "spec": {"nodeName": "worker-3", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    server.serve(proxy("worker-3", "pods"), {"kind": "PodList", "apiVersion": "v1", "items": [static]})
    assert run(["node", "capture", "node/worker-3", "-o", "json"]) == YES
    names = {pod["metadata"]["name"] for pod in report(capsys)["spec"]["pods"]}
    assert {"static-worker-3", "forwarder-0"} <= names
