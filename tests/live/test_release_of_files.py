"""The real command, killed and started again as another release, on the state files of the one before."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups

pytestmark = pytest.mark.live

POD = """
apiVersion: v1
kind: Pod
metadata: {name: pinned}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: none
      command: [sleep, "1000"]
      resources: {limits: {cpu: "1", memory: 16Mi}}
"""
CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cpuManagerPolicy: static
reservedSystemCPUs: "0"
"""


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[dict[str, AgentCommand]]:
    """The command of each release, on one directory."""
    with private_cgroups() as cgroups:
        (tmp_path / "pods").mkdir()
        (tmp_path / "pods" / "pinned.yaml").write_text(POD)
        (tmp_path / "kubelet.yaml").write_text(CONFIG)
        options = ("--workload-dir", str(tmp_path / "pods"), "--config", str(tmp_path / "kubelet.yaml"))
        made = {
            release: AgentCommand(tmp_path, cgroups.root, *options, "--release", release)
            for release in ("1.36", "1.37")
        }
        try:
            yield made
        finally:
            for agent in made.values():
                agent.stop()


def is_running(agent: AgentCommand) -> bool:
    return [pod["status"].get("phase") for pod in agent.pods()] == ["Running"]


def test_a_killed_agent_goes_on_as_another_release(agents: dict[str, AgentCommand]) -> None:
    held = []
    for release in ("1.36", "1.37", "1.36", "1.37"):
        agent = agents[release]
        agent.start()
        agent.wait_until(partial(is_running, agent))
        document = json.loads((agent.folder / "root" / "cpu_manager_state").read_bytes())
        assert ("dataChecksum" in document) == (release == "1.37")
        assert "set aside" not in agent.log_tail()
        held.append(document["entries"])
        agent.kill()
    assert held == [held[0]] * 4
    (containers,) = held[0].values()
    assert containers["main"]
