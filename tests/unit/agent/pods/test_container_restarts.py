"""Containers that a change of their pod starts again: without back-off, and without a status that is final."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench
from tests.unit.agent.pods.test_cluster_pods import an_api_pod, listed, run

from nodewright.agent.observations import PodStatusObserved
from nodewright.agent.timing import monotonic_ns
from nodewright.runtimes.simulated import ContainerScript, settle


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
