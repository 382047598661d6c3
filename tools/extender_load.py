"""Load the extender: 5,000 nodes that export their states, 100 pods a second; figures in docs/figures/extender-load.json.

The extender is the real process, called over TLS. The API server, the exporters and the scheduler are stand-ins in this
process. The scheduler works as kube-scheduler does (v1.36, pkg/scheduler/schedule_one.go): it looks at the nodes one after
the other, from where the last pod ended, until enough have CPUs left (`numFeasibleNodesToFind`: 500 of 5,000, 10 %), sends
their names to filter, those that pass to prioritize, takes one of the best at random, binds it beside the next pod, and
schedules one pod at a time. No two nodes are alike: each holds other pods, on half of its CPUs.

Each binding is judged by the node's own `step`. Of some pods all answers of filter are judged after the run as well.
"""

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import ssl
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from nodewright.documents.files.process_tuning import ShortCollections
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from tools.cpu_timer import process_cpu_s
from tools.scheduling_bench import free_port
from tools.source import ROOT
from tools.stand_in_cluster import CPUS, Connection, StandIn, pod_document

FIGURES = ROOT / "docs" / "figures" / "extender-load.json"
_MIN_NODES, _MIN_PERCENTAGE = 100, 5
READY_S = 1200.0
"""How long all exports may take; then the load ends with an error."""


def feasible_nodes_to_find(count: int) -> int:
    """The number of candidates that the scheduler looks for.

    Follows: v1.36, pkg/scheduler/schedule_one.go, numFeasibleNodesToFind, without percentageOfNodesToScore.
    """
    percentage = max(50 - count // 125, _MIN_PERCENTAGE)
    return min(count, max(count * percentage // 100, _MIN_NODES))


class FilterAnswer(msgspec.Struct, rename="pascal"):
    """What the scheduler reads of an answer to filter."""

    node_names: list[str] | None = None
    error: str = ""


class HostPriority(msgspec.Struct, rename="pascal", gc=False):
    """The score of a node."""

    host: str
    score: int


_FILTERED = msgspec.json.Decoder(FilterAnswer)
_SCORES = msgspec.json.Decoder(list[HostPriority])


class Sample(NamedTuple):
    """A pod, the states of its candidates when filter was called, and the names that passed."""

    pod: dict[str, Any]
    nodes: dict[str, Node]
    passed: frozenset[str]


class StandInScheduler:
    """Schedules pods as kube-scheduler does."""

    def __init__(self, cluster: StandIn, port: int, arguments: argparse.Namespace) -> None:
        self._cluster, self._port, self._arguments = cluster, port, arguments
        self._draw = random.Random(arguments.seed)
        self._count = arguments.candidates or feasible_nodes_to_find(len(cluster.nodes))
        self._nodes = tuple(cluster.nodes.values())
        self._idle: list[CallConnection] = []
        self._next = 0
        self.times: dict[str, list[tuple[float, float]]] = {}  # beginning and duration, by verb
        self.results: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.longest_queue = 0

    async def run(self) -> None:
        """Schedules the pods, one after the other; a pod is created at its time, whether or not others wait."""
        rate, count = self._arguments.rate, int(self._arguments.rate * self._arguments.seconds)
        bindings: list[asyncio.Task[None]] = []
        begin_s = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(begin_s + number / rate - time.perf_counter(), 0))
            created = min(int((time.perf_counter() - begin_s) * rate) + 1, count)
            self.longest_queue = max(self.longest_queue, created - number)
            binding = await self._schedule(number, begin_s + number / rate)
            if binding is not None:
                bindings.append(binding)
        await asyncio.gather(*bindings)

    async def _schedule(self, number: int, created_s: float) -> asyncio.Task[None] | None:
        """Filters and scores; the task that binds."""
        cpus = self._draw.choice(CPUS)
        pod = pod_document(f"p{number}", cpus)
        self._cluster.store(pod)
        candidates = self._candidates(cpus)
        content, names = msgspec.json.encode(pod), [node.name for node in candidates]
        nodes = {node.name: node.node for node in candidates} if number % self._arguments.judge == 0 else {}
        answer = _FILTERED.decode(await self._call("filter", _arguments_of(content, names)))
        passed = answer.node_names or []
        if nodes:
            self.samples.append(Sample(pod, nodes, frozenset(passed)))
        if not passed:
            self.results[answer.error or "unschedulable"] += 1
            return None
        scores = _SCORES.decode(await self._call("prioritize", _arguments_of(content, passed)))
        highest = max(each.score for each in scores)
        node = self._draw.choice([each.host for each in scores if each.score == highest])
        return asyncio.ensure_future(self._bind(number, node, created_s))

    def _candidates(self, cpus: int) -> list[Any]:
        """The next nodes with CPUs for the pod: as many as the scheduler looks for."""
        candidates, total = [], len(self._nodes)
        for at in range(total):
            node = self._nodes[(self._next + at) % total]
            if node.free_cpus >= cpus:
                candidates.append(node)
                if len(candidates) == self._count:
                    break
        self._next = (self._next + at + 1) % total
        return candidates

    async def _bind(self, number: int, node: str, created_s: float) -> None:
        name = f"p{number}"
        binding = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
        error = msgspec.json.decode(await self._call("bind", msgspec.json.encode(binding)))["Error"]
        self.results["refused bind" if error else "bound"] += 1
        self._note("created to bound", created_s)

    async def _call(self, verb: str, body: bytes) -> bytes:
        started_s = time.perf_counter()
        # The extender closes connections that have waited for long.
        self._idle = [each for each in self._idle if not each.is_closed]
        connection = self._idle.pop() if self._idle else await CallConnection.open(self._port)
        answer = await connection.call(verb, body)
        self._idle.append(connection)
        self._note(verb, started_s)
        return answer

    def _note(self, verb: str, started_s: float) -> None:
        self.times.setdefault(verb, []).append((started_s, time.perf_counter() - started_s))

    def latencies(self, since_s: float) -> dict[str, dict[str, float]]:
        """The times of the calls since a time on the clock of performance, by verb."""
        return {
            verb: _times([took_s for began_s, took_s in values if began_s >= since_s])
            for verb, values in self.times.items()
        }

    def wrong_answers(self) -> list[str]:
        """The answers of filter, of the pods that are judged, that are not those of the nodes."""
        wrong = []
        for sample in self.samples:
            pod = decode(sample.pod, Pod)
            for name, node in sample.nodes.items():
                if node.admit(pod).admitted != (name in sample.passed):
                    wrong.append(f"{pod.metadata.name} on {name}: passed {name in sample.passed}")
        return wrong


def _arguments_of(pod: bytes, names: list[str]) -> bytes:
    return b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod, msgspec.json.encode(names))


def _times(values: list[float]) -> dict[str, float]:
    ordered = sorted(values) or [0.0]
    middle, late = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return {
        "median_ms": round(1000 * middle, 2),
        "p99_ms": round(1000 * late, 2),
        "longest_ms": round(1000 * ordered[-1], 2),
        "calls": len(values),
    }


async def run_load(arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run."""
    cluster = StandIn(arguments.nodes, filled=arguments.filled, seed=arguments.seed)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(cluster), "127.0.0.1", 0, backlog=4096
    )
    cluster.port = port = server.sockets[0].getsockname()[1]
    calls, health = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        extender = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodewright", "extender", "--kubeconfig", _kubeconfig(folder, port)),
            *("--listen", f"127.0.0.1:{calls}", "--health-listen", f"127.0.0.1:{health}"),
            *("--export-base", f"http://127.0.0.1:{port}/export/", "--token-auth-file", _tokens(folder)),
        )
        try:
            scheduler = StandInScheduler(cluster, calls, arguments)
            measuring = asyncio.ensure_future(_figures(arguments, cluster, scheduler, (extender.pid, health)))
            ended = asyncio.ensure_future(extender.wait())
            await asyncio.wait({measuring, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not measuring.done():
                measuring.cancel()
                raise SystemExit(f"the extender has ended with status {ended.result()}")
            return measuring.result()
        finally:
            with suppress(ProcessLookupError):
                extender.terminate()
            await extender.wait()
            server.close()


def _tokens(folder: str) -> str:
    """The path of the file with the scheduler's token."""
    path = Path(folder, "tokens.csv")
    path.write_text(f"{TOKEN},scheduler,1\n", "utf-8")
    return str(path)


def _kubeconfig(folder: str, port: int) -> str:
    """The path of a kubeconfig for the stand-in."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    path = Path(folder, "kubeconfig")
    path.write_text(json.dumps(config), "utf-8")
    return str(path)


async def _figures(
    arguments: argparse.Namespace, cluster: StandIn, scheduler: StandInScheduler, extender: tuple[int, int]
) -> dict[str, Any]:
    process, health = extender
    started_s = time.monotonic()
    await _wait_for_exact(health, arguments.nodes)
    ready_s = time.monotonic() - started_s
    idle_from_s = process_cpu_s(process)
    await asyncio.sleep(arguments.idle)
    idle_cores = (process_cpu_s(process) - idle_from_s) / arguments.idle
    gc.collect()
    gc.freeze()  # A pause of this process is none of the extender.
    before_s, own_s = process_cpu_s(process), time.process_time()
    begin_s = time.perf_counter()
    print("the load begins", file=sys.stderr, flush=True)
    await scheduler.run()
    took_s = time.perf_counter() - begin_s
    spent_s, own_spent_s = process_cpu_s(process) - before_s, time.process_time() - own_s
    pods, load = sum(scheduler.results.values()), os.getloadavg()[0]
    wrong = scheduler.wrong_answers()
    return {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}{arguments.note}",
        "nodes": arguments.nodes,
        "candidates": arguments.candidates or feasible_nodes_to_find(arguments.nodes),
        "pods_per_second": arguments.rate,
        "seconds": round(took_s, 1),
        "bound_per_second": round(scheduler.results["bound"] / took_s, 1),
        "longest_queue": scheduler.longest_queue,
        "ready_s": round(ready_s, 1),
        "results": dict(scheduler.results),
        "rejected_by_kubelets": len(cluster.rejected),
        "judged_answers": sum(len(sample.nodes) for sample in scheduler.samples),
        "wrong_answers": len(wrong),
        "examples_of_wrong_answers": [*cluster.rejected, *wrong][:3],
        "latencies": scheduler.latencies(begin_s),
        "latencies_after_10_s": scheduler.latencies(begin_s + 10),
        "computed_ms": _computed(await _metrics(health)),
        "idle_cores": round(idle_cores, 3),
        "cpu_per_pod_ms": round(1000 * (spent_s - idle_cores * took_s) / pods, 2),
        "cores_of_the_extender": round(spent_s / took_s, 2),
        "cores_of_the_load": round(own_spent_s / took_s, 2),
        "extender_mib": _memory_mib(process),
        "load_average": round(load, 1),
    }


def _computed(metrics: dict[str, float]) -> dict[str, float]:
    """The mean time of a call within the extender."""
    name = "nodewright_extender_call_duration_seconds"
    means = {}
    for verb in ("filter", "prioritize", "bind"):
        label = f'{{verb="{verb}"}}'
        count = metrics.get(f"{name}_count{label}", 0)
        means[verb] = round(1000 * metrics.get(f"{name}_sum{label}", 0) / count, 3) if count else 0.0
    return means


async def _metrics(port: int) -> dict[str, float]:
    """The metrics of the extender.

    Errors: OSError while it does not serve.
    """

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text: str = response.read().decode()
            return text

    lines = (await asyncio.to_thread(read)).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def _wait_for_exact(port: int, count: int) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            with suppress(OSError):
                if (await _metrics(port)).get('nodewright_extender_nodes{basis="exact"}') == count:
                    return
            await asyncio.sleep(0.5)


def _memory_mib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


def main() -> int:
    """Runs the load, and writes the figures."""
    ShortCollections(generation=1).install()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--filled", type=float, default=0.5, help="share of the CPUs that pods hold at first")
    parser.add_argument(
        "--candidates", type=int, default=0, help="default: as many as the scheduler looks for"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="pods a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without calls, measured first")
    parser.add_argument(
        "--judge", type=int, default=50, help="judge all answers of filter of every so many pods"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--note", default="", help="what else is to be known about the machine")
    parser.add_argument("--write", action="store_true", help="write docs/figures/extender-load.json")
    arguments = parser.parse_args()
    figures = asyncio.run(run_load(arguments))
    print(json.dumps(figures, indent=2), flush=True)
    if arguments.write:
        FIGURES.write_text(json.dumps({"runs": [figures]}, indent=2) + "\n", "utf-8")
    return int(bool(figures["rejected_by_kubelets"] or figures["wrong_answers"]))


TOKEN = "load"  # noqa: S105 - of an extender that lives for a minute
CALL_S = 60.0
"""How long an answer may take; then the load ends with an error."""


class CallConnection(asyncio.Protocol):
    """One connection to the extender: a call at a time."""

    def __init__(self) -> None:
        self._received, self._answer = b"", asyncio.get_running_loop().create_future()
        self.is_closed = False

    @classmethod
    async def open(cls, port: int) -> "CallConnection":
        """A connection over TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, "127.0.0.1", port, ssl=context
        )
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the call."""
        self.is_closed = True
        self._end(f"the connection ended: {error}")

    def _end(self, text: str) -> None:
        if not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the extender did not answer: {text}"))

    def data_received(self, data: bytes) -> None:
        """Takes the answer when it is complete."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        if not separator:
            return
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), -1)
        if not lines[0].startswith(b"http/1.1 200 ") or length < 0:
            # Nothing that schedulers could go on from: the load ends.
            self._end(f"{lines[0].decode('ascii', 'replace')}: {body[:300]!r}")
            self._transport.close()
        elif len(body) >= length:
            self._received = b""
            self._answer.set_result(body)

    async def call(self, verb: str, body: bytes) -> bytes:
        """The answer to a call."""
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode("ascii") + body)
        async with asyncio.timeout(CALL_S):
            answer: bytes = await self._answer
        return answer
