"""What somebody else changed in cgroups is set back, and nothing else is written."""

import asyncio
from collections.abc import Mapping

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test

from nodewright.agent.pods.cgroup_reconcile import (
    end_orphaned_cgroups,
    orphaned_pod_cgroups,
    reconcile_cgroups,
    run_cgroup_reconciler,
)
from nodewright.agent.runtimes.simulated import FakeCgroups
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

BUSY = "/kubepods/burstable/podweb"
PINNED = "/kubepods/podpinned/main-pinned-0"


class Counting(FakeCgroups):
    """Cgroups that say what was written, and some of which cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.stuck = ""

    def ensure(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        if path == self.stuck:
            raise HostError("write to cgroup", path, "permission denied")
        self.written.append(path)
        super().ensure(path, files)


async def with_two_pods(bench: AgentBench) -> Counting:
    """One that is pinned and one that is not; their containers have groups as a real runtime makes them."""
    await bench.add_pods(a_pod("web", "500m/64Mi"), a_guaranteed_pod("pinned", "2/64Mi"))
    cgroups = Counting()
    cgroups.groups = bench.cgroups.groups
    for record in bench.loop.state.pods.values():
        assert record.runtime_status is not None
        for container in record.runtime_status.containers:
            FakeCgroups.ensure(cgroups, container.cgroup, tuple(record.applied_resources[container.id]))
    return cgroups


def test_what_was_changed_is_set_back_at_every_level() -> None:
    async def run() -> None:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            cgroups = await with_two_pods(bench)
            before = {path: dict(texts) for path, texts in cgroups.groups.items()}
            assert reconcile_cgroups(bench.loop.state, cgroups).differences == ()
            assert cgroups.written == []
            cgroups.groups[PINNED]["cpuset.cpus"] = "0-7"
            cgroups.groups[BUSY]["cpu.weight"] = "10000"
            cgroups.groups["/kubepods/besteffort"]["cpu.weight"] = "500"
            reconcile_result = reconcile_cgroups(bench.loop.state, cgroups)
            assert sorted(
                (difference.path, difference.file, difference.actual)
                for difference in reconcile_result.differences
            ) == [
                ("/kubepods/besteffort", "cpu.weight", "500"),
                (BUSY, "cpu.weight", "10000"),
                (PINNED, "cpuset.cpus", "0-7"),
            ]
            assert cgroups.groups == before

    asyncio.run(run())


def test_an_unplanned_limit_is_removed() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            cgroups.groups[BUSY]["memory.max"] = "4096"
            assert [
                difference.expected for difference in reconcile_cgroups(bench.loop.state, cgroups).differences
            ] == ["max"]
            assert cgroups.groups[BUSY]["memory.max"] == "max"

    asyncio.run(run())


def test_the_same_in_other_words_is_not_written_again() -> None:
    async def run() -> None:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            cgroups = await with_two_pods(bench)
            assert cgroups.groups[PINNED]["cpuset.cpus"] == "1-2"
            cgroups.groups[PINNED]["cpuset.cpus"] = "1,2"
            assert reconcile_cgroups(bench.loop.state, cgroups).differences == ()
            assert cgroups.written == []

    asyncio.run(run())


def test_pods_for_which_something_is_being_done_are_left_alone() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            await bench.remove_pod("web", 30)
            cgroups.groups[BUSY] = {"cpu.weight": "10000"}
            assert reconcile_cgroups(bench.loop.state, cgroups).differences == ()

    asyncio.run(run())


def test_it_reconciles_periodically_and_reports_an_error_once() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            loop = bench.loop
            task = asyncio.create_task(
                run_cgroup_reconciler(lambda: loop.state, cgroups, bench.event_recorder.record, bench.clock)
            )
            bench.event_recorder.events.clear()
            cgroups.groups[BUSY]["cpu.weight"] = "7"
            cgroups.stuck = BUSY
            await bench.clock.advance(0)
            for _ in range(3):
                await bench.clock.advance(10)
            cgroups.stuck = ""
            cgroups.unsupported.add("hugetlb")
            for _ in range(2):
                await bench.clock.advance(10)
            del cgroups.groups["/kubepods/besteffort"]
            await bench.clock.advance(10)
            task.cancel()
            assert [(event.reason, event.message) for event in bench.event_recorder.events] == [
                ("CgroupNotWritten", f"write to cgroup {BUSY}: permission denied"),
                ("CgroupChanged", f"cpu.weight of {BUSY} was 7 instead of 20 and has been restored"),
                ("CgroupLacking", "this machine has no hugetlb: the limit is not enforced"),
                ("CgroupChanged", "/kubepods/besteffort was missing and has been created again"),
            ]

    asyncio.run(run())


def test_a_running_pod_whose_processes_were_moved_away_is_reported_once() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            await bench.add_pods(a_pod("web", "500m/64Mi"), a_pod("other", "500m/64Mi"))
            bench.cgroups.pids[BUSY] = {6}
            bench.cgroups.pids["/kubepods/burstable/podother"] = {7}
            task = asyncio.create_task(
                run_cgroup_reconciler(
                    lambda: bench.loop.state, bench.cgroups, bench.event_recorder.record, bench.clock
                )
            )
            await bench.clock.advance(1)
            await bench.clock.advance(15)
            del bench.cgroups.pids[BUSY]
            await bench.clock.advance(100)
            task.cancel()
            events = [event for event in bench.event_recorder.events if event.reason == "CgroupEmpty"]
            message = f"{BUSY} has no process any more, although the pod runs: its limits do not apply"
            assert [(event.uid, event.message) for event in events] == [("web", message)]

    asyncio.run(run())


NODE = Node.from_profile(a_profile()).state
WEB, PINNED_POD = "/kubepods/burstable/podweb", "/kubepods/podpinned"


def cgroups_with(processes: Mapping[str, set[int]]) -> FakeCgroups:
    cgroups = FakeCgroups()
    for path, pids in processes.items():
        cgroups.ensure(path, ())
        cgroups.pids[path] = pids
    return cgroups


def state_with(*records: PodRecord) -> AgentState:
    return AgentState(node=NODE, pods={record.pod.uid: record for record in records})


def web(stage: PodStage = PodStage.ACTIVE) -> PodRecord:
    return PodRecord(
        pod=a_pod("web", "500m/64Mi"), source=PodSource.API, stage=stage, memory=NODE.held.memory
    )


def test_a_pod_cgroup_is_orphaned_where_neither_agent_nor_runtime_has_the_pod() -> None:
    pods = (*(f"/kubepods/{level}podgone" for level in ("", "burstable/", "besteffort/")), WEB)
    cgroups = cgroups_with({path: set() for path in pods})
    assert set(orphaned_pod_cgroups(state_with(web()), (), cgroups)) == set(pods) - {WEB}


def test_cgroups_of_daemons_and_of_pods_that_the_runtime_has_are_not_orphaned() -> None:
    cgroups = cgroups_with({"/system.slice": {1}, "/kubepods/burstable": {2}, WEB: {3}, PINNED_POD: {4}})
    runs = RuntimePodStatus(uid="web", namespace="default", name="web")
    orphan = RuntimePodStatus(uid="pinned", namespace="default", name="pinned")
    state = replace(state_with(), orphans={"pinned": orphan})
    assert orphaned_pod_cgroups(state, (runs,), cgroups) == ()


def test_a_pod_that_now_belongs_to_another_qos_class_leaves_an_orphaned_cgroup() -> None:
    cgroups = cgroups_with({"/kubepods/besteffort/podweb": {7}, WEB: {8}})
    assert orphaned_pod_cgroups(state_with(web()), (), cgroups) == ("/kubepods/besteffort/podweb",)


def test_a_pod_that_the_node_has_rejected_runs_nowhere() -> None:
    assert orphaned_pod_cgroups(state_with(web(PodStage.REJECTED)), (), cgroups_with({WEB: {7}})) == (WEB,)


def test_without_cgroups_of_pods_none_is_orphaned() -> None:
    node = Node.from_profile(a_profile(cgroupsPerQOS=False, enforceNodeAllocatable=[])).state
    assert orphaned_pod_cgroups(AgentState(node=node), (), cgroups_with({PINNED_POD: {7}})) == ()


def test_an_orphaned_cgroup_that_resists_is_reported_and_does_not_spare_the_next() -> None:
    class Stuck(FakeCgroups):
        def kill(self, path: str) -> None:
            if path == WEB:
                raise HostError("kill the processes of", path, "1 processes remain")
            super().kill(path)

    cgroups = Stuck()
    for path in (WEB, PINNED_POD):
        cgroups.ensure(path, ())
        cgroups.pids[path] = {7}
    events = end_orphaned_cgroups(state_with(), (), cgroups)
    assert {event.message for event in events} == {
        f"kill the processes of {WEB}: 1 processes remain",
        f"{PINNED_POD} belongs to no known pod: its 1 processes were killed",
    }
    assert cgroups.processes("/kubepods") == (7,)
    assert set(cgroups.groups) == {WEB}


@async_test
async def test_an_agent_ends_orphaned_pods_before_it_starts_the_first() -> None:
    bench = AgentBench()
    bench.cgroups.ensure(PINNED_POD, ())
    bench.cgroups.pids[PINNED_POD] = {7, 8}
    async with bench:
        assert bench.cgroups.processes(PINNED_POD) == ()
        assert [event.reason for event in bench.event_recorder.events] == ["StrayProcesses"]
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        assert bench.phase("pinned") == "Running"


@async_test
async def test_an_empty_orphaned_cgroup_is_removed_without_an_event() -> None:
    bench = AgentBench()
    bench.cgroups.ensure(PINNED_POD, ())
    async with bench:
        assert PINNED_POD not in bench.cgroups.groups
        assert bench.event_recorder.events == []
