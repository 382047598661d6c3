"""Whole commands, from exec to answer, on inputs of the size of a node or of a cluster."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.support.large_cluster import serve_large_cluster

PODS_OF_A_CLUSTER = 10_000
PODS_OF_A_LARGE_CLUSTER = 100_000
WORKLOADS = 10_000
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "maxPods": 600,
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "restricted",
    "reservedSystemCPUs": "0-1",
}
FORECAST = {
    "apiVersion": "nodewright.dev/v1alpha1",
    "kind": "UsageForecast",
    "spec": {"duration": "1h", "growth": [{"pod": "default/p3", "rate": "2Mi"}]},
}


def nodewright(*arguments: str) -> int:
    """The exit code of the command; 0 and 3 are answers."""
    command = [sys.executable, "-m", "nodewright", *arguments]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    assert code in (0, 3)
    return code


def pod(name: str, cpu: str, memory: str, *, guaranteed: bool = False, **spec: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    resources = {"requests": requests, **({"limits": requests} if guaranteed else {})}
    containers = [{"name": "main", "image": "registry.example/main:1", "resources": resources}]
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def written(path: Path, objects: Iterable[dict[str, Any]]) -> str:
    """The path of the objects as one List, in JSON."""
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=4), "utf-8"
    )
    return str(path)


def live_pod(number: int) -> dict[str, Any]:
    """A pod as `kubectl get -o json` prints it, with what a controller, the API server and a kubelet add: 5 kB."""
    live = pod(
        f"web-{number}", f"{100 + number % 7 * 50}m", f"{64 + number % 5 * 32}Mi", restartPolicy="Always"
    )
    conditions = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    since = "2026-01-01T00:00:00Z"
    live["metadata"] |= {
        "uid": f"{number:08}-0000-4000-8000-000000000000",
        "creationTimestamp": since,
        "labels": {"app": f"web-{number % 300}", "pod-template-hash": f"{number % 300:x}"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000},
    }
    live["spec"] |= {"nodeName": f"node-{number % 1000}", "serviceAccountName": "default", "priority": 0}
    live["spec"]["containers"][0]["env"] = [{"name": f"VARIABLE_{at}", "value": "value"} for at in range(10)]
    live["status"] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "startTime": since,
        "conditions": [{"type": each, "status": "True", "lastTransitionTime": since} for each in conditions],
        "containerStatuses": [
            {
                "name": "main",
                "image": "registry.example/main:1",
                "imageID": "sha256:0",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": since}},
            }
        ],
    }
    return live


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `kubectl get pods -A -o json` prints."""
    path = tmp_path_factory.mktemp("cluster") / "pods.json"
    return written(path, map(live_pod, range(PODS_OF_A_CLUSTER)))


def arguments_for(command: str, cluster: str) -> tuple[str, ...]:
    """The arguments of a command about the pods of a cluster."""
    nodes = Path(cluster).with_name("nodes.csv")
    rows = (f"node-{at},64,256Gi\n" for at in range(1000))
    nodes.write_text("name,cpu,memory\n" + "".join(rows), "utf-8")
    return {
        "requests": ("requests", "-f", cluster),
        "admit": ("admit", "-f", cluster, "--node", "epyc-7742-2s-nps1"),
        "fleet": ("fleet", "--nodes", str(nodes), "--pods", cluster),
    }[command]


@pytest.mark.parametrize("command", ["requests", "admit", "fleet"])
def test_pods_of_a_cluster_as_json(benchmark: BenchmarkFixture, cluster: str, command: str) -> None:
    pedantic: Any = benchmark.pedantic
    pedantic(nodewright, args=arguments_for(command, cluster), rounds=1)


@pytest.fixture(scope="module")
def large_cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same of ten times as many pods, with fewer variables: 400 MB."""
    if "NODEWRIGHT_BENCH_LARGE" not in os.environ:
        pytest.skip("NODEWRIGHT_BENCH_LARGE is not set: a file of 400 MB, and a minute for each command")
    path = tmp_path_factory.mktemp("large") / "pods.json"
    with path.open("w", encoding="utf-8") as file:
        file.write('{\n    "apiVersion": "v1",\n    "items": [\n')
        for number in range(PODS_OF_A_LARGE_CLUSTER):
            live = live_pod(number)
            del live["spec"]["containers"][0]["env"][5:]
            live["metadata"]["annotations"] = {"example.com/team": "shop"}
            file.write(",\n" if number else "")
            file.write(" " * 8 + json.dumps(live, indent=4).replace("\n", "\n" + " " * 8))
        file.write('\n    ],\n    "kind": "List",\n    "metadata": {"resourceVersion": ""}\n}\n')
    return str(path)


@pytest.mark.parametrize("command", ["requests", "admit", "fleet"])
def test_pods_of_a_large_cluster_as_json(
    benchmark: BenchmarkFixture, large_cluster: str, command: str
) -> None:
    """Also notes the largest memory of the command, in MiB."""
    before_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    pedantic: Any = benchmark.pedantic
    pedantic(nodewright, args=arguments_for(command, large_cluster), rounds=1)
    most_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    benchmark.extra_info["largest_so_far_mib"] = max(most_kib, before_kib) // 1024


def test_admit_over_5000_nodes_of_a_cluster(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Notes the CPU time of the command: the API server is a process of its own."""
    if "NODEWRIGHT_BENCH_LARGE" not in os.environ:
        pytest.skip("NODEWRIGHT_BENCH_LARGE is not set: lists of 430 MB")
    path = written(tmp_path / "pod.json", [pod("new", "4", "8Gi", guaranteed=True)])
    kubeconfig = tmp_path / "kubeconfig"
    with serve_large_cluster(5_000, PODS_OF_A_LARGE_CLUSTER) as server:
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "large",
                    "contexts": [{"name": "large", "context": {"cluster": "large", "user": "large"}}],
                    "clusters": [{"name": "large", "cluster": {"server": server}}],
                    "users": [{"name": "large", "user": {}}],
                }
            )
        )
        arguments = ("admit", "-f", path, "--node", "nodes", "--kubeconfig", str(kubeconfig))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        pedantic: Any = benchmark.pedantic
        pedantic(nodewright, args=arguments, rounds=1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    benchmark.extra_info["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_lint_of_workloads_on_a_node(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{0}\nspec:\n  replicas: 3\n  selector:\n"
        "    matchLabels:\n      app: web-{0}\n  template:\n    metadata:\n      labels:\n        app: web-{0}\n"
        "    spec:\n      containers:\n      - name: main\n        image: registry.example/main:{0}\n"
        "        resources:\n          requests:\n            cpu: {1}m\n            memory: {2}Mi\n"
    )
    for start in range(0, WORKLOADS, 1000):
        documents = (text.format(at, 50 + at % 9 * 50, 32 + at % 7 * 32) for at in range(start, start + 1000))
        (tmp_path / f"{start:05}.yaml").write_text("---\n".join(documents), "utf-8")
    pedantic: Any = benchmark.pedantic
    pedantic(nodewright, args=("lint", "-f", str(tmp_path), "--node", "epyc-7742-2s-nps1"), rounds=1)


@pytest.mark.parametrize("asked", ["one", "pairs"])
def test_explain_with_counterfactuals_beside_300_pods(
    benchmark: BenchmarkFixture, tmp_path: Path, asked: str
) -> None:
    """Every pod is explained; what would let the last one in is tried on the node with the 300 others."""
    kinds = (("2", "256Mi", True), ("100m", "64Mi", False), ("50m", "64Mi", False))
    pods = [
        pod(f"p{at}", cpu, memory, guaranteed=whole)
        for at in range(300)
        for cpu, memory, whole in [kinds[at % 3]]
    ]
    amounts = ("300", "600Gi") if asked == "pairs" else ("80", "1Gi")
    path = written(tmp_path / "pods.json", [*pods, pod("refused", *amounts, guaranteed=True)])
    kubelet = tmp_path / "kubelet.json"
    kubelet.write_text(json.dumps(KUBELET), "utf-8")
    arguments = ("explain", "-f", path, "--node", "epyc-7742-2s-nps4", "--kubelet-config", str(kubelet))
    assert benchmark(nodewright, *arguments) == 3


def test_explain_of_2000_containers_that_do_not_fit(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    large = pod("large", "1", "1Gi")
    (main,) = large["spec"]["containers"]
    large["spec"]["containers"] = [{**main, "name": f"c{at}"} for at in range(2000)]
    arguments = ("explain", "-f", written(tmp_path / "pod.json", [large]), "--node", "epyc-7742-2s-nps1")
    assert benchmark(nodewright, *arguments) == 3


def test_advice_for_an_hour_of_110_pods(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    path = written(
        tmp_path / "pods.json",
        (pod(f"p{at}", "10m", f"{16 + at % 7 * 16}Mi", nodeName="vm-4") for at in range(110)),
    )
    usage, growth = tmp_path / "usage.csv", tmp_path / "growth.json"
    usage.write_text("pod,memory\n" + "".join(f"default/p{at},{20 + at % 11 * 10}Mi\n" for at in range(110)))
    growth.write_text(json.dumps(FORECAST), "utf-8")
    files = ("-f", path, "--usage", str(usage), "--growth", str(growth))
    arguments = (
        "evict",
        *files,
        "--node",
        "vm-4",
        "--available",
        "memory.available=4Gi",
        "--timeline",
        "--advise",
    )
    assert benchmark(nodewright, *arguments) in (0, 3)


def test_lend_over_a_week_of_110_pods(benchmark: Any, tmp_path: Path) -> None:
    random, names = Random(36), [f"p{at}" for at in range(110)]
    table, node = tmp_path / "usage.csv", tmp_path / "node.json"
    pods = [pod(name, "1", "1Gi") for name in names]
    machine = {"num_cores": 128, "memory_capacity": 256 << 30, "topology": []}
    node.write_text(
        json.dumps(
            {
                "apiVersion": "nodewright.dev/v1alpha1",
                "kind": "NodeProfile",
                "spec": {"machineInfo": machine, "pods": pods},
            }
        )
    )
    with table.open("w") as file:
        file.write("time,pod,cpu,memory\n")
        for minute in range(7 * 24 * 60):
            file.writelines(
                f"{60 * minute},default/{name},{random.randrange(100, 700)}m,{random.randrange(200, 900)}Mi\n"
                for name in names
            )
    arguments = ("lend", "--node", str(node), "--usage", str(table))
    assert benchmark.pedantic(nodewright, args=arguments, rounds=2) == 0
