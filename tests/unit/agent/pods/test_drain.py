"""Pods end by priority when the agent or the machine does; and what people are told of containers."""

import asyncio

from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle
from tests.unit.agent.test_loop import CHECK, with_main

from nodewright.agent.assembly.node_shutdown import drain
from nodewright.agent.observe.event_recorder import EVENT_TTL_NS, MAX_EVENTS, EventRecorder
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodStage
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

STUBBORN = ContainerScript(ignores_sigterm=True)
CRITICAL = 2_000_000_000


def with_event_recorder(bench: AgentBench) -> EventRecorder:
    event_recorder = EventRecorder(bench.loop.state, bench.clock)
    bench.loop.subscriber = event_recorder
    return event_recorder


@async_test
async def test_groups_end_one_after_the_other() -> None:
    profile = a_profile(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s")
    async with AgentBench(profile, main=STUBBORN) as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod("web"), a_pod("dns", priority=CRITICAL))
        draining = asyncio.create_task(drain(event_recorder, bench.loop.observe, bench.clock))
        await settle()
        assert (bench.record("web").stage, bench.record("dns").stage) == (
            PodStage.TERMINATING,
            PodStage.ACTIVE,
        )
        await bench.add_pods(a_pod("late"))
        assert bench.record("late").status.message == (
            "Pod was rejected: Pod was rejected as the node is shutting down."
        )
        await bench.clock.advance(20)
        assert (bench.phase("web"), bench.record("dns").stage) == ("Failed", PodStage.TERMINATING)
        await bench.clock.advance(10)
        assert await draining
        status = bench.record("dns").status
        assert (status.phase, status.reason) == ("Failed", "Terminated")
        assert status.message == "Pod was terminated in response to imminent node shutdown."


@async_test
async def test_a_pod_that_does_not_end_is_not_waited_for_for_ever() -> None:
    async with AgentBench(main=STUBBORN) as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod(terminationGracePeriodSeconds=1))
        for _ in range(10):
            bench.runtime.fail("stop_container", "it does not")
        draining = asyncio.create_task(drain(event_recorder, bench.loop.observe, bench.clock))
        await settle()
        await bench.clock.advance(6)
        assert draining.done()
        assert not draining.result()


@async_test
async def test_starts_and_ends_of_containers_have_events() -> None:
    async with AgentBench(main=ContainerScript(runs_for_s=1, exit_code=1)) as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod())
        await bench.clock.advance(1)
        await bench.clock.advance(1)
        assert [(event.reason, event.count) for event in event_recorder.events()] == [
            ("Created", 2),
            ("Started", 2),
            ("BackOff", 1),
        ]
        await bench.clock.advance(10)
        await bench.remove_pod("web")
        texts = [(event.reason, event.message) for event in event_recorder.events()]
        assert ("Killing", "Stopping container main") in texts


@async_test
async def test_a_failed_probe_and_the_kill_that_follows_have_events() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(with_main(a_pod(), liveness_probe={**CHECK, "periodSeconds": 1}))
        bench.prober.failing.add("main")
        await bench.clock.advance(4)
        messages = [event.message for event in event_recorder.events() if event.reason == "Killing"]
        assert messages == ["Container main failed liveness probe, will be restarted"]


@async_test
async def test_what_happened_is_forgotten_after_a_while_and_never_too_much() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        for number in range(MAX_EVENTS + 5):
            event_recorder.record(RecordEvent(uid="", is_warning=False, reason="Test", message=str(number)))
        assert len(event_recorder.events()) == MAX_EVENTS
        assert event_recorder.events()[0].message == "5"
        await bench.clock.advance(EVENT_TTL_NS / 10**9 + 1)
        event_recorder.record(RecordEvent(uid="", is_warning=False, reason="Test", message="new"))
        assert [event.message for event in event_recorder.events()] == ["new"]
