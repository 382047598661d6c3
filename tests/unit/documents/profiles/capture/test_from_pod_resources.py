"""The allocations that a PodResources socket reports, and what it does not report."""

from msgspec.structs import replace

from nodewright.documents.profiles.capture.from_pod_resources import (
    PodResourcesSnapshot,
    allocations_from_pod_resources,
)
from nodewright.documents.profiles.capture.node_pods import NodePods
from nodewright.model.kubernetes.node_profile import NodePart
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_resources_api import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.values.idset import CPUSet
from nodewright.testing.objects import container, pod, sidecar

NIC = "example.com/nic"


def unknown_parts(described: Pod, *, cpus: str = "1-7") -> dict[str, tuple[str, ...]]:
    """The parts that are not judged if the socket reports only the pod's app container."""
    reported = PodResources(
        name=described.metadata.name,
        namespace="default",
        containers=(
            ContainerResources(
                name="app", cpus=CPUSet.parse("1"), devices=(ContainerDevices(resource=NIC, ids=("a",)),)
            ),
        ),
    )
    described = replace(described, metadata=replace(described.metadata, namespace="default"))
    snapshot = PodResourcesSnapshot(
        pods=(reported,), allocatable=AllocatableResources(cpus=CPUSet.parse(cpus))
    )
    captured = allocations_from_pod_resources(snapshot, NodePods(node="n", pods=(described,)))
    return {unknown.part: unknown.names for unknown in captured.not_judged}


def a_pod_with_init(amounts: str, *, is_sidecar: bool = False) -> Pod:
    init = (sidecar if is_sidecar else container)("init", amounts, amounts)
    return pod(container("app", "cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), init=(init,))


def test_cpus_are_open_if_an_ended_init_container_had_exclusive_ones() -> None:
    described = a_pod_with_init("cpu=4 memory=1Gi")
    assert unknown_parts(described) == {NodePart.CPUS: ()}
    assert unknown_parts(described, cpus="") == {}


def test_nothing_is_open_if_the_init_container_shares_cpus_or_still_runs() -> None:
    assert unknown_parts(a_pod_with_init("cpu=1500m memory=1Gi")) == {}
    assert unknown_parts(a_pod_with_init("cpu=4 memory=1Gi", is_sidecar=True)) == {}


def test_devices_are_open_if_an_ended_init_container_had_more_than_the_others() -> None:
    described = a_pod_with_init(f"cpu=500m memory=1Gi {NIC}=2")
    assert unknown_parts(described) == {NodePart.DEVICES: (NIC,)}
