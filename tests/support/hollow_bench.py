"""A real control plane with hollow nodes: API server, scheduler, controller manager, and the process of the nodes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.real_api_server import RealAPIServer, real_api_server
from tests.support.real_scheduler import running_component

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: None
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0,1"
kubeReserved: {memory: 1Gi}
"""


class HollowBench:
    """A cluster whose nodes are hollow."""

    def __init__(self, server: RealAPIServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.kubeconfig = server.write_kubeconfig(folder / "hollow.kubeconfig")
        (folder / "kubelet.yaml").write_text(CONFIG, "utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        """Starts the process of the nodes."""
        command = [
            sys.executable,
            *(os.environ.get("HOLLOW_COMMAND") or "-m nodewright").split(),
            "hollow",
            f"--kubeconfig={self.kubeconfig}",
        ]
        command += [f"--config={self.folder}/kubelet.yaml", *words]
        with (self.folder / "hollow.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)

    def stop(self) -> int:
        """Ends the process as Ctrl-C does; its exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(120)
        self.process = None
        return code

    def log(self) -> str:
        """What the process has printed."""
        return (self.folder / "hollow.log").read_text("utf-8")

    def nodes(self) -> list[dict[str, Any]]:
        """The Node objects."""
        return list(self.server.request("GET", NODES).body["items"])

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """The pods of the default namespace."""
        query = f"?labelSelector={selector}" if selector else ""
        return list(self.server.request("GET", f"{PODS}{query}").body["items"])

    def ready_nodes(self) -> int:
        """How many nodes are ready and take pods."""
        return sum(
            any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
            and not node["spec"].get("taints")
            for node in self.nodes()
        )

    def create(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Creates an object."""
        answer = self.server.create(path, document)
        assert answer.code == 201, answer.message
        return answer.body

    def wait_until(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.log()[-3000:]
            assert self.process is None or self.process.poll() is None, self.log()[-3000:]
            time.sleep(0.1)


def deployment(
    name: str, replicas: int, resources: dict[str, Any], annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """A Deployment of pods with one container."""
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example/main:1", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations or {}},
                "spec": {"containers": [container]},
            },
        },
    }


@contextmanager
def hollow_bench(
    folder: Path,
    *,
    flags: Sequence[str] = (),
    scheduler_flags: Sequence[str] = (),
    manager_flags: Sequence[str] = (),
) -> Iterator[HollowBench]:
    """A running control plane without nodes."""
    with ExitStack() as stack:
        server = stack.enter_context(real_api_server(folder, flags=flags))
        scheduler = ("--leader-elect=false", "--secure-port=0", *scheduler_flags)
        stack.enter_context(running_component(server, folder, "kube-scheduler", *scheduler))
        manager = ("--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000")
        stack.enter_context(
            running_component(server, folder, "kube-controller-manager", *manager, *manager_flags)
        )
        bench = HollowBench(server, folder)
        try:
            yield bench
        finally:
            if bench.process is not None:
                bench.stop()
