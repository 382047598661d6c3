"""A real kube-scheduler beside a real API server, with nodes that exist only as objects."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.real_api_server import ASSETS, RealAPIServer, real_api_server

PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"
_DECISION_S = 60


class RealScheduler:
    """Creates nodes and pods, and waits for the scheduler's decisions."""

    def __init__(self, server: RealAPIServer) -> None:
        self.server = server

    def set_nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Replaces all pods and nodes."""
        self.server.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        self.server.request("DELETE", _NODES)
        for node in nodes:
            status, taints = node.get("status", {}), node.get("spec", {}).get("taints", [])
            _created(self.server.create(_NODES, node))
            path = f"{_NODES}/{node['metadata']['name']}"
            ready = {"type": "Ready", "status": "True", "reason": "", "message": ""}
            self.server.request("PATCH", f"{path}/status", {"status": {**status, "conditions": [ready]}})
            # An admission plugin taints new nodes, which no controller removes here.
            self.server.request("PATCH", path, {"spec": {"taints": taints}})
        time.sleep(0.3)  # the scheduler reads nodes from a cache

    def add_pod(self, pod: dict[str, Any]) -> tuple[str, str]:
        """The node of a new pod, or the message of the scheduler that finds none."""
        name = pod["metadata"]["name"]
        _created(self.server.create(PODS, pod))
        deadline = time.monotonic() + _DECISION_S
        while time.monotonic() < deadline:
            body = self.server.request("GET", f"{PODS}/{name}").body
            if body["spec"].get("nodeName"):
                return body["spec"]["nodeName"], ""
            for condition in body.get("status", {}).get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return "", str(condition.get("message", ""))
            time.sleep(0.02)
        raise TimeoutError(name)

    def add_running_pod(self, pod: dict[str, Any], start_time: str) -> None:
        """Creates a pod that has a node and has started at this time."""
        _created(self.server.create(PODS, pod))
        status = {"phase": "Running", "startTime": start_time}
        self.server.request("PATCH", f"{PODS}/{pod['metadata']['name']}/status", {"status": status})

    def add_priority_class(self, item: dict[str, Any]) -> None:
        """Creates a class, unless it exists."""
        self.server.create("/apis/scheduling.k8s.io/v1/priorityclasses", item)

    def preemption(self, name: str) -> tuple[str, set[str]]:
        """The node for which a pod is nominated, and the pods that are deleted for it."""
        nominated = self.server.request("GET", f"{PODS}/{name}").body["status"].get("nominatedNodeName", "")
        deadline = time.monotonic() + (_DECISION_S if nominated else 0.5)
        while time.monotonic() < deadline:
            deleted = {
                pod["metadata"]["name"]
                for pod in self.server.request("GET", PODS).body["items"]
                if pod["metadata"].get("deletionTimestamp")
            }
            if deleted:
                time.sleep(0.3)  # victims are deleted side by side
                break
        pods = self.server.request("GET", PODS).body["items"]
        return nominated, {
            pod["metadata"]["name"] for pod in pods if pod["metadata"].get("deletionTimestamp")
        }

    def remove_pod(self, name: str) -> None:
        """Deletes a pod at once."""
        self.server.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def objects(self) -> list[dict[str, Any]]:
        """The nodes and pods as kubectl prints them."""
        lists = ((_NODES, "Node"), (PODS, "Pod"))
        return [
            {"apiVersion": "v1", "kind": kind, **item}
            for path, kind in lists
            for item in self.server.request("GET", path).body["items"]
        ]


def _created(answer: Any) -> None:
    assert answer.code == 201, answer.message


@contextmanager
def real_scheduler(folder: Path) -> Iterator[RealScheduler]:
    """A running scheduler with its API server; its log is in the folder."""
    with (
        real_api_server(folder) as server,
        running_component(server, folder, "kube-scheduler", "--leader-elect=false", "--secure-port=0"),
    ):
        yield RealScheduler(server)


@contextmanager
def running_component(server: RealAPIServer, folder: Path, name: str, *flags: str) -> Iterator[None]:
    """A component of the control plane that uses this server; its log is in the folder."""
    cluster = {"server": f"https://127.0.0.1:{server.port}", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "admin", "user": {"token": "admin"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
        "current-context": "c",
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config), "utf-8")
    options = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    command = [f"{ASSETS}/{name}", *(f"--{option}={kubeconfig}" for option in options), *flags]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)
