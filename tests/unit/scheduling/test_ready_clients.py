"""The example clients of `POST /v1/admit` and of NodeResourceTopology, against real verdicts and the fake API server."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request, urlopen

import msgspec
import pytest
from tests.support.fake_api_server import FakeApiServer, fake_api_server

from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.predict.node import Node
from nodewright.predict.node_report.node_resource_topology import node_resource_topology, topology_source
from nodewright.scheduling.verdicts.admit_answer import ADMIT_PATH, AdmitRequest, admit_answer
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod

EXAMPLES = Path("examples/other-systems")
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{KUEUE}/namespaces/lab/workloads"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def admit_url() -> Iterator[str]:
    """The route of the extender over two nodes."""
    cluster = TrackedCluster()
    for name in ("small", "large"):
        profile = find_profile("uma-4c" if name == "small" else "shape:1x1x16x2")
        cluster.put_export(name, profile, generation=1, now_s=0.0)
        cluster.set_labels(name, {"size": name})

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = msgspec.json.encode(admit_answer(cluster, msgspec.json.decode(body, type=AdmitRequest)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}{ADMIT_PATH}"
    server.shutdown()
    server.server_close()


def pod_of(cpus: int, **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": str(cpus)}}
    return {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "a", "image": "a", "resources": resources}], **spec},
    }


def workload(
    name: str, cpus: int, *, flavor: str = "any", has_quota: bool = True, check: str = "nodes"
) -> dict[str, Any]:
    assignment = {"name": "main", "flavors": {"cpu": flavor}, "count": 2}
    other = {
        "name": "budget",
        "state": "Pending",
        "message": "",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {
            "queueName": "q",
            "podSets": [{"name": "main", "count": 2, "template": {"spec": pod_of(cpus)["spec"]}}],
        },
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": str(has_quota)}],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            "admissionChecks": [{**other, "name": check}, other],
        },
    }


def states(server: FakeApiServer, name: str) -> dict[str, tuple[str, str]]:
    with urlopen(f"{server.url}{WORKLOADS}/{name}") as response:  # noqa: S310 - of this test
        checks = json.load(response)["status"]["admissionChecks"]
    return {check["name"]: (check["state"], check["message"]) for check in checks}


def test_the_admission_check_answers_for_workloads_with_quota(admit_url: str) -> None:
    with fake_api_server() as server:
        check = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": "nodes"},
            "spec": {"controllerName": "nodewright.dev/node-admission"},
        }
        server.add(
            f"{KUEUE}/admissionchecks",
            check,
            {**check, "metadata": {"name": "budget"}, "spec": {"controllerName": "other"}},
        )
        flavors = [("any", {}), ("small", {"size": "small"})]
        server.add(
            f"{KUEUE}/resourceflavors",
            *({"metadata": {"name": name}, "spec": {"nodeLabels": labels}} for name, labels in flavors),
        )
        workloads = [
            workload("fits", 8),
            workload("large", 64),
            workload("on-small", 8, flavor="small"),
            workload("queued", 64, has_quota=False),
        ]
        server.add(WORKLOADS, *workloads)
        environment = {**os.environ, "API_SERVER": server.url, "ADMIT_URL": admit_url}
        script = [sys.executable, str(EXAMPLES / "kueue_admission_check.py"), "--once"]
        out = subprocess.run(
            script, env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout
        assert states(server, "fits") == {
            "nodes": ("Ready", "a node admits each pod"),
            "budget": ("Pending", ""),
        }
        assert states(server, "large")["nodes"] == ("Retry", "no node admits a pod of main: 2 OutOfcpu")
        assert states(server, "on-small")["nodes"] == (
            "Retry",
            "no node admits a pod of main: 1 NodeAffinity, 1 OutOfcpu",
        )
        assert states(server, "queued")["nodes"] == ("Pending", "")
        assert "lab/large: Retry: no node admits a pod of main: 2 OutOfcpu" in out
        with urlopen(f"{server.url}{KUEUE}/admissionchecks/nodes") as response:  # noqa: S310 - of this test
            assert json.load(response)["status"]["conditions"][0]["type"] == "Active"


@pytest.mark.parametrize("whole", [False, True])
def test_the_filter_keeps_the_nodes_that_admit(admit_url: str, *, whole: bool) -> None:
    names = ["small", "large"]
    nodes = (
        {"Nodes": {"items": [{"metadata": {"name": name}} for name in names]}}
        if whole
        else {"NodeNames": names}
    )
    result = example("node_filter").filtered(admit_url, {"Pod": pod_of(8), **nodes})
    kept = [node["metadata"]["name"] for node in result["Nodes"]["items"]] if whole else result["NodeNames"]
    assert kept == ["large"]
    refused = {**result["FailedNodes"], **result["FailedAndUnresolvableNodes"]}
    assert refused["small"].startswith("OutOfcpu: ")


def test_the_filter_answers_a_scheduler_and_says_what_goes_wrong(
    admit_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("node_filter")
    server = ThreadingHTTPServer(("127.0.0.1", 0), module.Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def ask(body: Any) -> Any:
        request = Request(f"http://127.0.0.1:{server.server_address[1]}/filter", json.dumps(body).encode())
        with urlopen(request) as response:  # noqa: S310 - of this test
            return json.load(response)

    monkeypatch.setenv("ADMIT_URL", admit_url)
    try:
        assert ask({"Pod": pod_of(1), "NodeNames": ["small"]})["NodeNames"] == ["small"]
        assert "Pod" in ask({"NodeNames": ["small"]})["Error"]
        monkeypatch.setenv("ADMIT_URL", "http://127.0.0.1:9/v1/admit")
        assert "refused" in ask({"Pod": pod_of(1), "NodeNames": ["small"]})["Error"]
    finally:
        server.shutdown()
        server.server_close()


def test_an_autoscaler_gets_the_group_whose_node_admits_the_pod(admit_url: str) -> None:
    groups = {"cheap": "small", "big": "large"}
    best_group = example("node_filter").best_group
    assert best_group(admit_url, pod_of(8), groups) == "big"
    assert best_group(admit_url, pod_of(64), groups) is None


@pytest.mark.parametrize(
    ("policy", "held", "request_", "expected"),
    [
        ("restricted", [], (2, 2), ("0",)),
        ("restricted", [], (5, 5), ("0", "1")),
        ("best-effort", ["cpu=5 memory=5Gi"], (2, 1), ("0", "1")),
        ("restricted", ["cpu=1 memory=1Gi"], (4, 1), ("1",)),
        ("restricted", ["cpu=1 memory=1Gi"], (2, 5), None),
    ],
)
def test_a_plugin_finds_numa_nodes_by_the_groups(
    policy: str, held: list[str], request_: tuple[int, int], expected: tuple[str, ...] | None
) -> None:
    pods = [a_guaranteed_pod(f"p{number}", amounts) for number, amounts in enumerate(held)]
    node = Node.from_profile(
        a_profile(pods=pods, topologyManagerPolicy=policy, **STATIC_CPUS, **STATIC_MEMORY)
    )
    topology = node_resource_topology(topology_source(node.state))
    cpus, gib = request_
    assert example("memory_groups").placement(topology, cpus, gib << 30) == expected
    result = node.admit(a_guaranteed_pod("new", f"cpu={cpus} memory={gib}Gi"))
    assert result.admitted == (expected is not None)
    if expected is not None:
        assert result.placement is not None
        blocks = [block for held in result.placement.containers for block in held.memory or ()]
        assert {str(numa) for block in blocks for numa in block.numa} == {*expected}
