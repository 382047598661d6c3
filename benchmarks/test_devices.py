"""Devices: the workloads that the kubelet's own code was timed with, then more NUMA nodes than it takes."""

from typing import Any

import pytest
from tests.support.device_managers import GPU, a_pod_with_devices

from nodewright.engine.core.devices.device_assignment import (
    allocate,
    container_hints,
    min_affinity_size,
    pod_hints,
    without_inactive_pods,
)
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState, PluginBehavior, lowest
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet

SIZES = [(devices, nodes) for devices in (16, 128) for nodes in (2, 4, 8, 16, 34, 64)]


def spread(devices: int, nodes: int, each: int = 1) -> tuple[DeviceManager, DeviceState]:
    """An idle machine, its devices dealt to its NUMA nodes in turn, each to so many of them."""
    listed = tuple(
        Device(id=f"d{at}", numa_nodes=tuple(sorted({(at * (1 + way) + way) % nodes for way in range(each)})))
        for at in range(devices)
    )
    numa = NUMASet((1 << nodes) - 1)
    return DeviceManager(numa=numa, plugins={GPU: PluginBehavior(lowest)}), DeviceState.of({GPU: listed})


@pytest.mark.benchmark(group="devices: hints as a rule")
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_hints_for_a_container(benchmark: Any, devices: int, nodes: int) -> None:
    manager, state = spread(devices, nodes)
    pod = a_pod_with_devices("p", app=4)
    assert isinstance(benchmark(container_hints, manager, state, pod, pod.spec.containers[0]), Granted)


@pytest.mark.benchmark(group="devices: hints as a rule, nothing remembered")
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_hints_of_a_kind_never_asked_for_before(benchmark: Any, devices: int, nodes: int) -> None:
    manager, state = spread(devices, nodes)
    pod = a_pod_with_devices("p", app=4)
    arguments = (manager, state, pod, pod.spec.containers[0])
    result = benchmark.pedantic(container_hints, arguments, setup=min_affinity_size.cache_clear, rounds=200)
    assert isinstance(result, Granted)


@pytest.mark.benchmark(group="devices: hints as a rule")
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_hints_for_a_pod(benchmark: Any, devices: int, nodes: int) -> None:
    manager, state = spread(devices, nodes)
    assert isinstance(benchmark(pod_hints, manager, state, a_pod_with_devices("p", app=4)), Granted)


@pytest.mark.benchmark(group="devices: hints as a list")
@pytest.mark.parametrize(("devices", "nodes"), [size for size in SIZES if size[1] <= 8])
def test_hints_one_by_one(benchmark: Any, devices: int, nodes: int) -> None:
    manager, state = spread(devices, nodes)
    pod = a_pod_with_devices("p", app=4)

    def listed() -> int:
        result = container_hints(manager, state, pod, pod.spec.containers[0])
        assert isinstance(result, Granted)
        return sum(1 for _ in (result.value or {})[GPU] or ())

    assert benchmark(listed)


@pytest.mark.benchmark(group="devices: hints as a rule, nothing remembered")
@pytest.mark.parametrize("nodes", [8, 16, 34, 64])
def test_hints_where_devices_are_on_two_nodes_each(benchmark: Any, nodes: int) -> None:
    manager, state = spread(128, nodes, each=2)
    pod = a_pod_with_devices("p", app=16)
    arguments = (manager, state, pod, pod.spec.containers[0])
    result = benchmark.pedantic(container_hints, arguments, setup=min_affinity_size.cache_clear, rounds=50)
    assert isinstance(result, Granted)


@pytest.mark.benchmark(group="devices: allocate")
@pytest.mark.parametrize(("devices", "nodes"), SIZES)
def test_allocate_and_release(benchmark: Any, devices: int, nodes: int) -> None:
    manager, state = spread(devices, nodes)
    pod = a_pod_with_devices("p", app=4)

    def both() -> DeviceState:
        done = allocate(manager, state, pod, pod.spec.containers[0], NUMASet.of(0))
        assert isinstance(done.verdict, Granted)
        return without_inactive_pods(done.state, {})

    assert benchmark(both).pod_devices == {}
