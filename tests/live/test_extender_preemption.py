"""A real kube-scheduler preempts with the extender: the victims make room on a NUMA node, and budgets are respected."""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.support.deciding_nodes import DecidingNodes
from tests.support.real_api_server import needs_real, real_api_server

from nodewright.cluster.client.api_client import PlainAccess
from tools.scheduling_bench import Bench, ExtenderProcess
from tools.scheduling_workload import PODS

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs_real("kube-scheduler"),
]
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES = {"a": 60, "b": 50, "far": 20, "guarded": 30, "near": 40, "last": 10}
"""Of the running pods, two CPUs each, in order of admission: three on each NUMA node. The first has 7 CPUs, the other 8."""
URGENT = 1000
WAIT_S = 60.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("preemption")
    with real_api_server(folder) as server:
        for value in (*PRIORITIES.values(), URGENT):
            item = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
            answer = server.create(CLASSES, item | {"metadata": {"name": f"p{value}"}})
            assert answer.code == 201, answer.message
        server.close()
        yield Bench(server, folder, argparse.Namespace(nodes=1, pods=0, seed=1))


def a_pod(name: str, cpus: int, priority: int, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "64Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": name, "labels": {"app": name}}
    spec = {"containers": [container], "priorityClassName": f"p{priority}", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline_s, what
        await asyncio.sleep(0.1)


def has_admitted(nodes: DecidingNodes, count: int) -> bool:
    return len(nodes.admitted) == count


@asynccontextmanager
async def full_node(
    bench: Bench, disruptions_allowed: int
) -> AsyncIterator[tuple[PlainAccess, DecidingNodes]]:
    """A node whose pods leave one CPU free on one NUMA node and two on the other; the scheduler asks the extender."""
    folder = bench.folder / f"allowed-{disruptions_allowed}"
    folder.mkdir()
    async with bench.nodes() as (api, nodes):
        selector = {"matchLabels": {"app": "guarded"}}
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}}
        await api.create(BUDGETS, budget | {"spec": {"minAvailable": 1, "selector": selector}})
        counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
        status = {**counts, "disruptionsAllowed": disruptions_allowed}
        await api.patch(f"{BUDGETS}/guard/status", {"status": status})
        extender = ExtenderProcess(folder, bench)
        extender.start()
        try:
            await extender.wait_for_exact(1)
            [node] = nodes.nodes
            for number, (name, priority) in enumerate(PRIORITIES.items(), 1):
                await api.create(PODS, a_pod(name, 2, priority, nodeName=node))
                await until(partial(has_admitted, nodes, number), f"{name} is admitted")
            compared = "nodewright_extender_compared_verdicts_total"
            await until(lambda: extender.metric(compared) == len(PRIORITIES), "the extender knows the pods")
            await until(lambda: extender.metric("nodewright_extender_reservations") == 0, "all are exported")
            with bench.scheduler(folder, "default-scheduler", extender):
                yield api, nodes
        finally:
            extender.stop()
            await api.delete(f"{BUDGETS}/guard", {})


@pytest.mark.parametrize(("disruptions_allowed", "victim"), [(0, "near"), (1, "guarded")])
def test_victims_make_room_on_a_numa_node_and_respect_budgets(
    bench: Bench, disruptions_allowed: int, victim: str
) -> None:
    """The scheduler's own victims, the two least important pods, would leave four CPUs on each NUMA node, not six."""

    async def scenario() -> set[str]:
        async with full_node(bench, disruptions_allowed) as (api, nodes):
            await api.create(PODS, a_pod("urgent", 6, URGENT))
            await until(lambda: "default/urgent" in nodes.admitted, "the urgent pod is admitted")
            assert not nodes.rejected
            pods = (await api.read(PODS, {}))["items"]
            present = {
                pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")
            }
            return {*PRIORITIES} - present

    assert asyncio.run(scenario()) == {"far", "last", victim}
