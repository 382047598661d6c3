"""What people are told in a pod's life, with the kubelet's reasons and words."""

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle
from tests.unit.agent.pods.test_drain import with_event_recorder
from tests.unit.agent.test_loop import CHECK, with_main

from nodewright.agent.decide.pod_events import failure_events
from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.rules.probe_state import probes_of
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import DrainRequested, EffectFailure, ProbeCompleted
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.testing.objects import a_pod

FAILURES = """
    CreateContainerConfigError  configmap "x" not found   -> W Failed Error: configmap "x" not found
    CreateContainerError        disk full                 -> W Failed Error: disk full
    RunContainerError           run main-web-0: no        -> W Failed Error: run main: no
    ErrImagePull                manifest unknown          -> W Failed Error: ErrImagePull
    ImagePullBackOff            Back-off pulling image    -> W Failed Error: ImagePullBackOff
    FailedCreatePodSandBox      no network                -> W FailedCreatePodSandBox Failed to create pod sandbox: no network
    FailedCreatePodContainer    read-only                 -> W FailedCreatePodContainer unable to ensure pod container exists: read-only
    FailedMount                 MountVolume.SetUp failed  -> W FailedMount MountVolume.SetUp failed
    KillPodError                it does not die           -> W FailedKillPod error killing pod: it does not die
    StateNotKept                disk full                 -> W StateNotKept disk full
"""


def a_record() -> PodRecord:
    main = RuntimeContainerStatus(
        id="main-web-0", name="main", attempt=0, phase=ContainerPhase.EXITED, sandbox_id="s", created_ns=0
    )
    pod = a_pod("web")
    facts = RuntimePodStatus(uid="web", namespace="default", name="web", containers=(main,))
    return PodRecord(
        pod=pod, source=PodSource.API, stage=PodStage.ACTIVE, memory=MemoryState(), runtime_status=facts
    )


@pytest.mark.parametrize("line", FAILURES.strip().splitlines())
def test_failures_have_the_kubelets_events(line: str) -> None:
    told_in, _, wanted = line.partition(" -> ")
    reason, message = told_in.split(maxsplit=1)
    (failure_event,) = failure_events(
        a_record(), EffectFailure(reason=reason, message=message.strip(), container="main")
    )
    assert (
        f"{'W' if failure_event.is_warning else 'N'} {failure_event.reason} {failure_event.message}" == wanted
    )


def test_the_output_of_a_hook_is_not_published() -> None:
    record_events = failure_events(
        a_record(), EffectFailure(reason="PostStartHookError", message="password: x", container="main")
    )
    assert [(record_event.reason, record_event.message) for record_event in record_events] == [
        ("FailedPostStartHook", "PostStartHook failed"),
        ("Killing", "FailedPostStartHook"),
    ]


def event_messages(bench: AgentBench) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in bench.event_recorder.events]


@async_test
async def test_a_life_without_trouble() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod())
        await bench.remove_pod("web")
        assert [(event.reason, event.message) for event in event_recorder.events()] == [
            ("Created", "Container created: main"),
            ("Started", "Container started: main"),
            ("Killing", "Stopping container main"),
        ]


@async_test
async def test_the_reason_of_a_termination_is_published_before_the_containers_stop() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod(activeDeadlineSeconds=3))
        await bench.clock.advance(4)
        assert [event.reason for event in event_recorder.events()] == [
            "Created",
            "Started",
            "DeadlineExceeded",
            "Killing",
        ]


@async_test
async def test_a_container_that_was_made_and_could_not_start_was_made() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        bench.loop.effect_runner.record_event = event_recorder.record
        bench.runtime.fail("start_container", "exec format error")
        await bench.add_pods(a_pod())
        texts = [(event.reason, event.message) for event in event_recorder.events()]
        assert texts[0] == ("Created", "Container created: main")
        assert texts[1][0] == "Failed"
        assert texts[1][1].startswith("Error: ")


@async_test
async def test_a_failed_pre_stop_hook_is_reported_and_delays_nothing() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(with_main(a_pod(terminationGracePeriodSeconds=30), lifecycle={"preStop": CHECK}))
        bench.prober.failing.add("main")
        await bench.remove_pod("web")
        assert ("FailedPreStopHook", "PreStopHook failed") in event_messages(bench)
        assert bench.loop.state.pods == {}


def test_a_slow_pre_stop_hook_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    @async_test
    async def check() -> None:
        async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:

            async def slow(*_: object) -> tuple[bool, str]:
                await bench.clock.sleep(1000)
                return False, "too late"

            monkeypatch.setattr(bench.prober, "run_hook", slow)
            await bench.add_pods(
                with_main(a_pod(terminationGracePeriodSeconds=4), lifecycle={"preStop": CHECK})
            )
            await bench.remove_pod("web")
            await bench.clock.advance(8)
            assert bench.loop.state.pods == {}
            assert "FailedPreStopHook" not in [reason for reason, _ in event_messages(bench)]

    check()


def test_a_slow_pre_stop_hook_runs_on_until_its_container_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    @async_test
    async def check() -> None:
        async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:
            moments: list[float] = []

            async def slow(*_: object) -> tuple[bool, str]:
                moments.append(bench.clock.monotonic_s())
                try:
                    await bench.clock.sleep(1000)
                finally:
                    moments.append(bench.clock.monotonic_s())
                return True, ""

            monkeypatch.setattr(bench.prober, "run_hook", slow)
            await bench.add_pods(
                with_main(a_pod(terminationGracePeriodSeconds=4), lifecycle={"preStop": CHECK})
            )
            await bench.remove_pod("web")
            await bench.clock.advance(8)
            # The grace period, and 2 s in which a container may always end.
            assert moments[1] - moments[0] == 6
            assert bench.loop.state.pods == {}

    check()


@async_test
async def test_a_probe_warning_is_reported_and_counts_as_success() -> None:
    pod = with_main(a_pod(), readiness_probe={**CHECK, "periodSeconds": 1000})
    async with AgentBench() as bench:
        await bench.add_pods(pod)
        (probe,) = probes_of(pod.spec.containers[0])
        facts = bench.record("web").runtime_status
        assert facts is not None
        bench.loop.observe(
            ProbeCompleted(
                uid="web",
                container="main",
                container_id=facts.containers[0].id,
                probe=probe,
                health=ProbeResult.SUCCESS,
                output="Probe terminated redirects, Response body: moved",
                is_warning=True,
            )
        )
        await settle()
        text = "Readiness probe warning: Probe terminated redirects, Response body: moved"
        assert ("ProbeWarning", text) in event_messages(bench)
        assert bench.record("web").status.container_statuses[0].ready


@async_test
async def test_a_pod_that_is_added_during_shutdown_is_rejected_with_the_reason() -> None:
    async with AgentBench() as bench:
        why = "Pod was rejected as the node is shutting down."
        override = StatusOverride(phase="Failed", reason="Terminated", message="")
        bench.loop.observe(DrainRequested(reason=why, status_override=override, grace_periods_s={}))
        await bench.add_pods(a_pod())
        assert ("NodeShutdown", why) in event_messages(bench)


@async_test
async def test_a_recreated_sandbox_has_an_event() -> None:
    async with AgentBench() as bench:
        event_recorder = with_event_recorder(bench)
        await bench.add_pods(a_pod())
        sandbox_id = next(iter(bench.runtime.sandboxes))
        facts, config = bench.runtime.sandboxes[sandbox_id]
        bench.runtime.sandboxes[sandbox_id] = (replace(facts, is_ready=False), config)
        await bench.runtime.stop_container("main-web-0", 0)
        await bench.clock.advance(1)
        assert "Pod sandbox changed, it will be killed and re-created." in [
            event.message for event in event_recorder.events()
        ]
