"""An agent with containers, as people run it: it starts pods, dies, comes back, and ends them."""

import json

import pytest
from tests.live.containerd import lacking

from tools.containers import EXCLUSIVE, an_agent

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
        agent.until(lambda: "Running" in agent.ask("get", "pods"), "the agent tells")
        told = json.loads(agent.ask("get", "pods", "-o", "json"))
        counts = [one["restartCount"] for pod in told["items"] for one in pod["status"]["containerStatuses"]]
        assert counts == [0, 0, 0]
        agent.drop("web")
        agent.until(lambda: len(agent.containerd.shims()) < 6, "a pod that nobody wants ends")


def test_what_cannot_run_is_told_in_the_pods_status() -> None:
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent:
        agent.write("lost", image="localhost:1/no/such:1")
        agent.until(lambda: "ErrImageNeverPull" in agent.ask("get", "pods"), "the status says why")
        agent.write("web")
        agent.until(lambda: agent.runs("web"), "the agent goes on")
