"""Memory hints and allocation: the kubelet's workloads (memory and 2Mi pages, idle), then more NUMA nodes."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.engine.core.memory.memory_allocation import (
    allocate_container_memory,
    container_hints,
    release_memory,
)
from nodewright.engine.core.memory.memory_policy import (
    MemorySettings,
    Reservation,
    StaticMemoryPolicy,
    create_memory_policy,
)
from nodewright.engine.core.memory.memory_state import MemoryState, PodMemoryDemand
from nodewright.model.hardware import HugePages, NUMANode
from nodewright.model.reasons.verdict import Granted
from nodewright.testing.objects import amounts, container, pod

GIB = 2**30


def policy_on(nodes: int) -> StaticMemoryPolicy:
    made = create_memory_policy(
        [NUMANode(node_id=at, memory=64 * GIB, hugepages=(HugePages(2048, 4096),)) for at in range(nodes)],
        MemorySettings(
            policy="Static",
            reserved=[Reservation(0, amounts("memory=1Gi"))],
            node_allocatable=amounts("memory=1Gi"),
        ),
    )
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticMemoryPolicy)
    return made.value


def wants(policy: StaticMemoryPolicy, memory: str) -> PodMemoryDemand:
    text = f"cpu=2 memory={memory} hugepages-2Mi=64Mi"
    return policy.demand(pod(container("app", text, text)))


@pytest.mark.parametrize("memory", ["8Gi", "100Gi"])
@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 34, 64])
def test_hints(benchmark: BenchmarkFixture, nodes: int, memory: str) -> None:
    policy = policy_on(nodes)
    asked, state = wants(policy, memory), MemoryState(machine=policy.initial_machine)
    verdict = benchmark(container_hints, policy, state, asked, asked.pod.spec.containers[0])
    assert isinstance(verdict, Granted)
    assert verdict.value


@pytest.mark.parametrize("memory", ["8Gi", "100Gi"])
@pytest.mark.parametrize("nodes", [2, 4, 8, 16, 34, 64])
def test_allocate_and_remove(benchmark: BenchmarkFixture, nodes: int, memory: str) -> None:
    policy = policy_on(nodes)
    asked, state = wants(policy, memory), MemoryState(machine=policy.initial_machine)

    def there_and_back() -> MemoryState:
        done = allocate_container_memory(policy, state, asked, asked.pod.spec.containers[0])
        assert isinstance(done.verdict, Granted)
        return release_memory(policy, done.state, asked.pod.uid, "app")

    assert benchmark(there_and_back).machine == policy.initial_machine
