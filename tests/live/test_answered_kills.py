"""What the agent has answered outlives it: it is killed right after each answer, and the next agent knows."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

pytestmark = [pytest.mark.live, pytest.mark.slow]

CYCLES = 100 if int(os.environ.get("KILL_POINTS") or 0) > 40 else 2
PODS = ("api", "v1", "namespaces", "default", "pods")


def a_pod(name: str, cpu: str = "100m") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "none", "command": ["sleep", "1000"], "resources": resources}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def agent() -> Iterator[AgentCommand]:
    with private_cgroups() as cgroups:
        directory = Path(tempfile.mkdtemp(prefix="nodewright-answered-"))
        directory.chmod(0o755)
        made = AgentCommand(directory, cgroups.root)
        try:
            made.start()
            made.wait_until(made.is_ready)
            yield made
        finally:
            made.stop()
            cgroups.kill(cgroups.root)
            shutil.rmtree(directory, ignore_errors=True)


def pods(agent: AgentCommand) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in agent.pods()}


def next_agent(agent: AgentCommand) -> None:
    """Kills the agent, and starts the next one."""
    agent.kill()
    agent.start()
    agent.wait_until(agent.is_ready)


def test_a_created_pod_is_there(agent: AgentCommand) -> None:
    for number in range(CYCLES):
        agent.client.post(*PODS, body=a_pod(f"pod-{number}", "1m"))
        next_agent(agent)
        assert set(pods(agent)) == {f"pod-{earlier}" for earlier in range(number + 1)}


def test_a_resized_pod_has_its_new_size(agent: AgentCommand) -> None:
    agent.client.post(*PODS, body=a_pod("web"))
    for number in range(CYCLES):
        cpu = f"{101 + number}m"
        agent.client.put(*PODS, "web", "resize", body=a_pod("web", cpu))
        next_agent(agent)
        container = pods(agent)["web"]["spec"]["containers"][0]
        assert container["resources"]["requests"]["cpu"] == cpu


def is_gone(agent: AgentCommand, name: str) -> Callable[[], bool]:
    return lambda: agent.is_ready() and name not in pods(agent)


@pytest.mark.parametrize("runs_first", [False, True])
def test_a_deleted_pod_ends(agent: AgentCommand, *, runs_first: bool) -> None:
    for number in range(CYCLES):
        name = f"pod-{number}"
        agent.client.post(*PODS, body=a_pod(name))
        if runs_first:
            agent.wait_until(lambda name=name: pods(agent)[name]["status"].get("phase") == "Running")  # type: ignore[misc] # its default is the name
        answer = agent.client.delete(*PODS, name)
        assert answer["metadata"]["deletionTimestamp"]
        next_agent(agent)
        assert "deletionTimestamp" in pods(agent).get(name, {"metadata": answer["metadata"]})["metadata"]
        agent.wait_until(is_gone(agent, name))
