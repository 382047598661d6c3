"""Agents one after the other on the same directory and the same runtime: who comes again, and who has ended for good."""

import asyncio

import pytest
from tests.support.agent_bench import AgentBench, async_test
from tests.support.disks import FakeDisk
from tests.unit.agent.pods.test_drain import with_event_recorder
from tests.unit.agent.store.test_agent_store import PROFILE, opened

from nodewright.agent.assembly.node_shutdown import drain
from nodewright.agent.state.agent_state import PodSource
from nodewright.testing.objects import a_pod, a_static_pod

SOURCES = frozenset((PodSource.FILE, PodSource.WORKLOAD))


async def drained(disk: FakeDisk) -> AgentBench:
    """What an agent leaves that ends its pods: a static one, an ordinary one, and a static one that was turned away."""
    bench = AgentBench(PROFILE)
    start = opened(disk)
    bench.replace_state(start.state, start.store)
    async with bench:
        event_recorder = with_event_recorder(bench)
        await bench.set_source_pods(a_static_pod("web"), a_static_pod("big", "cpu=99"), source=PodSource.FILE)
        await bench.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
        assert [bench.phase(uid) for uid in ("web", "big", "job")] == ["Running", "Failed", "Running"]
        ending = asyncio.create_task(drain(event_recorder, bench.loop.observe, bench.clock))
        await bench.clock.advance(40)
        assert await ending
        assert [bench.phase(uid) for uid in ("web", "job")] == ["Failed", "Failed"]
    return bench


async def follower(disk: FakeDisk, before: AgentBench, boot: str) -> AgentBench:
    bench = AgentBench(PROFILE, clock=before.clock)
    start = opened(disk, unready_sources=SOURCES, boot_id=boot)
    bench.replace_state(start.state, start.store)
    bench.adopt(before.runtime, before.cgroups)
    return bench


@pytest.mark.parametrize("boot", ["first", "second"])
def test_static_pods_start_again_after_a_drain_and_others_have_ended(boot: str) -> None:
    @async_test
    async def check() -> None:
        disk = FakeDisk()
        first = await drained(disk)
        async with await follower(disk, first, boot) as second:
            await second.set_source_pods(a_static_pod("web"), source=PodSource.FILE)
            await second.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
            assert (second.phase("web"), second.phase("job")) == ("Running", "Failed")
            assert second.runtime_operations().count("start_container main-web-1") == 1
            assert second.record("web").status.reason == ""

    check()


@async_test
async def test_a_static_pod_that_no_source_lists_leaves_nothing() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        assert "pods/big.json" not in disk.files
        await second.set_source_pods(source=PodSource.FILE)
        await second.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
        assert list(second.loop.state.pods) == ["job"]
        assert [pod.uid for pod in await second.runtime.pods()] == ["job"]


@async_test
async def test_a_static_pod_that_was_turned_away_is_tried_again() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        await second.set_source_pods(a_static_pod("big", "cpu=1"), source=PodSource.FILE)
        assert second.phase("big") == "Running"
