"""Ask an agent a thousand times a second, over TLS, while pods start and end; or put ten thousand manifests before it at once.

Needs root and cgroups: `python -m tools load`.
"""

import argparse
import json
import multiprocessing
import os
import platform
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.cluster.client.agent_client import AgentClient
from tools.source import ROOT

FIGURES = ROOT / "docs" / "figures" / "load.json"
GUIDE = ROOT / "docs" / "guide" / "kubelet-api.md"
MARK = "<!-- figures of docs/figures/load.json -->\n"
PATHS = ("/metrics", "/pods")
TOKEN = "a-token-of-this-run"  # noqa: S105 - of an agent that lives for a minute
CLIENTS = 4
PRIORITY = -10
WARM_S = 3.0
CHURN_PERIOD_S = 0.5
MOST_GROWTH_MIB = 20
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: measure_load, image: none, command: [sleep, "10000"], resources: {{requests: {{cpu: 1m, memory: 1Mi}}}}}}
"""


class Agent:
    """An agent of its own with so many pods, on the loopback."""

    def __init__(self, folder: Path, pods: int) -> None:
        self.folder, self.wanted = folder, folder / "pods"
        self.wanted.mkdir()
        self.port, other = _free_ports(2)
        config = folder / "config.yaml"
        config.write_text(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
            f"address: 127.0.0.1\nport: {self.port}\nhealthzPort: {other}\nmaxPods: {pods + 20}\nevictionHard: {{}}\n"
        )
        (folder / "tokens.csv").write_text(f"{TOKEN},load,1,\n")
        for number in range(pods):
            self.want(f"steady-{number}")
        command = [sys.executable, "-m", "nodewright", "agent", "--config", str(config), "--kubelet-api"]
        self.group = f"/nodewright-load-{os.getpid()}"
        command += ["--root-dir", str(folder / "root"), "--cgroup-root", self.group]
        command += ["--socket", str(folder / "agent.sock"), "--workload-dir", str(self.wanted)]
        command += ["--token-auth-file", str(folder / "tokens.csv"), "--grant", "read=user:load"]
        self.log = (folder / "agent.log").open("wb")
        command += ["--drain-on-exit", "--pod-resources-socket", "none"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def want(self, name: str) -> None:
        """One more pod."""
        beside = self.folder / f"{name}.yaml"
        beside.write_text(MANIFEST.format(name=name))
        beside.replace(self.wanted / beside.name)

    def drop(self, name: str) -> None:
        """One pod less."""
        (self.wanted / f"{name}.yaml").unlink()

    def rss_mib(self) -> float:
        """The agent's memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def cpu_s(self) -> float:
        """The CPU time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wait(self, pods: int) -> None:
        """Wait until so many pods run."""
        until_s = time.monotonic() + 120
        while time.monotonic() < until_s:
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "agent.log").read_text()[-2000:])
            try:
                with Client(self.port) as client:
                    _, body = client.ask("/metrics")
                if f"kubelet_running_pods {pods}\n".encode() in body:
                    return
            except OSError:
                pass
            time.sleep(0.5)
        raise RuntimeError("the pods did not all start in two minutes")

    def end(self) -> None:
        """Nothing is left."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()
        groups = CgroupFS(self.group)
        groups.kill(self.group)
        groups.remove(self.group)


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._socket = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10))
        self._room, self._start = memoryview(bytearray(4 << 20)), 0

    def ask(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        status, size = self.asked(path)
        return status, bytes(self._room[self._start : self._start + size])

    def asked(self, path: str) -> tuple[int, int]:
        """Status, and the size of the body."""
        head = f"GET {path} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        self._socket.sendall(head.encode())
        got, size, status = 0, None, 0
        while size is None or got < size:
            count = self._socket.recv_into(self._room[got:])
            if not count:
                raise ConnectionError("the agent hung up")
            got += count
            if size is None:
                whole = bytes(self._room[: min(got, 4096)])
                end = whole.find(b"\r\n\r\n")
                if end >= 0:
                    lower = whole[:end].lower()
                    length = int(lower.partition(b"content-length:")[2].split()[0])
                    status, self._start, size = int(lower.split()[1]), end + 4, end + 4 + length
        return status, size - self._start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Asked(NamedTuple):
    """What one client saw.

    Units: seconds, bytes.
    """

    began_s: float
    """On the clock that all processes share, as the end."""
    ended_s: float
    took_s: dict[str, list[float]]
    sizes: dict[str, int]
    errors: list[str]


def asking(port: int, pace_s: float, window: tuple[float, float], place: int) -> Asked:
    """Sends requests at a fixed rate, and measures each latency from the time when the request was due."""
    begin_s, seconds = window
    with suppress(OSError):
        # Whatever else the machine does is not to slow down those who ask.
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    took_s: dict[str, list[float]] = {path: [] for path in PATHS}
    sizes, errors = dict.fromkeys(PATHS, 0), list[str]()
    with Client(port) as client:
        # The first answers are for getting warm; all begin together.
        for path in PATHS:
            client.asked(path)
        began_s = due_s = max(time.monotonic(), begin_s) + pace_s * place / CLIENTS
        until_s, number = due_s + seconds, place
        while due_s < until_s:
            time.sleep(max(0.0, due_s - time.monotonic()))
            path = PATHS[number % len(PATHS)]
            number += 1
            try:
                status, size = client.asked(path)
            except (OSError, ValueError) as error:
                errors.append(f"{path}: {error}")
                break
            took_s[path].append(time.monotonic() - due_s)
            sizes[path] = max(sizes[path], size)
            if status != 200 or not size:
                errors.append(f"{path}: {status}")
            due_s += pace_s
    return Asked(began_s, time.monotonic(), took_s, sizes, errors)


def measure_load() -> int:
    """Measure and write; 1 where a target is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=110)
    parser.add_argument("--show", action="store_true", help="show the figures, write none")
    arguments = parser.parse_args()
    with _agent(arguments.pods) as agent:
        agent.wait(arguments.pods)
        result = measured(agent, arguments.rate, arguments.seconds)
    result = {"pods": arguments.pods, **result}
    print(json.dumps(result, indent=2))
    if not arguments.show:
        FIGURES.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
        GUIDE.write_text(told_in(GUIDE.read_text("utf-8"), result), "utf-8")
    is_fast = result["requestsPerSecond"] >= arguments.rate * 0.99
    return int(bool(result["errors"]) or not is_fast or result["rssMiB"]["growth"] > MOST_GROWTH_MIB)


def told_in(page: str, found: dict[str, Any]) -> str:
    """The guide with these figures at its end."""
    rss = found["rssMiB"]
    rows = [
        ("requests", f"{found['requests']:,} in {found['seconds']} s, {found['errors']} errors"),
        *(
            (
                f"`{path}`, {one['bytes'] // 1000} kB",
                f"median {one['medianMs']} ms, 99 of 100 within {one['p99Ms']} ms",
            )
            for path, one in found["paths"].items()
        ),
        ("CPU time of the agent a request", f"{found['cpuMsPerRequest']} ms, pods that come and go included"),
        ("memory of the agent (RSS)", f"{rss['before']} MiB before, {rss['most']} MiB at most"),
        ("pods that came and went meanwhile", str(found["passingPods"])),
    ]
    table = "".join(f"| {what} | {figure} |\n" for what, figure in (("", ""), ("---", "---"), *rows))
    about = (
        f"{found['date']}, {found['cpus']} CPUs that others used, too: load average {found['loadAverage']}.\n"
    )
    return page.partition(MARK)[0] + MARK + "\n" + table.replace("| --- | --- |", "|---|---|") + "\n" + about


def measured(agent: Agent, rate: int, seconds: float) -> dict[str, Any]:
    """What came of so many requests a second."""
    rss, cpu_s = [agent.rss_mib()], agent.cpu_s()
    churned = 0
    with multiprocessing.get_context("spawn").Pool(CLIENTS) as pool:
        window = (time.monotonic() + WARM_S, seconds)
        given = [(agent.port, CLIENTS / rate, window, place) for place in range(CLIENTS)]
        going_on = pool.starmap_async(asking, given)
        while not going_on.ready():
            agent.want(f"passing-{churned}")
            going_on.wait(CHURN_PERIOD_S / 2)
            agent.drop(f"passing-{churned}")
            going_on.wait(CHURN_PERIOD_S / 2)
            churned += 1
            rss.append(agent.rss_mib())
        clients = going_on.get()
    used = agent.cpu_s() - cpu_s
    took = max(client.ended_s for client in clients) - min(client.began_s for client in clients)
    errors = [error for client in clients for error in client.errors]
    count = sum(len(each) for client in clients for each in client.took_s.values())
    return {
        "seconds": round(took, 1),
        "requests": count,
        "errors": len(errors),
        **({"firstErrors": errors[:5]} if errors else {}),
        "requestsPerSecond": round(count / took),
        "passingPods": churned,
        "paths": {path: _latencies(clients, path) for path in PATHS},
        "cpuMsPerRequest": round(used * 1000 / max(count, 1), 2),
        "rssMiB": {
            "before": round(rss[0], 1),
            "most": round(max(rss), 1),
            "growth": round(rss[-1] - rss[len(rss) // 3], 1),
        },
        "commit": _commit(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        "loadAverage": round(os.getloadavg()[0], 1),
    }


def _latencies(clients: list[Asked], path: str) -> dict[str, float]:
    took = sorted(each for client in clients for each in client.took_s[path])
    size = max(client.sizes[path] for client in clients)
    if not took:
        return {"bytes": size}
    shown = {
        name: took[min(int(len(took) * part), len(took) - 1)]
        for name, part in (("medianMs", 0.5), ("p99Ms", 0.99))
    }
    return {
        "bytes": size,
        **{name: round(value * 1000, 1) for name, value in shown.items()},
        "mostMs": round(took[-1] * 1000, 1),
    }


@contextmanager
def _agent(pods: int) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder), pods)
        try:
            yield agent
        finally:
            agent.end()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(socket.getsockname()[1]) for socket in held]
    for each in held:
        each.close()
    return ports


def _commit() -> str:
    texts = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(texts, capture_output=True, text=True, check=True).stdout.strip()


MANY_FIGURES = ROOT / "docs" / "figures" / "many-manifests.json"
ALLOWED_S = 0.5
"""How long an answer of the socket may take."""
ALLOWED_RSS_MIB = 300.0
"""The memory of an agent that has refused so many pods."""
_PERIOD_S = 0.05
_LIMIT_S = 1800.0
_PARTS = 10


class Asking(threading.Thread):
    """Asks the socket for the node, again and again."""

    def __init__(self, socket: Path, pid: int) -> None:
        super().__init__(daemon=True)
        self._client, self.is_over = AgentClient(socket), threading.Event()
        self._times = Path(f"/proc/{pid}/schedstat")
        self.took_s: list[float] = []
        self.ran_s: list[float] = []
        """CPU time of the agent's loop between a request and its answer, which other processes do not change."""

    def run(self) -> None:
        """Until it is over."""
        while not self.is_over.wait(_PERIOD_S):
            begun_s, ran_s = time.monotonic(), self._cpu_s()
            self._client.get("api/v1/nodes")
            self.took_s.append(time.monotonic() - begun_s)
            self.ran_s.append(self._cpu_s() - ran_s)

    def _cpu_s(self) -> float:
        return int(self._times.read_text().split()[0]) / 10**9


def decided(agent: Agent) -> int:
    """How many pods have been started or refused, by the agent's log."""
    log = (agent.folder / "agent.log").read_bytes()
    return log.count(b": Started: ") + log.count(b": OutOf")


def measured_manifests(agent: Agent, count: int) -> dict[str, Any]:
    """What comes of so many manifests."""
    beside = agent.folder / "beside"
    beside.mkdir()
    for number in range(count):
        (beside / f"many-{number}.yaml").write_text(MANIFEST.format(name=f"many-{number}"))
    asking, loads = Asking(agent.folder / "agent.sock", agent.process.pid), [os.getloadavg()[0]]
    before, rss_mib = decided(agent), agent.rss_mib()
    asking.start()
    begun_s, cpu_s, at_s = time.monotonic(), agent.cpu_s(), [0.0]
    for file in beside.iterdir():
        file.rename(agent.wanted / file.name)
    numbers = [0]
    while numbers[-1] < count and at_s[-1] < _LIMIT_S:
        time.sleep(0.5)
        numbers.append(decided(agent) - before)
        at_s.append(time.monotonic() - begun_s)
    took_s = at_s[-1]
    asking.is_over.set()
    asking.join()
    loads.append(os.getloadavg()[0])
    return {
        "manifests": count,
        "decided": numbers[-1],
        "seconds": round(took_s, 1),
        "cpuSeconds": round(agent.cpu_s() - cpu_s, 1),
        "decidedInEachTenth": _by_tenths(at_s, numbers),
        "answers": len(asking.took_s),
        "wallMs": _spread(asking.took_s),
        "cpuMs": _spread(asking.ran_s),
        "slowAnswers": {
            "wall": sum(one_s > ALLOWED_S for one_s in asking.took_s),
            "cpu": sum(one_s > ALLOWED_S for one_s in asking.ran_s),
        },
        "rssMiB": {"before": round(rss_mib, 1), "after": round(agent.rss_mib(), 1)},
        "commit": _commit(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "date": datetime.now(UTC).date().isoformat(),
        "loadAverage": [round(load, 1) for load in loads],
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    places = {"median": len(ordered) // 2, "p99": int(len(ordered) * 0.99), "most": -1}
    return {name: round(ordered[place] * 1000, 1) for name, place in places.items()}


def _by_tenths(at_s: list[float], numbers: list[int]) -> list[int]:
    """How many pods are decided in each tenth of the time."""
    ends = [at_s[-1] * part / _PARTS for part in range(1, _PARTS + 1)]
    sums = [
        max((number for second, number in zip(at_s, numbers, strict=True) if second <= end), default=0)
        for end in ends
    ]
    return [after - before for before, after in zip([0, *sums], sums, strict=False)]


def put_many_manifests() -> int:
    """Measure and write; 1 where an answer takes too long, a pod is not decided, the rate is uneven or memory is short."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifests", type=int, default=10_000)
    parser.add_argument("--show", action="store_true", help="show the figures, write none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(Path(folder), 90)
        try:
            agent.wait(90)
            figures = measured_manifests(agent, options.manifests)
        finally:
            agent.end()
    print(json.dumps(figures, indent=2))
    if not options.show:
        MANY_FIGURES.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    is_good = (
        figures["slowAnswers"]["cpu"] == 0
        and figures["decided"] == options.manifests
        and min(figures["decidedInEachTenth"]) > 0
        and figures["rssMiB"]["after"] <= ALLOWED_RSS_MIB
    )
    return int(not is_good)
