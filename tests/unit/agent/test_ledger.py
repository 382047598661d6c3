"""What waits for the disk and what does not: turns are kept in order, beside the loop, before what depends on them is done."""

import asyncio

from msgspec.structs import replace

from nodewright.agent.kept import kept_part
from nodewright.agent.outcome import Keeping
from nodewright.agent.values import PodUnwanted, PodWanted, Source, Stage, UsageSeen
from nodewright.core.eviction import Observation
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.node.events import PodArrived
from nodewright.node.pressure import claims_of
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.runtime import settle
from nodewright.testing.usage import a_reading, a_use

GIB = 1 << 30
SLOW_S = 0.05
LOW = "900Mi/16Gi"
CHECK = {"exec": {"command": ["check"]}}


def hard() -> NodeProfile:
    return a_profile(evictionHard={"memory.available": "1Gi"})


def a_hooked_pod(name: str = "web") -> Pod:
    """A pod whose container has a hook after its start."""
    pod = a_pod(name)
    (main,) = pod.spec.containers
    containers = (replace(main, lifecycle={"postStart": CHECK}),)
    return replace(pod, spec=replace(pod.spec, containers=containers))


class Book:
    """What was kept, write by write, and what the runtime had been told by then."""

    def __init__(self, bench: AgentBench) -> None:
        self.pods: list[list[str]] = []
        self.done: list[int] = []
        keep = bench.memory.keep

        def kept(keeping: Keeping) -> None:
            self.pods.append(sorted(keeping.pods))
            self.done.append(len(bench.runtime.done))
            keep(keeping)

        bench.memory.keep = kept  # type: ignore[method-assign] # a disk that looks at what was done before


async def squeezed(bench: AgentBench) -> None:
    """Pod `web` uses a gibibyte, and there is too little left of the node."""
    group = bench.cgroups.groups.setdefault("/kubepods/besteffort/podweb", {})
    group |= {"memory.current": str(GIB), "memory.stat": "anon 0\ninactive_file 0"}
    bench.gauges.show(memory=LOW)
    await bench.watch()


@running
async def test_nothing_starts_before_it_is_kept() -> None:
    async with AgentBench() as bench:
        book = Book(bench)
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod())
        assert bench.record("web").stage is Stage.ACTIVE
        assert bench.operations() == []
        await bench.clock.advance(SLOW_S)
        assert "start_container main-web-0" in bench.operations()
        assert (book.pods[0], book.done[0]) == (["web"], 0)


@running
async def test_what_is_decided_during_a_write_goes_with_the_next_one_in_order() -> None:
    async with AgentBench() as bench:
        book = Book(bench)
        bench.slow_disk(SLOW_S)
        await bench.want(*(a_pod(f"pod-{number}") for number in range(5)))
        await bench.clock.advance(2 * SLOW_S)
        assert book.pods[:2] == [["pod-0"], [f"pod-{number}" for number in range(1, 5)]]
        arrived = [one.event.pod.uid for one in bench.memory.stepped if isinstance(one.event, PodArrived)]
        assert arrived == [f"pod-{number}" for number in range(5)]
        assert sum("start_container" in one for one in bench.operations()) == 5


@running
async def test_who_is_evicted_is_signalled_while_the_disk_is_busy_with_another_turn() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod("next", "cpu=99"))
        before_s = bench.clock.monotonic_s()
        await squeezed(bench)
        assert "stop_container main-web-0" in bench.operations()
        assert bench.clock.monotonic_s() == before_s
        # Neither that the one was refused nor that the other goes has been kept, and nobody was told.
        assert "next" not in bench.memory.pods
        assert bench.memory.pods["web"].stage is Stage.ACTIVE
        assert "Evicted" not in [told.reason for told in bench.ears.told]
        await bench.clock.advance(2 * SLOW_S)
        assert bench.memory.pods["web"].status.reason == "Evicted"
        assert "Evicted" in [told.reason for told in bench.ears.told]


@running
async def test_who_is_evicted_before_its_start_is_kept_never_starts() -> None:
    async with AgentBench(hard()) as bench:
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod())
        await squeezed(bench)
        await bench.clock.advance(10 * SLOW_S)
        assert bench.record("web").stage is Stage.ENDED
        assert bench.record("web").status.reason == "Evicted"
        assert bench.operations() == []


@running
async def test_who_is_evicted_while_it_starts_is_not_waited_for() -> None:
    async with AgentBench(hard()) as bench:
        bench.asker.lets_hooks_run.clear()
        await bench.want(a_hooked_pod())
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod("next", "cpu=99"))
        await squeezed(bench)
        assert "stop_container main-web-0" in bench.operations()
        assert bench.memory.pods["web"].stage is Stage.ACTIVE


@running
async def test_pressure_is_looked_at_before_pods_that_came_earlier() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod())
        await squeezed(bench)
        usage = a_reading(a_use("web", "1Gi"), memory=LOW)
        for number in range(20):
            bench.loop.see(PodWanted(Source.API, a_pod(f"pod-{number}")))
        bench.loop.see(UsageSeen(Observation(usage=usage, claims=claims_of(bench.loop.mind.node))))
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.record("web").status.reason == "Evicted"
        assert "pod-19" not in bench.loop.mind.pods
        await settle(200)
        assert "pod-19" in bench.loop.mind.pods


@running
async def test_who_comes_and_goes_in_one_moment_is_gone() -> None:
    async with AgentBench() as bench:
        bench.loop.see(PodWanted(Source.API, a_pod()))
        bench.loop.see(PodUnwanted("web"))
        await settle()
        assert bench.loop.mind.pods == {}
        assert bench.runtime.containers == {}


@running
async def test_an_agent_that_ends_keeps_what_it_has_decided_and_starts_nothing_more() -> None:
    async with AgentBench() as bench:
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod(), a_pod("next"))
        assert bench.memory.pods == {}
    assert set(bench.memory.pods) == {"web", "next"}
    assert bench.operations() == []


@running
async def test_what_waited_for_a_disk_that_fails_is_told_and_done_once_it_takes_it() -> None:
    async with AgentBench() as bench:
        bench.memory.is_full = True
        bench.slow_disk(SLOW_S)
        await bench.want(a_pod(), a_pod("next"))
        await bench.clock.advance(2 * SLOW_S)
        assert bench.operations() == []
        assert [told.reason for told in bench.ears.told].count("StateNotKept") >= 1
        bench.memory.is_full = False
        await bench.clock.advance(11)
        assert (bench.phase("web"), bench.phase("next")) == ("Running", "Running")
        assert set(bench.memory.pods) == {"web", "next"}


@running
async def test_probes_do_not_wait_for_the_disk() -> None:
    async with AgentBench() as bench:
        probe = {**CHECK, "periodSeconds": 1}
        pod = a_pod()
        (main,) = pod.spec.containers
        containers = (replace(main, liveness_probe=probe),)
        await bench.want(replace(pod, spec=replace(pod.spec, containers=containers)))
        bench.slow_disk(3600)
        await bench.want(a_pod("next"))
        asked = len(bench.asker.asked)
        await bench.clock.advance(5)
        assert len(bench.asker.asked) == asked + 5


@running
async def test_what_all_pods_use_is_looked_at_again_at_once_when_their_group_is_there() -> None:
    bench = AgentBench(hard())
    bench.slow_disk(SLOW_S)
    pressure = await bench.watch()
    looks = pressure.looks
    await bench.clock.advance(0.2)
    assert pressure.looks >= looks + 4
    assert pressure.passes == 0
    async with bench:
        assert "/kubepods" in bench.cgroups.groups
        looks = pressure.looks
        await bench.clock.advance(0.05)
        assert pressure.looks == looks + 1


@running
async def test_an_agent_that_begins_under_pressure_ends_the_pod_that_uses_most() -> None:
    async with AgentBench(hard()) as bench:
        await bench.want(a_pod("first"), a_pod())
        first = bench.cgroups.groups.setdefault("/kubepods/besteffort/podfirst", {})
        first |= {"memory.current": "1", "memory.stat": "anon 0\ninactive_file 0"}
        kept = {uid: kept_part(record) for uid, record in bench.memory.pods.items()}
        node = bench.loop.mind.node
    later = AgentBench(hard(), clock=bench.clock)
    later.use(bench.runtime, bench.cgroups)
    later.begin(replace(later.loop.mind, pods=kept, node=node), later.memory)
    # It looks before it knows what runs.
    await squeezed(later)
    async with later:
        await later.clock.advance(0.1)
        assert next(told.uid for told in later.ears.told if told.reason == "Evicted") == "web"
