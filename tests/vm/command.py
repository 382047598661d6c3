"""The real command inside the virtual machine: pods pinned to NUMA nodes, ended by the kernel, and evicted before it would."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.vm.inside import TOUCHES, pages_by_node

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cluster.client.agent_client import AgentClient
from tools.agent_idle import running

CONFIGURATION = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
    "kubeReserved": {"memory": "128Mi"},
    "evictionHard": {"memory.available": "1Gi"},
    "reservedMemory": [
        {"numaNode": 0, "limits": {"memory": "576Mi"}},
        {"numaNode": 1, "limits": {"memory": "576Mi"}},
    ],
}
GROWS = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: open("{place}", "w").write("TERM"))
held = []
while True:
    held.append(b"x" * ({step} << 20))
    time.sleep(0.25)
"""
"""It notes SIGTERM, if there is time to, and continues to grow."""
PATIENCE_S = 300


class Agent:
    """The command, as its users see it."""

    def __init__(self, folder: Path, client: AgentClient) -> None:
        self.folder, self.client = folder, client
        self.cgroups = CgroupFS(f"/nodewright-idle-{os.getpid()}")

    def want(self, name: str, *command: str, **resources: dict[str, str]) -> None:
        """A pod of one container, by its manifest."""
        container = {"name": "main", "image": "none", "command": list(command), "resources": resources}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        (self.folder / "pods" / f"{name}.json").write_text(json.dumps(pod), "utf-8")

    def drop(self, name: str) -> None:
        """It is not wanted any more, and is gone."""
        (self.folder / "pods" / f"{name}.json").unlink()
        self.until(lambda: name not in self.pods())

    def pods(self) -> dict[str, dict[str, Any]]:
        """The status of each pod by its name."""
        items = self.client.get("api/v1/pods")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def phase(self, name: str) -> str:
        return str(self.pods().get(name, {}).get("status", {}).get("phase"))

    def ended(self, name: str) -> dict[str, Any]:
        """How the pod's container has ended."""
        (container_status,) = self.pods()[name]["status"]["containerStatuses"]
        terminated: dict[str, Any] = container_status["state"].get("terminated", {})
        return terminated

    def group(self, name: str) -> str:
        """The group of a pod's container."""
        uid = self.pods()[name]["metadata"]["uid"]
        (text,) = (path for path in self._below(self.cgroups.root) if path.endswith(f"pod{uid}/main-0"))
        return text

    def says(self, path: str, file: str) -> str:
        return (self.cgroups.read_files(path, (file,)) or {})[file]

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, (self.folder / "agent.log").read_text()[-3000:]
            time.sleep(0.5)  # each question costs an emulated CPU a tenth of a second

    def _below(self, path: str) -> list[str]:
        return [path, *(text for below in self.cgroups.children(path) for text in self._below(below))]


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pods").mkdir()
        (folder / "kubelet.json").write_text(json.dumps(CONFIGURATION), "utf-8")
        options = ["--config", str(folder / "kubelet.json"), "--workload-dir", str(folder / "pods")]
        with running(folder, *options) as (_, client):
            yield Agent(folder, client)


def test_the_command_gives_two_pods_a_numa_node_each(agent: Agent) -> None:
    alike = {"limits": {"cpu": "3", "memory": "128Mi"}}
    for name in ("first", "second"):
        agent.want(name, "python3", "-c", TOUCHES, **alike)
    agent.want("shared", "sleep", "1000")
    agent.until(lambda: all(agent.phase(name) == "Running" for name in ("first", "second", "shared")))

    def cpus_and_numa_nodes() -> list[tuple[str, str]]:
        return [
            (agent.says(group, "cpuset.cpus.effective"), agent.says(group, "cpuset.mems.effective"))
            for group in map(agent.group, ("first", "second", "shared"))
        ]

    # Which of the two was first is the order in which they were found; the shared CPUs are written after both.
    agent.until(lambda: sorted(cpus_and_numa_nodes()) == [("0,7", "0-1"), ("1-3", "0"), ("4-6", "1")])
    texts = cpus_and_numa_nodes()
    for name, (_, numa) in zip(("first", "second"), texts, strict=False):
        (pid,) = agent.cgroups.processes(agent.group(name))
        agent.until(lambda pid=pid, numa=numa: pages_by_node(pid).get(f"N{numa}", 0) >= 8192)  # type: ignore[misc] # its defaults are these
        assert set(pages_by_node(pid)) == {f"N{numa}"}
    agent.want("third", "sleep", "1000", **alike)
    agent.until(lambda: agent.phase("third") == "Failed")
    assert agent.pods()["third"]["status"]["reason"] in ("TopologyAffinityError", "OutOfcpu")
    for name in ("first", "second", "third"):
        agent.drop(name)
    agent.until(lambda: agent.says(agent.group("shared"), "cpuset.cpus.effective") == "0-7")


def test_the_command_says_oomkilled_where_the_kernel_ended_a_container(agent: Agent) -> None:
    program = GROWS.format(place=agent.folder / "hungry", step=16)
    agent.want("hungry", "python3", "-c", program, limits={"memory": "64Mi"})
    agent.until(lambda: agent.phase("hungry") == "Failed")
    ended = agent.ended("hungry")
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    assert not (agent.folder / "hungry").exists()
    agent.drop("hungry")


def test_the_command_evicts_a_pod_that_grows_before_the_kernel_would(agent: Agent) -> None:
    program, kubepods = GROWS.format(place=os.devnull, step=16), f"{agent.cgroups.root}/kubepods"

    def kills() -> int:
        words = agent.says(kubepods, "memory.events").split()
        return int(words[words.index("oom_kill") + 1])

    agent.until(lambda: bool(agent.cgroups.read_files(kubepods, ("memory.events",))))
    before = kills()
    agent.want("grows", "python3", "-c", program, requests={"memory": "16Mi"})
    agent.until(lambda: agent.pods().get("grows", {}).get("status", {}).get("reason") == "Evicted")
    agent.until(lambda: bool(agent.ended("grows")))
    status = agent.pods()["grows"]["status"]
    assert status["phase"] == "Failed"
    assert status["message"].startswith("The node was low on resource: memory.")
    # It did not end by SIGTERM (143), and was ended by the agent, not for want of memory. That a container hears of
    # its end is tested on the host: an emulated CPU may not run the handler within the second of a hard eviction.
    assert (agent.ended("grows")["reason"], agent.ended("grows")["exitCode"]) == ("Error", 137)
    assert kills() == before
    node = agent.client.get("api/v1/nodes")["items"][0]
    conditions = {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}
    assert conditions["MemoryPressure"] == "True"
