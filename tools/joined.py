"""The joined agent beside the real kubelet, on the same API server and containerd: `python -m tools joined`, `status-times`, `stream-times`.

Measures how long a bound pod takes to run, how late the end of a container is known in the API, how long 110 pods take and
how late the Lease is renewed meanwhile, and what 10 pods cost while nothing happens. Writes docs/figures/joined.json;
110 pods at once are in docs/figures/joined-110-pods.json.
"""

import argparse
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from tests.live.containerd import APP, Containerd
from tests.support.real_api_server import ASSETS, NODE_TOKEN, RealAPIServer, real_api_server

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import LIST_CONTAINERS
from tools.containers import NODEWRIGHT, trees
from tools.demo_cluster import missing_parts, own_address
from tools.source import ROOT, commit

FIGURES = ROOT / "docs" / "figures" / "joined.json"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker"
_ADMIN = {"Authorization": "Bearer admin"}
_LIMIT_S = 180.0
_SLEEPS = "echo > /out/$POD; trap 'exit 0' TERM; sleep 100000 & wait"
_ENDS = "sleep 0.3; echo > /out/$POD; exit 0"


class PodWatch:
    """When pods were seen in a phase first, by a watch of all pods."""

    def __init__(self, server: RealAPIServer) -> None:
        self.seen: dict[tuple[str, str], float] = {}
        self._server = server
        self._ends = False
        threading.Thread(target=self._run, daemon=True).start()

    def has_seen(self, name: str, phase: str) -> bool:
        """Whether a pod was in this phase."""
        return (name, phase) in self.seen

    def close(self) -> None:
        """Ends the watch with its next event."""
        self._ends = True

    def _run(self) -> None:
        while not self._ends:
            with suppress(OSError, http.client.HTTPException, ValueError):
                watch = connection(self._server)
                watch.request("GET", f"{PODS}?watch=true", headers=_ADMIN)
                response = watch.getresponse()
                while not self._ends and (line := response.readline()):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    pod = event["object"]
                    key = (pod["metadata"]["name"], pod.get("status", {}).get("phase", ""))
                    self.seen.setdefault(key, time.time())


class LeaseRenewals:
    """When the node's Lease was renewed, read several times a second."""

    def __init__(self, server: RealAPIServer) -> None:
        self.times_s: list[float] = []
        self._server, self._ended = server, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the reading."""
        self._ended.set()
        self._thread.join()

    def longest_s(self, since_s: float) -> float:
        """The longest time between two renewals of which the second was after this moment."""
        pairs = list(itertools.pairwise(self.times_s))
        return max(later - earlier for earlier, later in pairs if later >= since_s)

    def _run(self) -> None:
        client = connection(self._server)
        while not self._ended.wait(0.25):
            client.request("GET", LEASE, headers=_ADMIN)
            spec = json.loads(client.getresponse().read()).get("spec") or {}
            if "renewTime" not in spec:
                continue
            renewed_s = datetime.fromisoformat(spec["renewTime"]).timestamp()
            if renewed_s not in self.times_s[-1:]:
                self.times_s.append(renewed_s)


class Node:
    """An agent or a kubelet that has joined."""

    def __init__(
        self, server: RealAPIServer, watch: PodWatch, process: subprocess.Popen[bytes], out: Path
    ) -> None:
        self.server, self.watch, self.process, self.out = server, watch, process, out

    def create(self, name: str, script: str) -> float:
        """Creates a bound pod; when that began."""
        container = {
            "name": "app",
            "image": APP,
            "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "sh", "-c", script],
            "env": [{"name": "POD", "value": name}],
            "volumeMounts": [{"name": "out", "mountPath": "/out"}],
        }
        spec = {
            "nodeName": "worker",
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "out", "hostPath": {"path": str(self.out)}}],
        }
        began_s = time.time()
        answer = self.server.create(PODS, {"metadata": {"name": name}, "spec": spec})
        assert answer.code == 201, answer.message
        return began_s

    def wrote_s(self, name: str) -> float:
        """When the container wrote its file."""
        return (self.out / name).stat().st_mtime_ns / 10**9

    def remove_pods(self) -> None:
        """Deletes all pods and waits until they are gone."""
        self.server.request("DELETE", PODS)
        until(lambda: not self.server.request("GET", PODS).body["items"], "pods are gone")

    def uses(self) -> tuple[float, float]:
        """CPU time so far in seconds, and memory in MiB."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        lines = Path(f"/proc/{self.process.pid}/status").read_text("ascii").splitlines()
        rss_kib = next(line.split()[1] for line in lines if line.startswith("VmRSS"))
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), int(rss_kib) / 1024


def connection(server: RealAPIServer) -> http.client.HTTPSConnection:
    """A connection of a thread's own."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", server.port, context=context)


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until something is so."""
    deadline_s = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"not within {_LIMIT_S:g} s: {what}")
        time.sleep(0.005)


def measured(node: Node, times: int, many: int, idle_pods: int, idle_s: float) -> dict[str, Any]:
    """The figures of one node."""
    starts, ends = list[float](), list[float]()
    for number in range(times):
        name = f"start-{number}"
        began_s = node.create(name, _SLEEPS)
        until(partial(node.watch.has_seen, name, "Running"), "the pod runs")
        starts.append(node.wrote_s(name) - began_s)
        node.remove_pods()
        name = f"end-{number}"
        node.create(name, _ENDS)
        until(partial(node.watch.has_seen, name, "Succeeded"), "the pod ends")
        ends.append(node.watch.seen[name, "Succeeded"] - node.wrote_s(name))
        node.remove_pods()
    names = [f"idle-{number}" for number in range(idle_pods)]
    for name in names:
        node.create(name, _SLEEPS)
    until(lambda: all((name, "Running") in node.watch.seen for name in names), "all pods run")
    time.sleep(10)
    before_s, _ = node.uses()
    time.sleep(idle_s)
    after_s, rss_mib = node.uses()
    node.remove_pods()
    many_s, renewal_s = started_together(node, many)
    node.remove_pods()
    return {
        "startSeconds": round(statistics.median(starts), 3),
        "endKnownSeconds": round(statistics.median(ends), 3),
        "manySeconds": round(many_s, 1),
        "longestRenewalSeconds": round(renewal_s, 2),
        "idleRssMiB": round(rss_mib, 1),
        "idleCpuPercent": round((after_s - before_s) / idle_s * 100, 2),
    }


def started_together(node: Node, many: int) -> tuple[float, float]:
    """How long so many pods take until all run, and the longest time between renewals of the Lease meanwhile.

    Units: seconds; a Lease of 40 s is renewed every 10 s.
    """
    renewals = LeaseRenewals(node.server)
    try:
        until(lambda: bool(renewals.times_s), "the Lease is renewed")
        names = [f"many-{number}" for number in range(many)]
        began_s = min(node.create(name, _SLEEPS) for name in names)
        until(lambda: all((name, "Running") in node.watch.seen for name in names), "all pods run")
        running_s = max(node.watch.seen[name, "Running"] for name in names)
        until(lambda: renewals.times_s[-1] > running_s, "the Lease is renewed after the start")
        return running_s - began_s, renewals.longest_s(began_s)
    finally:
        renewals.close()


@contextmanager
def joined(kind: str, server: RealAPIServer, runtime: Containerd, folder: Path) -> Iterator[Node]:
    """An agent or a kubelet as the node `worker`; nothing is left of it."""
    group, out = f"/nodewright-joined-{os.getpid()}", folder / f"out-{kind}"
    out.mkdir()
    with ExitStack() as stack:
        address = stack.enter_context(own_address())
        stack.callback(_remove_groups, group)
        # The kubelet mounts its directory on itself.
        root = folder / f"root-{kind}"
        stack.callback(subprocess.run, ["umount", "-l", str(root)], check=False, stderr=subprocess.DEVNULL)
        for tree in trees():
            (Path(f"{tree}{group}")).mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            place = Path("/sys/fs/cgroup/cpuset")
            if (place / name).exists():
                (Path(f"{place}{group}") / name).write_text((place / name).read_text())
        config = folder / f"{kind}.json"
        config.write_text(json.dumps(_configuration(address, group, runtime, folder)), "utf-8")
        command = [NODEWRIGHT, "kubelet"] if kind == "agent" else [f"{ASSETS}/kubelet"]
        flags = ["--hostname-override=worker", f"--node-ip={address}", f"--config={config}"]
        flags += [f"--kubeconfig={folder}/node.kubeconfig", f"--root-dir={root}"]
        environment = {**os.environ, "NODEWRIGHT_SOCKET": str(folder / "agent.sock")}
        with (folder / f"{kind}.log").open("wb") as log:
            process = subprocess.Popen([*command, *flags], stdout=log, stderr=log, env=environment)
        stack.callback(_end, process)
        watch = PodWatch(server)
        stack.callback(watch.close)
        until(lambda: _is_ready(server), f"the {kind} is ready: {folder}/{kind}.log")
        yield Node(server, watch, process, out)


def _configuration(address: str, group: str, runtime: Containerd, folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "failCgroupV1": False,
        "makeIPTablesUtilChains": False,
        "containerRuntimeEndpoint": runtime.endpoint,
        "podLogsDir": str(folder / "logs"),
        "containerLogMaxSize": "100Mi",
        "evictionHard": {"memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 120,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
    }


def _is_ready(server: RealAPIServer) -> bool:
    answer = server.request("GET", "/api/v1/nodes/worker")
    conditions = answer.body["status"].get("conditions", ()) if answer.code == 200 else ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


def _remove_groups(group: str) -> None:
    for tree in trees():
        for place, _, _ in os.walk(f"{tree}{group}", topdown=False):
            with suppress(OSError):
                Path(place).rmdir()


def measure_joined() -> int:
    """Measures both, one after the other, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--many", type=int, default=110)
    parser.add_argument("--idle-pods", type=int, default=10)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--figures", type=Path, default=FIGURES)
    options = parser.parse_args()
    return _measure_each(
        options.figures,
        ("agent", "kubelet"),
        lambda node, _: measured(node, options.times, options.many, options.idle_pods, options.idle_seconds),
        {"times": options.times, "pods": options.many},
    )


def _measure_each(
    path: Path,
    kinds: Iterable[str],
    measure: Callable[[Node, Containerd], dict[str, Any]],
    about: dict[str, Any],
) -> int:
    """Measures one kind of node after the other, each with an API server and a containerd of its own; writes the figures."""
    if missing := missing_parts():
        print(f"needs {missing}", file=sys.stderr)
        return 0
    # What is stopped by a signal leaves nothing either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    figures: dict[str, Any] = {}
    for kind in kinds:
        with ExitStack() as stack:
            folder = Path(tempfile.mkdtemp(prefix="nodewright-joined-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            # The host's name is known here only.
            flags = ["--kubelet-preferred-address-types=InternalIP"]
            server = stack.enter_context(real_api_server(folder, checks_rights=True, flags=flags))
            server.write_kubeconfig(folder / "node.kubeconfig", NODE_TOKEN)
            runtime = stack.enter_context(Containerd())
            node = stack.enter_context(joined(kind, server, runtime, folder))
            figures[kind] = measure(node, runtime)
            print(kind, figures[kind], flush=True)
    figures |= about
    figures |= {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }
    path.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    return 0


STATUS_FIGURES = ROOT / "docs" / "figures" / "joined-status.json"
_EVENT = re.compile(r"^(\S+ \S+) \+0000 UTC \S+ /tasks/(start|exit) (\{.*\})$")
_STATES = {"start": "running", "exit": "terminated"}
_LASTS_S = 1.0
_POLL_S, _MARK_MS = 0.004, 50


class ContainerEvents:
    """When containerd reported that a container started or ended, by id and event; in seconds since 1970."""

    def __init__(self, runtime: Containerd) -> None:
        command = ["ctr", "--address", str(runtime.socket), "-n", "k8s.io", "events"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.times_s: dict[tuple[str, str], float] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Ends the reading."""
        self._process.terminate()
        self._process.wait()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if match := _EVENT.match(line):
                moment, what, event = match.groups()
                whole, _, fraction = moment.partition(".")
                at = datetime.fromisoformat(whole).replace(tzinfo=UTC)
                body = json.loads(event)
                if body.get("id", body["container_id"]) == body["container_id"]:
                    self.times_s[body["container_id"], what] = at.timestamp() + float(f"0.{fraction or 0}")


class RuntimeStates:
    """When CRI showed a container in a state first, by id and state; read all the time."""

    def __init__(self, runtime: Containerd) -> None:
        self.times_s: dict[tuple[str, str], float] = {}
        self._ended = threading.Event()
        self._channel = grpc.insecure_channel(f"unix://{runtime.socket}")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the reading."""
        self._ended.set()
        self._thread.join()
        self._channel.close()

    def has_seen(self, id_: str) -> bool:
        """Whether the container was seen to run and to end."""
        return all((id_, state) in self.times_s for state in _STATES.values())

    def _run(self) -> None:
        read = self._channel.unary_unary(
            LIST_CONTAINERS.path,
            request_serializer=cri.ListContainersRequest.SerializeToString,
            response_deserializer=cri.ListContainersResponse.FromString,
        )
        names = {cri.CONTAINER_RUNNING: "running", cri.CONTAINER_EXITED: "terminated"}
        while not self._ended.wait(_POLL_S):
            containers = read(cri.ListContainersRequest()).containers
            now_s = time.time()
            for container in containers:
                if container.state in names:
                    self.times_s.setdefault((container.id, names[container.state]), now_s)


class ContainerStates:
    """When a watch of pods showed a container in a state first, by id and state; in seconds since 1970."""

    def __init__(self, server: RealAPIServer) -> None:
        self.times_s: dict[tuple[str, str], float] = {}
        self._server, self._ends = server, False
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Ends the watch with its next event."""
        self._ends = True

    def _run(self) -> None:
        while not self._ends:
            with suppress(OSError, http.client.HTTPException, ValueError):
                watch = connection(self._server)
                watch.request("GET", f"{PODS}?watch=true", headers=_ADMIN)
                response = watch.getresponse()
                while not self._ends and (line := response.readline()):
                    now_s = time.time()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    for status in event["object"].get("status", {}).get("containerStatuses") or ():
                        id_ = status.get("containerID", "").rpartition("/")[2]
                        for state in status.get("state") or {}:
                            self.times_s.setdefault((id_, state), now_s)


Sources = tuple[ContainerEvents, RuntimeStates, ContainerStates]


@contextmanager
def followed(server: RealAPIServer, runtime: Containerd) -> Iterator[Sources]:
    """What all of them say of containers from now on."""
    sources = (ContainerEvents(runtime), RuntimeStates(runtime), ContainerStates(server))
    try:
        time.sleep(1)
        yield sources
    finally:
        for source in sources:
            source.close()


def measured_status_times(node: Node, sources: Sources, times: int) -> dict[str, Any]:
    """The figures of one node, in milliseconds."""
    events, runtime, states = sources
    delays: dict[str, dict[str, list[float]]] = {what: {"event": [], "runtime": []} for what in _STATES}
    for number in range(times):
        before = {id_ for id_, _ in states.times_s}
        answer = node.server.create(PODS, {"metadata": {"name": f"pod-{number}"}, "spec": _spec(number)})
        assert answer.code == 201, answer.message

        def ended(before: set[str] = before) -> set[str]:
            return {id_ for id_, state in states.times_s if state == "terminated"} - before

        until(lambda: bool(ended()), "a container ends")
        (id_,) = ended()
        # The API server may have shown the end before the runtime was asked again.
        until(partial(runtime.has_seen, id_), "the runtime shows the end")
        for what, state in _STATES.items():
            seen_s = states.times_s[id_, state]
            delays[what]["event"].append((seen_s - events.times_s[id_, what]) * 1000)
            delays[what]["runtime"].append((seen_s - runtime.times_s[id_, state]) * 1000)
        node.remove_pods()
    return {
        f"{what}, from the {since}": {
            "median": round(statistics.median(values), 1),
            "worst": round(max(values), 1),
            "within50": sum(value <= _MARK_MS for value in values),
        }
        for what, kinds in delays.items()
        for since, values in kinds.items()
    }


def _spec(number: int) -> dict[str, Any]:
    """A pod that goes on when its first container has ended."""
    script = f"sleep {_LASTS_S + number % 10 / 20}; exit 0"
    stays = "trap 'exit 0' TERM; sleep 100000 & wait"
    return {
        "nodeName": "worker",
        "hostNetwork": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": name,
                "image": APP,
                "imagePullPolicy": "Never",
                "command": ["/bin/busybox", "sh", "-c", command],
            }
            for name, command in (("stays", stays), ("ends", script))
        ],
    }


def measure_status_times() -> int:
    """Measures both, one after the other, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--kinds", nargs="+", default=["agent", "kubelet"])
    parser.add_argument("--figures", type=Path, default=STATUS_FIGURES)
    options = parser.parse_args()

    def measure(node: Node, runtime: Containerd) -> dict[str, Any]:
        with followed(node.server, runtime) as sources:
            return measured_status_times(node, sources, options.times)

    about = {"unit": "milliseconds", "times": options.times}
    return _measure_each(options.figures, options.kinds, measure, about)


STREAM_FIGURES = ROOT / "docs" / "figures" / "joined-streams.json"
_LOG_MIB, _EXEC_MB, _COPY_MB = 10, 100, 1000
_LINE = "line of a log that is short"


def measured_streams(node: Node) -> dict[str, Any]:
    """How long kubectl takes through the API server: a log of short lines, the output of a process, a file from a container."""
    lines = _LOG_MIB * 1024**2 // (len(_LINE) + 1)
    # kubectl cp starts tar in the container.
    commands = f"/bin/busybox ln -sf /bin/busybox /bin/tar; /bin/busybox yes '{_LINE}' | /bin/busybox head -n {lines}; {_SLEEPS}"
    node.create("talks", commands)
    until((node.out / "talks").exists, "the log is written")
    with (node.out / "large").open("wb") as large:
        large.truncate(_COPY_MB * 10**6)
    target = node.out / "copy"
    return {
        "logsSeconds": _kubectl_s(node, "logs", "talks"),
        "execSeconds": _kubectl_s(
            node, "exec", "talks", "--", "/bin/busybox", "head", "-c", str(_EXEC_MB * 10**6), "/dev/zero"
        ),
        "copySeconds": _kubectl_s(node, "cp", "talks:/out/large", str(target)),
        "bytesCopied": target.stat().st_size,
    }


def _kubectl_s(node: Node, *arguments: str) -> float:
    """The shortest of three times, in seconds."""
    flags = [f"--server=https://127.0.0.1:{node.server.port}", "--insecure-skip-tls-verify", "--token=admin"]
    taken = []
    for _ in range(3):
        began_s = time.monotonic()
        subprocess.run([f"{ASSETS}/kubectl", *flags, *arguments], stdout=subprocess.DEVNULL, check=True)
        taken.append(time.monotonic() - began_s)
    return round(min(taken), 2)


def measure_streams() -> int:
    """Measures both, one after the other, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["agent", "kubelet"])
    parser.add_argument("--figures", type=Path, default=STREAM_FIGURES)
    options = parser.parse_args()
    about = {"logMiB": _LOG_MIB, "execMB": _EXEC_MB, "copyMB": _COPY_MB}
    return _measure_each(options.figures, options.kinds, lambda node, _: measured_streams(node), about)
