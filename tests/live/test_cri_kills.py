"""An agent that is killed at any point of a start or an end through containerd: adopted, nothing twice, nothing left."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.live.containerd import lacking
from tests.live.cri_proxy import Moment, Proxy

from tools.containers import Agent, a_pod, an_agent, groups

pytestmark = [pytest.mark.live, pytest.mark.slow]

STARTS = [
    ("RunPodSandbox", Moment.BEFORE),
    ("RunPodSandbox", Moment.DURING),
    ("RunPodSandbox", Moment.AFTER),
    ("CreateContainer", Moment.DURING),
    ("CreateContainer", Moment.AFTER),
    ("StartContainer", Moment.BEFORE),
    ("StartContainer", Moment.AFTER),
]
MADE_IN_VAIN = [
    ("CreateContainer", Moment.DURING),
    ("CreateContainer", Moment.AFTER),
    ("StartContainer", Moment.BEFORE),
]
ENDS = [
    ("StopContainer", Moment.BEFORE),
    ("StopContainer", Moment.DURING),
    ("StopContainer", Moment.AFTER),
    ("StopPodSandbox", Moment.AFTER),
    ("RemovePodSandbox", Moment.AFTER),
]
TALLY = 'trap "exit 0" TERM; echo started >> /out/$POD; while :; do sleep 1 & wait $!; done'


@contextmanager
def killed_at_points() -> Iterator[tuple[Agent, Proxy]]:
    """An agent that is killed by the line to its runtime."""
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent, Proxy(agent.root / "proxy.sock", agent.containerd.endpoint) as proxy:
        agent.kill()
        agent.endpoint = proxy.endpoint
        agent.start()
        proxy.act = agent.kill
        try:
            yield agent, proxy
        finally:
            # It goes before the line does.
            agent.kill()
            agent.endpoint = agent.containerd.endpoint
            agent.start()


def write_tally_pod(agent: Agent, name: str) -> None:
    pod = a_pod(name, {}, agent.started)
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", TALLY]
    agent.put(name, pod)


def container_states(agent: Agent, name: str) -> list[tuple[str, int]]:
    """The containers of a pod: how they are, and how often they were started again."""
    return [
        (next(iter(container_status["state"]), "waiting"), container_status["restartCount"])
        for pod in agent.pods()
        if pod["metadata"]["name"] == name
        for container_status in pod["status"].get("containerStatuses", ())
    ]


def running(agent: Agent, name: str) -> bool:
    return [how for how, _ in container_states(agent, name)] == ["running"]


def restart_after_kill(agent: Agent, proxy: Proxy, point: tuple[str, Moment]) -> None:
    """The agent dies there, and the next one begins."""
    agent.until(proxy.acted.is_set, f"the agent is killed {point[1]} {point[0]}")
    agent.start()


def test_a_start_that_was_cut_off_is_done_once() -> None:
    with killed_at_points() as (agent, proxy):
        for number, point in enumerate(STARTS):
            name = f"web{number}"
            proxy.acted.clear()
            proxy.point = point
            write_tally_pod(agent, name)
            restart_after_kill(agent, proxy, point)
            agent.until(partial(running, agent, name), f"it runs, {point}")
            # One that was made and never started counts as an attempt, as it does for a kubelet.
            assert container_states(agent, name)[0][1] <= (point in MADE_IN_VAIN), point
            agent.until(partial(agent.runs, name), f"it has started, {point}")
            if point == ("RunPodSandbox", Moment.DURING):
                agent.containerd.kill_forgotten_shims()
            agent.until(lambda: len(agent.containerd.shims()) == 1, f"there is one sandbox, {point}")
            agent.drop(name, agent.workloads)
            agent.until(lambda: not agent.containerd.shims(), f"nothing is left, {point}")
            agent.until(lambda: not groups(agent), f"its cgroups are removed, {point}")
            assert (agent.started / name).read_text() == "started\n", point


def test_an_end_that_was_cut_off_is_brought_to_its_end() -> None:
    with killed_at_points() as (agent, proxy):
        for number, point in enumerate(ENDS):
            name = f"web{number}"
            write_tally_pod(agent, name)
            agent.until(partial(agent.runs, name), f"it runs, {point}")
            proxy.acted.clear()
            proxy.point = point
            agent.drop(name, agent.workloads)
            restart_after_kill(agent, proxy, point)
            agent.until(lambda: not agent.containerd.shims(), f"nothing is left, {point}")
            agent.until(lambda: not agent.pods(), "it is forgotten")
            assert (agent.started / name).read_text() == "started\n", point


def test_a_process_that_the_runtime_has_forgotten_ends_with_its_pod() -> None:
    """As the pause process of a sandbox whose start was cancelled may be."""
    if why := lacking():
        pytest.skip(why)
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            with an_agent() as agent:
                write_tally_pod(agent, "web")
                agent.until(partial(agent.runs, "web"), "it runs")
                for pod_cgroup in map(Path, groups(agent)):
                    if "cpuset" not in pod_cgroup.parts[4]:  # a new cpuset of version 1 has no CPUs
                        (pod_cgroup / "forgotten").mkdir()
                        (pod_cgroup / "forgotten/cgroup.procs").write_text(str(process.pid))
                agent.drop("web", agent.workloads)
                agent.until(lambda: process.poll() is not None, "the process is killed")
                agent.until(lambda: not groups(agent), "the pod's cgroups are removed")
        finally:
            process.kill()
