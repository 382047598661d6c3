"""Summary sentences with 0, 1 and 2 of their things: none says "all", "none" or a plural of one thing, or counts wrongly."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.example_cluster import example_cluster, node_object, proxy

from nodewright.cli.app import run
from nodewright.fleet.capacity import UnschedulablePod, unschedulable_text
from nodewright.fleet.workload import FleetPod
from nodewright.model.kubernetes.objects import Pod

MACHINE = "2s-2n-8c-smt2-offset"
AMOUNTS = {"cpu": "1", "memory": "1Gi"}


def a_pod(name: str, limits: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": AMOUNTS if limits is None else limits}}
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def a_deployment(name: str, replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": a_pod(name)["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}


def a_quota(name: str, pods: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"pods": pods}}}


class Files:
    """Runs commands on files that are written before."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def write(self, name: str, *objects: dict[str, Any]) -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    def text(self, *arguments: str) -> str:
        """What a command prints, as one line."""
        run(list(arguments))
        printed = self.capsys.readouterr()
        return " ".join(f"{printed.err} {printed.out}".split())


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


# ---------------------------------------------------------------- the table


def admit(files: Files, count: int) -> str:
    """Deployments with several pods."""
    pods = [a_deployment(f"d{at}", 3) for at in range(count)]
    return files.text("admit", "-f", files.write("pods.yaml", *pods, a_pod("p")), "--node", MACHINE)


def admit_each(files: Files, count: int) -> str:
    """Pods that the node has."""
    running = [
        {**a_pod(f"r{at}", nodeName="n"), "metadata": {"name": f"r{at}", "uid": f"u{at}"}}
        for at in range(count)
    ]
    pods = files.folder / "running.json"
    pods.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": running}))
    node = {**node_object("n"), "spec": {}}
    arguments = ("admit", "--each", "-f", files.write("pods.yaml", a_pod("p")))
    return files.text(*arguments, "--node", files.write("node.yaml", node), "--pods", str(pods))


def preempt(files: Files, count: int) -> str:
    """Pods that may be preempted."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    others = [a_pod(f"p{at}", amounts) for at in range(count)]
    critical = a_pod("critical", {"cpu": "400"}, priorityClassName="system-node-critical")
    critical["metadata"]["namespace"] = "kube-system"
    path = files.write("pods.yaml", *others, critical)
    return files.text("preempt", "-f", path, "--node", MACHINE)


def explain_scope(files: Files, count: int) -> str:
    """Containers of a pod whose containers are placed together."""
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "reservedSystemCPUs": "0",
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
    }
    pod = a_pod("p", {"cpu": "18", "memory": "1Gi"})
    pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "name": f"c{at}"} for at in range(count)]
    config = files.write("kubelet.yaml", kubelet)
    path = files.write("pods.yaml", pod)
    return files.text("explain", "-f", path, "--node", MACHINE, "--kubelet-config", config, "-o", "wide")


def explain_budget(files: Files, count: int) -> str:
    """Decisions of a search."""
    path = files.write("pods.yaml", a_pod("p", {"cpu": "99"}))
    return files.text("explain", "-f", path, "--node", MACHINE, "--budget", str(count))


def evict(files: Files, count: int) -> str:
    """Pods on a node without memory."""
    pods = [a_pod(f"p{at}", {"memory": "1Gi"}) for at in range(count)]
    path = files.write("pods.yaml", *pods) if pods else ""
    usage = ("--available", "memory.available=1Mi")
    return files.text("evict", *(("-f", path) if path else ()), "--node", MACHINE, *usage)


def evict_critical(files: Files, count: int) -> str:
    """Critical pods on a node without memory."""
    critical = {"priorityClassName": "system-node-critical"}
    pods = [a_pod(f"p{at}", {"memory": "1Gi"}, **critical) for at in range(count)]
    for pod in pods:
        pod["metadata"]["namespace"] = "kube-system"
    path = files.write("pods.yaml", *pods)
    return files.text("evict", "-f", path, "--node", MACHINE, "--available", "memory.available=1Mi")


def quota(files: Files, count: int) -> str:
    """Quotas of a namespace."""
    quotas = [a_quota(f"q{at}", "9") for at in range(count)]
    return files.text("quota", "-f", files.write("pods.yaml", *quotas, a_deployment("d", 2)))


def quota_refusals(files: Files, count: int) -> str:
    """Objects that a quota refuses."""
    pods = [a_pod(f"p{at}") for at in range(count)]
    return files.text("quota", "-f", files.write("pods.yaml", a_quota("q", "0"), *pods))


def lint(files: Files, count: int) -> str:
    """Findings."""
    pods = [a_pod(f"p{at}", {"cpu": "1", "memory": "256m"}) for at in range(count)]
    path = files.write("pods.yaml", *pods, a_pod("p"))
    return files.text("lint", "-f", path, "--only", "NW110")


def requests(files: Files, count: int) -> str:
    """Containers without requests."""
    pod = a_pod("p", {})
    pod["spec"]["containers"] = [{"name": f"c{at}", "image": "i"} for at in range(count)]
    return files.text("requests", "-f", files.write("pods.yaml", pod), "--explain")


def upgrade(files: Files, count: int) -> str:
    """Settings with which the kubelet of neither release starts."""
    settings = dict([("topologyManagerPolicy", "nonsense"), ("featureGates", {"Nonsense": True})][:count])
    kubelet = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **settings}
    arguments = ("--from", "1.35", "--kubelet-config", files.write("kubelet.yaml", kubelet))
    return files.text("upgrade", "--node", MACHINE, "--to", "1.36", *arguments)


def fleet(files: Files, count: int) -> str:
    """Pods of a fleet."""
    nodes = files.folder / "nodes.csv"
    nodes.write_text("name,cpu,memory\nn1,8,32Gi\n")
    pods = files.folder / "pods.csv"
    pods.write_text("name,cpu,memory\n" + "".join(f"p{at},1,1Gi\n" for at in range(count)))
    page = files.folder / "page.html"
    text = files.text("fleet", "--nodes", str(nodes), "--pods", str(pods), "--html", str(page))
    return f"{text} {' '.join(page.read_text('utf-8').split())}"


def feasible_nodes(_files: Files, count: int) -> str:
    """Nodes that a pod may run on."""
    pod = FleetPod(name="p", pod=Pod(), arrives_s=0)
    return unschedulable_text(UnschedulablePod(pod=pod, feasible_nodes=count))


ROWS: dict[Any, tuple[str, str, str]] = {
    admit: ("", "1 of 3 pods of Deployment shop/d0 is judged", "2 of 6 pods of 2 workloads are judged"),
    admit_each: ("no pod is on a node", "beside 1 pod of the node", "beside 2 pods of the node"),
    preempt: (
        "the node has no pod that it may preempt",
        "1 candidate cannot free enough",
        "2 candidates together cannot free enough",
    ),
    explain_scope: ("", "the pod as a whole", "the pod as a whole"),
    explain_budget: ("budget exhausted after 0 decisions", "after 1 decision:", "after 2 decisions:"),
    evict: ("No pod can be evicted: the node has none.", "1 pod is evicted", "2 pods are evicted"),
    evict_critical: ("", "the remaining pod is critical", "all remaining pods are critical"),
    quota: ("no quotas", "everything fits", "everything fits"),
    quota_refusals: ("", "first refused: Pod shop/p0", "also refused: Pod shop/p1"),
    lint: ("no findings in 1 object", "1 warning in 2 objects", "2 warnings in 3 objects"),
    requests: ("", "no requests and no limits", "no requests and no limits"),
    upgrade: (
        "from 1.35 to 1.36: no change",
        "the kubelet starts under neither release",
        "the kubelet starts under neither release",
    ),
    fleet: ("", "1 node, 1 pod: 1 running", "1 node, 2 pods: 2 running"),
    feasible_nodes: (
        "no node matches by labels and taints",
        "the only feasible node lacks enough of all resources",
        "none of the 2 feasible nodes has enough of all resources",
    ),
}
CASES = [
    pytest.param(write, count, expected, id=f"{write.__name__}-{count}")
    for write, row in ROWS.items()
    for count, expected in enumerate(row)
    if expected
]


@pytest.mark.parametrize(("write", "count", "expected"), CASES)
def test_a_summary_is_true_of_none_one_and_two_of_its_things(
    write: Any, count: int, expected: str, files: Files
) -> None:
    assert expected in write(files, count)


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_read_from_a_cluster_is_counted(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Files
) -> None:
    with example_cluster(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        if count == 2:
            server.serve(proxy("worker-4", "configz"), {"kubeletconfig": {}})
        text = files.text("admit", "-f", files.write("pods.yaml", a_pod("p")), "--node", "nodes")
    nouns = ("1 kubelet configuration (", "2 kubelet configurations (")
    assert nouns[count - 1] in text
    assert "1 NodeResourceTopology object " in f"{text} "
