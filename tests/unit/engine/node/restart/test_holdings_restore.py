"""Nodes whose profile says what pods hold, and nodes whose pods are replayed."""

from typing import Any

from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.node.pod_admission import placement_of
from nodewright.model.kubernetes.node_profile import ContainerAllocation, MemoryBlock
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

GIB = 1 << 30
STATIC: dict[str, Any] = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}
DEVICES = {"a.b/gpu": "gpu-0@0 gpu-1@1"}
ON_NODE_1 = ContainerAllocation(
    "default/old", "main", "5-6", (MemoryBlock((1,), "memory", GIB),), {"a.b/gpu": ("gpu-1",)}
)
OLD = a_guaranteed_pod("old", "cpu=2 memory=1Gi a.b/gpu=1")


def test_pods_hold_their_recorded_allocations() -> None:
    node = Node.from_profile(a_profile(devices=DEVICES, pods=[OLD], allocations=[ON_NODE_1], **STATIC))
    (holdings,) = placement_of(node.state, OLD).containers
    assert (str(holdings.cpus), holdings.memory) == ("5-6", (Block((1,), "memory", GIB),))
    assert holdings.devices == {"a.b/gpu": ("gpu-1",)}
    assert node.used["cpu"] == 2000
    answer = node.admit(a_guaranteed_pod("new", "cpu=3 memory=1Gi a.b/gpu=1"))
    assert answer.admitted
    assert str(answer.node.state.held.cpu.default) == "0,4,7"


def test_without_recorded_allocations_pods_are_allocated_in_order() -> None:
    node = Node.from_profile(a_profile(devices=DEVICES, pods=[OLD], **STATIC))
    (holdings,) = placement_of(node.state, OLD).containers
    assert (str(holdings.cpus), holdings.devices) == ("1-2", {"a.b/gpu": ("gpu-0",)})


def test_a_pod_without_a_recorded_allocation_holds_nothing() -> None:
    node = Node.from_profile(a_profile(devices=DEVICES, pods=[OLD], allocations=[], **STATIC))
    assert not placement_of(node.state, OLD).holds_anything
    assert node.used["cpu"] == 2000


def test_allocations_of_terminated_pods_are_released() -> None:
    ended = a_guaranteed_pod("old", "cpu=2 memory=1Gi a.b/gpu=1", status={"phase": "Succeeded"})
    node = Node.from_profile(a_profile(devices=DEVICES, pods=[ended], allocations=[ON_NODE_1], **STATIC))
    assert node.pods == ()
    assert str(node.state.held.cpu.default) == "0-7"
    assert node.state.held.memory.machine[1].tables["memory"].reserved == 0
    assert node.state.held.devices.pod_devices == {}


def test_pod_level_allocations_are_released_with_the_pod() -> None:
    both = pod(container("a", "1/1Gi", "1/1Gi"), container("b"), name="both", uid="u", whole="3/3Gi")
    settings = {**STATIC, "featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod"}
    memory = (MemoryBlock((0,), "memory", GIB),)
    allocations = [
        ContainerAllocation("u", "", "1-3", (MemoryBlock((0,), "memory", 3 * GIB),)),
        ContainerAllocation("u", "a", "1", memory),
        ContainerAllocation("u", "b", "2-3", memory),
    ]
    node = Node.from_profile(a_profile(pods=[both], allocations=allocations, **settings))
    replayed = Node.from_profile(a_profile(pods=[both], **settings))
    assert node.state.held.cpu.pods == replayed.state.held.cpu.pods
    assert node.state.held.memory.machine == replayed.state.held.memory.machine
    after = node.without_pod("u").state.without_stale()
    assert str(after.held.cpu.default) == "0-7"
    assert after.held.memory.machine[0].tables["memory"].reserved == 0


def test_containers_can_reuse_cpus_of_init_containers() -> None:
    two = pod(container("a", "2/1Gi", "2/1Gi"), init=(container("i", "2/1Gi", "2/1Gi"),), name="p", uid="p")
    replayed = Node.from_profile(a_profile(pods=[two], **STATIC))
    allocations = [ContainerAllocation("p", name, "1-2") for name in ("i", "a")]
    node = Node.from_profile(a_profile(pods=[two], allocations=allocations, **STATIC))
    assert node.state.held.cpu.assignments == replayed.state.held.cpu.assignments


def test_a_pod_that_would_be_refused_counts_and_gets_a_warning() -> None:
    pods = [a_guaranteed_pod(name, "3/1Gi") for name in ("a", "b", "c")]
    node = Node.from_profile(a_profile(pods=pods, **STATIC))
    assert node.used["cpu"] == 9000
    (warning,) = node.warnings
    assert warning == (
        "pod default/c is on the node, but the node would refuse it after the pods before it: "
        "TopologyAffinityError: Resources cannot be allocated with Topology locality"
    )
    crowd = [a_pod(name, "5/1Gi") for name in ("a", "b")]
    (warning,) = Node.from_profile(a_profile(pods=crowd, **STATIC)).warnings
    assert warning.startswith("pod default/b is on the node")
    assert "OutOfcpu" in warning


def test_a_pod_with_a_forbidden_sysctl_keeps_its_allocations() -> None:
    odd = a_guaranteed_pod(
        "odd", "2/1Gi", securityContext={"sysctls": [{"name": "vm.swappiness", "value": "1"}]}
    )
    node = Node.from_profile(a_profile(pods=[odd], **STATIC))
    assert "SysctlForbidden" in node.warnings[0]
    assert str(node.state.held.cpu.default) == "0,3-7"


def test_pods_of_a_cluster_listing_are_accepted_unchanged() -> None:
    node = Node.open("examples/numa/live-node.yaml")
    assert node.warnings == ()
    # One runs, one is being deleted and runs still; one has succeeded, one has failed.
    assert [pod.metadata.name for pod in node.pods] == ["detector-7d9c6b5f44-x2x7k", "old-model"]
    assert node.used["cpu"] == 3000
    assert str(node.state.held.cpu.default) == "0,2-4,7"
    assert node.admit(a_guaranteed_pod("new", "cpu=1 memory=1Gi nvidia.com/gpu=1")).admitted


def test_pods_can_hold_all_cpus_with_a_warning_about_the_kubelet_start() -> None:
    settings = {**STATIC_CPUS, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    whole = a_guaranteed_pod("whole", "7/1Gi")
    allocations = [ContainerAllocation("whole", "main", "1-7")]
    node = Node.from_profile(a_profile(pods=[whole], allocations=allocations, **settings))
    assert (
        node.state.held.cpu.assignments
        == Node.from_profile(a_profile(pods=[whole], **settings)).state.held.cpu.assignments
    )
    assert node.warnings == (
        "a kubelet with these allocations in its state files does not start: default cpuset cannot be empty",
    )
