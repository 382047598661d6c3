"""What waits for the disk and what does not: turns are kept in order, beside the loop, before what depends on them is done."""

import asyncio

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.agent_restarts import stored_part
from tests.support.fake_clock import settle

from nodewright.agent.decide.iteration import StateChanges
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.state.observations import NodeUsageObserved, PodApplied, PodDeletionRequested
from nodewright.engine.core.eviction.eviction_state import EvictionObservation
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.eviction_pass import eviction_claims
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

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
        keep = bench.fake_store.write

        def record_write(changes: StateChanges) -> None:
            self.pods.append(sorted(changes.pods))
            self.done.append(len(bench.runtime.operations))
            keep(changes)

        bench.fake_store.write = record_write  # type: ignore[method-assign] # a disk that looks at what was done before


async def squeezed(bench: AgentBench) -> None:
    """Pod `web` uses a gibibyte, and there is too little left of the node."""
    group = bench.cgroups.groups.setdefault("/kubepods/besteffort/podweb", {})
    group |= {"memory.current": str(GIB), "memory.stat": "anon 0\ninactive_file 0"}
    bench.memory_readings.set_readings(memory=LOW)
    await bench.watch_pressure()


@async_test
async def test_nothing_starts_before_it_is_kept() -> None:
    async with AgentBench() as bench:
        book = Book(bench)
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod())
        assert bench.record("web").stage is PodStage.ACTIVE
        assert bench.runtime_operations() == []
        await bench.clock.advance(SLOW_S)
        assert "start_container main-web-0" in bench.runtime_operations()
        assert (book.pods[0], book.done[0]) == (["web"], 0)


@async_test
async def test_iterations_decided_during_a_write_are_in_the_next_write_in_order() -> None:
    async with AgentBench() as bench:
        book = Book(bench)
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(*(a_pod(f"pod-{number}") for number in range(5)))
        await bench.clock.advance(2 * SLOW_S)
        assert book.pods[:2] == [["pod-0"], [f"pod-{number}" for number in range(1, 5)]]
        arrived = [
            node_step.event.pod.uid
            for node_step in bench.fake_store.stepped
            if isinstance(node_step.event, PodAdded)
        ]
        assert arrived == [f"pod-{number}" for number in range(5)]
        assert sum("start_container" in operation for operation in bench.runtime_operations()) == 5


@async_test
async def test_a_write_changes_a_hundred_records_at_most_so_that_effects_begin_at_a_steady_rate() -> None:
    async with AgentBench() as bench:
        book = Book(bench)
        bench.use_slow_disk(SLOW_S)
        await bench.set_source_pods(*(a_pod(f"pod-{number:03}", "cpu=99") for number in range(250)))
        for _ in range(4):
            await bench.clock.advance(SLOW_S)
        assert [len(pods) for pods in book.pods[:4]] == [20, 100, 100, 30]
        assert {len(bench.fake_store.pods), len(bench.loop.state.pods)} == {250}


@async_test
async def test_who_is_evicted_is_signalled_while_the_disk_is_busy_with_another_turn() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod("next", "cpu=99"))
        before_s = bench.clock.monotonic_s()
        await squeezed(bench)
        assert "stop_container main-web-0" in bench.runtime_operations()
        assert bench.clock.monotonic_s() == before_s
        # Neither that the one was refused nor that the other goes has been kept, and nobody was told.
        assert "next" not in bench.fake_store.pods
        assert bench.fake_store.pods["web"].stage is PodStage.ACTIVE
        assert "Evicted" not in [event.reason for event in bench.event_recorder.events]
        await bench.clock.advance(2 * SLOW_S)
        assert bench.fake_store.pods["web"].status.reason == "Evicted"
        assert "Evicted" in [event.reason for event in bench.event_recorder.events]


@async_test
async def test_who_is_evicted_before_its_start_is_kept_never_starts() -> None:
    async with AgentBench(hard()) as bench:
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod())
        await squeezed(bench)
        await bench.clock.advance(10 * SLOW_S)
        assert bench.record("web").stage is PodStage.TERMINATED
        assert bench.record("web").status.reason == "Evicted"
        assert bench.runtime_operations() == []


@async_test
async def test_who_is_evicted_while_it_starts_is_not_waited_for() -> None:
    async with AgentBench(hard()) as bench:
        bench.prober.hooks_may_run.clear()
        await bench.add_pods(a_hooked_pod())
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod("next", "cpu=99"))
        await squeezed(bench)
        assert "stop_container main-web-0" in bench.runtime_operations()
        assert bench.fake_store.pods["web"].stage is PodStage.ACTIVE


@async_test
async def test_pressure_is_handled_before_pods_that_were_added_earlier() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod())
        await squeezed(bench)
        usage = a_reading(a_pod_usage("web", "1Gi"), memory=LOW)
        for number in range(20):
            bench.loop.observe(PodApplied(PodSource.API, a_pod(f"pod-{number}")))
        bench.loop.observe(
            NodeUsageObserved(
                EvictionObservation(usage=usage, active_pods=eviction_claims(bench.loop.state.node))
            )
        )
        for _ in range(3):
            await asyncio.sleep(0)
        assert bench.record("web").status.reason == "Evicted"
        assert "pod-19" not in bench.loop.state.pods
        await settle(200)
        assert "pod-19" in bench.loop.state.pods


@async_test
async def test_a_pod_added_and_deleted_at_once_is_gone() -> None:
    async with AgentBench() as bench:
        bench.loop.observe(PodApplied(PodSource.API, a_pod()))
        bench.loop.observe(PodDeletionRequested("web"))
        await settle()
        assert bench.loop.state.pods == {}
        assert bench.runtime.containers == {}


@async_test
async def test_an_agent_that_ends_keeps_what_it_has_decided_and_starts_nothing_more() -> None:
    async with AgentBench() as bench:
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod(), a_pod("next"))
        assert bench.fake_store.pods == {}
    assert set(bench.fake_store.pods) == {"web", "next"}
    assert bench.runtime_operations() == []


@async_test
async def test_a_start_that_waits_for_a_failing_disk_is_reported_and_runs_after_the_write() -> None:
    async with AgentBench() as bench:
        bench.fake_store.is_full = True
        bench.use_slow_disk(SLOW_S)
        await bench.add_pods(a_pod(), a_pod("next"))
        await bench.clock.advance(2 * SLOW_S)
        assert bench.runtime_operations() == []
        assert [event.reason for event in bench.event_recorder.events].count("StateNotKept") >= 1
        bench.fake_store.is_full = False
        await bench.clock.advance(11)
        assert (bench.phase("web"), bench.phase("next")) == ("Running", "Running")
        assert set(bench.fake_store.pods) == {"web", "next"}


@async_test
async def test_probes_do_not_wait_for_the_disk() -> None:
    async with AgentBench() as bench:
        probe = {**CHECK, "periodSeconds": 1}
        pod = a_pod()
        (main,) = pod.spec.containers
        containers = (replace(main, liveness_probe=probe),)
        await bench.add_pods(replace(pod, spec=replace(pod.spec, containers=containers)))
        bench.use_slow_disk(3600)
        await bench.add_pods(a_pod("next"))
        number = len(bench.prober.requests)
        await bench.clock.advance(5)
        assert len(bench.prober.requests) == number + 5


@async_test
async def test_what_all_pods_use_is_looked_at_again_at_once_when_their_group_is_there() -> None:
    bench = AgentBench(hard())
    bench.use_slow_disk(SLOW_S)
    pressure = await bench.watch_pressure()
    reads = pressure.reads
    await bench.clock.advance(0.2)
    assert pressure.reads >= reads + 4
    assert pressure.passes == 0
    async with bench:
        assert "/kubepods" in bench.cgroups.groups
        reads = pressure.reads
        await bench.clock.advance(0.05)
        assert pressure.reads == reads + 1


@async_test
async def test_an_agent_that_begins_under_pressure_ends_the_pod_that_uses_most() -> None:
    async with AgentBench(hard()) as bench:
        await bench.add_pods(a_pod("first"), a_pod())
        first = bench.cgroups.groups.setdefault("/kubepods/besteffort/podfirst", {})
        first |= {"memory.current": "1", "memory.stat": "anon 0\ninactive_file 0"}
        kept = {uid: stored_part(record) for uid, record in bench.fake_store.pods.items()}
        node = bench.loop.state.node
    later = AgentBench(hard(), clock=bench.clock)
    later.adopt(bench.runtime, bench.cgroups)
    later.replace_state(replace(later.loop.state, pods=kept, node=node), later.fake_store)
    # It looks before it knows what runs.
    await squeezed(later)
    async with later:
        await later.clock.advance(0.1)
        assert next(event.uid for event in later.event_recorder.events if event.reason == "Evicted") == "web"
