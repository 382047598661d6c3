"""Containers that a change of their pod starts again: without back-off, and without a status that is final."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle
from tests.unit.agent.pods.test_cluster_pods import an_api_pod, listed, run

from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import PodStatusObserved, SourcePodsListed
from nodewright.cluster.tasks.timing import monotonic_ns
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, ContainerStatus, PodStatus
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod


def test_a_container_with_another_image_starts_without_the_back_off_of_the_one_before() -> None:
    async def scenario() -> None:
        async with AgentBench(main=ContainerScript(runs_for_s=1, exit_code=1)) as bench:
            pod = an_api_pod()
            await listed(bench, pod)
            await bench.clock.advance(60)
            assert bench.record("web").container_waiting["main"].reason == "CrashLoopBackOff"
            count = bench.record("web").status.container_statuses[0].restart_count
            (main,) = pod.spec.containers
            await listed(bench, replace(pod, metadata=replace(pod.metadata, labels={"app": "web"})))
            assert bench.record("web").status.container_statuses[0].restart_count == count
            spec = replace(pod.spec, containers=(replace(main, image="app:2"),))
            await listed(bench, replace(pod, spec=spec))
            assert bench.record("web").status.container_statuses[0].restart_count == count + 1

    run(scenario())


@async_test
async def test_the_longest_back_off_is_that_of_the_configuration() -> None:
    profile = a_profile(crashLoopBackOff={"maxContainerRestartPeriod": "2s"})
    async with AgentBench(profile, main=ContainerScript(runs_for_s=1, exit_code=1)) as bench:
        await bench.add_pods(a_pod())
        for _ in range(20):
            await bench.clock.advance(1)
        assert "back-off 2s restarting failed" in bench.record("web").container_waiting["main"].message
        # One start at the beginning, the first restart at once, then one each three seconds.
        assert bench.record("web").status.container_statuses[0].restart_count == 7


@pytest.mark.parametrize("jump_s", [60 * 365 * 86400, -60 * 365 * 86400, -100])
def test_a_back_off_holds_and_ends_when_the_clock_is_set(jump_s: int) -> None:
    async def scenario() -> None:
        async with AgentBench(main=ContainerScript(runs_for_s=1, exit_code=1)) as bench:

            def restarts() -> int:
                return bench.record("web").status.container_statuses[0].restart_count

            await bench.add_pods(a_pod())
            for _ in range(4):
                await bench.clock.advance(1)
            assert restarts() == 1
            bench.clock.jump(jump_s)
            await bench.clock.advance(9)
            assert restarts() == 2
            # The next delay has twice the length.
            await bench.clock.advance(18)
            assert restarts() == 2
            await bench.clock.advance(4)
            assert restarts() == 3

    run(scenario())


def test_attempts_that_do_not_start_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:

            async def fail(container_id: str) -> None:
                raise HostError("run", container_id, "executable file not found in $PATH")

            monkeypatch.setattr(bench.runtime, "start_container", fail)
            await bench.add_pods(a_pod())
            for _ in range(10):
                await bench.clock.advance(10)
            runtime_status = bench.record("web").runtime_status
            assert runtime_status is not None
            attempts = [container.attempt for container in runtime_status.containers]
            assert attempts == [10]

    run(scenario())


def test_a_container_that_is_replaced_runs_until_the_next_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with AgentBench() as bench:
            pod = an_api_pod(restartPolicy="OnFailure")
            await listed(bench, pod)
            may_start, start = asyncio.Event(), bench.runtime.start_container

            async def start_later(container_id: str) -> None:
                await may_start.wait()
                await start(container_id)

            monkeypatch.setattr(bench.runtime, "start_container", start_later)
            (main,) = pod.spec.containers
            spec = replace(pod.spec, containers=(replace(main, image="app:2"),))
            await listed(bench, replace(pod, spec=spec))
            bench.loop.observe(
                PodStatusObserved("web", await bench.runtime.pod("web"), monotonic_ns(bench.clock))
            )
            await settle()
            runtime_status = bench.record("web").runtime_status
            assert runtime_status is not None
            phases = [str(container.phase) for container in runtime_status.containers]
            assert phases == ["created", "exited"]
            (status,) = bench.record("web").status.container_statuses
            assert (status.container_id, status.state.running is not None) == ("main-web-0", True)
            assert bench.phase("web") == "Running"
            may_start.set()
            await settle()
            (status,) = bench.record("web").status.container_statuses
            assert (status.container_id, status.state.running is not None) == ("main-web-1", True)

    run(scenario())


@async_test
async def test_in_another_sandbox_all_init_containers_run_again_in_order() -> None:
    script = ContainerScript(runs_for_s=5)
    async with AgentBench(a=script, b=script) as bench:
        pod = a_pod()
        inits = (Container(name="a"), Container(name="b"))
        await bench.add_pods(replace(pod, spec=replace(pod.spec, init_containers=inits)))
        for _ in range(12):
            await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        before = len(bench.runtime_operations())
        bench.runtime.lose_sandbox("sandbox-web-0")
        for _ in range(30):
            await bench.clock.advance(1)
        starts = [each for each in bench.runtime_operations()[before:] if each.startswith("start_container")]
        assert starts == [f"start_container {name}-web-1" for name in ("a", "b", "main")]


@async_test
async def test_a_static_pod_that_is_removed_and_back_starts_again_with_its_next_restart_count() -> None:
    async with AgentBench() as bench:
        pod = a_pod()
        await bench.set_source_pods(pod, source=PodSource.FILE)
        assert bench.phase("web") == "Running"
        for pods in ((), (pod,)):
            bench.loop.observe(SourcePodsListed(PodSource.FILE, pods))
        await settle()
        await bench.clock.advance(40)
        assert bench.phase("web") == "Running"
        (status,) = bench.record("web").status.container_statuses
        assert (status.restart_count, status.container_id) == (1, "main-web-1")
        assert status.last_state.terminated is not None
        starts = [each for each in bench.runtime_operations() if each.startswith("start_container")]
        assert starts == ["start_container main-web-0", "start_container main-web-1"]


@async_test
async def test_a_static_pod_that_is_back_and_removed_again_stays_removed() -> None:
    async with AgentBench() as bench:
        pod = a_pod()
        await bench.set_source_pods(pod, source=PodSource.FILE)
        for pods in ((), (pod,), ()):
            bench.loop.observe(SourcePodsListed(PodSource.FILE, pods))
        await settle()
        await bench.clock.advance(40)
        assert not bench.loop.state.pods
        assert not bench.loop.state.deferred


@async_test
async def test_the_status_in_a_manifest_is_not_read() -> None:
    async with AgentBench() as bench:
        copied = PodStatus(phase="Succeeded", container_statuses=(ContainerStatus("main", restart_count=7),))
        await bench.set_source_pods(replace(a_pod(), status=copied), source=PodSource.FILE)
        (status,) = bench.record("web").status.container_statuses
        assert (bench.phase("web"), status.restart_count) == ("Running", 0)
