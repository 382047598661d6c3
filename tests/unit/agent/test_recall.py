"""Agents one after the other on the same directory and the same runtime: who comes again, and who has ended for good."""

import asyncio

import pytest
from tests.unit.agent.test_draining import with_board
from tests.unit.agent.test_keeping import PROFILE, opened

from nodewright.agent.draining import drain
from nodewright.agent.values import Source
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.disks import FakeDisk
from nodewright.testing.objects import a_pod, a_static_pod

SOURCES = frozenset((Source.FILE, Source.WORKLOAD))


async def drained(disk: FakeDisk) -> AgentBench:
    """What an agent leaves that ends its pods: a static one, an ordinary one, and a static one that was turned away."""
    bench = AgentBench(PROFILE)
    start = opened(disk)
    bench.begin(start.mind, start.keeper)
    async with bench:
        board = with_board(bench)
        await bench.have(a_static_pod("web"), a_static_pod("big", "cpu=99"), source=Source.FILE)
        await bench.have(a_pod("job"), source=Source.WORKLOAD)
        assert [bench.phase(uid) for uid in ("web", "big", "job")] == ["Running", "Failed", "Running"]
        ending = asyncio.create_task(drain(board, bench.loop.see, bench.clock))
        await bench.clock.advance(40)
        assert await ending
        assert [bench.phase(uid) for uid in ("web", "job")] == ["Failed", "Failed"]
    return bench


async def follower(disk: FakeDisk, before: AgentBench, boot: str) -> AgentBench:
    bench = AgentBench(PROFILE, clock=before.clock)
    start = opened(disk, unheard=SOURCES, boot=boot)
    bench.begin(start.mind, start.keeper)
    bench.use(before.runtime, before.cgroups)
    return bench


@pytest.mark.parametrize("boot", ["first", "second"])
def test_static_pods_start_again_after_a_drain_and_others_have_ended(boot: str) -> None:
    @running
    async def check() -> None:
        disk = FakeDisk()
        first = await drained(disk)
        async with await follower(disk, first, boot) as second:
            await second.have(a_static_pod("web"), source=Source.FILE)
            await second.have(a_pod("job"), source=Source.WORKLOAD)
            assert (second.phase("web"), second.phase("job")) == ("Running", "Failed")
            assert second.operations().count("start_container main-web-1") == 1
            assert second.record("web").status.reason == ""

    check()


@running
async def test_a_static_pod_that_nobody_has_any_more_leaves_nothing() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        assert "pods/big.json" not in disk.files
        await second.have(source=Source.FILE)
        await second.have(a_pod("job"), source=Source.WORKLOAD)
        assert list(second.loop.mind.pods) == ["job"]
        assert [one.uid for one in await second.runtime.pods()] == ["job"]


@running
async def test_a_static_pod_that_was_turned_away_is_tried_again() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        await second.have(a_static_pod("big", "cpu=1"), source=Source.FILE)
        assert second.phase("big") == "Running"
