"""Memory hints and allocation: the kubelet's workloads (memory and 2Mi pages, idle), then more NUMA nodes."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.core.memory.allocate import allocate, remove
from nodewright.core.memory.hints import container_hints
from nodewright.core.memory.policy import MemorySettings, Reservation, StaticPolicy, create_policy
from nodewright.core.memory.state import MemoryState
from nodewright.core.memory.wants import MemoryWants
from nodewright.model.machine import HugePages, NUMANode
from nodewright.model.verdict import Granted
from nodewright.testing.objects import amounts, container, pod

GIB = 2**30


def policy_on(nodes: int) -> StaticPolicy:
    made = create_policy(
        [NUMANode(node_id=at, memory=64 * GIB, hugepages=(HugePages(2048, 4096),)) for at in range(nodes)],
        MemorySettings(
            policy="Static",
            reserved=[Reservation(0, amounts("memory=1Gi"))],
            node_allocatable=amounts("memory=1Gi"),
        ),
    )
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticPolicy)
    return made.value


def wants(policy: StaticPolicy, memory: str) -> MemoryWants:
    asked = f"cpu=2 memory={memory} hugepages-2Mi=64Mi"
    return policy.wants(pod(container("app", asked, asked)))


@pytest.mark.parametrize("memory", ["8Gi", "100Gi"])
@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 34, 64])
def test_hints(benchmark: BenchmarkFixture, nodes: int, memory: str) -> None:
    policy = policy_on(nodes)
    asked, state = wants(policy, memory), MemoryState(machine=policy.idle)
    verdict = benchmark(container_hints, policy, state, asked, asked.pod.spec.containers[0])
    assert isinstance(verdict, Granted)
    assert verdict.value


@pytest.mark.parametrize("memory", ["8Gi", "100Gi"])
@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 34, 64])
def test_allocate_and_remove(benchmark: BenchmarkFixture, nodes: int, memory: str) -> None:
    policy = policy_on(nodes)
    asked, state = wants(policy, memory), MemoryState(machine=policy.idle)

    def there_and_back() -> MemoryState:
        done = allocate(policy, state, asked, asked.pod.spec.containers[0])
        assert isinstance(done.verdict, Granted)
        return remove(policy, done.state, asked.pod.uid, "app")

    assert benchmark(there_and_back).machine == policy.idle
