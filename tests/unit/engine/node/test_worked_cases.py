"""Cases on whole nodes that a reader can verify by hand."""

from typing import Any

import pytest

from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import AdmitResult, Node
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

ALIGNING = ("best-effort", "restricted", "single-numa-node")


def cpus(answer: AdmitResult) -> str | None:
    """The CPUs of the pod's one container; None: it runs in the shared pool."""
    assert answer.placement is not None
    (held,) = answer.placement.containers
    return None if held.cpus is None else str(held.cpus)


def hint(answer: AdmitResult) -> str:
    assert answer.placement is not None
    (held,) = answer.placement.containers
    return str(held.hint)


# ---------------------------------------------------------------- a GPU and a NIC

ONE_EACH = {"a.b/gpu": "gpu-0@0 gpu-1@1", "a.b/nic": "nic-0@0 nic-1@1"}
CROSSED = {"a.b/gpu": "gpu-0@0 gpu-1@0", "a.b/nic": "nic-0@1 nic-1@1"}
TRAINING = "cpu=2 memory=200Mi a.b/gpu=1 a.b/nic=1"


def trained(devices: dict[str, str], policy: str, count: int) -> list[AdmitResult]:
    """What is said to so many pods of one kind on two NUMA nodes with 8 CPUs; CPU 0 is the system's."""
    node = Node.from_profile(a_profile(2, 8, devices=devices, topologyManagerPolicy=policy, **STATIC_CPUS))
    return list(node.admit_all(a_guaranteed_pod(f"train-{at}", TRAINING) for at in range(count)))


@pytest.mark.parametrize("policy", ALIGNING)
def test_pods_get_cpus_gpu_and_nic_of_one_numa_node_until_none_is_free(policy: str) -> None:
    first, second, third = trained(ONE_EACH, policy, 3)
    assert (cpus(first), hint(first)) == ("1-2", "{0} preferred")
    assert (cpus(second), hint(second)) == ("8-9", "{1} preferred")
    assert second.placement is not None
    assert second.placement.containers[0].devices == {"a.b/gpu": ("gpu-1",), "a.b/nic": ("nic-1",)}
    # Where hints are advice, the device manager refuses.
    assert third.reason == (
        "UnexpectedAdmissionError" if policy == "best-effort" else "TopologyAffinityError"
    )


def test_under_policy_none_devices_and_cpus_are_not_aligned() -> None:
    first, second = trained(ONE_EACH, "none", 2)
    assert (cpus(first), cpus(second)) == ("1-2", "3-4")
    assert second.placement is not None
    assert second.placement.containers[0].devices["a.b/gpu"] == ("gpu-1",)


@pytest.mark.parametrize(
    ("policy", "admitted"), [("best-effort", True), ("restricted", False), ("single-numa-node", False)]
)
def test_a_gpu_on_one_node_and_a_nic_on_the_other_never_agree(policy: str, admitted: bool) -> None:
    (answer,) = trained(CROSSED, policy, 1)
    assert answer.admitted is admitted
    assert answer.reason == ("" if admitted else "TopologyAffinityError")


# ---------------------------------------------------------------- two free CPUs on two NUMA nodes


def split(policy: str) -> Node:
    """Two NUMA nodes with 4 CPUs, of which CPU 0 is the system's; 1 and 5 are free, all others somebody's."""
    ones = [a_guaranteed_pod(f"one-{at}", "1/1Mi") for at in range(7)]
    node = Node.from_profile(a_profile(2, 4, pods=ones, topologyManagerPolicy=policy, **STATIC_CPUS))
    held = {str(node.state.held.cpu.exclusive(pod.uid, "main")): pod.uid for pod in ones}
    return node.without_pod(held["1"]).without_pod(held["5"])


def test_best_effort_admits_two_cpus_on_two_numa_nodes() -> None:
    answer = split("best-effort").admit(a_guaranteed_pod("two", "2/1Mi"))
    assert (cpus(answer), hint(answer)) == ("1,5", "{0-1} not preferred")


@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_restricted_policies_refuse_two_cpus_on_two_numa_nodes(policy: str) -> None:
    answer = split(policy).admit(a_guaranteed_pod("two", "2/1Mi"))
    assert answer.kubelet == ("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
    assert answer.node.admit(a_guaranteed_pod("one", "1/1Mi")).admitted


def test_policy_none_admits_two_cpus_on_two_numa_nodes() -> None:
    assert cpus(split("none").admit(a_guaranteed_pod("two", "2/1Mi"))) == "1,5"


def test_container_scope_admits_two_containers_that_pod_scope_refuses() -> None:
    each: dict[str, Any] = {
        "resources": {"requests": {"cpu": 1, "memory": 1}, "limits": {"cpu": 1, "memory": 1}}
    }
    pair = a_pod("pair", containers=[{"name": "a", **each}, {"name": "b", **each}])
    assert split("restricted").admit(pair).admitted
    as_pod = Node.from_profile(
        a_profile(2, 4, topologyManagerScope="pod", topologyManagerPolicy="restricted", **STATIC_CPUS)
    )
    fill = [a_guaranteed_pod("left", "2/1Mi"), a_guaranteed_pod("right", "3/1Mi")]
    *_, last = as_pod.admit_all([*fill, pair])
    assert last.reason == "TopologyAffinityError"


# ---------------------------------------------------------------- whose CPUs are his own

ASKED: list[tuple[str, Pod, str | None]] = [
    ("two whole CPUs, Guaranteed", a_guaranteed_pod("p", "2/1Gi"), "1-2"),
    ("2000m are two whole CPUs", a_guaranteed_pod("p", "2000m/1Gi"), "1-2"),
    ("limits alone make requests, too", a_pod("p", limits="2/1Gi"), "1-2"),
    ("one and a half CPUs", a_guaranteed_pod("p", "1500m/1Gi"), None),
    ("a limit above the request: Burstable", a_pod("p", "2/1Gi", "3/1Gi"), None),
    ("no limit on memory: Burstable", a_pod("p", "2/1Gi", "cpu=2"), None),
    ("nothing asked: BestEffort", a_pod("p"), None),
]


@pytest.mark.parametrize(("pod", "own"), [case[1:] for case in ASKED], ids=[case[0] for case in ASKED])
def test_integer_cpus_of_guaranteed_pods_are_exclusive(pod: Pod, own: str | None) -> None:
    answer = Node.from_profile(a_profile(1, 8, **STATIC_CPUS)).admit(pod)
    assert cpus(answer) == own
    assert str(answer.node.state.held.cpu.default) == ("0,3-7" if own else "0-7")
