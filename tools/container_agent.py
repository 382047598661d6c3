"""An agent with a containerd of its own, for tools and live tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.live.containerd import APP, Containerd

from nodewright.cluster.client.agent_client import AgentClient

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

    def until(self, holds: Callable[[], bool], what: str, interval_s: float = 0.02) -> None:
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
