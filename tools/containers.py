"""An agent with containerd, for real: shown, measured, worn out. `python -m tools.containers demo|measure|soak`."""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.live.containerd import APP, Containerd, lacking

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.model.objects import Container, ObjectMeta, Pod, PodSpec
from nodewright.world.cri import Channel, CRIRuntime
from nodewright.world.ports import ContainerWish, Mount, SandboxWish
from tools.source import ROOT

NODEWRIGHT = str(Path(sys.executable).with_name("nodewright"))
FIGURES = ROOT / "docs" / "figures" / "containers.json"
_LIMIT_S = 120.0
_IDLE_PODS, _IDLE_S, _FEW = 10, 20, 10
_KUBELET = {"startSeconds": 0.25, "startExclusiveSeconds": 0.31, "rssMiB": 89, "cpuPercent": 1.3}
"""What a kubelet 1.36.2 takes for the same, on a machine of this kind, idle otherwise."""
_SLEEPS = 'trap "exit 0" TERM; echo > /out/$POD; while :; do sleep 1 & wait $!; done'


class Agent:
    """An agent of its own: its manifests, its groups, its socket."""

    def __init__(self, containerd: Containerd) -> None:
        self.containerd, self.root = containerd, containerd.root
        self.manifests, self.started = self.root / "manifests", self.root / "started"
        self.workloads = self.root / "workloads"
        self.cgroup_root = f"/nodewright-containers-{os.getpid()}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """It takes pods."""
        for each in (self.manifests, self.workloads, self.started):
            each.mkdir(exist_ok=True)
        (self.root / "kubelet.yaml").write_text(json.dumps(_CONFIGURATION))
        with (self.root / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        self.until((self.root / "agent.sock").exists, "the agent answers")

    def kill(self) -> None:
        """It is gone from one moment to the next."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        (self.root / "agent.sock").unlink(missing_ok=True)

    def write(self, name: str, resources: dict[str, Any] | None = None, image: str = APP) -> None:
        """A static pod is wanted, from one moment to the next."""
        self.put(name, a_pod(name, resources or {}, self.started, image), self.manifests)

    def put(self, name: str, document: dict[str, Any], directory: Path | None = None) -> None:
        """There is a manifest; by default that of an ordinary pod."""
        place = directory or self.workloads
        hidden = place / f".{name}"
        hidden.write_text(json.dumps(document))
        hidden.rename(place / f"{name}.json")

    def drop(self, name: str, directory: Path | None = None) -> None:
        """It is no longer wanted."""
        ((directory or self.manifests) / f"{name}.json").unlink()

    def runs(self, name: str) -> bool:
        """Whether its container has said so."""
        return (self.started / name).exists()

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        end_s = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > end_s:
                raise SystemExit(f"not within {_LIMIT_S:g} s: {what}\n{self.log()}")
            time.sleep(0.002)

    def log(self) -> str:
        """The last lines that it said."""
        return "\n".join((self.root / "agent.log").read_text().splitlines()[-30:])

    def uses(self) -> tuple[float, float]:
        """CPU time so far in seconds, memory in MiB."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        rss_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(rss_kib) / 1024

    def ask(self, *words: str) -> str:
        """What a command of ours prints."""
        environment = {**os.environ, "NODEWRIGHT_SOCKET": str(self.root / "agent.sock")}
        done = subprocess.run(
            [NODEWRIGHT, *words], env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def close(self) -> None:
        """All pods are gone, and then the agent."""
        if self.process is not None and self.process.poll() is None:
            for each in (*self.manifests.iterdir(), *self.workloads.iterdir()):
                each.unlink()
            self.until(lambda: not self.containerd.shims(), "all pods end")
            self.process.terminate()
            self.process.wait(30)
        for tree in _trees():
            for place, _, _ in os.walk(f"{tree}{self.cgroup_root}", topdown=False):
                Path(place).rmdir()

    def _command(self) -> list[str]:
        return [
            NODEWRIGHT,
            "agent",
            f"--config={self.root}/kubelet.yaml",
            f"--root-dir={self.root}/agent",
            f"--cgroup-root={self.cgroup_root}",
            f"--container-runtime-endpoint={self.containerd.endpoint}",
            f"--pod-manifest-path={self.manifests}",
            f"--workload-dir={self.workloads}",
            f"--socket={self.root}/agent.sock",
        ]


@contextmanager
def an_agent() -> Iterator[Agent]:
    """An agent with a containerd of its own; nothing of either is left."""
    with Containerd() as containerd:
        agent = Agent(containerd)
        try:
            agent.start()
            yield agent
        finally:
            agent.close()


def demo() -> None:
    """Pods run, one on a CPU of its own; the agent dies; the next one goes on with them."""
    with an_agent() as agent:
        agent.write("web")
        agent.write("pinned", EXCLUSIVE)
        agent.until(lambda: agent.runs("web") and agent.runs("pinned"), "both pods run")
        time.sleep(1)
        print(agent.ask("get", "pods", "-o", "wide"))
        shims = sorted(agent.containerd.shims())
        print("The agent is killed; containers go on.")
        agent.kill()
        assert sorted(agent.containerd.shims()) == shims
        agent.start()
        time.sleep(1)
        print("The next one has them, with the same restart counts:\n")
        print(agent.ask("get", "pods"))
        assert sorted(agent.containerd.shims()) == shims


def measure(times: int) -> dict[str, Any]:
    """Figures: how long a pod takes to run, and what the agent takes while nothing happens."""
    with an_agent() as agent:
        plain, exclusive, alone = list[float](), list[float](), list[float]()
        # By turns, so that whatever else the machine does weighs on all alike.
        for number in range(times):
            plain.append(_start_s(agent, f"plain{number}", {}))
            exclusive.append(_start_s(agent, f"exclusive{number}", EXCLUSIVE))
            alone.append(asyncio.run(_alone_s(agent, f"alone{number}")))
        for number in range(_IDLE_PODS):
            agent.write(f"idle{number}")
        for number in range(_IDLE_PODS):
            agent.until(partial(agent.runs, f"idle{number}"), "all of them run")
        time.sleep(5)
        before_s, _ = agent.uses()
        time.sleep(_IDLE_S)
        after_s, rss_mib = agent.uses()
    return {
        "times": times,
        "startSeconds": round(statistics.median(plain), 3),
        "startExclusiveSeconds": round(statistics.median(exclusive), 3),
        "runtimeAloneSeconds": round(statistics.median(alone), 3),
        "idlePods": _IDLE_PODS,
        "rssMiB": round(rss_mib, 1),
        "cpuPercent": round((after_s - before_s) / _IDLE_S * 100, 2),
        "kubelet": _KUBELET,
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def soak(pods: int, in_flight: int) -> dict[str, float]:
    """Very many pods that start and end: none is lost, and nothing is left of them."""
    with an_agent() as agent:
        assert agent.process is not None
        descriptors = Path(f"/proc/{agent.process.pid}/fd")
        # What is opened once for all is open after the first pod.
        _start_s(agent, "first", {})
        (agent.started / "first").unlink()
        before, began_s = len(list(descriptors.iterdir())), time.monotonic()
        waiting = [f"soak{number}" for number in range(pods)]
        running: list[str] = []
        while waiting or running:
            while waiting and len(running) < in_flight:
                running.append(waiting.pop())
                agent.write(running[-1])
            first = running[0]
            agent.until(partial(agent.runs, first), f"{first} runs")
            agent.drop(running.pop(0))
        agent.until(lambda: not agent.containerd.shims(), "all shims are gone")
        agent.until(lambda: not _groups(agent), "all groups of pods are gone")
        took_s = time.monotonic() - began_s
        time.sleep(2)
        ran = len(list(agent.started.iterdir()))
        assert ran == pods, f"{ran} of {pods} ran"
        left = [one for one in agent.containerd.mounts() if "/k8s.io/" in one or "/sandboxes/" in one]
        assert not left, left
        after = len(list(descriptors.iterdir()))
        # Some are opened once something is under way, but none a pod.
        assert after < before + _FEW, f"{before} descriptors before, {after} after"
    return {"pods": pods, "in_flight": in_flight, "took_s": round(took_s, 1), "descriptors": after}


def _start_s(agent: Agent, name: str, resources: dict[str, Any]) -> float:
    began_ns = time.time_ns()
    agent.write(name, resources)
    agent.until(lambda: agent.runs(name), f"{name} runs")
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    agent.drop(name)
    agent.until(lambda: not agent.containerd.shims(), f"{name} ends")
    agent.until(lambda: not _groups(agent), f"nothing of {name} is left")
    time.sleep(0.2)
    return took_s


async def _alone_s(agent: Agent, name: str) -> float:
    """How long the runtime itself takes for the same container, asked directly: no agent can be faster."""
    runtime = CRIRuntime(Channel(agent.containerd.endpoint), owner="alone")
    container = Container(name="app", image=APP)
    pod = Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(host_network=True))
    wish = ContainerWish(
        pod=pod,
        container=container,
        attempt=0,
        spec_hash="",
        command=("sh", "-c", _SLEEPS),
        env={"POD": name},
        log_path="0.log",
        mounts=(Mount(host_path=str(agent.started), container_path="/out"),),
        settings=ContainerSettings(),
        files=(),
    )
    group = f"{agent.cgroup_root}/{name}"
    await runtime.facts()
    began_ns = time.time_ns()
    sandbox = await runtime.run_sandbox(
        SandboxWish(pod=pod, attempt=0, cgroup_parent=group, log_directory=str(agent.root / "logs" / name))
    )
    await runtime.start_container(await runtime.create_container(sandbox, wish))
    await asyncio.to_thread(agent.until, partial(agent.runs, name), f"{name} runs")
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    await runtime.stop_sandbox(sandbox)
    await runtime.remove_sandbox(sandbox)
    await runtime.close()
    return took_s


def _groups(agent: Agent) -> list[str]:
    """The groups of pods that there are, in all hierarchies."""
    return [
        f"{place}/{name}"
        for tree in _trees()
        for place, below, _ in os.walk(f"{tree}{agent.cgroup_root}")
        for name in below
        if name.startswith("pod")
    ]


def _trees() -> list[Path]:
    """The hierarchies of cgroups; in version 2 there is one."""
    root = Path("/sys/fs/cgroup")
    return [root] if (root / "cgroup.controllers").exists() else list(root.iterdir())


def a_pod(name: str, resources: dict[str, Any], started: Path, image: str = APP) -> dict[str, Any]:
    """A manifest of a pod that says when it has started."""
    container = {
        "name": "app",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _SLEEPS],
        "env": [{"name": "POD", "value": name}],
        "resources": resources,
        "volumeMounts": [{"name": "out", "mountPath": "/out"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "hostNetwork": True,
            "containers": [container],
            "volumes": [{"name": "out", "hostPath": {"path": str(started)}}],
        },
    }


EXCLUSIVE = {
    "requests": {"cpu": "1", "memory": "32Mi"},
    "limits": {"cpu": "1", "memory": "32Mi"},
}
_CONFIGURATION = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0",
}


def main() -> None:
    """Do what was asked for; figures are printed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("demo", "measure", "soak"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pods", type=int, default=500)
    told = parser.parse_args()
    if why := lacking():
        print(f"left out: {why}", file=sys.stderr)
        return
    if told.what == "demo":
        demo()
        return
    found = measure(told.times) if told.what == "measure" else soak(told.pods, 20)
    text = json.dumps(found, indent=2)
    if told.what == "measure":
        FIGURES.write_text(f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
