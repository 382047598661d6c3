"""What somebody else changed in cgroups is set back, and nothing else is written."""

import asyncio

from tests.support.agent_bench import AgentBench

from nodewright.agent.pods.cgroup_reconcile import reconcile_cgroups, run_cgroup_reconciler
from nodewright.agent.runtimes.simulated import FakeCgroups
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
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
