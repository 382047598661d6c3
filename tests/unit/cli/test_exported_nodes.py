"""Nodes of a cluster whose exporter is named by an annotation: its export is the best source."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from tests.support.example_cluster import NODES, add_pod, node_object
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import FakeApiServer, fake_api_server
from tests.support.shop_cluster import fake_shop_cluster

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, UNSCHEDULABLE, YES
from nodewright.documents.profiles.node_export import encode_node_export, node_export
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.values.instant import Instant

NEW_PODS = "examples/worker-3/new-pods.yaml"


class Exporter(NamedTuple):
    cluster: FakeApiServer
    exporter: FakeApiServer


def exported(name: str) -> bytes:
    profile = find_profile("2s-2n-8c-smt2-adjacent")
    profile = replace(profile, metadata=replace(profile.metadata, name=name))
    export = node_export(profile, generation=1, observed_time=Instant.parse("2026-11-25T22:04:18Z"))
    return encode_node_export(export)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    authority = Authority(tmp_path)
    token = tmp_path / "token"
    token.write_text("reader-of-exports")
    with (
        fake_shop_cluster(tmp_path) as (cluster, kubeconfig),
        fake_api_server(authority.pair("127.0.0.1")) as exporter,
    ):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        monkeypatch.setenv("NODEWRIGHT_EXPORT_TOKEN_FILE", str(token))
        monkeypatch.setenv("NODEWRIGHT_EXPORT_CA_FILE", str(authority.certificate))
        monkeypatch.setenv("NODEWRIGHT_EXPORT_BASE", f"https://exports.example.com/ {exporter.url}/v1/")
        node = node_object("worker-9")
        node["metadata"]["annotations"] = {"nodewright.dev/export-url": f"{exporter.url}/v1/state"}
        cluster.add(NODES, node)
        exporter.serve("/v1/state", exported("worker-9"))
        yield Exporter(cluster, exporter)


def report(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_an_export_decides_what_is_otherwise_open(
    servers: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["admit", "-f", NEW_PODS, "--node", "node/worker-9", "-o", "json"]
    assert run(words) in (YES, NO, UNSCHEDULABLE)
    answer = report(capsys)
    first = answer["sources"][0]
    assert (first["name"], first["time"]) == ("NodeExport", "2026-11-25T22:04:18Z")
    assert "undecided" not in {pod["verdict"] for pod in answer["pods"]}


def test_the_kubeconfigs_credentials_stay_with_the_cluster(servers: Exporter) -> None:
    run(["admit", "-f", NEW_PODS, "--node", "node/worker-9"])
    (request,) = servers.exporter.requests
    assert request.headers["Authorization"] == "Bearer reader-of-exports"
    assert request.headers.get("Impersonate-User") is None


def test_pods_that_the_export_lacks_are_on_the_node(
    servers: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod = {"metadata": {"name": "new", "namespace": "shop", "uid": "new"}, "status": {"phase": "Running"}}
    add_pod(servers.cluster, pod | {"spec": {"nodeName": "worker-9", "containers": [container]}})
    assert run(["node", "capture", "node/worker-9", "-o", "json"]) == YES
    printed = capsys.readouterr()
    assert [each["metadata"]["name"] for each in json.loads(printed.out)["spec"]["pods"]] == ["new"]
    assert "not in the export yet: pod shop/new" in printed.err


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "expected one document"),
        (exported("worker-8"), "the export is of worker-8"),
        (None, "404 Not Found"),
    ],
)
def test_an_exporter_that_does_not_answer_is_named(
    body: bytes | None, text: str, servers: Exporter, capsys: pytest.CaptureFixture[str]
) -> None:
    del servers.exporter.fixed["/v1/state"]
    if body is not None:
        servers.exporter.serve("/v1/state", body)
    run(["admit", "-f", NEW_PODS, "--node", "node/worker-9"])
    message = capsys.readouterr().err
    assert "warning: NodeExport: not read: " in message
    assert text in message
    assert "assumed: what API server and kubelet report" in message


def test_only_https_is_asked(
    servers: Exporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODEWRIGHT_EXPORT_BASE", "http://127.0.0.1:9/")
    node = node_object("worker-7")
    node["metadata"]["annotations"] = {"nodewright.dev/export-url": "http://127.0.0.1:9/v1/state"}
    servers.cluster.add(NODES, node)
    run(["admit", "-f", NEW_PODS, "--node", "node/worker-7"])
    assert "exports are read over https only" in capsys.readouterr().err


def test_a_node_cannot_lead_to_another_server(
    servers: Exporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NODEWRIGHT_EXPORT_BASE")
    run(["admit", "-f", NEW_PODS, "--node", "node/worker-9"])
    message = capsys.readouterr().err
    assert "warning: NodeExport: not read: metadata.annotations[nodewright.dev/export-url]: " in message
    assert "must have an InternalIP or ExternalIP of the node as its host" in message
    assert not servers.exporter.requests
