"""Load the extender: 5,000 nodes that export their states, 100 pods a second; figures in docs/figures/extender-load.json.

The extender is the real process. The API server, the exporters and the scheduler are stand-ins in this process: nodes
decide by `step`, exports are real documents over long polls, and each pod goes through filter with 500 candidates,
prioritize and bind, at its own time whether or not earlier ones are answered.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from tools.scheduling_bench import free_port
from tools.source import ROOT
from tools.stand_in_cluster import StandIn

FIGURES = ROOT / "docs" / "figures" / "extender-load.json"
CPUS = (1, 2, 4, 8, 16)
IDLE_S = 30.0
"""How long the CPU time without calls is measured: exports are confirmed every 30 s."""


class Times(NamedTuple):
    """The times of one verb, in milliseconds."""

    median_ms: float
    p99_ms: float
    longest_ms: float
    calls: int


class LoadClient:
    """Schedules pods as a scheduler does."""

    def __init__(self, cluster: StandIn, url: str, session: aiohttp.ClientSession, seed: int) -> None:
        self._cluster, self._url, self.session = cluster, url, session
        self._draw = random.Random(seed)
        self.times: dict[str, list[float]] = {}
        self.results: Counter[str] = Counter()
        self._names = tuple(cluster.nodes)

    async def run(self, rate: float, seconds: float, candidates: int, in_flight: int) -> None:
        """Schedules so many pods a second, each at its time, or when fewer than ``in_flight`` are on their way."""
        tasks: list[asyncio.Task[None]] = []
        free = asyncio.Semaphore(in_flight)
        begin_s = time.monotonic()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(begin_s + number / rate - time.monotonic(), 0))
            await free.acquire()
            tasks.append(asyncio.ensure_future(self.schedule(number, candidates)))
            tasks[-1].add_done_callback(lambda _task: free.release())
        await asyncio.gather(*tasks)

    async def schedule(self, number: int, candidates: int) -> None:
        """One pod from filter to bind."""
        cpus = str(self._draw.choice(CPUS))
        amounts = {"cpu": cpus, "memory": "64Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        metadata = {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"}
        pod = {"metadata": metadata, "spec": {"containers": [container]}, "status": {"phase": "Pending"}}
        self._cluster.store(pod)
        # A scheduler looks at nodes one after the other, each time a few more.
        first = number * candidates % len(self._names)
        names = [self._names[(first + at) % len(self._names)] for at in range(candidates)]
        answer = await self._call("filter", {"Pod": pod, "NodeNames": names})
        passed = answer.get("NodeNames") or []
        if not passed:
            self.results["unschedulable"] += 1
            return
        scores = await self._call("prioritize", {"Pod": pod, "NodeNames": passed})
        best = max(scores, key=lambda each: (each["Score"], each["Host"]))["Host"]
        binding = {
            "PodName": f"p{number}",
            "PodNamespace": "default",
            "PodUID": f"uid-{number}",
            "Node": best,
        }
        error = (await self._call("bind", binding))["Error"]
        self.results["refused bind" if error else "bound"] += 1

    async def _call(self, verb: str, document: Any) -> Any:
        body = msgspec.json.encode(document)
        started_s = time.perf_counter()
        try:
            content = await self._answer(verb, body)
        except aiohttp.ClientConnectionError:
            # The connection was idle for too long; Go's client sends again as well.
            content = await self._answer(verb, body)
        self.times.setdefault(verb, []).append(time.perf_counter() - started_s)
        return msgspec.json.decode(content)

    async def _answer(self, verb: str, body: bytes) -> bytes:
        async with self.session.post(f"{self._url}/{verb}", data=body, ssl=False) as response:
            return await response.read()

    def summary(self) -> dict[str, Times]:
        """The times by verb."""
        return {verb: _times(values) for verb, values in self.times.items()}


def _times(values: list[float]) -> Times:
    ordered = sorted(values)
    return Times(
        round(1000 * ordered[len(ordered) // 2], 2),
        round(1000 * ordered[len(ordered) * 99 // 100], 2),
        round(1000 * ordered[-1], 2),
        len(ordered),
    )


async def run_load(arguments: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run."""
    port, calls, health = free_port(), free_port(), free_port()
    cluster = StandIn(arguments.nodes, port)
    runner = web.AppRunner(cluster.application(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
    with tempfile.TemporaryDirectory() as folder:
        extender = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodewright", "extender", "--kubeconfig", _kubeconfig(folder, port)),
            *("--listen", f"127.0.0.1:{calls}", "--health-listen", f"127.0.0.1:{health}"),
            *("--workers", str(arguments.workers)),
        )
        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=64, keepalive_timeout=2)
            ) as session:
                client = LoadClient(cluster, f"https://127.0.0.1:{calls}", session, arguments.seed)
                return await _figures(arguments, cluster, client, (extender.pid, health))
        finally:
            with suppress(ProcessLookupError):
                extender.terminate()
            await extender.wait()
            await runner.cleanup()


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
    arguments: argparse.Namespace, cluster: StandIn, client: LoadClient, extender: tuple[int, int]
) -> dict[str, Any]:
    process, health = extender
    started_s = time.monotonic()
    await _wait_for_exact(client.session, health, arguments.nodes)
    ready_s = time.monotonic() - started_s
    idle_from_s = _cpu_of_all_s(process)
    await asyncio.sleep(IDLE_S)
    idle_cores = (_cpu_of_all_s(process) - idle_from_s) / IDLE_S
    before_s, first_s, begin_s = _cpu_of_all_s(process), _cpu_s(process), time.monotonic()
    await client.run(arguments.rate, arguments.seconds, arguments.candidates, arguments.in_flight)
    took_s = time.monotonic() - begin_s
    spent_s, first_spent_s = _cpu_of_all_s(process) - before_s, _cpu_s(process) - first_s
    pods = sum(client.results.values())
    per_pod_ms = 1000 * (spent_s - idle_cores * took_s) / pods
    return {
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}; other work ran beside it",
        "workers": arguments.workers,
        "nodes": arguments.nodes,
        "candidates": arguments.candidates,
        "pods_per_second": arguments.rate,
        "in_flight": arguments.in_flight,
        "seconds": round(took_s, 1),
        "ready_s": round(ready_s, 1),
        "results": dict(client.results),
        "rejected_by_kubelets": cluster.rejected,
        "latencies": {verb: times._asdict() for verb, times in client.summary().items()},
        "computed_ms": _computed(await _metrics(client.session, health)),
        "idle_cores": round(idle_cores, 3),
        "cpu_per_pod_ms": round(per_pod_ms, 2),
        "first_process_cpu_per_pod_ms": round(1000 * first_spent_s / pods, 2),
        "cores_at_100_pods_per_second": round(idle_cores + per_pod_ms / 10, 2),
        "extender_mib": sum(map(_memory_mib, _family_of(process))),
        "load_average": round(os.getloadavg()[0], 1),
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


async def _metrics(session: aiohttp.ClientSession, port: int) -> dict[str, float]:
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        lines = (await response.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def _wait_for_exact(session: aiohttp.ClientSession, port: int, count: int) -> None:
    async with asyncio.timeout(300):
        while True:
            with suppress(aiohttp.ClientError):
                if (await _metrics(session, port)).get('nodewright_extender_nodes{basis="exact"}') == count:
                    return
            await asyncio.sleep(0.5)


def _family_of(process: int) -> list[int]:
    """The process and its workers."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
    return [process, *map(int, children.split())]


def _cpu_of_all_s(process: int) -> float:
    return sum(map(_cpu_s, _family_of(process)))


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) // 1024


def main() -> int:
    """Runs the load, and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--candidates", type=int, default=500)
    parser.add_argument("--rate", type=float, default=100.0, help="pods a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--in-flight", type=int, default=100_000, help="pods at once; fewer than all: no queue grows"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="processes; a run for each")
    parser.add_argument("--write", action="store_true", help="write docs/figures/extender-load.json")
    arguments = parser.parse_args()
    runs = []
    for workers in arguments.workers:
        run = asyncio.run(run_load(argparse.Namespace(**{**vars(arguments), "workers": workers})))
        print(json.dumps(run, indent=2), flush=True)
        runs.append(run)
    if arguments.write:
        FIGURES.write_text(json.dumps({"runs": runs}, indent=2) + "\n", "utf-8")
    return int(any(run["rejected_by_kubelets"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
