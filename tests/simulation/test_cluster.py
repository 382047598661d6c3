"""A node of a cluster under kill -9, partitions, slow and lost answers: no pod twice, none forgotten."""

import asyncio
import os
import random

import pytest
from tests.simulation.day import PROFILE, SEED
from tests.support.cluster_restarts import ClusterRestarts
from tests.support.fault_injection import Fault, FaultInjector

from nodewright.agent.runtimes.simulated import ContainerScript

RUNS = int(os.environ.get("CLUSTER_RUNS") or 6)
SECONDS, REST_S = 60, 150
SCRIPTS = {
    "job": ContainerScript(runs_for_s=4),
    "fails": ContainerScript(runs_for_s=3, exit_code=1),
    "stubborn": ContainerScript(ignores_sigterm=True),
}
PINNED = {"resources": {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}}
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_AFTER, Fault.KILLED_WITHIN)


class Users:
    """What people and controllers do to pods, from a seed; a controller replaces a pod once its object is gone."""

    def __init__(self, restarts: ClusterRestarts, seed: int) -> None:
        self.restarts, self.cluster = restarts, restarts.cluster
        self.random = random.Random(seed)
        self.number = 0
        self.forced: set[str] = set()

    def act(self) -> None:
        """Creates, deletes or forgets a pod."""
        choice, pods = self.random.random(), self.cluster.pods()
        name = f"web-{self.random.randrange(4)}"
        if name not in pods:
            self._create(name)
        elif choice < 0.25 and "deletionTimestamp" not in pods[name]["metadata"]:
            self.cluster.delete_pod(name)
        elif choice < 0.3:
            self.forced.add(pods[name]["metadata"]["uid"])
            self.cluster.delete_pod(name, is_forced=True)
        elif choice < 0.35:
            self.cluster.expire_watches()

    def _create(self, name: str) -> None:
        self.number += 1
        container = self.random.choice(("main", "main", "job", "fails", "stubborn"))
        resources = PINNED if self.random.random() < 0.4 else {}
        spec = {
            "containers": [{"name": container, "image": "none", **resources}],
            "restartPolicy": self.random.choice(("Always", "Never")),
        }
        self.cluster.create_pod(name, f"{name}-{self.number}", container, **spec)

    def trouble(self) -> None:
        """Changes the network."""
        self.cluster.partition(is_reachable=self.random.random() < 0.7)
        self.cluster.failure_rate = self.random.choice((0.0, 0.0, 0.3))
        self.cluster.delay_s = self.random.choice((0.0, 0.5, 4.0))

    def heal(self) -> None:
        """Ends all trouble."""
        self.cluster.partition(is_reachable=True)
        self.cluster.failure_rate = self.cluster.delay_s = 0.0


async def a_hard_minute(seed: int) -> ClusterRestarts:
    choose = random.Random(seed)
    faults = [FaultInjector(choose.randrange(40, 400), choose.choice(KILLS)) for _ in range(6)]
    restarts = ClusterRestarts(PROFILE, SCRIPTS, faults, seed)
    restarts.is_careful = False
    users = Users(restarts, seed)
    for _ in range(SECONDS):
        users.act()
        if choose.random() < 0.2:
            users.trouble()
        await restarts.run_for(1)
    users.heal()
    await restarts.run_for(REST_S)
    return restarts


@pytest.mark.parametrize("run", range(RUNS))
def test_no_pod_runs_twice_and_none_is_forgotten(run: int) -> None:
    async def scenario() -> None:
        seed = SEED + run
        restarts = await a_hard_minute(seed)
        assert restarts.wrong == [], seed
        pods = {document["metadata"]["uid"]: document for document in restarts.cluster.pods().values()}
        assert restarts.loop is not None
        assert restarts.loop.state.pods.keys() == pods.keys(), seed
        assert restarts.running_uids() <= pods.keys(), seed
        for uid, document in pods.items():
            assert "deletionTimestamp" not in document["metadata"], (seed, uid)
            record = restarts.loop.state.pods[uid]
            assert document["status"]["phase"] == record.status.phase, (seed, uid)
        restarts.cluster.on_end = lambda _uid, _how: None
        for name in restarts.cluster.pods():
            restarts.cluster.delete_pod(name, is_forced=True)
        await restarts.run_for(30)
        assert restarts.runtime.sandboxes == {}
        assert restarts.runtime.containers == {}
        await restarts.stop()

    asyncio.run(scenario())


def test_statuses_take_few_requests() -> None:
    async def scenario() -> None:
        restarts = ClusterRestarts(PROFILE, SCRIPTS, [], 1)
        restarts.cluster.create_pod("web", "web", "main")
        await restarts.run_for(10)
        writes = len(restarts.cluster.requests)
        assert restarts.cluster.pods()["web"]["status"]["phase"] == "Running"
        assert writes <= 3
        await restarts.run_for(60)
        assert len(restarts.cluster.requests) == writes
        restarts.cluster.delete_pod("web")
        await restarts.run_for(10)
        assert restarts.cluster.pods() == {}
        assert restarts.cluster.requests[-1] == ("DELETE", "/api/v1/namespaces/default/pods/web")
        assert len(restarts.cluster.requests) <= writes + 5
        await restarts.stop()

    asyncio.run(scenario())


def test_an_api_server_that_is_away_for_ten_minutes_stops_no_pod_and_starts_none_twice() -> None:
    """Meanwhile the agent ends and starts again, and the wall clock jumps; everything is reported afterwards."""

    async def scenario() -> None:
        restarts = ClusterRestarts(PROFILE, SCRIPTS, [], 3)
        cluster = restarts.cluster
        for name, container in (("steady", "main"), ("job", "job"), ("leaves", "main")):
            cluster.create_pod(name, name, container, restartPolicy="Never")
        await restarts.run_for(2)
        (steady,) = (
            id_ for id_, held in restarts.runtime.containers.items() if held.config.pod.uid == "steady"
        )
        cluster.partition(is_reachable=False)
        cluster.delete_pod("leaves")
        cluster.create_pod("arrives", "arrives", "main")
        restarts.clock.jump(-7200)
        await restarts.run_for(300)
        await restarts.stop()
        restarts.clock.jump(86_400)
        await restarts.run_for(300)
        assert restarts.running_uids() == {"steady", "leaves"}
        assert cluster.pods()["job"]["status"]["phase"] == "Running"
        cluster.partition(is_reachable=True)
        await restarts.run_for(90)
        phases = {name: document["status"]["phase"] for name, document in cluster.pods().items()}
        assert phases == {"steady": "Running", "job": "Succeeded", "arrives": "Running"}
        assert restarts.running_uids() == {"steady", "arrives"}
        assert restarts.runtime.containers[steady].status.attempt == 0
        assert restarts.wrong == []
        await restarts.stop()

    asyncio.run(scenario())
