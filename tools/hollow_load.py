"""Run 1,000 hollow nodes in a real cluster: a Deployment of 5,000 pods, rejections, evictions, a drain.

Real are kube-apiserver, etcd, kube-scheduler, kube-controller-manager and `nodewright hollow`. Needs KUBEBUILDER_ASSETS;
the figures go to docs/figures/hollow-load.json.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.hollow_bench import DEPLOYMENTS, HollowBench, deployment, hollow_bench
from tests.support.real_api_server import ASSETS

from nodewright.cluster.client.access import AccessOptions
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.output.json_yaml import as_json
from tools.source import ROOT

FIGURES = ROOT / "docs" / "figures" / "hollow-load.json"
MACHINE = "shape:2x1x16x2:68719476736"
"""Two NUMA nodes of 32 CPUs, of which two are reserved, and 64 GiB of memory."""
POD = {"cpu": "11", "memory": "1Gi"}
"""Five fit by the sum of CPUs, four by NUMA nodes."""
GREEDY = {"nodewright.dev/memory": "0s=1Gi,20s=64460Mi"}
_LIMIT_S = 1800.0
_GRACE_S = 180
"""How long the controller manager waits for a lease: its own 50 s pass where everything shares two CPUs."""
_SHARE = 0.95
"""Of the pods that fit: on a busy machine nodes lose their leases now and then, and their pods."""


class WatchedPods:
    """What a client of the API server sees of pods, and when."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self._bound_s: dict[str, float] = {}
        self.delays_s: dict[str, float] = {}
        """By uid: from the binding to the first status of the kubelet, as they arrive here."""
        self.phases: dict[str, tuple[str, str, str]] = {}
        """By uid the Deployment, the phase and the reason; of deleted pods the last ones."""
        self.present: set[str] = set()
        reflector.reduce, reflector.on_change = _reduced, self._note

    def count(self, app: str, phase: str, reason: str = "") -> int:
        """The pods of a Deployment with this phase, deleted ones included if they have ended."""
        return sum(
            known == (app, phase, reason) and (uid in self.present or phase == "Failed")
            for uid, known in self.phases.items()
        )

    @property
    def rejected(self) -> int:
        """How often a kubelet has rejected a pod."""
        return self.count("numa", "Failed", "TopologyAffinityError")

    @property
    def evicted(self) -> int:
        """How many pods were evicted."""
        return self.count("greedy", "Failed", "Evicted")

    def _note(self, uid: str) -> None:
        now_s = time.monotonic()
        for each in (uid,) if uid else tuple(self.reflector.objects):
            document = self.reflector.objects.get(each)
            if document is None:
                self.present.discard(each)
                continue
            self.present.add(each)
            status = document["status"]
            self.phases[each] = (document["app"], status.get("phase", ""), status.get("reason", ""))
            if document["node"]:
                self._bound_s.setdefault(each, now_s)
                if status.get("startTime"):
                    self.delays_s.setdefault(each, now_s - self._bound_s[each])


def _reduced(document: dict[str, Any]) -> dict[str, Any]:
    meta, status = document["metadata"], document.get("status") or {}
    return {
        "metadata": {"uid": meta["uid"], "name": meta["name"], "resourceVersion": meta["resourceVersion"]},
        "app": (meta.get("labels") or {}).get("app", ""),
        "node": document["spec"].get("nodeName", ""),
        "status": {name: status.get(name, "") for name in ("phase", "reason", "startTime")},
    }


def process_usage(pid: int) -> tuple[float, float]:
    """CPU seconds and MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    rss = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, rss / 1024


async def reached(what: str, condition: Any, pods: WatchedPods, pause_s: float = 0.2) -> float:
    """How long it took until the condition holds, in seconds; it is printed as it goes."""
    began_s, printed_s = time.monotonic(), 0.0
    while not condition():
        now_s = time.monotonic() - began_s
        if now_s > _LIMIT_S:
            raise SystemExit(f"{what}: not within {_LIMIT_S:g} s: {Counter(pods.phases.values())}")
        if now_s - printed_s > 10:
            printed_s = now_s
            present = Counter(pods.phases.values())
            print(f"{what}: {now_s:.0f} s, {os.getloadavg()[0]:.1f} waiting: {dict(present)}", flush=True)
        await asyncio.sleep(pause_s)
    return round(time.monotonic() - began_s, 1)


async def measured(bench: HollowBench, arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures, in the order in which they arise."""
    assert bench.process is not None
    pid, figures = bench.process.pid, dict[str, Any]()
    access = load_access(AccessOptions(kubeconfig=str(bench.kubeconfig)), {})
    async with ApiClient(access) as api:
        pods = WatchedPods(Reflector(api, "/api/v1/pods", "", HostClock()))
        following = asyncio.create_task(pods.reflector.run())
        figures["nodes"], figures["pods"] = arguments.nodes, arguments.pods
        figures["node_monitor_grace_s"] = arguments.grace
        figures["load_beside"] = round(os.getloadavg()[0], 1)
        figures["nodes_ready_s"] = await reached(
            "nodes", lambda: bench.ready_nodes() == arguments.nodes, pods, pause_s=5
        )
        figures["mib_of_nodes"] = round(process_usage(pid)[1])
        before_s = process_usage(pid)[0]
        await asyncio.sleep(30)
        figures["idle_cores"] = round((process_usage(pid)[0] - before_s) / 30, 2)
        fit = arguments.pods * 4 // 5
        bench.create(DEPLOYMENTS, deployment("numa", 0, {"requests": POD, "limits": POD}))
        before_s, began_s = process_usage(pid)[0], time.monotonic()
        starting = asyncio.create_task(scaled(bench, fit, arguments.rate))
        await reached("running", lambda: pods.count("numa", "Running") >= fit * _SHARE, pods)
        await starting
        running_s = round(time.monotonic() - began_s, 1)
        figures |= {"running": pods.count("numa", "Running"), "running_s": running_s}
        figures["starts_per_s"] = arguments.rate
        figures["cores_while_starting"] = round((process_usage(pid)[0] - before_s) / running_s, 2)
        delays = sorted(pods.delays_s.values())
        figures["status_after_binding_s"] = {
            name: round(delays[int(len(delays) * share)], 2)
            for name, share in (("median", 0.5), ("p99", 0.99))
        }
        changed(bench, "PATCH", "numa", {"spec": {"replicas": arguments.pods}})
        await reached("rejections", lambda: pods.rejected >= arguments.pods // 25, pods)
        changed(bench, "PATCH", "numa", {"spec": {"replicas": fit}})
        await asyncio.sleep(20)
        figures["rejected"], figures["mib_of_pods"] = pods.rejected, round(process_usage(pid)[1])
        bench.server.close()
        bench.create(DEPLOYMENTS, deployment("greedy", arguments.nodes // 5, {}, GREEDY))
        figures["evictions_s"] = await reached(
            "evictions", lambda: pods.evicted >= arguments.nodes // 5, pods
        )
        figures["evicted"] = pods.evicted
        changed(bench, "DELETE", "greedy")
        figures["drain_s"] = await drained(bench, pods, fit)
        figures["nodes_lost"] = lost_nodes(bench)
        following.cancel()
    return figures


def lost_nodes(bench: HollowBench) -> int:
    """How often the controller manager took a node for lost, for want of a lease."""
    bench.server.close()
    answer = bench.server.request("GET", "/api/v1/events?fieldSelector=reason=NodeNotReady")
    return sum(int(event.get("count") or 1) for event in answer.body["items"])


def changed(bench: HollowBench, verb: str, name: str, document: Any = None) -> None:
    """Changes a Deployment, on another connection: the server closes one that was idle for minutes."""
    bench.server.close()
    assert bench.server.request(verb, f"{DEPLOYMENTS}/{name}", document).code == 200


async def scaled(bench: HollowBench, replicas: int, rate: int) -> None:
    """Has so many pods a second created."""
    for count in range(rate, replicas + rate, rate):
        replicas_now = {"spec": {"replicas": min(count, replicas)}}
        await asyncio.to_thread(bench.server.request, "PATCH", f"{DEPLOYMENTS}/numa", replicas_now)
        await asyncio.sleep(1)


async def drained(bench: HollowBench, pods: WatchedPods, fit: int) -> float:
    """How long `kubectl drain` takes for 10 nodes, until as many pods run as before."""
    began_s = time.monotonic()
    names = [f"hollow-{number}" for number in range(10)]
    command = [f"{ASSETS}/kubectl", f"--kubeconfig={bench.kubeconfig}", "drain", *names, "--timeout=600s"]
    drain = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await drain.wait() == 0
    await reached("drain", lambda: pods.count("numa", "Running") >= (fit - 40) * _SHARE, pods)
    return round(time.monotonic() - began_s, 1)


def replayed(folder: Path) -> bool:
    """Whether the journal of a node replays to the same decisions."""
    journal, again = folder / "root/hollow-12/journal.json", folder / "again.json"
    command = [sys.executable, "-m", "nodewright", "replay", str(journal), "--journal", str(again)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    events, repeated = (json.loads(path.read_text("utf-8"))["spec"]["events"] for path in (journal, again))
    return bool(events) and [event["actions"] for event in events] == [each["actions"] for each in repeated]


def main() -> int:
    """Measures once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument(
        "--rate", type=int, default=50, help="pods that are created each second (default: 50)"
    )
    parser.add_argument(
        "--grace",
        type=int,
        default=_GRACE_S,
        help="seconds that the controller manager waits for a lease (default: %(default)s)",
    )
    parser.add_argument("--write", action="store_true", help="write docs/figures/hollow-load.json")
    arguments = parser.parse_args()
    limits = ("--kube-api-qps=1000", "--kube-api-burst=2000")
    grace = (f"--node-monitor-grace-period={arguments.grace}s",)
    with (
        tempfile.TemporaryDirectory(prefix="hollow-load-") as name,
        hollow_bench(Path(name), scheduler_flags=limits, manager_flags=grace) as bench,
    ):
        bench.start(f"--nodes={arguments.nodes}*{MACHINE}", f"--root-dir={name}/root")
        try:
            figures = asyncio.run(measured(bench, arguments))
        finally:
            print(bench.log()[-2000:])
            bench.stop()
        figures["journal_replays_alike"] = replayed(bench.folder)
    print(as_json(figures))
    if arguments.write:
        FIGURES.write_text(as_json(figures) + "\n", "utf-8")
    return 0
