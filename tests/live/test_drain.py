"""Drains beside a real API server, its disruption controller and kubectl: the same budgets, answers and refusals."""

import json
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.real_api_server import ASSETS, RealAPIServer, needs_real, real_api_server
from tests.support.real_scheduler import running_component

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO
from nodewright.engine.core.disruption.pod_eviction import eviction_answer
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.simulation.node_drains import counted_budget
from nodewright.fleet.simulation.pod_templates import LabelMatcher
from nodewright.fleet.workload import DisruptionBudget, FleetPod

pytestmark = [pytest.mark.live, needs_real("kube-controller-manager", "kubectl")]
NAMESPACES = 30
_WAIT_S = 60
MIRROR = {"kubernetes.io/config.mirror": "a", "kubernetes.io/config.source": "file"}


class DrainCluster:
    """Namespaces with random budgets, ReplicaSets and pods on the node `n0`."""

    def __init__(self, server: RealAPIServer, kubeconfig: Path) -> None:
        self.server, self.kubeconfig, self.draw = server, kubeconfig, random.Random(7)
        capacity = {"cpu": "400", "memory": "400Gi", "pods": "900"}
        for name in ("n0", "n1"):
            self.create("/api/v1/nodes", {"kind": "Node", "metadata": {"name": name}})
            status = {"capacity": capacity, "allocatable": capacity}
            self._set_status(f"/api/v1/nodes/{name}", status)
        for number in range(NAMESPACES):
            self._add_namespace(f"case-{number}")
        self._wait_until_counted()

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.server.create(path, body)
        assert answer.code == 201, answer.message
        return answer.body

    def objects(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.server.request("GET", path).body["items"]
        return items

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [f"{ASSETS}/kubectl", f"--kubeconfig={self.kubeconfig}", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    def _set_status(self, path: str, status: dict[str, Any]) -> None:
        answer = self.server.request("PATCH", f"{path}/status", {"status": status})
        assert answer.code == 200, answer.message

    def _add_namespace(self, name: str) -> None:
        draw = self.draw
        self.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name}})
        count = draw.randint(1, 4)
        owners = {kind: self._owner(name, kind, count) for kind in ("ReplicaSet", "DaemonSet")}
        for number in range(count):
            kind = draw.choice(("ReplicaSet",) * 6 + ("DaemonSet", "", "Node"))
            self._add_pod(name, f"p{number}", kind, owners)
        for number in range(draw.choice((0, 1, 1, 1, 2))):
            field = draw.choice(("minAvailable", "maxUnavailable"))
            bound = draw.choice((0, 1, 1, 2, 3, "50%", "100%"))
            spec = {"selector": draw.choice(({}, {"matchLabels": {"app": "web"}})), field: bound}
            if draw.random() < 0.3:
                spec["unhealthyPodEvictionPolicy"] = draw.choice(("AlwaysAllow", "IfHealthyBudget"))
            path = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
            self.create(
                path, {"kind": "PodDisruptionBudget", "metadata": {"name": f"b{number}"}, "spec": spec}
            )

    def _owner(self, namespace: str, kind: str, count: int) -> dict[str, Any]:
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
        if kind == "ReplicaSet":
            spec["replicas"] = count
        body = {"kind": kind, "metadata": {"name": "web"}, "spec": spec}
        created = self.create(f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s", body)
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "controller": True}
        return reference | {"uid": created["metadata"]["uid"]}

    def _add_pod(self, namespace: str, name: str, kind: str, owners: dict[str, dict[str, Any]]) -> None:
        draw = self.draw
        meta: dict[str, Any] = {"name": name, "labels": {"app": "web"}}
        if kind in owners:
            meta["ownerReferences"] = [owners[kind]]
        elif kind == "Node":
            node = self.server.request("GET", "/api/v1/nodes/n0").body
            reference = {"apiVersion": "v1", "kind": "Node", "name": "n0", "controller": True}
            meta |= {"annotations": MIRROR}
            meta["ownerReferences"] = [reference | {"uid": node["metadata"]["uid"]}]
        container = {"name": "a", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}
        spec: dict[str, Any] = {"nodeName": "n0", "containers": [container]}
        if draw.random() < 0.3:
            spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.create(path, {"kind": "Pod", "metadata": meta, "spec": spec})
        phase = draw.choice(("Running",) * 6 + ("Pending", "Succeeded"))
        ready = "True" if phase == "Running" and draw.random() < 0.75 else "False"
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        self._set_status(f"{path}/{name}", status)
        if draw.random() < 0.1:
            self.server.request("DELETE", f"{path}/{name}")

    def _wait_until_counted(self) -> None:
        """Waits until the controller has counted the pods as they are now."""
        deadline, before = time.monotonic() + _WAIT_S, ""
        while time.monotonic() < deadline:
            budgets = self.objects("/apis/policy/v1/poddisruptionbudgets")
            statuses = json.dumps([budget.get("status") for budget in budgets], sort_keys=True)
            counted = all(
                budget.get("status", {}).get("observedGeneration") or _failed(budget) for budget in budgets
            )
            if counted and statuses == before:
                return
            before = statuses
            time.sleep(3)
        raise TimeoutError("the disruption controller does not count")


def _failed(budget: dict[str, Any]) -> bool:
    return any(each["reason"] == "SyncFailed" for each in budget.get("status", {}).get("conditions", ()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrainCluster]:
    folder = Path(tmp_path_factory.mktemp("drain"))
    flags = ("--leader-elect=false", "--secure-port=0", "--controllers=disruption-controller")
    with (
        real_api_server(folder) as server,
        running_component(server, folder, "kube-controller-manager", *flags),
    ):
        yield DrainCluster(server, folder / "kubeconfig")


def loaded(
    cluster: DrainCluster, folder: Path, *, has_status: bool
) -> tuple[list[FleetPod], list[DisruptionBudget]]:
    lists = ("/api/v1/nodes", "/api/v1/pods", "/apis/policy/v1/poddisruptionbudgets")
    kinds = ("v1", "Node"), ("v1", "Pod"), ("policy/v1", "PodDisruptionBudget")
    items = [
        {"apiVersion": version, "kind": kind, **item}
        for path, (version, kind) in zip(lists, kinds, strict=True)
        for item in cluster.objects(path)
    ]
    if not has_status:
        for item in items:
            if item["kind"] == "PodDisruptionBudget":
                del item["status"]
    path = folder / f"dump-{has_status}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    fleet = load_fleet(FleetFiles(both=(str(path),)))
    return list(fleet.pods()), list(fleet.budgets)


def selected(budget: DisruptionBudget, pods: list[FleetPod]) -> list[FleetPod]:
    matcher = LabelMatcher(budget.selector)
    return [
        pod for pod in pods if pod.namespace == budget.namespace and matcher.matches(pod.pod.metadata.labels)
    ]


def test_evictions_are_answered_as_by_the_api_server(cluster: DrainCluster, tmp_path: Path) -> None:
    pods, budgets = loaded(cluster, tmp_path, has_status=True)
    codes = set()
    for pod in pods:
        statuses = [budget.status for budget in budgets if pod in selected(budget, pods)]
        answer = eviction_answer(pod.eviction, [status for status in statuses if status is not None])
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
        real = cluster.server.create(f"{path}/eviction", body, is_dry_run=True)
        causes = real.body.get("details", {}).get("causes") or [{"message": ""}]
        expected = (real.code, real.message.removesuffix(": "), causes[0].get("message", ""))
        assert (answer.code, answer.message, answer.cause) == expected, (pod.full_name, statuses)
        codes.add(real.code)
    assert codes == {201, 429, 500}


def test_budgets_are_counted_as_by_the_controller(cluster: DrainCluster, tmp_path: Path) -> None:
    _, counted = loaded(cluster, tmp_path, has_status=True)
    pods, budgets = loaded(cluster, tmp_path, has_status=False)
    for before, budget in zip(counted, budgets, strict=True):
        members = selected(budget, pods)
        ended = [
            item
            for item in cluster.objects(f"/api/v1/namespaces/{budget.namespace}/pods")
            if item["status"]["phase"] == "Succeeded" or "deletionTimestamp" in item["metadata"]
        ]
        (owner,) = cluster.objects(f"/apis/apps/v1/namespaces/{budget.namespace}/replicasets")
        replicas = sum(pod.eviction.owner_kind == "ReplicaSet" for pod in members)
        if ended or replicas not in (0, owner["spec"]["replicas"]):
            continue  # A dump of nodes and pods has as many replicas as pods.
        status = counted_budget(budget, members, sum(pod.eviction.is_healthy for pod in members))
        assert before.status is not None
        if before.status.failure:
            assert status.failure
            continue
        assert (status.disruptions_allowed, status.desired_healthy, status.expected_pods) == (
            before.status.disruptions_allowed,
            before.status.desired_healthy,
            before.status.expected_pods,
        ), (budget, before.status)


def test_kubectl_refuses_and_evicts_the_same(
    cluster: DrainCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["drain", "node/n0", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]) == NO
    (drain,) = json.loads(capsys.readouterr().out)["drains"]
    refused = cluster.kubectl("drain", "n0", "--dry-run=client").stderr
    for message, pods in list(drain["refusals"].items())[:2]:
        names = re.search(f"{re.escape(message)}: ((case-[0-9]+/p[0-9]+(, )?)+)", refused)
        assert names is not None, refused
        assert set(pods) == set(names[1].removesuffix(", ").split(", "))
    flags = re.findall(r"--[a-z-]+", drain["command"])
    assert len(flags) == len(drain["refusals"])
    printed = cluster.kubectl("drain", "n0", "--dry-run=client", *flags)
    assert printed.returncode == 0, printed.stderr
    evicted = {line.split()[2] for line in printed.stdout.splitlines() if line.startswith("evicting pod")}
    ended = {
        f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in cluster.objects("/api/v1/pods")
        if item["status"]["phase"] == "Succeeded"
    }
    ours = {f"{pod['namespace']}/{pod['name']}" for pod in drain["pods"] if pod["outcome"] != "kept"}
    assert ours == evicted - ended
