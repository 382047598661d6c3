"""An agent with containerd, for real: shown, measured, worn out. `python -m tools containers demo|measure|soak|evictions`."""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.live.containerd import APP, Containerd, lacking
from tests.live.cri_races import container_races
from tests.support.eviction_race import ThresholdScope

from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.runtimes.cri import CRIChannel, CRIRuntime
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import LIST_CONTAINERS, LIST_POD_SANDBOX
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from tools.pressure import figures as race_figures
from tools.source import ROOT, commit

NODEWRIGHT = str(Path(sys.executable).with_name("nodewright"))
_LIMIT_S = 60.0
SLEEPS = 'trap "exit 0" TERM; echo > /out/$POD; while :; do sleep 1 & wait $!; done'


class Agent:
    """An agent of its own: its manifests, its groups, its socket."""

    def __init__(
        self,
        containerd: Containerd,
        options: tuple[str, ...] = (),
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        """With the fields of ``configuration`` beside those of all agents here."""
        self.containerd, self.root, self._options = containerd, containerd.root, options
        self._configuration = {**_CONFIGURATION, **(configuration or {})}
        self.manifests, self.started = self.root / "manifests", self.root / "started"
        self.workloads = self.root / "workloads"
        self.cgroup_root = f"/nodewright-containers-{os.getpid()}"
        self.endpoint = containerd.endpoint
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """It takes pods."""
        self.begin()
        self.until(self.answers, "the agent answers")

    def begin(self) -> None:
        """There is a process."""
        for each in (self.manifests, self.workloads, self.started):
            each.mkdir(exist_ok=True)
        (self.root / "kubelet.yaml").write_text(json.dumps(self._configuration))
        with (self.root / "agent.log").open("ab") as log:
            environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
            self.process = subprocess.Popen(self._command(), stdout=log, stderr=log, env=environment)

    def answers(self) -> bool:
        """Whether it takes pods."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise SystemExit(f"the agent has ended:\n{self.log()}")
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.root / "agent.sock")) == 0

    def kill(self) -> None:
        """Kills the agent."""
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

    def until(self, holds: Callable[[], bool], what: str, interval_s: float = 0.05) -> None:
        """Waits until something holds."""
        end_s = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > end_s:
                raise SystemExit(f"not within {_LIMIT_S:g} s: {what}\n{self.log()}")
            time.sleep(interval_s)

    def container_processes(self) -> set[int]:
        """The first processes of all containers that sleep, whether the runtime knows them or not."""
        parents = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                command, cgroups = (place / "cmdline").read_bytes(), (place / "cgroup").read_text()
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if SLEEPS.encode() in command and f":{self.cgroup_root}/" in cgroups:
                parents[int(place.name)] = parent
        # A child of a shell has its command line until it executes its own.
        return {pid for pid, parent in parents.items() if parent not in parents}

    def log(self) -> str:
        """The last lines that it said."""
        return "\n".join((self.root / "agent.log").read_text().splitlines()[-60:])

    def uses(self) -> tuple[float, float]:
        """CPU time so far in seconds, memory in MiB."""
        assert self.process is not None
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        rss_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(rss_kib) / 1024

    def pods(self) -> list[dict[str, Any]]:
        """The pods that the agent shows."""
        return self._items("pods")

    def events(self) -> list[dict[str, Any]]:
        """The events that the agent shows."""
        return self._items("events")

    def ask(self, *words: str) -> str:
        """What a command of ours prints."""
        environment = {**os.environ, "NODEWRIGHT_SOCKET": str(self.root / "agent.sock")}
        done = subprocess.run(
            [NODEWRIGHT, *words], env=environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def close(self) -> None:
        """Ends all pods, then the agent."""
        if self.process is not None and self.process.poll() is None:
            try:
                for each in (*self.manifests.iterdir(), *self.workloads.iterdir()):
                    each.unlink()
                self.until(lambda: not self.containerd.shims(), "all pods end")
            finally:
                self.process.terminate()
                self._wait_until_ended()
        for tree in trees():
            for place, _, _ in os.walk(f"{tree}{self.cgroup_root}", topdown=False):
                Path(place).rmdir()

    def _wait_until_ended(self) -> None:
        """Waits for the end; an agent that does not end in time writes where its threads are into its log."""
        assert self.process is not None
        try:
            self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            raise SystemExit(f"the agent does not end:\n{self.log()}") from None

    def _items(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = AgentClient(self.root / "agent.sock").get("api/v1", kind)["items"]
        return items

    def _command(self) -> list[str]:
        # Where the runtime sees mounts, whichever these are.
        return [
            *("nsenter", f"--mount=/proc/{self.containerd.pid}/ns/mnt", f"--wdns={Path.cwd()}"),
            NODEWRIGHT,
            "agent",
            f"--config={self.root}/kubelet.yaml",
            f"--root-dir={self.root}/agent",
            f"--cgroup-root={self.cgroup_root}",
            f"--container-runtime-endpoint={self.endpoint}",
            f"--pod-manifest-path={self.manifests}",
            f"--workload-dir={self.workloads}",
            f"--socket={self.root}/agent.sock",
            *self._options,
        ]


@contextmanager
def an_agent(containerd: Containerd | None = None, *options: str) -> Iterator[Agent]:
    """An agent with a containerd of its own; nothing of either is left."""
    with containerd or Containerd() as runtime:
        agent = Agent(runtime, options)
        try:
            agent.start()
            yield agent
        finally:
            agent.close()


def groups(agent: Agent) -> list[str]:
    """The groups of pods that there are, in all hierarchies."""
    return [
        f"{place}/{name}"
        for tree in trees()
        for place, below, _ in os.walk(f"{tree}{agent.cgroup_root}")
        for name in below
        if name.startswith("pod")
    ]


def trees() -> list[Path]:
    """The hierarchies of cgroups; in version 2 there is one."""
    root = Path("/sys/fs/cgroup")
    return [root] if (root / "cgroup.controllers").exists() else list(root.iterdir())


def a_pod(name: str, resources: dict[str, Any], started: Path, image: str = APP) -> dict[str, Any]:
    """A manifest of a pod that says when it has started."""
    container = {
        "name": "app",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SLEEPS],
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


FIGURES = ROOT / "docs" / "figures" / "containers.json"
_IDLE_PODS, _IDLE_S, _IN_FLIGHT = 10, 20, 20
_PRECISION_S = 0.002
_KUBELET = {"startSeconds": 0.25, "startExclusiveSeconds": 0.31, "rssMiB": 89, "cpuPercent": 1.3}
"""What a kubelet 1.36.2 takes for the same, on a machine of this kind, idle otherwise."""


def demo() -> None:
    """Runs pods, one with an exclusive CPU, kills the agent, and checks that the next agent adopts the pods."""
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


def soak(pods: int, in_flight: int, seed: int) -> dict[str, Any]:
    """Very many pods that start and end: none is lost, and nothing is left of them."""
    choose = random.Random(seed)
    with an_agent() as agent:
        # What is opened once for all is open after as many as there ever are at once.
        _churn(agent, [f"first{number}" for number in range(in_flight)], in_flight, choose)
        _until_quiet(agent)
        before, began_s = _counts(agent), time.monotonic()
        _churn(agent, [f"soak{number}" for number in range(pods)], in_flight, choose)
        _until_quiet(agent)
        took_s = time.monotonic() - began_s
        after = _counts(agent)
        ran = len(list(agent.started.iterdir())) - in_flight
        assert ran == pods, f"{ran} of {pods} ran"
        assert after == before, f"before {before}, after {after}"
    return {
        "pods": pods,
        "inFlight": in_flight,
        "seed": seed,
        "commit": commit(),
        "seconds": round(took_s, 1),
        "ran": ran,
        "before": before,
        "after": after,
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def _churn(agent: Agent, names: list[str], in_flight: int, choose: random.Random) -> None:
    """Pods start, so many at once; whichever runs may be the next to end."""
    waiting, running = list(reversed(names)), list[str]()
    while waiting or running:
        while waiting and len(running) < in_flight:
            running.append(waiting.pop())
            agent.write(running[-1], choose.choice(({}, EXCLUSIVE if len(running) == 1 else {})))
        agent.until(lambda: any(map(agent.runs, running)), f"one of {running} runs", _PRECISION_S)
        name = choose.choice([text for text in running if agent.runs(text)])
        agent.drop(name)
        running.remove(name)


def _until_quiet(agent: Agent) -> None:
    agent.until(lambda: not agent.containerd.shims(), "all shims are gone")
    agent.until(lambda: not groups(agent), "all groups of pods are gone")
    agent.until(lambda: not agent.pods(), "the agent has none")
    time.sleep(2)


def _counts(agent: Agent) -> dict[str, int]:
    """What there is of everything that a pod takes."""
    assert agent.process is not None
    sandboxes, containers = asyncio.run(_held(agent.containerd.endpoint))
    return {
        "sandboxes": sandboxes,
        "containers": containers,
        "shims": len(agent.containerd.shims()),
        "groups": len(groups(agent)),
        "mounts": len(agent.containerd.mounts()),
        "directories": sum(
            len(list((agent.root / "agent" / name).glob("*"))) for name in ("pods", "volumes", "logs")
        ),
        "agentDescriptors": len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())),
        "runtimeDescriptors": len(list(Path(f"/proc/{agent.containerd.pid}/fd").iterdir())),
    }


async def _held(endpoint: str) -> tuple[int, int]:
    """Number of sandboxes and containers of the runtime, including foreign ones."""
    line = CRIChannel(endpoint)
    sandboxes = await line.call(LIST_POD_SANDBOX, cri.ListPodSandboxRequest(), "")
    containers = await line.call(LIST_CONTAINERS, cri.ListContainersRequest(), "")
    await line.close()
    return len(sandboxes.items), len(containers.containers)


def evictions(times: int) -> dict[str, Any]:
    """How late the signal is for a container that grows by 512 MiB a second, at the node and below all pods' limit."""
    document: dict[str, Any] = {}
    with Containerd() as containerd:
        for where in ThresholdScope:
            document[where.value] = race_figures(asyncio.run(container_races(containerd, where, times)))
    return {
        **document,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def _start_s(agent: Agent, name: str, resources: dict[str, Any]) -> float:
    began_ns = time.time_ns()
    agent.write(name, resources)
    agent.until(lambda: agent.runs(name), f"{name} runs", _PRECISION_S)
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    agent.drop(name)
    agent.until(lambda: not agent.containerd.shims(), f"{name} ends")
    agent.until(lambda: not groups(agent), f"nothing of {name} is left")
    time.sleep(0.2)
    return took_s


async def _alone_s(agent: Agent, name: str) -> float:
    """How long the runtime itself takes for the same container, asked directly: no agent can be faster."""
    runtime = CRIRuntime(CRIChannel(agent.containerd.endpoint), owner="alone")
    container = Container(name="app", image=APP)
    pod = Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(host_network=True))
    container_config = ContainerConfig(
        pod=pod,
        container=container,
        attempt=0,
        spec_hash="",
        command=("sh", "-c", SLEEPS),
        env={"POD": name},
        log_path="0.log",
        mounts=(Mount(host_path=str(agent.started), container_path="/out"),),
        settings=ContainerSettings(),
        cgroup_files=(),
    )
    group = f"{agent.cgroup_root}/{name}"
    await runtime.facts()
    began_ns = time.time_ns()
    sandbox = await runtime.run_sandbox(
        PodSandboxConfig(
            pod=pod, attempt=0, cgroup_parent=group, log_directory=str(agent.root / "logs" / name)
        )
    )
    await runtime.start_container(await runtime.create_container(sandbox, container_config))
    await asyncio.to_thread(agent.until, partial(agent.runs, name), f"{name} runs", _PRECISION_S)
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    await runtime.stop_sandbox(sandbox)
    await runtime.remove_sandbox(sandbox)
    await runtime.close()
    return took_s


def main() -> None:
    """Do what was asked for; figures are printed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("demo", "measure", "soak", "evictions"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--into", type=Path, help="the file for the figures; default: one in docs/figures")
    arguments = parser.parse_args()
    if why := lacking():
        print(f"left out: {why}", file=sys.stderr)
        return
    if arguments.what == "demo":
        demo()
        return
    match arguments.what:
        case "measure":
            found, place = measure(arguments.times), FIGURES
        case "soak":
            found, place = (
                soak(arguments.pods, _IN_FLIGHT, arguments.seed),
                FIGURES.with_name("containers-soak.json"),
            )
        case _:
            found, place = evictions(arguments.times), FIGURES.with_name("containers-evictions.json")
    text = json.dumps(found, indent=2)
    (arguments.into or place).write_text(f"{text}\n")
    print(text)
