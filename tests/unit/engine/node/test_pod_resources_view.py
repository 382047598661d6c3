"""PodResources answers; expected are those of a 1.36 kubelet, with CPUs and devices sorted."""

import pytest
from msgspec.structs import replace

from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, MemoryBlock
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_resources_api import AllocatableResources, ContainerDevices, PodResources
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
DEVICES = {GPU: "gpu-0@0 gpu-1@1", NIC: "nic-0@0,1 nic-1"}
GIB = 1 << 30


def node(*pods: Pod, **kubelet: object) -> NodeState:
    profile = a_profile(devices=DEVICES, pods=pods, **{**STATIC_CPUS, **kubelet})
    return Node.from_profile(profile).state


def container_lines(state: NodeState, uid: str) -> list[str]:
    """A line a container: its name, CPUs, blocks, devices."""
    return lines(pod_resources_of(state, state.pods[uid]))


def lines(found: PodResources) -> list[str]:
    return [
        " ".join(
            [
                container.name,
                str(container.cpus) or "-",
                *map(block, container.memory),
                *map(device, container.devices),
            ]
        )
        for container in found.containers
    ]


def block(one: MemoryBlock) -> str:
    return f"{one.type}={one.size}@{','.join(map(str, one.numa_nodes))}"


def device(one: ContainerDevices) -> str:
    places = "" if one.numa_nodes is None else "@" + ",".join(map(str, one.numa_nodes))
    return f"{one.resource}={','.join(one.ids)}{places}"


def test_only_exclusive_cpus_are_listed() -> None:
    state = node(
        a_guaranteed_pod("own", "2/1Gi"), a_guaranteed_pod("half", "1500m/1Gi"), a_pod("free", "cpu=2")
    )
    assert container_lines(state, "own") == ["main 1-2"]
    assert container_lines(state, "half") == ["main -"]
    assert container_lines(state, "free") == ["main -"]


def test_without_static_policies_nothing_is_allocated_or_allocatable() -> None:
    state = node(a_guaranteed_pod("own", "2/1Gi"), cpuManagerPolicy="none")
    assert container_lines(state, "own") == ["main -"]
    there = allocatable_resources(state)
    assert (str(there.cpus), there.memory) == ("", ())


def test_memory_is_listed_by_resource_with_its_numa_nodes() -> None:
    state = node(a_guaranteed_pod("db", "1/5Gi"), **STATIC_MEMORY)
    assert container_lines(state, "db") == [f"main 1 memory={5 * GIB}@0,1"]


def test_a_device_is_listed_once_for_each_numa_node() -> None:
    state = node(a_guaranteed_pod("net", f"cpu=1 memory=1Gi {NIC}=2"))
    assert container_lines(state, "net") == [f"main 1 {NIC}=nic-0@0 {NIC}=nic-0@1 {NIC}=nic-1"]


def test_of_init_containers_only_sidecars_are_listed_and_first() -> None:
    side = Container(
        name="side", restart_policy="Always", resources=container("x", "1/1Gi", "1/1Gi").resources
    )
    init, main = container("init", "2/1Gi", "2/1Gi"), container("main", "1/1Gi", "1/1Gi")
    state = node(pod(main, name="app", uid="app", init=(init, side)))
    assert [line.split()[0] for line in container_lines(state, "app")] == ["side", "main"]
    assert all(line.split()[1] != "-" for line in container_lines(state, "app"))


def test_unreserved_resources_are_allocatable_even_if_in_use() -> None:
    empty, full = node(**STATIC_MEMORY), node(a_guaranteed_pod("own", "2/1Gi"), **STATIC_MEMORY)
    for state in (empty, full):
        there = allocatable_resources(state)
        assert str(there.cpus) == "1-7"
        assert list(map(block, there.memory)) == [f"memory={3 * GIB}@0", f"memory={4 * GIB}@1"]


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (Device("a", (0,)), ["r=a@0"]),
        (Device("a", (0, 1)), ["r=a@0", "r=a@1"]),
        (Device("a"), ["r=a"]),
        (Device("a", ()), []),
        (Device("a", (0,), healthy=False), []),
    ],
)
def test_devices_are_allocatable_while_they_are_healthy(listed: Device, told: list[str]) -> None:
    state = node()
    held = type(state.held)(state.held.cpu, state.held.memory, DeviceState.of({"r": [listed]}))
    there = allocatable_resources(NodeState(state.config, held))
    assert list(map(device, there.devices)) == told


def test_devices_of_a_removed_plugin_are_listed_without_topology() -> None:
    state = node(a_guaranteed_pod("gpu", f"cpu=1 memory=1Gi {GPU}=1"))
    held = type(state.held)(state.held.cpu, state.held.memory, state.held.devices.after_restart())
    gone = NodeState(state.config, held)
    assert lines(pod_resources_of(gone, state.pods["gpu"])) == [f"main 1 {GPU}=gpu-0"]
    assert allocatable_resources(gone).devices == ()


def test_pod_level_cpus_are_listed_for_each_container() -> None:
    """With pod-level managers the others of the pod share what is left of it, and are told to have that."""
    held = [
        ContainerAllocation("default/app", "", "1-3"),
        ContainerAllocation("default/app", "main", "1-2"),
        ContainerAllocation("default/app", "rest", "3"),
    ]
    both = pod(container("main", "2/1Gi", "2/1Gi"), container("rest"), name="app", uid="app", whole="3/2Gi")
    profile = a_profile(
        pods=[both],
        allocations=held,
        **STATIC_CPUS,
        featureGates={"PodLevelResources": True, "PodLevelResourceManagers": True},
    )
    state = Node.from_profile(profile).state
    assert container_lines(state, "app") == ["main 1-2", "rest 3"]
    listed = pod_resources_of(state, both)
    assert (str(listed.cpus), listed.memory) == ("1-3", ())
    older = replace(profile, spec=replace(profile.spec, kubernetes_version="1.36"))
    assert not pod_resources_of(Node.from_profile(older).state, both).cpus
    gates = replace(state.config.gates, enabled=state.config.gates.enabled - {"PodLevelResourceManagers"})
    without = NodeState(replace(state.config, parts=replace(state.config.parts, gates=gates)), state.held)
    assert not pod_resources_of(without, both).cpus


def test_nothing_is_allocatable_by_default() -> None:
    assert allocatable_resources(Node.from_profile(a_profile()).state) == AllocatableResources()
