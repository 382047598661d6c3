"""A workload that fragments NUMA nodes, and the controller that creates its pods and replaces rejected ones."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from nodewright.cluster.client.api_client import PlainAccess
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.reflector import Reflector
from nodewright.cluster.tasks.timing import HostClock

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

    def __init__(self, api: PlainAccess, plan: Sequence[PlannedPod], schedulers: Sequence[str]) -> None:
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
