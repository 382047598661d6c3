"""How much files in memory may take, and whose processes an ephemeral container sees."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.agent.pods.test_runtime_configs import SETTINGS, Bench, a_pod_with, facts, run

from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.volume_setup import tmpfs_size_bytes
from nodewright.model.kubernetes.objects import EphemeralContainer
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimeContainerStatus
from nodewright.testing.objects import a_pod, amounts

SIZES = """
    node 1Gi   pod -      own -      -> 1024
    node 1Gi   pod -      own 64Mi   -> 64
    node 1Gi   pod 256Mi  own -      -> 256
    node 1Gi   pod 256Mi  own 512Mi  -> 256
    node 1Gi   pod 4Gi    own 2Gi    -> 1024
"""


@pytest.mark.parametrize("line", SIZES.strip().splitlines())
def test_memory_for_files_is_what_the_pod_may_use(line: str) -> None:
    _, node, _, limit, _, own, _, expected = line.split()
    pod = a_pod("web", "", {} if limit == "-" else {"memory": limit})
    volume = {"emptyDir": {"medium": "Memory", **({} if own == "-" else {"sizeLimit": own})}}
    assert tmpfs_size_bytes(pod, volume, amounts(f"memory={node}")) == int(expected) * 2**20
    whole = a_pod("web", resources={"limits": {"memory": "1Mi"}})
    assert tmpfs_size_bytes(whole, {"emptyDir": {}}, {}) == 2**20


def test_an_ephemeral_container_needs_its_target(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pod = a_pod_with()
    debugger = EphemeralContainer(name="debug", image="i", target_container_name="main")
    status = facts(pod, "10.0.0.7")
    with pytest.raises(ContainerConfigError, match="unable to find target container main"):
        run(bench.containers.container_config(pod, debugger, 0, SETTINGS, status))
    running = RuntimeContainerStatus(
        id="c1", name="main", attempt=0, phase=ContainerPhase.RUNNING, sandbox_id="s"
    )
    config = run(
        bench.containers.container_config(pod, debugger, 0, SETTINGS, replace(status, containers=(running,)))
    )
    assert config.target_id == "c1"
