"""NodeResourceTopology objects: written as NFD's topology updater does, and read back."""

from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.output.json_yaml import as_yaml
from nodewright.documents.profiles.capture.from_cluster import read_topology
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.pod_resources_api import ContainerDevices
from nodewright.predict.node import Node
from nodewright.predict.node_report.node_resource_topology import (
    TopologySource,
    node_resource_topology,
    topology_source,
)
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod

GPU, NIC = "nvidia.com/gpu", "example.com/nic"
GIB = 1 << 30


def source(profile: NodeProfile, policy: str = "none", scope: str = "container") -> TopologySource:
    state = Node.from_profile(profile).state
    return TopologySource(
        name="here",
        machine=profile.spec.machine_info,
        allocatable=allocatable_resources(state),
        pods=tuple(pod_resources_of(state, pod) for pod in state.pods.values()),
        policy=policy,
        scope=scope,
    )


def amounts(document: dict[str, Any]) -> dict[str, str]:
    """capacity/allocatable/available by zone and resource."""
    return {
        f"{zone['name']} {resource['name']}": f"{resource['capacity']}/{resource['allocatable']}/{resource['available']}"
        for zone in document["zones"]
        for resource in zone["resources"]
    }


def test_zones_have_capacity_allocatable_and_available() -> None:
    pods = [a_guaranteed_pod("a", f"cpu=2 memory=5Gi {GPU}=1")]
    profile = a_profile(devices={GPU: "gpu-0@0 gpu-1@1"}, pods=pods, **STATIC_CPUS, **STATIC_MEMORY)
    assert amounts(node_resource_topology(source(profile))) == {
        "node-0 cpu": "4/3/1",
        "node-0 memory": f"{4 * GIB}/{3 * GIB}/0",
        "node-0 nvidia.com/gpu": "1/1/0",
        "node-1 cpu": "4/4/4",
        "node-1 memory": f"{4 * GIB}/{4 * GIB}/{2 * GIB}",
        "node-1 nvidia.com/gpu": "1/1/1",
    }


def test_a_numa_node_without_allocatable_resources_has_zero_cpus() -> None:
    assert amounts(node_resource_topology(source(a_profile()))) == {
        "node-0 cpu": "4/0/0",
        "node-1 cpu": "4/0/0",
    }
    with_devices = a_profile(devices={GPU: "gpu-0@0 anywhere"})
    assert amounts(node_resource_topology(source(with_devices))) == {
        "node-0 nvidia.com/gpu": "1/1/1",
        "node-1 cpu": "4/0/0",
    }


def test_a_device_of_two_nodes_counts_at_each() -> None:
    pods = [a_guaranteed_pod("a", f"cpu=1 memory=1Gi {NIC}=1")]
    profile = a_profile(devices={NIC: "nic@0,1"}, pods=pods)
    assert amounts(node_resource_topology(source(profile))) == {f"node-{n} {NIC}": "1/1/0" for n in (0, 1)}


def test_allocations_that_are_no_longer_allocatable_are_not_subtracted() -> None:
    topology_source = source(
        a_profile(devices={GPU: "a@0 b@0"}, pods=[a_guaranteed_pod("p", f"cpu=1 memory=1Gi {GPU}=1")])
    )
    healthy = (ContainerDevices(GPU, ("b",), (0,)), ContainerDevices(GPU, ("far",), (9,)))
    there = type(topology_source.allocatable)(devices=healthy)
    left = node_resource_topology(
        TopologySource(
            name="here", machine=topology_source.machine, allocatable=there, pods=topology_source.pods
        )
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
def test_policies_have_their_legacy_names_and_round_trip(
    policy: str, scope: str, named: str, tmp_path: Path
) -> None:
    document = node_resource_topology(source(a_profile(**STATIC_CPUS), policy, scope))
    assert document["topologyPolicies"] == [named]
    place = tmp_path / "nrt.yaml"
    place.write_text(as_yaml(document), "utf-8")
    read = read_topology(place, "here")
    assert (read.policy, read.scope) == (policy, scope)
    assert [zone.numa_node for zone in read.zones] == [0, 1]
    assert read.zones[0].costs == dict(enumerate(a_profile().spec.machine_info.topology[0].distances))


def test_an_unknown_policy_is_omitted() -> None:
    assert {"attributes", "topologyPolicies"}.isdisjoint(node_resource_topology(source(a_profile(), "")))


def attributes(document: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {item["name"].rpartition("/")[2]: item["value"] for item in zone.get("attributes", ())}
        for zone in document["zones"]
    ]


def test_zones_have_the_groups_of_the_memory_manager_and_free_exclusive_cpus() -> None:
    pods = [a_guaranteed_pod("a", "cpu=2 memory=5Gi")]
    profile = a_profile(pods=pods, **STATIC_CPUS, **STATIC_MEMORY)
    node = Node.from_profile(profile)
    for inputs in (topology_source(node.state), source(profile)):
        assert attributes(node_resource_topology(inputs)) == [
            {"free-exclusive-cpus": "3", "memory-group": "0-1", "memory-in-use": "true"},
            {"free-exclusive-cpus": "4-7", "memory-group": "0-1", "memory-in-use": "true"},
        ]
    emptied = node.without_pod(node.pods[0].uid)
    assert attributes(node_resource_topology(topology_source(emptied.state))) == [
        {"free-exclusive-cpus": "1-3", "memory-group": "0", "memory-in-use": "false"},
        {"free-exclusive-cpus": "4-7", "memory-group": "1", "memory-in-use": "false"},
    ]


def test_zones_have_no_attributes_without_static_policies() -> None:
    assert attributes(node_resource_topology(source(a_profile()))) == [{}, {}]
    only_cpus = attributes(node_resource_topology(source(a_profile(**STATIC_CPUS))))
    assert only_cpus == [{"free-exclusive-cpus": "1-3"}, {"free-exclusive-cpus": "4-7"}]
