"""What people are told in a pod's life, with the kubelet's reasons and words."""

import pytest
from msgspec.structs import replace
from tests.unit.agent.test_draining import with_board
from tests.unit.agent.test_loop import CHECK, with_main

from nodewright.agent.news import failed
from nodewright.agent.values import Drained, Failure, PodRecord, ProbeAnswered, Source, Stage
from nodewright.core.lifecycle import Health, Override, probes_of
from nodewright.core.memory.state import MemoryState
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.objects import a_pod
from nodewright.testing.runtime import Script, settle

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
    main = ContainerFacts(
        id="main-web-0", name="main", attempt=0, phase=ContainerPhase.EXITED, sandbox_id="s", created_ns=0
    )
    pod = a_pod("web")
    facts = PodFacts(uid="web", namespace="default", name="web", containers=(main,))
    return PodRecord(pod=pod, source=Source.API, stage=Stage.ACTIVE, memory=MemoryState(), facts=facts)


@pytest.mark.parametrize("line", FAILURES.strip().splitlines())
def test_what_fails_is_told_as_the_kubelet_does(line: str) -> None:
    told_in, _, wanted = line.partition(" -> ")
    reason, message = told_in.split(maxsplit=1)
    (told,) = failed(a_record(), Failure(reason=reason, message=message.strip(), container="main"))
    assert f"{'W' if told.is_warning else 'N'} {told.reason} {told.message}" == wanted


def test_what_a_hook_said_is_nobodys_business() -> None:
    found = failed(a_record(), Failure(reason="PostStartHookError", message="password: x", container="main"))
    assert [(one.reason, one.message) for one in found] == [
        ("FailedPostStartHook", "PostStartHook failed"),
        ("Killing", "FailedPostStartHook"),
    ]


def told(bench: AgentBench) -> list[tuple[str, str]]:
    return [(one.reason, one.message) for one in bench.ears.told]


@running
async def test_a_life_without_trouble() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        await bench.want(a_pod())
        await bench.drop("web")
        assert [(one.reason, one.message) for one in board.happenings()] == [
            ("Created", "Container created: main"),
            ("Started", "Container started: main"),
            ("Killing", "Stopping container main"),
        ]


@running
async def test_why_a_pod_ends_is_told_before_its_containers_end() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        await bench.want(a_pod(activeDeadlineSeconds=3))
        await bench.clock.advance(4)
        assert [one.reason for one in board.happenings()] == [
            "Created",
            "Started",
            "DeadlineExceeded",
            "Killing",
        ]


@running
async def test_a_container_that_was_made_and_could_not_start_was_made() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        bench.loop.performer.tell = board.tell
        bench.runtime.fail("start_container", "exec format error")
        await bench.want(a_pod())
        found = [(one.reason, one.message) for one in board.happenings()]
        assert found[0] == ("Created", "Container created: main")
        assert found[1][0] == "Failed"
        assert found[1][1].startswith("Error: ")


@running
async def test_a_hook_before_the_end_that_fails_is_told_and_ends_nothing_later() -> None:
    async with AgentBench() as bench:
        await bench.want(with_main(a_pod(terminationGracePeriodSeconds=30), lifecycle={"preStop": CHECK}))
        bench.asker.bad.add("main")
        await bench.drop("web")
        assert ("FailedPreStopHook", "PreStopHook failed") in told(bench)
        assert bench.loop.mind.pods == {}


def test_a_hook_before_the_end_that_only_takes_long_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    @running
    async def check() -> None:
        async with AgentBench(main=Script(ignores_sigterm=True)) as bench:

            async def slow(*_: object) -> tuple[bool, str]:
                await bench.clock.sleep(1000)
                return False, "too late"

            monkeypatch.setattr(bench.asker, "hook", slow)
            await bench.want(with_main(a_pod(terminationGracePeriodSeconds=4), lifecycle={"preStop": CHECK}))
            await bench.drop("web")
            await bench.clock.advance(8)
            assert bench.loop.mind.pods == {}
            assert "FailedPreStopHook" not in [reason for reason, _ in told(bench)]

    check()


@running
async def test_an_answer_that_is_good_and_odd_is_told_and_counts_as_good() -> None:
    pod = with_main(a_pod(), readiness_probe={**CHECK, "periodSeconds": 1000})
    async with AgentBench() as bench:
        await bench.want(pod)
        (probe,) = probes_of(pod.spec.containers[0])
        facts = bench.record("web").facts
        assert facts is not None
        bench.loop.see(
            ProbeAnswered(
                uid="web",
                container="main",
                container_id=facts.containers[0].id,
                probe=probe,
                answer=Health.SUCCESS,
                said="Probe terminated redirects, Response body: moved",
                is_odd=True,
            )
        )
        await settle()
        said = "Readiness probe warning: Probe terminated redirects, Response body: moved"
        assert ("ProbeWarning", said) in told(bench)
        assert bench.record("web").status.container_statuses[0].ready


@running
async def test_who_comes_while_the_machine_goes_down_is_told_why_not() -> None:
    async with AgentBench() as bench:
        why = "Pod was rejected as the node is shutting down."
        override = Override(phase="Failed", reason="Terminated", message="")
        bench.loop.see(Drained(why=why, override=override, grace_periods_s={}))
        await bench.want(a_pod())
        assert ("NodeShutdown", why) in told(bench)


@running
async def test_a_sandbox_that_is_made_anew_is_told() -> None:
    async with AgentBench() as bench:
        board = with_board(bench)
        await bench.want(a_pod())
        sandbox_id = next(iter(bench.runtime.sandboxes))
        facts, wish = bench.runtime.sandboxes[sandbox_id]
        bench.runtime.sandboxes[sandbox_id] = (replace(facts, is_ready=False), wish)
        await bench.runtime.stop_container("main-web-0", 0)
        await bench.clock.advance(1)
        assert "Pod sandbox changed, it will be killed and re-created." in [
            one.message for one in board.happenings()
        ]
