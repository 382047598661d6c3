"""An agent with plain processes on this machine: groups are as they should be, at once and when somebody meddles."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodewright.agent.reconcile import wanted_groups
from nodewright.agent.values import PodWanted, Source
from nodewright.model.objects import Pod
from nodewright.testing.live import LiveAgent, live_agent
from nodewright.testing.objects import a_guaranteed_pod, a_pod

pytestmark = pytest.mark.live

RESERVED = {"evictionHard": {}, "kubeReserved": {"cpu": "500m", "memory": "64Mi"}, "podPidsLimit": 200}


def at(agent: LiveAgent, path: str, v1: str, v2: str) -> str:
    return agent.text(path, v1 if agent.cgroups.version == 1 else v2)


def test_groups_are_as_they_should_be_and_are_set_back() -> None:
    async def run() -> None:
        async with live_agent(RESERVED) as agent:
            main = await agent.want(a_guaranteed_pod("pinned", "500m/64Mi"))
            await agent.want(a_pod("web"))
            assert agent.ears.told == []
            assert len(list(wanted_groups(agent.loop.mind))) >= 7
            # The kernel has other words for some of it; nothing is found, so nothing would be written for ever.
            assert agent.reasserted().differences == ()
            assert at(agent, main.cgroup, "memory.limit_in_bytes", "memory.max") == str(64 << 20)
            pod = main.cgroup.rpartition("/")[0]
            assert agent.text(pod, "pids.max") == "200"
            if agent.cgroups.version == 1:
                name, quota = "cpu.cfs_quota_us", "50000"
            else:
                name, quota = "cpu.max", "50000 100000"
            assert agent.text(main.cgroup, name) == quota
            for path in (pod, main.cgroup):
                meddle(agent, path, name, "70000")
            found = agent.reasserted()
            assert {(one.path, one.file) for one in found.differences} == {(main.cgroup, name), (pod, name)}
            assert agent.text(main.cgroup, name) == quota == agent.text(pod, name)
            await agent.drop("pinned")
            assert agent.cgroups.texts(pod, ()) is None

    asyncio.run(run())


def test_a_container_that_needs_too_much_memory_is_told_as_oom_killed() -> None:
    async def run() -> None:
        async with live_agent(RESERVED) as agent:
            greedy = a_guaranteed_pod("greedy", "100m/32Mi", restartPolicy="Never")
            command = ("python3", "-c", "x = b'x' * (200 << 20)")
            await agent_ends(agent, with_command(greedy, command))
            (status,) = agent.record("greedy").status.container_statuses
            ended = status.state.terminated
            assert ended is not None
            assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)

    asyncio.run(run())


async def agent_ends(agent: LiveAgent, pod: Pod) -> None:
    agent.loop.see(PodWanted(Source.API, pod))
    await agent.until(lambda: agent.record(pod.uid).status.phase == "Failed")


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
            main = await agent.want(sized("500m", "64Mi"))
            pod = main.cgroup.rpartition("/")[0]
            for cpu, memory, quota in (("700m", "128Mi", 70_000), ("200m", "32Mi", 20_000)):
                agent.loop.see(PodWanted(Source.API, sized(cpu, memory)))
                await agent.until(lambda: told(agent)[-1] == "ResizeCompleted")
                agent.ears.told.clear()
                for path in (pod, main.cgroup):
                    found = at(agent, path, "memory.limit_in_bytes", "memory.max")
                    assert found == str(int(memory.removesuffix("Mi")) << 20)
                    assert at(agent, path, "cpu.cfs_quota_us", "cpu.max").split()[0] == str(quota)
            facts = agent.record("web").facts
            assert facts is not None
            assert [one.id for one in facts.containers] == [main.id]
            assert agent.reasserted().differences == ()

    asyncio.run(run())


def told(agent: LiveAgent) -> list[str]:
    return ["", *(one.reason for one in agent.ears.told)]
