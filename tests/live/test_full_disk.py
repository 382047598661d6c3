"""The real command where its files cannot be written, or are damaged: nothing starts that would be forgotten, nothing is overwritten."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.testing.agent_command import AgentCommand
from nodewright.testing.machine import own_cgroups

pytestmark = pytest.mark.live

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: main, image: none, command: [sleep, "1000"]}}]
"""
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentCommand]:
    with own_cgroups() as cgroups:
        (tmp_path / "pods").mkdir()
        made = AgentCommand(tmp_path, cgroups.root, "--workload-dir", str(tmp_path / "pods"))
        try:
            yield made
        finally:
            made.stop()


def want(agent: AgentCommand, name: str) -> None:
    place = agent.folder / "pods" / f"{name}.yaml"
    place.with_suffix(".part").write_text(POD.format(name=name))
    place.with_suffix(".part").rename(place)


def phases(agent: AgentCommand) -> dict[str, str]:
    return {one["metadata"]["name"]: one["status"].get("phase", "") for one in agent.pods()}


def waits_for(agent: AgentCommand, name: str) -> str:
    """Why the container of a pod does not run."""
    (pod,) = [one for one in agent.pods() if one["metadata"]["name"] == name] or [{"status": {}}]
    statuses = pod["status"].get("containerStatuses") or [{}]
    waiting: dict[str, str] = statuses[0].get("state", {}).get("waiting", {})
    return waiting.get("reason", "")


def test_a_disk_that_takes_nothing_keeps_pods_waiting_and_the_agent_alive(agent: AgentCommand) -> None:
    agent.start()
    want(agent, "first")
    agent.until(lambda: phases(agent) == {"first": "Running"})
    # Every file may have 0 bytes: no write of the agent succeeds, that of its messages neither.
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    want(agent, "second")
    agent.until(lambda: waits_for(agent, "second") == "StateNotKept")
    assert phases(agent) == {"first": "Running", "second": "Pending"}
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, UNLIMITED)
    agent.until(lambda: phases(agent) == {"first": "Running", "second": "Running"})


@pytest.mark.parametrize("place", ["pods/*.json", "cpu_manager_state"])
def test_a_damaged_file_is_refused_with_what_to_do_and_left_alone(agent: AgentCommand, place: str) -> None:
    agent.start()
    want(agent, "first")
    agent.until(lambda: phases(agent) == {"first": "Running"})
    agent.kill()
    (file,) = (agent.folder / "root").glob(place)
    whole = file.read_bytes()
    file.write_bytes(whole[:20])
    agent.start()
    assert agent.wait() == 1
    assert str(file) in agent.said()
    assert "delete" in agent.said()
    assert file.read_bytes() == whole[:20]
    file.write_bytes(whole)
    agent.start()
    agent.until(lambda: phases(agent) == {"first": "Running"})
