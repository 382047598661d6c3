"""Merging hints: the kubelet's workloads, then more NUMA nodes than it takes."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.engine.core.topology.hint_merge import merged_hint
from nodewright.engine.core.topology.manager_config import TopologyManager
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import nonempty_subsets
from nodewright.model.values.topology_hints import Fitting, Hint, HintList, Offer

GIB = 2**30


def ring(nodes: int) -> dict[int, list[int]]:
    return {
        number: [10 + 6 * min(abs(number - other), nodes - abs(number - other)) for other in range(nodes)]
        for number in range(nodes)
    }


def every_mask(nodes: int, preferred_size: int = 1) -> HintList:
    everything = (1 << nodes) - 1
    return HintList(
        tuple(
            Hint(NUMASet(mask), mask.bit_count() == preferred_size) for mask in nonempty_subsets(everything)
        )
    )


def manager(policy: str, nodes: int, *, closest: bool = False) -> TopologyManager:
    numa = NUMASet((1 << nodes) - 1)
    return TopologyManager(policy=policy, numa=numa, distances=ring(nodes) if closest else None)


def rule(needed: int, free: dict[int, int], total: dict[int, int]) -> HintList:
    return HintList(fitting=Fitting.of(nodes=NUMASet.from_ids(total), needed=needed, free=free, total=total))


@pytest.mark.parametrize("policy", ["best-effort", "prefer-closest", "single-numa-node"])
@pytest.mark.parametrize("providers", [1, 2, 3, 4])
def test_8_nodes_every_mask(benchmark: BenchmarkFixture, providers: int, policy: str) -> None:
    settings = manager(policy.replace("prefer-closest", "best-effort"), 8, closest=policy == "prefer-closest")
    offers = [Offer(str(at), {"some": every_mask(8)}) for at in range(providers)]
    assert benchmark(merged_hint, settings, offers).hint == Hint(NUMASet(1), preferred=True)


@pytest.mark.parametrize("providers", [3, 4])
def test_8_nodes_every_mask_without_agreement(benchmark: BenchmarkFixture, providers: int) -> None:
    offers = [Offer(str(at), {"some": every_mask(8, 1 + at % 2)}) for at in range(providers)]
    assert not benchmark(merged_hint, manager("best-effort", 8), offers).hint.preferred


@pytest.mark.parametrize("state", ["idle", "fragmented"])
@pytest.mark.parametrize("closest", [False, True])
@pytest.mark.parametrize("nodes", [2, 8, 16, 64])
def test_cpu_memory_and_devices(
    benchmark: BenchmarkFixture, nodes: int, *, closest: bool, state: str
) -> None:
    """A request that fits on four nodes (two of two), fragmented or not."""
    wanted = min(nodes, 4)
    everywhere = range(nodes)
    cpus, memory, devices = (dict.fromkeys(everywhere, each) for each in (16, 64 * GIB, 2))
    free_cpus, free_memory, free_devices = cpus, memory, devices
    if state == "fragmented":
        free_cpus = {node: 3 + node * 7 % 13 for node in everywhere}
        free_memory = {node: GIB * (10 + node * 11 % 50) for node in everywhere}
        free_devices = {node: node % 3 for node in everywhere}
    offers = [
        Offer("cpu", {"cpu": rule(11 * wanted, free_cpus, cpus)}),
        Offer("memory", {"memory": rule(45 * wanted * GIB, free_memory, memory)}),
        Offer("devices", {"gpu": rule(2 * wanted - 1, free_devices, devices)}),
    ]
    merged = benchmark(merged_hint, manager("best-effort", nodes, closest=closest), offers)
    assert merged.proved


@pytest.mark.parametrize("state", ["idle", "fragmented"])
def test_34_nodes_of_which_2_have_cpus(benchmark: BenchmarkFixture, state: str) -> None:
    cpus = {0: 72, 1: 72}
    memory = {node: (480 if node < 2 else 24) * GIB for node in range(34)}
    devices = dict.fromkeys(range(2), 2)
    free_cpus = {0: 10, 1: 10} if state == "fragmented" else cpus
    offers = [
        Offer("cpu", {"cpu": rule(16, free_cpus, cpus)}),
        Offer("memory", {"memory": rule(64 * GIB, memory, memory)}),
        Offer("devices", {"gpu": rule(1, devices, devices)}),
    ]
    merged = benchmark(merged_hint, manager("best-effort", 34), offers)
    assert merged.proved
    assert merged.hint.preferred == (state == "idle")
