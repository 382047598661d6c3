"""What PodResources says of nodes; expected is what a 1.36 kubelet says, with CPUs and devices in order."""

import pytest

from nodewright.ask import Node
from nodewright.core.devices.state import DeviceState
from nodewright.model.objects import Container, Pod
from nodewright.model.pod_resources import AllocatableResources, ContainerDevices, PodResources
from nodewright.model.profile import ContainerAllocation, Device, MemoryBlock
from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.node.state import NodeState
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
DEVICES = {GPU: "gpu-0@0 gpu-1@1", NIC: "nic-0@0,1 nic-1"}
GIB = 1 << 30


def node(*pods: Pod, **kubelet: object) -> NodeState:
    profile = a_profile(devices=DEVICES, pods=pods, **{**STATIC_CPUS, **kubelet})
    return Node.of(profile).state


def shown(state: NodeState, uid: str) -> list[str]:
    """A line a container: its name, CPUs, blocks, devices."""
    return lines(pod_resources(state, state.pods[uid]))


def lines(found: PodResources) -> list[str]:
    return [
        " ".join([one.name, str(one.cpus) or "-", *map(block, one.memory), *map(device, one.devices)])
        for one in found.containers
    ]


def block(one: MemoryBlock) -> str:
    return f"{one.type}={one.size}@{','.join(map(str, one.numa_nodes))}"


def device(one: ContainerDevices) -> str:
    places = "" if one.numa_nodes is None else "@" + ",".join(map(str, one.numa_nodes))
    return f"{one.resource}={','.join(one.ids)}{places}"


def test_only_cpus_of_its_own_are_told() -> None:
    state = node(
        a_guaranteed_pod("own", "2/1Gi"), a_guaranteed_pod("half", "1500m/1Gi"), a_pod("free", "cpu=2")
    )
    assert shown(state, "own") == ["main 1-2"]
    assert shown(state, "half") == ["main -"]
    assert shown(state, "free") == ["main -"]


def test_without_the_static_policies_nobody_has_anything_and_nothing_is_to_be_had() -> None:
    state = node(a_guaranteed_pod("own", "2/1Gi"), cpuManagerPolicy="none")
    assert shown(state, "own") == ["main -"]
    there = allocatable_resources(state)
    assert (str(there.cpus), there.memory) == ("", ())


def test_memory_is_told_by_kind_with_the_nodes_that_it_is_of() -> None:
    state = node(a_guaranteed_pod("db", "1/5Gi"), **STATIC_MEMORY)
    assert shown(state, "db") == [f"main 1 memory={5 * GIB}@0,1"]


def test_a_device_of_two_numa_nodes_is_told_twice_and_one_of_none_without_topology() -> None:
    state = node(a_guaranteed_pod("net", f"cpu=1 memory=1Gi {NIC}=2"))
    assert shown(state, "net") == [f"main 1 {NIC}=nic-0@0 {NIC}=nic-0@1 {NIC}=nic-1"]


def test_of_init_containers_only_sidecars_are_told_and_they_come_first() -> None:
    side = Container(
        name="side", restart_policy="Always", resources=container("x", "1/1Gi", "1/1Gi").resources
    )
    init, main = container("init", "2/1Gi", "2/1Gi"), container("main", "1/1Gi", "1/1Gi")
    state = node(pod(main, name="app", uid="app", init=(init, side)))
    assert [line.split()[0] for line in shown(state, "app")] == ["side", "main"]
    assert all(line.split()[1] != "-" for line in shown(state, "app"))


def test_what_is_allocatable_is_all_that_is_not_reserved_whoever_has_it() -> None:
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


def test_devices_whose_plugin_is_gone_are_told_without_topology() -> None:
    state = node(a_guaranteed_pod("gpu", f"cpu=1 memory=1Gi {GPU}=1"))
    held = type(state.held)(state.held.cpu, state.held.memory, state.held.devices.restarted())
    gone = NodeState(state.config, held)
    assert lines(pod_resources(gone, state.pods["gpu"])) == [f"main 1 {GPU}=gpu-0"]
    assert allocatable_resources(gone).devices == ()


def test_cpus_that_containers_of_a_pod_divide_are_told_of_each() -> None:
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
    state = Node.of(profile).state
    assert shown(state, "app") == ["main 1-2", "rest 3"]


def test_nothing_is_allocatable_by_default() -> None:
    assert allocatable_resources(Node.of(a_profile()).state) == AllocatableResources()
