"""An agent with plain processes on this machine: groups are as they should be, at once and when somebody meddles."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.live_agent import LiveAgent, live_agent

from nodewright.agent.pods.cgroup_reconcile import desired_cgroups
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import PodApplied
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.objects import a_guaranteed_pod, a_pod

pytestmark = pytest.mark.live

RESERVED = {"evictionHard": {}, "kubeReserved": {"cpu": "500m", "memory": "64Mi"}, "podPidsLimit": 200}


def at(agent: LiveAgent, path: str, v1: str, v2: str) -> str:
    return agent.cgroup_file_text(path, v1 if agent.cgroups.version == 1 else v2)


def test_groups_are_as_they_should_be_and_are_set_back() -> None:
    async def run() -> None:
        async with live_agent(RESERVED) as agent:
            main = await agent.run_pod(a_guaranteed_pod("pinned", "500m/64Mi"))
            await agent.run_pod(a_pod("web"))
            assert agent.ears.events == []
            assert len(list(desired_cgroups(agent.loop.state))) >= 7
            # The kernel has other words for some of it; nothing is found, so nothing would be written for ever.
            assert agent.reconcile_cgroups().differences == ()
            assert at(agent, main.cgroup, "memory.limit_in_bytes", "memory.max") == str(64 << 20)
            pod = main.cgroup.rpartition("/")[0]
            assert agent.cgroup_file_text(pod, "pids.max") == "200"
            if agent.cgroups.version == 1:
                name, quota = "cpu.cfs_quota_us", "50000"
            else:
                name, quota = "cpu.max", "50000 100000"
            assert agent.cgroup_file_text(main.cgroup, name) == quota
            for path in (pod, main.cgroup):
                meddle(agent, path, name, "70000")
            reconcile_result = agent.reconcile_cgroups()
            assert {(difference.path, difference.file) for difference in reconcile_result.differences} == {
                (main.cgroup, name),
                (pod, name),
            }
            assert agent.cgroup_file_text(main.cgroup, name) == quota == agent.cgroup_file_text(pod, name)
            await agent.delete_pod("pinned")
            assert agent.cgroups.read_files(pod, ()) is None

    asyncio.run(run())


def test_a_container_that_needs_too_much_memory_is_told_as_oom_killed() -> None:
    async def run() -> None:
        async with live_agent(RESERVED) as agent:
            greedy = a_guaranteed_pod("greedy", "900m/32Mi", restartPolicy="Never")
            command = ("python3", "-c", "x = b'x' * (200 << 20)")
            await agent_ends(agent, with_command(greedy, command))
            (status,) = agent.record("greedy").status.container_statuses
            ended = status.state.terminated
            assert ended is not None
            assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)

    asyncio.run(run())


async def agent_ends(agent: LiveAgent, pod: Pod) -> None:
    agent.loop.observe(PodApplied(PodSource.API, pod))
    await agent.wait_until(lambda: agent.record(pod.uid).status.phase == "Failed")


def with_command(pod: Pod, command: tuple[str, ...]) -> Pod:
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, command=command),)))


def meddle(agent: LiveAgent, path: str, name: str, value: str) -> None:
    """Somebody writes to a group who should not."""
    tree = "" if agent.cgroups.version == 2 else name.partition(".")[0]
    (Path("/sys/fs/cgroup") / tree / path.lstrip("/") / name).write_text(value)


def test_a_pod_of_plain_processes_is_resized_where_it_runs() -> None:
    def sized(cpu: str, memory: str) -> Pod:
        return a_pod("web", "50m/16Mi", f"{cpu}/{memory}")

    async def run() -> None:
        async with live_agent(RESERVED) as agent:
            main = await agent.run_pod(sized("500m", "64Mi"))
            pod = main.cgroup.rpartition("/")[0]
            for cpu, memory, quota in (("700m", "128Mi", 70_000), ("200m", "32Mi", 20_000)):
                agent.loop.observe(PodApplied(PodSource.API, sized(cpu, memory)))
                await agent.wait_until(lambda: event_reasons(agent)[-1] == "ResizeCompleted")
                agent.ears.events.clear()
                for path in (pod, main.cgroup):
                    text = at(agent, path, "memory.limit_in_bytes", "memory.max")
                    assert text == str(int(memory.removesuffix("Mi")) << 20)
                    assert at(agent, path, "cpu.cfs_quota_us", "cpu.max").split()[0] == str(quota)
            facts = agent.record("web").runtime_status
            assert facts is not None
            assert [container.id for container in facts.containers] == [main.id]
            assert agent.reconcile_cgroups().differences == ()

    asyncio.run(run())


def event_reasons(agent: LiveAgent) -> list[str]:
    return ["", *(event.reason for event in agent.ears.events)]
