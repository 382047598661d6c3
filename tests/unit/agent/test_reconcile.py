"""What somebody else changed in cgroups is set back, and nothing else is written."""

import asyncio

from nodewright.agent.reconcile import reassert, reasserted
from nodewright.core.cgroups.files import File
from nodewright.testing.agents import AgentBench
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.testing.runtime import FakeCgroups
from nodewright.world.errors import WorldError

BUSY = "/kubepods/burstable/podweb"
PINNED = "/kubepods/podpinned/main-pinned-0"


class Counting(FakeCgroups):
    """Cgroups that say what was written, and some of which cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.stuck = ""

    def ensure(self, path: str, files: tuple[File, ...]) -> None:
        if path == self.stuck:
            raise WorldError("write to cgroup", path, "permission denied")
        self.written.append(path)
        super().ensure(path, files)


async def with_two_pods(bench: AgentBench) -> Counting:
    """One that is pinned and one that is not; their containers have groups as a real runtime makes them."""
    await bench.want(a_pod("web", "500m/64Mi"), a_guaranteed_pod("pinned", "2/64Mi"))
    cgroups = Counting()
    cgroups.groups = bench.cgroups.groups
    for record in bench.loop.mind.pods.values():
        assert record.facts is not None
        for one in record.facts.containers:
            FakeCgroups.ensure(cgroups, one.cgroup, tuple(record.told[one.id]))
    return cgroups


def test_what_was_changed_is_set_back_at_every_level() -> None:
    async def run() -> None:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            cgroups = await with_two_pods(bench)
            before = {path: dict(texts) for path, texts in cgroups.groups.items()}
            assert reasserted(bench.loop.mind, cgroups).differences == ()
            assert cgroups.written == []
            cgroups.groups[PINNED]["cpuset.cpus"] = "0-7"
            cgroups.groups[BUSY]["cpu.weight"] = "10000"
            cgroups.groups["/kubepods/besteffort"]["cpu.weight"] = "500"
            found = reasserted(bench.loop.mind, cgroups)
            assert sorted((one.path, one.file, one.found) for one in found.differences) == [
                ("/kubepods/besteffort", "cpu.weight", "500"),
                (BUSY, "cpu.weight", "10000"),
                (PINNED, "cpuset.cpus", "0-7"),
            ]
            assert cgroups.groups == before

    asyncio.run(run())


def test_a_limit_where_there_is_none_is_taken_away() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            cgroups.groups[BUSY]["memory.max"] = "4096"
            assert [one.expected for one in reasserted(bench.loop.mind, cgroups).differences] == ["max"]
            assert cgroups.groups[BUSY]["memory.max"] == "max"

    asyncio.run(run())


def test_the_same_in_other_words_is_not_written_again() -> None:
    async def run() -> None:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            cgroups = await with_two_pods(bench)
            assert cgroups.groups[PINNED]["cpuset.cpus"] == "1-2"
            cgroups.groups[PINNED]["cpuset.cpus"] = "1,2"
            assert reasserted(bench.loop.mind, cgroups).differences == ()
            assert cgroups.written == []

    asyncio.run(run())


def test_pods_for_which_something_is_being_done_are_left_alone() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            await bench.drop("web", 30)
            cgroups.groups[BUSY] = {"cpu.weight": "10000"}
            assert reasserted(bench.loop.mind, cgroups).differences == ()

    asyncio.run(run())


def test_it_looks_again_and_again_and_tells_an_error_once() -> None:
    async def run() -> None:
        async with AgentBench() as bench:
            cgroups = await with_two_pods(bench)
            loop = bench.loop
            task = asyncio.create_task(reassert(lambda: loop.mind, cgroups, bench.ears.tell, bench.clock))
            bench.ears.told.clear()
            cgroups.groups[BUSY]["cpu.weight"] = "7"
            cgroups.stuck = BUSY
            await bench.clock.advance(0)
            for _ in range(3):
                await bench.clock.advance(10)
            cgroups.stuck = ""
            cgroups.lacks.add("hugetlb")
            for _ in range(2):
                await bench.clock.advance(10)
            del cgroups.groups["/kubepods/besteffort"]
            await bench.clock.advance(10)
            task.cancel()
            assert [(one.reason, one.message) for one in bench.ears.told] == [
                ("CgroupNotWritten", f"write to cgroup {BUSY}: permission denied"),
                ("CgroupChanged", f"cpu.weight of {BUSY} said 7 instead of 20, and was set back"),
                ("CgroupLacking", "this machine has no hugetlb: what it bounds is not bounded"),
                ("CgroupChanged", "/kubepods/besteffort was gone, and is there again"),
            ]

    asyncio.run(run())
