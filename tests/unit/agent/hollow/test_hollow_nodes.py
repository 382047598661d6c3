"""Hollow nodes in a cluster in memory: pods, behaviour, faults, and the next process."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock, settle
from tests.support.memory_cluster import LEASES, NODES, PODS, MemoryCluster

from nodewright.agent.hollow.behaviour import PodStage, StageNumber
from nodewright.agent.hollow.hollow_devices import read_slices
from nodewright.agent.hollow.hollow_node import HollowNode, end_tasks
from nodewright.agent.hollow.hollow_options import HollowOptions, planned_nodes
from nodewright.agent.hollow.run_hollow import run_nodes, shared_cluster
from nodewright.agent.store.store_files import log_commit_mark
from nodewright.cli.app import run
from nodewright.cluster.objects.node_owned_objects import TOPOLOGIES
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.output.terminal import NO
from nodewright.documents.profiles.profile_yaml import profile_document
from nodewright.model.errors import HostError
from nodewright.testing.nodes import a_profile

GUARANTEED = {"cpu": "2", "memory": "1Gi"}
LIMITED = {"requests": {"memory": "64Mi"}, "limits": {"memory": "100Mi"}}


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test as a function that pytest calls."""

    @wraps(test)
    def run_test(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run_test


class HollowRun:
    """Hollow nodes `hollow-0` and `hollow-1`, with 8 CPUs each."""

    def __init__(self, folder: Path, clock: FakeClock, cluster: MemoryCluster, **options: Any) -> None:
        self.clock, self.cluster = clock, cluster
        path = folder / "node.yaml"
        profile = a_profile(
            devices={"example.com/gpu": "g0 g1"},
            cpuManagerPolicy="static",
            reservedSystemCPUs="0",
            evictionHard={"memory.available": "100Mi"},
        )
        path.write_text(as_json(profile_document(profile)), "utf-8")
        self.options = HollowOptions(nodes=(f"2*{path}",), **options)
        self.nodes: dict[str, HollowNode] = {}
        self.stages: tuple[PodStage, ...] = ()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The process, until the end of the context."""
        nodes = planned_nodes(self.options)
        api = self.cluster
        self.shared = shared_cluster(
            (api, api, api), [node.name for node in nodes], (self.clock, self.clock), self.options
        )._replace(stages=self.stages, slices=read_slices(self.options.resource_slices))
        self.nodes = {node.name: HollowNode(node, self.shared) for node in nodes}
        task = asyncio.create_task(run_nodes(tuple(self.nodes.values()), self.shared))
        await settle()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def after(self, seconds: float) -> None:
        """What was changed arrives, then time passes."""
        await settle()
        await self.clock.advance(seconds)

    def create_pod(
        self, name: str, resources: dict[str, Any] | None = None, *, node: str = "hollow-0", **spec: Any
    ) -> None:
        """A pod that the scheduler has bound."""
        texts = {f"nodewright.dev/{key}": text for key, text in spec.pop("annotations", {}).items()}
        container = {"name": "main", "image": "i", "resources": resources or {}, **spec.pop("container", {})}
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": texts,
        }
        metadata |= {"generation": 1, "creationTimestamp": "2027-01-15T08:00:00Z"}
        full = {"nodeName": node, "containers": [container], "restartPolicy": "Always", **spec}
        full.setdefault("terminationGracePeriodSeconds", 3)
        status = {"phase": "Pending", **full.pop("status", {})}
        document = {"metadata": metadata, "spec": full, "status": status}
        self.cluster.put(f"{PODS}/{name}", document)

    def status(self, name: str) -> dict[str, Any]:
        """The status of a pod."""
        return dict(self.cluster.pods()[name]["status"])

    def state(self, name: str) -> dict[str, Any]:
        """The state of its container."""
        (container,) = self.status(name)["containerStatuses"]
        return dict(container["state"])

    def node(self, name: str = "hollow-0") -> dict[str, Any]:
        """A Node object."""
        return self.cluster.objects[f"{NODES}/{name}"]

    def events(self, reason: str) -> list[str]:
        """The messages of the events with a reason."""
        return [
            document["message"]
            for document in self.cluster.objects.values()
            if document.get("kind") == "Event" and document["reason"] == reason
        ]


@pytest.fixture
def hollow(tmp_path: Path) -> HollowRun:
    clock = FakeClock()
    return HollowRun(tmp_path, clock, MemoryCluster(clock))


def again(hollow: HollowRun, tmp_path: Path, **options: Any) -> HollowRun:
    """The same cluster, for other options."""
    return HollowRun(tmp_path, hollow.clock, hollow.cluster, **options)


@in_event_loop
async def test_nodes_are_registered_with_leases_and_pods_run_and_are_rejected(hollow: HollowRun) -> None:
    async with hollow.running():
        assert hollow.node()["status"]["allocatable"]["example.com/gpu"] == "2"
        assert hollow.node("hollow-1")["metadata"]["labels"]["nodewright.dev/hollow"] == "true"
        await hollow.after(11)
        assert f"{LEASES}/hollow-1" in hollow.cluster.objects
        both = {"requests": GUARANTEED, "limits": GUARANTEED}
        hollow.create_pod("web", both)
        hollow.create_pod("other", both, node="hollow-1")
        hollow.create_pod("large", {"requests": {"cpu": "100"}})
        hollow.create_pod("foreign", both, node="real")
        await hollow.after(5)
        assert [hollow.status(name)["phase"] for name in ("web", "other")] == ["Running", "Running"]
        assert hollow.status("web")["podIP"] != hollow.status("other")["podIP"]
        assert hollow.status("large")["reason"] == "OutOfcpu"
        assert hollow.status("foreign") == {"phase": "Pending"}


@in_event_loop
async def test_pods_have_addresses_of_the_nodes_network_or_of_one_that_the_names_choose(
    hollow: HollowRun, tmp_path: Path
) -> None:
    async with hollow.running():
        hollow.node()["spec"] = {"podCIDR": "10.200.7.0/24"}
        hollow.cluster.put(f"{NODES}/hollow-0", hollow.node())
        for name, node in (("web", "hollow-0"), ("other", "hollow-1")):
            hollow.create_pod(name, node=node)
        await hollow.after(5)
    async with again(hollow, tmp_path, name="second-{n}").running():
        hollow.create_pod("third", node="second-1")
        await hollow.after(5)
    addresses = [ip_address(hollow.status(name)["podIP"]) for name in ("web", "other", "third")]
    assert addresses[0] in ip_network("10.200.7.0/24")
    assert all(address in ip_network("10.0.0.0/8") for address in addresses)
    assert len({int(address) >> 10 for address in addresses}) == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": {"podCIDR": "all"}},
        {"spec": {"taints": 5}},
        {"status": {"nodeInfo": 5}},
        {"spec": {"taints": [{}, "a"]}},
    ],
)
@in_event_loop
async def test_a_node_of_wrong_types_concerns_no_other(hollow: HollowRun, odd: dict[str, Any]) -> None:
    metadata = {"name": "hollow-0", "uid": "u0", "labels": {"nodewright.dev/hollow": "true"}}
    hollow.cluster.put(f"{NODES}/hollow-0", {"metadata": metadata, **odd})
    hollow.create_pod("odd", node="hollow-0", containers=5)
    hollow.create_pod("web", node="hollow-1")
    async with hollow.running():
        await hollow.after(2)
        assert hollow.status("web")["phase"] == "Running"
        hollow.cluster.put(f"{NODES}/hollow-0", {"metadata": {**metadata, "resourceVersion": "900"}, **odd})
        hollow.create_pod("next", node="hollow-1")
        await hollow.after(2)
        assert hollow.status("next")["phase"] == "Running"


@in_event_loop
async def test_a_task_that_loses_its_cancellation_is_cancelled_again() -> None:
    cancellations = 0

    async def lose_one() -> None:
        nonlocal cancellations
        while cancellations < 2:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancellations += 1

    task = asyncio.create_task(lose_one())
    await asyncio.sleep(0)
    await end_tasks([task], cancel_again_s=0.01)
    assert (task.done(), cancellations) == (True, 2)


@in_event_loop
async def test_a_deleted_pod_ends_as_it_says_and_its_object_goes(hollow: HollowRun) -> None:
    async with hollow.running():
        hollow.create_pod("slow", annotations={"stops-after": "2s"})
        hollow.create_pod("quick")
        await hollow.after(5)
        hollow.cluster.delete_pod("slow")
        hollow.cluster.delete_pod("quick")
        await hollow.after(1)
        assert list(hollow.cluster.pods()) == ["slow"]
        await hollow.after(3)
        assert not hollow.cluster.pods()


@in_event_loop
async def test_pods_start_late_end_crash_and_become_ready_when_they_say(hollow: HollowRun) -> None:
    probe = {"exec": {"command": ["x"]}, "periodSeconds": 1}
    async with hollow.running():
        hollow.create_pod("late", annotations={"starts-after": "20s"})
        hollow.create_pod("done", annotations={"runs": "10s"}, restartPolicy="Never")
        hollow.create_pod("crash", annotations={"runs": "2s", "exit-code": "7"})
        hollow.create_pod("ready", container={"readinessProbe": probe}, annotations={"ready-after": "8s"})
        hollow.create_pod("odd", annotations={"runs": "soon"})
        await hollow.after(5)
        assert "waiting" in hollow.state("late")
        assert "running" in hollow.state("done")
        assert not hollow.status("ready")["containerStatuses"][0]["ready"]
        (text,) = hollow.events("AnnotationNotRead")
        assert 'metadata.annotations["nodewright.dev/runs"]: Invalid value: "soon"' in text
        for _ in range(6):
            await hollow.after(5)
        assert "running" in hollow.state("late")
        assert hollow.status("done")["phase"] == "Succeeded"
        assert hollow.status("ready")["containerStatuses"][0]["ready"]
        (crashed,) = hollow.status("crash")["containerStatuses"]
        assert crashed["restartCount"] >= 2
        assert crashed["lastState"]["terminated"]["exitCode"] == 7
        assert crashed["state"]["waiting"]["reason"] == "CrashLoopBackOff"


@in_event_loop
async def test_stages_delay_the_start_and_the_end_of_pods(hollow: HollowRun) -> None:
    steps = (("start", 20), ("end", 10))
    hollow.stages = tuple(
        PodStage(name=step, step=step, delay=StageNumber(seconds * 10**9), exit_code=7)
        for step, seconds in steps
    )
    async with hollow.running():
        hollow.create_pod("web", restartPolicy="Never")
        await hollow.after(15)
        assert "waiting" in hollow.state("web")
        await hollow.after(10)
        assert "running" in hollow.state("web")
        await hollow.after(10)
        assert hollow.state("web")["terminated"]["exitCode"] == 7


@in_event_loop
async def test_memory_above_the_limit_is_an_oom_kill_and_above_the_node_an_eviction(
    hollow: HollowRun,
) -> None:
    async with hollow.running():
        hollow.create_pod(
            "grows", LIMITED, annotations={"memory": "0s=50Mi,10s=150Mi"}, restartPolicy="Never"
        )
        hollow.create_pod("greedy", node="hollow-1", annotations={"memory": "0s=0,10s=1Gi,60s=8150Mi"})
        await hollow.after(4)
        assert "running" in hollow.state("grows")
        await hollow.after(3)
        assert hollow.state("grows")["terminated"]["reason"] == "OOMKilled"
        for _ in range(14):
            await hollow.after(5)
        assert hollow.status("greedy")["reason"] == "Evicted"
        assert "The node was low on resource: memory" in hollow.status("greedy")["message"]
        pressure = {each["type"]: each["status"] for each in hollow.node("hollow-1")["status"]["conditions"]}
        assert pressure["MemoryPressure"] == "True"


@in_event_loop
async def test_the_kernel_kills_where_the_memory_of_the_node_is_used_up_at_once(hollow: HollowRun) -> None:
    async with hollow.running():
        hollow.create_pod("greedy", annotations={"memory": "0s=0,1s=0,2s=900Gi"}, restartPolicy="Never")
        await hollow.after(6)
        assert hollow.state("greedy")["terminated"]["reason"] == "OOMKilled"


@in_event_loop
async def test_faults_happen_on_schedule(tmp_path: Path, hollow: HollowRun) -> None:
    faults = (
        "1m:hollow-0:down=40s",
        "1m:hollow-1:reboot",
        "3m:hollow-1:restart=1.35",
        "4m:hollow-1:plugin-lost=example.com/gpu",
        "5m:hollow-1:plugin-found=example.com/gpu",
    )
    hollow = again(hollow, tmp_path, faults=faults)
    async with hollow.running():
        hollow.create_pod("web", node="hollow-1")
        await hollow.after(59)
        lease, boot = (
            hollow.cluster.objects[f"{LEASES}/hollow-0"],
            hollow.node("hollow-1")["status"]["nodeInfo"],
        )
        first = hollow.status("web")["containerStatuses"][0]
        await hollow.after(30)
        assert hollow.cluster.objects[f"{LEASES}/hollow-0"] == lease, "no lease while the node is down"
        assert hollow.node("hollow-1")["status"]["nodeInfo"]["bootID"] != boot["bootID"]
        rebooted = hollow.status("web")["containerStatuses"][0]
        assert rebooted["restartCount"] == 1
        assert rebooted["containerID"] != first["containerID"]
        await hollow.after(30)
        assert hollow.cluster.objects[f"{LEASES}/hollow-0"] != lease
        await hollow.after(75)
        assert hollow.node("hollow-1")["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.35.")
        assert hollow.status("web")["containerStatuses"][0]["containerID"] == rebooted["containerID"]
        await hollow.after(60)
        assert hollow.node("hollow-1")["status"]["allocatable"]["example.com/gpu"] == "0"
        await hollow.after(60)
        assert hollow.node("hollow-1")["status"]["allocatable"]["example.com/gpu"] == "2"


@in_event_loop
async def test_the_topology_of_each_node_follows_its_allocations(hollow: HollowRun, tmp_path: Path) -> None:
    hollow = again(hollow, tmp_path, publish=("topology",))
    path = f"{TOPOLOGIES}/hollow-0"

    def available_cpus() -> int:
        amounts = [each for zone in hollow.cluster.objects[path]["zones"] for each in zone["resources"]]
        return sum(int(amount["available"]) for amount in amounts if amount["name"] == "cpu")

    async with hollow.running():
        await hollow.after(5)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "hollow-0"}
        owner["uid"] = hollow.node()["metadata"]["uid"]
        assert hollow.cluster.objects[path]["metadata"]["ownerReferences"] == [owner]
        assert available_cpus() == 7
        hollow.create_pod("web", {"requests": GUARANTEED, "limits": GUARANTEED})
        await hollow.after(5)
        assert available_cpus() == 5
        written = hollow.cluster.requests.count(("PUT", path))
        hollow.create_pod("shared", {"requests": {"cpu": "100m"}})
        await hollow.after(5)
        assert hollow.cluster.requests.count(("PUT", path)) == written, "no CPU has another owner"
        hollow.cluster.delete_pod("web")
        await hollow.after(10)
        assert available_cpus() == 7


@pytest.mark.parametrize("keeps_state", [False, True])
@in_event_loop
async def test_the_next_process_takes_nodes_and_pods_over(
    tmp_path: Path, hollow: HollowRun, *, keeps_state: bool
) -> None:
    hollow = again(hollow, tmp_path, root_dir=tmp_path / "root" if keeps_state else None)
    both = {"requests": GUARANTEED, "limits": GUARANTEED}
    async with hollow.running():
        hollow.create_pod("web", both)
        hollow.create_pod("gone", both)
        hollow.create_pod("ends", annotations={"runs": "60s"}, restartPolicy="Never")
        await hollow.after(5)
        before = hollow.status("web")
        boot = hollow.node()["status"]["nodeInfo"]["bootID"]
    await hollow.after(20)
    hollow.cluster.delete_pod("gone")
    async with hollow.running():
        await hollow.after(15)
        assert hollow.status("web")["containerStatuses"] == before["containerStatuses"]
        assert hollow.status("web")["podIP"] == before["podIP"]
        assert "gone" not in hollow.cluster.pods()
        assert hollow.status("ends")["phase"] == "Running"
        assert hollow.node()["status"]["nodeInfo"]["bootID"] == boot
        await hollow.after(30)
        assert hollow.status("ends")["phase"] == "Succeeded"


@in_event_loop
async def test_the_journal_replays_to_the_same_decisions(
    tmp_path: Path, hollow: HollowRun, capsys: pytest.CaptureFixture[str]
) -> None:
    hollow = again(hollow, tmp_path, root_dir=tmp_path / "root")
    both = {"requests": GUARANTEED, "limits": GUARANTEED}
    async with hollow.running():
        for number in range(5):
            hollow.create_pod(f"web-{number}", both)
            await hollow.after(1)
        hollow.cluster.delete_pod("web-1")
        await hollow.after(5)
        assert [hollow.status(f"web-{number}").get("reason") for number in (0, 2, 3, 4)].count(None) == 2
    assert run(["replay", str(tmp_path / "root/hollow-0/journal.json")]) == NO
    printed = capsys.readouterr().out
    assert "10 events: 3 admitted, 2 refused, 2 pods on the node" in printed


@in_event_loop
async def test_a_process_that_was_killed_while_it_wrote_is_taken_over(
    tmp_path: Path, hollow: HollowRun
) -> None:
    hollow = again(hollow, tmp_path, root_dir=tmp_path / "root")
    both = {"requests": GUARANTEED, "limits": GUARANTEED}
    async with hollow.running():
        for name in ("web", "other"):
            hollow.create_pod(name, both)
        await hollow.after(5)
        before = hollow.status("other")["containerStatuses"]
        shutil.copytree(tmp_path / "root", tmp_path / "killed")
    folder = tmp_path / "killed/hollow-0"
    log = (folder / "changes.log").read_bytes().removesuffix(log_commit_mark())
    (folder / "changes.log").write_bytes(log)
    written = json.loads(log.splitlines()[-1].partition(b" ")[2])
    for name, text in written.items():
        (folder / name).write_text(text[: len(text) // 2], "utf-8")
    assert written
    hollow = again(hollow, tmp_path, root_dir=tmp_path / "killed")
    async with hollow.running():
        await hollow.after(15)
        assert hollow.status("other")["containerStatuses"] == before
        assert {name: text for name, text in written.items() if (folder / name).read_text() != text} == {}
    assert not hollow.events("RecordSetAside")


@pytest.mark.parametrize("seed", ["0", "other"])
@in_event_loop
async def test_the_same_seed_makes_the_same_journal(tmp_path: Path, seed: str) -> None:
    journals = []
    for number in range(2):
        clock = FakeClock()
        folder = tmp_path / str(number)
        hollow = HollowRun(tmp_path, clock, MemoryCluster(clock), seed=seed, root_dir=folder)
        async with hollow.running():
            for name in ("a", "b", "c"):
                ends = {"runs": "2s..20s", "starts-after": "0s..3s"}
                hollow.create_pod(name, annotations=ends, restartPolicy="Never")
            await hollow.after(30)
        journal = json.loads((folder / "hollow-0/journal.json").read_text("utf-8"))
        journals.append(journal["spec"]["events"])
    assert journals[0] == journals[1]
    assert len(journals[0]) > 5


@in_event_loop
async def test_a_directory_that_another_process_uses_is_an_error(tmp_path: Path, hollow: HollowRun) -> None:
    hollow = again(hollow, tmp_path, root_dir=tmp_path / "root")
    async with hollow.running():
        planned, api = planned_nodes(hollow.options), hollow.cluster
        names, clocks = [node.name for node in planned], (hollow.clock, hollow.clock)
        shared = shared_cluster((api, api, api), names, clocks, hollow.options)
        with pytest.raises(HostError, match="hollow-0"):
            await run_nodes([HollowNode(node, shared) for node in planned], shared)
