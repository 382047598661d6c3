"""Nodes whose profile says what pods hold, and nodes whose pods are replayed."""

from typing import Any

from nodewright.ask import Node
from nodewright.core.memory.state import Block
from nodewright.model.profile import ContainerAllocation, MemoryBlock
from nodewright.node.placement import placement_of
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

GIB = 1 << 30
STATIC: dict[str, Any] = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}
DEVICES = {"a.b/gpu": "gpu-0@0 gpu-1@1"}
ON_NODE_1 = ContainerAllocation(
    "default/old", "main", "5-6", (MemoryBlock((1,), "memory", GIB),), {"a.b/gpu": ("gpu-1",)}
)
OLD = a_guaranteed_pod("old", "cpu=2 memory=1Gi a.b/gpu=1")


def test_pods_hold_what_their_allocations_say() -> None:
    node = Node.of(a_profile(devices=DEVICES, pods=[OLD], allocations=[ON_NODE_1], **STATIC))
    (held,) = placement_of(node.state, OLD).containers
    assert (str(held.cpus), held.memory) == ("5-6", (Block((1,), "memory", GIB),))
    assert held.devices == {"a.b/gpu": ("gpu-1",)}
    assert node.used["cpu"] == 2000
    answer = node.admit(a_guaranteed_pod("new", "cpu=3 memory=1Gi a.b/gpu=1"))
    assert answer.admitted
    assert str(answer.node.state.held.cpu.default) == "0,4,7"


def test_without_allocations_pods_hold_what_they_would_be_given() -> None:
    node = Node.of(a_profile(devices=DEVICES, pods=[OLD], **STATIC))
    (held,) = placement_of(node.state, OLD).containers
    assert (str(held.cpus), held.devices) == ("1-2", {"a.b/gpu": ("gpu-0",)})


def test_where_allocations_are_given_a_pod_without_one_holds_nothing() -> None:
    node = Node.of(a_profile(devices=DEVICES, pods=[OLD], allocations=[], **STATIC))
    assert not placement_of(node.state, OLD).holds_anything
    assert node.used["cpu"] == 2000


def test_what_a_pod_holds_that_has_ended_is_taken_back() -> None:
    ended = a_guaranteed_pod("old", "cpu=2 memory=1Gi a.b/gpu=1", status={"phase": "Succeeded"})
    node = Node.of(a_profile(devices=DEVICES, pods=[ended], allocations=[ON_NODE_1], **STATIC))
    assert node.pods == ()
    assert str(node.state.held.cpu.default) == "0-7"
    assert node.state.held.memory.machine[1].tables["memory"].reserved == 0
    assert node.state.held.devices.held == {}


def test_pods_that_hold_something_as_a_whole_free_it_with_their_last_container() -> None:
    both = pod(container("a", "1/1Gi", "1/1Gi"), container("b"), name="both", uid="u", whole="3/3Gi")
    settings = {**STATIC, "featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod"}
    memory = (MemoryBlock((0,), "memory", GIB),)
    said = [
        ContainerAllocation("u", "", "1-3", (MemoryBlock((0,), "memory", 3 * GIB),)),
        ContainerAllocation("u", "a", "1", memory),
        ContainerAllocation("u", "b", "2-3", memory),
    ]
    node = Node.of(a_profile(pods=[both], allocations=said, **settings))
    replayed = Node.of(a_profile(pods=[both], **settings))
    assert node.state.held.cpu.pods == replayed.state.held.cpu.pods
    assert node.state.held.memory.machine == replayed.state.held.memory.machine
    gone = node.without("u").state.collected()
    assert str(gone.held.cpu.default) == "0-7"
    assert gone.held.memory.machine[0].tables["memory"].reserved == 0


def test_containers_may_have_what_an_init_container_left_to_them() -> None:
    two = pod(container("a", "2/1Gi", "2/1Gi"), init=(container("i", "2/1Gi", "2/1Gi"),), name="p", uid="p")
    replayed = Node.of(a_profile(pods=[two], **STATIC))
    said = [ContainerAllocation("p", name, "1-2") for name in ("i", "a")]
    node = Node.of(a_profile(pods=[two], allocations=said, **STATIC))
    assert node.state.held.cpu.assignments == replayed.state.held.cpu.assignments


def test_a_pod_that_would_not_get_in_again_counts_all_the_same_and_is_named_with_the_reason() -> None:
    pods = [a_guaranteed_pod(name, "3/1Gi") for name in ("a", "b", "c")]
    node = Node.of(a_profile(pods=pods, **STATIC))
    assert node.used["cpu"] == 9000
    (warning,) = node.warnings
    assert warning == (
        "pod default/c is on the node, but with the pods before it there it would not get in: "
        "TopologyAffinityError: Resources cannot be allocated with Topology locality"
    )
    crowd = [a_pod(name, "5/1Gi") for name in ("a", "b")]
    (warning,) = Node.of(a_profile(pods=crowd, **STATIC)).warnings
    assert warning.startswith("pod default/b is on the node")
    assert "OutOfcpu" in warning


def test_a_pod_whose_sysctl_is_forbidden_now_holds_what_it_was_given() -> None:
    odd = a_guaranteed_pod(
        "odd", "2/1Gi", securityContext={"sysctls": [{"name": "vm.swappiness", "value": "1"}]}
    )
    node = Node.of(a_profile(pods=[odd], **STATIC))
    assert "SysctlForbidden" in node.warnings[0]
    assert str(node.state.held.cpu.default) == "0,3-7"


def test_pods_as_a_cluster_lists_them_are_taken_as_they_are() -> None:
    node = Node.open("examples/numa/live-node.yaml")
    assert node.warnings == ()
    # One runs, one is being deleted and runs still; one has succeeded, one has failed.
    assert [pod.metadata.name for pod in node.pods] == ["detector-7d9c6b5f44-x2x7k", "old-model"]
    assert node.used["cpu"] == 3000
    assert str(node.state.held.cpu.default) == "0,2-4,7"
    assert node.admit(a_guaranteed_pod("new", "cpu=1 memory=1Gi nvidia.com/gpu=1")).admitted


def test_pods_may_have_all_cpus_though_no_kubelet_starts_on_that() -> None:
    settings = {**STATIC_CPUS, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    whole = a_guaranteed_pod("whole", "7/1Gi")
    said = [ContainerAllocation("whole", "main", "1-7")]
    node = Node.of(a_profile(pods=[whole], allocations=said, **settings))
    assert (
        node.state.held.cpu.assignments
        == Node.of(a_profile(pods=[whole], **settings)).state.held.cpu.assignments
    )
    assert node.warnings == (
        "a kubelet that is started on what the pods hold does not start: default cpuset cannot be empty",
    )
