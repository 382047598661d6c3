"""An agent with containers, as people run it: it starts pods, dies, comes back, and ends them."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.live.containerd import lacking

from tools.containers import EXCLUSIVE, a_pod, an_agent

pytestmark = pytest.mark.live


def test_containers_outlive_an_agent_that_is_killed() -> None:
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent:
        agent.write("web")
        agent.write("pinned", EXCLUSIVE)
        agent.until(lambda: agent.runs("web") and agent.runs("pinned"), "both pods run")
        before = sorted(agent.containerd.shims())
        agent.kill()
        assert sorted(agent.containerd.shims()) == before
        agent.write("later")
        agent.start()
        agent.until(lambda: agent.runs("later"), "a pod runs that came meanwhile")
        assert set(before) < set(agent.containerd.shims())
        agent.until(lambda: "Running" in str(agent.pods()), "the agent shows the pods")
        counts = [
            status["restartCount"] for pod in agent.pods() for status in pod["status"]["containerStatuses"]
        ]
        assert counts == [0, 0, 0]
        agent.drop("web")
        agent.until(lambda: len(agent.containerd.shims()) < 6, "a pod that nobody wants ends")


def test_no_pod_runs_twice_when_the_runtime_loses_all_that_it_knows() -> None:
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent:
        pods = ("web", "pinned")
        for name, resources in zip(pods, (None, EXCLUSIVE), strict=True):
            agent.write(name, resources)
            agent.until(partial(agent.runs, name), f"{name} runs")
        before = agent.container_processes()
        assert len(before) == len(pods)
        lost_shims = agent.containerd.lose_records()
        counts = set()

        def runs_anew() -> bool:
            processes = agent.container_processes()
            counts.add(len(processes))
            return len(processes) == len(pods) and not processes & before

        agent.until(runs_anew, "new containers run, and no old ones", interval_s=0.002)
        assert max(counts) <= len(pods)
        for pid in lost_shims:
            os.kill(pid, signal.SIGKILL)
        assert "StrayProcesses" in agent.ask("get", "events")


def test_what_cannot_run_is_told_in_the_pods_status() -> None:
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent:
        agent.write("lost", image="localhost:1/no/such:1")
        agent.until(lambda: "ErrImageNeverPull" in str(agent.pods()), "the status says why")
        agent.write("web")
        agent.until(lambda: agent.runs("web"), "the agent goes on")


def test_a_pod_is_resized_where_it_runs() -> None:
    if why := lacking():
        pytest.skip(why)
    if not Path("/sys/fs/cgroup/memory").exists():
        pytest.skip("names files of version 1 of cgroups")
    small, big = _amounts("100m", "48Mi"), _amounts("300m", "96Mi")
    with an_agent() as agent:
        agent.put("web", a_pod("web", small, agent.started))
        agent.until(lambda: agent.runs("web"), "the pod runs")
        shims = agent.containerd.shims()
        for amounts, quota, limit in ((big, 30_000, 96 << 20), (small, 10_000, 48 << 20)):
            agent.put("web", a_pod("web", amounts, agent.started))
            agent.until(
                partial(_all_say, agent.cgroup_root, str(quota), str(limit)), f"groups follow: {amounts}"
            )
            agent.until(lambda: "PodResize" not in str(agent.pods()), "it is done")
            (pod,) = agent.pods()
            (status,) = pod["status"]["containerStatuses"]
            assert (status["restartCount"], status["resources"]["limits"]) == (0, amounts["limits"])
        assert agent.containerd.shims() == shims
        assert "ResizeCompleted" in agent.ask("get", "events")
        # Less than it uses the kernel does not give back: what it has is told, and it runs on.
        agent.put("web", a_pod("web", _amounts("100m", "4Ki"), agent.started))
        agent.until(lambda: "PodResizeInProgress" in str(agent.pods()), "it is told")
        assert agent.containerd.shims() == shims


def _amounts(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": "50m", "memory": "4Ki"}, "limits": {"cpu": cpu, "memory": memory}}


def _all_say(root: str, quota: str, limit: str) -> bool:
    """Whether the group of the pod and that of its container say so."""
    result = []
    for controller, name, wanted in (
        ("cpu", "cpu.cfs_quota_us", quota),
        ("memory", "memory.limit_in_bytes", limit),
    ):
        (pod,) = Path(f"/sys/fs/cgroup/{controller}{root}/kubepods/burstable").glob("pod*")
        texts = [path.read_text().strip() for path in (pod / name, *pod.glob(f"*/{name}"))]
        # The sandbox has its own, which bounds nothing.
        result.append(texts.count(wanted) == 2)
    return all(result)
