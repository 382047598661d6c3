"""How much files in memory may take."""

import pytest

from nodewright.agent.pods.container_config import tmpfs_size_bytes
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
