"""Compare kube-scheduler alone with kube-scheduler and the extender, on nodes that decide as kubelets.

Real are kube-apiserver, etcd, kube-scheduler and `nodewright extender`; the nodes run `step` on the pods that the API
server binds, and serve their exports. The workload fragments NUMA nodes; a controller replaces rejected pods. Needs
KUBEBUILDER_ASSETS; the figures go to docs/figures/scheduling.json.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace
from tests.support.deciding_nodes import DecidingNodes, served_exports
from tests.support.kubelet_api import CertificateAuthority
from tests.support.real_api_server import ASSETS, real_api_server
from tests.support.real_scheduler import running_component
from tests.support.small_nodes import a_small_profile

from nodewright.cluster.client.access import ClusterAccess, TLSSettings, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.serving.key_pair import ensure_key_pair
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.catalogue import catalogue, catalogue_profile
from nodewright.fleet import Options, run
from nodewright.fleet.simulation.outcomes import FleetResult, PodOutcome
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.testing.fleets import a_template, some_pods
from tools.source import ROOT

PODS = "/api/v1/namespaces/default/pods"
SIZES = (2, 3, 4, 5, 6)
"""CPUs of pods: a NUMA node has eight, of which one is reserved on the first."""
REPLACE_DELAY_S, DRAIN_S = 0.5, 60.0


class PlannedPod(NamedTuple):
    """A pod of the workload.

    Units: seconds since the beginning.
    """

    name: str
    cpus: int
    arrives_s: float
    runs_s: float


def workload(count: int, nodes: int, seed: int, *, load: float = 0.85) -> tuple[PlannedPod, ...]:
    """Pods that arrive one after the other and run for different times, so that NUMA nodes fragment."""
    draw = random.Random(seed)
    mean_s, mean_cpus = 8.0, sum(SIZES) / len(SIZES)
    gap_s = mean_s * mean_cpus / (load * nodes * 15)
    return tuple(
        PlannedPod(f"p{at}", draw.choice(SIZES), at * gap_s, draw.uniform(0.3, 1.7) * mean_s)
        for at in range(count)
    )


class WorkloadController:
    """Creates the pods of a workload, replaces rejected ones, and deletes them when their time is over."""

    def __init__(self, api: ApiClient, plan: Sequence[PlannedPod], schedulers: Sequence[str]) -> None:
        self._api, self._plan, self._schedulers = api, plan, schedulers
        self.created_s: dict[str, float] = {}
        self.running_s: dict[str, float] = {}
        self.rejections: Counter[str] = Counter()
        self._replacements: Counter[str] = Counter()
        self._handled: set[str] = set()
        self._pods = Reflector(api, "/api/v1/pods", "", HostClock())
        self._pods.on_change = self._notice
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs = {pod.name: pod.runs_s for pod in plan}
        self.cpus = {pod.name: pod.cpus for pod in plan}

    async def run(self) -> None:
        """Runs the workload to its end."""
        follow = asyncio.ensure_future(self._pods.run())
        started_s = time.monotonic()
        for pod in self._plan:
            await asyncio.sleep(max(started_s + pod.arrives_s - time.monotonic(), 0))
            self.created_s[pod.name] = time.monotonic()
            self._spawn(self._create(pod.name))
        deadline_s = time.monotonic() + DRAIN_S
        while len(self.running_s) < len(self._plan) and time.monotonic() < deadline_s:  # noqa: ASYNC110 - two conditions
            await asyncio.sleep(0.1)
        for task in (follow, *self._tasks):
            task.cancel()
        await asyncio.gather(follow, *self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, name: str) -> None:
        number = self._replacements[name]
        amounts = {"cpu": str(self.cpus[name]), "memory": "16Mi"}
        container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        scheduler = self._schedulers[hash((name, number)) % len(self._schedulers)]
        spec = {
            "containers": [container],
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
        }
        metadata = {"name": f"{name}-{number}", "labels": {"app": name}}
        await self._api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _notice(self, uid: str) -> None:
        for changed in [uid] if uid else list(self._pods.objects):
            pod = self._pods.objects.get(changed)
            phase = ((pod or {}).get("status") or {}).get("phase")
            if pod is None or changed in self._handled or phase not in ("Running", "Failed"):
                continue
            self._handled.add(changed)
            name = pod["metadata"]["labels"]["app"]
            path = f"{PODS}/{pod['metadata']['name']}"
            if phase == "Running":
                self.running_s[name] = time.monotonic()
                self._spawn(self._delete(path, self._runs[name]))
            else:
                self.rejections[pod["status"].get("reason", "")] += 1
                self._spawn(self._replace(name, path))

    async def _delete(self, path: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        with contextlib.suppress(ApiError):
            await self._api.delete(path, {"gracePeriodSeconds": 0})

    async def _replace(self, name: str, path: str) -> None:
        await self._delete(path, REPLACE_DELAY_S)
        self._replacements[name] += 1
        await self._create(name)


FIGURES = ROOT / "docs" / "figures" / "scheduling.json"
NODES = "/api/v1/nodes"
EXPORT_DELAY_S = 0.1
READY_S = 60.0
MAX_KILLS = 5


class PhaseResult(NamedTuple):
    """What became of the workload."""

    phase: str
    pods: int
    placed: int
    """Pods that ran."""
    rejected: int
    """Pods that a kubelet rejected; each was replaced by its controller."""
    reasons: dict[str, int]
    refused_binds: int
    median_s: float
    """From the creation of the first of a pod's replacements until one runs."""
    p99_s: float
    longest_s_by_cpus: dict[int, float]
    kills: int


class ExtenderProcess:
    """`nodewright extender` as a process, which can be killed and started again."""

    def __init__(self, folder: Path, bench: "Bench", *options: str) -> None:
        self.port, self.health_port, self.client = free_port(), free_port(), bench.client
        self._log = (folder / "extender.log").open("ab")
        self._command = [
            *(sys.executable, "-m", "nodewright", "extender", "--kubeconfig", str(bench.kubeconfig)),
            *("--listen", f"127.0.0.1:{self.port}", "--health-listen", f"127.0.0.1:{self.health_port}"),
            *("--export-ca-file", str(bench.pair.certificate), "--export-base", f"{bench.exports_url}/"),
            *("--client-ca-file", str(bench.authority.file)),
            *options,
        ]
        self.kills = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it."""
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        """Ends it without a chance to finish anything."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.kills += 1

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._log.close()

    def metric(self, name: str) -> float:
        """The sum of a metric's samples; NaN: it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/metrics", timeout=2) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return float("nan")
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    async def final_metric(self, name: str) -> float:
        """As `metric`, once it answers: it may have been killed a moment ago."""
        async with asyncio.timeout(READY_S):
            while math.isnan(value := await asyncio.to_thread(self.metric, name)):  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.2)
        return value

    async def wait_for_exact(self, nodes: int) -> None:
        """Waits until all nodes are known exactly."""
        deadline_s = time.monotonic() + READY_S
        while await asyncio.to_thread(self.metric, 'nodewright_extender_nodes{basis="exact"}') != nodes:
            assert time.monotonic() < deadline_s, "the extender does not know the nodes"
            await asyncio.sleep(0.2)


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scheduler_configuration(kubeconfig: Path, name: str, extender: ExtenderProcess | None) -> dict[str, Any]:
    """The configuration of a kube-scheduler."""
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        "profiles": [{"schedulerName": name}],
    }
    if extender is not None:
        verbs = {f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt", "bind")}
        document["extenders"] = [
            {
                "urlPrefix": f"https://127.0.0.1:{extender.port}",
                **verbs,
                "weight": 10,
                "enableHTTPS": True,
                "tlsConfig": {
                    "insecure": True,
                    "certFile": str(extender.client.certificate),
                    "keyFile": str(extender.client.key),
                },
                "nodeCacheCapable": True,
                "httpTimeout": "5s",
            }
        ]
    return document


class Bench:
    """A cluster for all phases."""

    def __init__(self, server: Any, folder: Path, arguments: argparse.Namespace) -> None:
        self.server, self.folder, self.arguments = server, folder, arguments
        self.kubeconfig = folder / "bench.kubeconfig"
        cluster = {"server": f"https://127.0.0.1:{server.port}", "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "admin", "user": {"token": "admin"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
            "current-context": "c",
        }
        self.kubeconfig.write_text(json.dumps(config), "utf-8")
        self.pair = ensure_key_pair(folder, "exports", ("127.0.0.1",))
        self.authority = CertificateAuthority(folder, "schedulers")
        self.client = self.authority.client_certificate("scheduler")
        self.exports_url = ""  # of the nodes that `nodes` has started last

    @asynccontextmanager
    async def nodes(self) -> AsyncIterator[tuple[ApiClient, DecidingNodes]]:
        """A cluster of nodes without pods."""
        access = ClusterAccess(
            server=f"https://127.0.0.1:{self.server.port}",
            credentials=UserCredentials(token="admin"),  # noqa: S106 - of a server that lives for a minute
            tls=TLSSettings(is_verified=False),
        )
        await asyncio.to_thread(self._clean)
        async with ApiClient(access) as api:
            profile = a_small_profile(
                numa=2, cores=8, cpuManagerPolicy="static", topologyManagerPolicy="single-numa-node"
            )
            names = [f"node-{at:02d}" for at in range(self.arguments.nodes)]
            nodes = DecidingNodes(
                api, dict.fromkeys(names, profile), HostClock(), export_delay_s=EXPORT_DELAY_S
            )
            tls = ReloadingTLS(self.pair, KubeletConfiguration())
            async with served_exports(nodes, lambda: tls.context(print)) as address:
                self.exports_url = f"https://{address}"
                await nodes.register(self.exports_url)
                running = asyncio.ensure_future(nodes.run())
                try:
                    yield api, nodes
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)

    def _clean(self) -> None:
        self.server.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
        self.server.request("DELETE", NODES)
        self.server.close()

    async def phase(
        self, name: str, schedulers: Sequence[str], *, has_extender: bool, kills: bool
    ) -> PhaseResult:
        """The workload in a cluster with these schedulers."""
        folder = self.folder / name
        plan = workload(self.arguments.pods, self.arguments.nodes, self.arguments.seed)
        async with self.nodes() as (api, nodes), AsyncExitStack() as stack:
            folder.mkdir(exist_ok=True)
            extender = None
            if has_extender:
                extender = ExtenderProcess(folder, self)
                stack.callback(extender.stop)
                extender.start()
                await extender.wait_for_exact(len(nodes.nodes))
            for scheduler in schedulers:
                await asyncio.to_thread(stack.enter_context, self.scheduler(folder, scheduler, extender))
            controller = WorkloadController(api, plan, schedulers)
            killing = asyncio.ensure_future(self._kill(extender, nodes)) if kills and extender else None
            await controller.run()
            if killing is not None:
                killing.cancel()
                await asyncio.gather(killing, return_exceptions=True)
            refused = wrong = 0.0
            if extender is not None:
                calls = 'nodewright_extender_calls_total{verb="bind",result="refused"}'
                refused = await extender.final_metric(calls)
                wrong = await extender.final_metric("nodewright_extender_wrong_verdicts_total")
            print(f"  {name}: {refused=}, {wrong=}", flush=True)
            return _result(name, controller, nodes, int(refused), extender.kills if extender else 0)

    @contextmanager
    def scheduler(self, folder: Path, name: str, extender: ExtenderProcess | None) -> Iterator[None]:
        """A running scheduler of this name."""
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        path = own / "config.yaml"
        path.write_text(json.dumps(scheduler_configuration(self.kubeconfig, name, extender)), "utf-8")
        with running_component(self.server, own, "kube-scheduler", f"--config={path}", "--secure-port=0"):
            yield

    async def _kill(self, extender: ExtenderProcess, nodes: DecidingNodes) -> None:
        """Kills the extender while pods are bound, several times."""
        for kill in range(MAX_KILLS):
            while len(nodes.admitted) < 25 * (kill + 1):  # noqa: ASYNC110 - counts what the nodes do
                await asyncio.sleep(0.01)
            await asyncio.to_thread(extender.kill)
            extender.start()


def _result(
    name: str, controller: WorkloadController, nodes: DecidingNodes, refused: int, kills: int
) -> PhaseResult:
    waits_s = {pod: running_s - controller.created_s[pod] for pod, running_s in controller.running_s.items()}
    times = sorted(waits_s.values()) or [float("nan")]
    longest_s = dict.fromkeys(SIZES, 0.0)
    for pod, wait_s in waits_s.items():
        longest_s[controller.cpus[pod]] = max(longest_s[controller.cpus[pod]], round(wait_s, 1))
    return PhaseResult(
        phase=name,
        pods=len(controller.created_s),
        placed=len(controller.running_s),
        rejected=len(nodes.rejected),
        reasons=dict(controller.rejections),
        refused_binds=refused,
        median_s=round(times[len(times) // 2], 3),
        p99_s=round(times[len(times) * 99 // 100], 3),
        longest_s_by_cpus=longest_s,
        kills=kills,
    )


class MachineResult(NamedTuple):
    """The workload on a fleet of one machine, in virtual time."""

    machine: str
    numa_nodes: int
    pods: int
    rejected_alone: int
    rejected_with_extender: int
    ended_alone: int
    ended_with_extender: int
    wait_alone_s: float
    """The mean time from a pod's arrival to its placement."""
    wait_with_extender_s: float


def machine_results(seed: int, *, nodes: int = 8, pods: int = 300) -> Iterator[MachineResult]:
    """The workload on every machine of the catalogue that has more than one NUMA node, without and with the extender."""
    for name in catalogue():
        profile = catalogue_profile(name)
        numa = [node for node in profile.spec.machine_info.topology if node.cores]
        threads = min((sum(len(core.thread_ids) for core in node.cores) for node in numa), default=0)
        if len(numa) < 2 or threads < 4:
            continue
        reserved = str(numa[0].cores[0].thread_ids[0])
        managers = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}
        configuration: dict[str, Any] = {**managers, "reservedSystemCPUs": reserved}
        if len(profile.spec.machine_info.topology) > 8:
            options = {"max-allowable-numa-nodes": str(len(profile.spec.machine_info.topology))}
            configuration["topologyManagerPolicyOptions"] = options
        profile = replace(profile, spec=replace(profile.spec, kubelet_configuration=configuration))
        fleet = [FleetNode(name=f"n{at}", profile=profile) for at in range(nodes)]
        planned = _fleet_pods(seed, pods, nodes * threads * len(numa), threads)
        alone, asked = (run(fleet, planned, Options(extender=extender)) for extender in (False, True))
        yield MachineResult(
            name,
            len(numa),
            pods,
            *(sum(refusal.count for refusal in result.refusals) for result in (alone, asked)),
            *(sum(pod.outcome is PodOutcome.ENDED for pod in result.pods) for result in (alone, asked)),
            *(round(_mean_wait_s(result), 2) for result in (alone, asked)),
        )


def _fleet_pods(seed: int, count: int, cpus: int, largest: int) -> list[FleetPod]:
    draw = random.Random(seed)
    sizes = sorted({max(1, largest * part // 8) for part in (2, 3, 4, 5, 6)})
    templates = {size: a_template(f"cpu={size} memory=64Mi") for size in sizes}
    mean_s = 60.0
    gap_s = mean_s * (sum(sizes) / len(sizes)) / (0.85 * cpus)
    planned = []
    for number in range(count):
        template = templates[draw.choice(sizes)]
        pod = some_pods(1, template, f"p{number}", has_controller=True)[0]
        planned.append(replace(pod, arrives_s=number * gap_s, runs_s=draw.uniform(0.3, 1.7) * mean_s))
    return planned


def _mean_wait_s(result: FleetResult) -> float:
    waits = [pod.placed_s - pod.arrived_s for pod in result.pods if pod.placed_s >= 0]
    return sum(waits) / len(waits) if waits else 0.0


PHASES: dict[str, dict[str, Any]] = {
    "kube-scheduler alone": {"schedulers": ("default-scheduler",), "has_extender": False, "kills": False},
    "with the extender": {"schedulers": ("default-scheduler",), "has_extender": True, "kills": False},
    "two schedulers racing": {"schedulers": ("first", "second"), "has_extender": True, "kills": False},
    "the extender killed mid-bind": {"schedulers": ("first", "second"), "has_extender": True, "kills": True},
}


def main() -> int:
    """Runs all phases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phase", action="append", choices=tuple(PHASES))
    parser.add_argument("--write", action="store_true", help="write docs/figures/scheduling.json")
    parser.add_argument("--no-fleet", action="store_true", help="leave out the fleets of every machine")
    arguments = parser.parse_args()
    if not ASSETS or not Path(ASSETS, "kube-scheduler").exists():
        print("KUBEBUILDER_ASSETS does not name a directory with kube-apiserver, etcd and kube-scheduler")
        return 1
    results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(stack.enter_context(real_api_server(folder)), folder, arguments)
        for name in arguments.phase or PHASES:
            result = asyncio.run(bench.phase(name, **PHASES[name]))
            results.append(result._asdict())
            print(json.dumps(results[-1]), flush=True)
    machines = [] if arguments.no_fleet else [each._asdict() for each in machine_results(arguments.seed)]
    for machine in machines:
        print(json.dumps(machine))
    if arguments.write:
        document = {
            "nodes": arguments.nodes,
            "seed": arguments.seed,
            "machine": f"{os.cpu_count()} CPUs, {platform.machine()}",
            "phases": results,
            "fleets": machines,
        }
        FIGURES.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return int(any(result["rejected"] for result in results if result["phase"] != "kube-scheduler alone"))
