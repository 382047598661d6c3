"""NodeResourceTopology objects, as NFD's topology updater writes them, and as we read them."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.ask import Node
from nodewright.model.pod_resources import ContainerDevices
from nodewright.model.profile import NodeProfile
from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.render.documents import as_yaml
from nodewright.render.topology_object import TopologySource, topology_document
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod
from nodewright.world.captured.cluster import read_topology

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
GIB = 1 << 30


def source(profile: NodeProfile, policy: str = "none", scope: str = "container") -> TopologySource:
    state = Node.of(profile).state
    return TopologySource(
        name="here",
        machine=profile.spec.machine_info,
        allocatable=allocatable_resources(state),
        pods=tuple(pod_resources(state, pod) for pod in state.pods.values()),
        policy=policy,
        scope=scope,
    )


def amounts(document: dict[str, Any]) -> dict[str, str]:
    """capacity/allocatable/available by zone and resource."""
    return {
        f"{zone['name']} {one['name']}": f"{one['capacity']}/{one['allocatable']}/{one['available']}"
        for zone in document["zones"]
        for one in zone["resources"]
    }


def test_zones_have_what_there_is_what_can_be_had_and_what_is_left() -> None:
    pods = [a_guaranteed_pod("a", f"cpu=2 memory=5Gi {GPU}=1")]
    profile = a_profile(devices={GPU: "gpu-0@0 gpu-1@1"}, pods=pods, **STATIC_CPUS, **STATIC_MEMORY)
    assert amounts(topology_document(source(profile))) == {
        "node-0 cpu": "4/3/1",
        "node-0 memory": f"{4 * GIB}/{3 * GIB}/0",
        "node-0 nvidia.com/gpu": "1/1/0",
        "node-1 cpu": "4/4/4",
        "node-1 memory": f"{4 * GIB}/{4 * GIB}/{2 * GIB}",
        "node-1 nvidia.com/gpu": "1/1/1",
    }


def test_of_a_node_of_which_nothing_can_be_had_it_is_told_that_its_cpus_cannot() -> None:
    assert amounts(topology_document(source(a_profile()))) == {"node-0 cpu": "4/0/0", "node-1 cpu": "4/0/0"}
    with_devices = a_profile(devices={GPU: "gpu-0@0 anywhere"})
    assert amounts(topology_document(source(with_devices))) == {
        "node-0 nvidia.com/gpu": "1/1/1",
        "node-1 cpu": "4/0/0",
    }


def test_a_device_of_two_nodes_counts_at_each() -> None:
    pods = [a_guaranteed_pod("a", f"cpu=1 memory=1Gi {NIC}=1")]
    profile = a_profile(devices={NIC: "nic@0,1"}, pods=pods)
    assert amounts(topology_document(source(profile))) == {f"node-{n} {NIC}": "1/1/0" for n in (0, 1)}


def test_what_pods_hold_that_is_not_allocatable_any_more_is_not_taken_off() -> None:
    found = source(
        a_profile(devices={GPU: "a@0 b@0"}, pods=[a_guaranteed_pod("p", f"cpu=1 memory=1Gi {GPU}=1")])
    )
    healthy = (ContainerDevices(GPU, ("b",), (0,)), ContainerDevices(GPU, ("far",), (9,)))
    there = type(found.allocatable)(devices=healthy)
    left = topology_document(
        TopologySource(name="here", machine=found.machine, allocatable=there, pods=found.pods)
    )
    assert amounts(left)[f"node-0 {GPU}"] == "1/1/1"


@pytest.mark.parametrize(
    ("policy", "scope", "named"),
    [
        ("none", "container", "None"),
        ("none", "pod", "None"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("best-effort", "pod", "BestEffortPodLevel"),
        ("restricted", "container", "RestrictedContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("single-numa-node", "container", "SingleNUMANodeContainerLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
    ],
)
def test_policies_have_their_old_names_too_and_are_read_back(
    policy: str, scope: str, named: str, tmp_path: Path
) -> None:
    document = topology_document(source(a_profile(**STATIC_CPUS), policy, scope))
    assert document["topologyPolicies"] == [named]
    place = tmp_path / "nrt.yaml"
    place.write_text(as_yaml(document), "utf-8")
    read = read_topology(place, "here")
    assert (read.policy, read.scope) == (policy, scope)
    assert [zone.numa for zone in read.zones] == [0, 1]
    assert read.zones[0].costs == dict(enumerate(a_profile().spec.machine_info.topology[0].distances))


def test_a_policy_that_is_not_known_is_not_told() -> None:
    assert {"attributes", "topologyPolicies"}.isdisjoint(topology_document(source(a_profile(), "")))
