"""API objects of a node: Node, configz, and NodeResourceTopology in both versions."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.documents.profiles.capture.from_cluster import (
    NUMAZone,
    ZoneResource,
    read_configz,
    read_node,
    read_topology,
)
from nodewright.model.errors import InputError
from nodewright.model.values.quantity import Quantity

TWELVE = ZoneResource(capacity=16, allocatable=14, available=12)


def a_zone(numa: int, **more: Any) -> dict[str, Any]:
    return {
        "name": f"node-{numa}",
        "type": "Node",
        "costs": [{"name": "node-0", "value": 10 + numa}, {"name": "node-1", "value": 21}],
        "resources": [{"name": "cpu", "capacity": "16", "allocatable": "14", "available": "12"}],
        **more,
    }


def an_object(
    *zones: dict[str, Any], version: str = "v1alpha2", name: str = "n1", **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": f"topology.node.k8s.io/{version}",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "zones": list(zones),
        **more,
    }


def a_file(directory: Path, document: Any) -> Path:
    path = directory / "file.json"
    path.write_text(json.dumps(document))
    return path


def faults(error: InputError) -> list[str]:
    return [f"{fault.path}: {fault.rule}" for fault in error.faults]


def test_zones_are_numa_nodes_with_costs_and_amounts(tmp_path: Path) -> None:
    socket = {"name": "socket-0", "type": "Socket"}
    resource_topology = read_topology(a_file(tmp_path, an_object(a_zone(1), socket, a_zone(0))), "")
    assert [zone.numa_node for zone in resource_topology.zones] == [0, 1]
    assert resource_topology.zones[1] == NUMAZone(
        numa_node=1, costs={0: 11, 1: 21}, resources={"cpu": TWELVE}
    )
    assert TWELVE.used == 2
    assert (resource_topology.name, resource_topology.policy, resource_topology.scope) == ("n1", "", "")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}]}, ("restricted", "")),
        (
            {
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": "none"},
                    {"name": "topologyManagerScope", "value": "pod"},
                ],
                "topologyPolicies": ["Restricted"],
            },
            ("none", "pod"),
        ),
        ({"topologyPolicies": ["SingleNUMANodePodLevel"]}, ("single-numa-node", "pod")),
        ({"topologyPolicies": ["SingleNUMANodeContainerLevel"]}, ("single-numa-node", "container")),
        ({"topologyPolicies": ["RestrictedPodLevel"]}, ("restricted", "pod")),
        ({"topologyPolicies": ["BestEffort"]}, ("best-effort", "container")),
        ({"topologyPolicies": ["None"]}, ("none", "container")),
        ({"topologyPolicies": ["Balloons"]}, ("", "")),
    ],
)
def test_policies_are_read_from_attributes_or_from_the_older_field(
    tmp_path: Path, told: dict[str, Any], expected: tuple[str, str]
) -> None:
    resource_topology = read_topology(
        a_file(tmp_path, an_object(a_zone(0), version="v1alpha1", **told)), "n1"
    )
    assert (resource_topology.policy, resource_topology.scope) == expected


def test_the_object_of_the_node_is_found_in_a_list(tmp_path: Path) -> None:
    listed = {"kind": "List", "apiVersion": "v1", "items": [an_object(a_zone(0), name=n) for n in ("a", "b")]}
    path = a_file(tmp_path, listed)
    assert read_topology(path, "b").name == "b"
    with pytest.raises(InputError, match="found 2"):
        read_topology(path, "")
    with pytest.raises(InputError, match="of the node c, found 0"):
        read_topology(path, "c")


def test_all_faults_of_one_object_are_reported_together(tmp_path: Path) -> None:
    bad = a_zone(
        0, name="zone", costs="far", resources=[{"name": "cpu", "capacity": "many", "allocatable": []}]
    )
    with pytest.raises(InputError) as raised:
        read_topology(a_file(tmp_path, an_object(bad)), "")
    assert [line.partition(":")[0] for line in faults(raised.value)] == [
        "zones[0].name",
        "zones[0].costs",
        "zones[0].resources[0].capacity",
        "zones[0].resources[0].allocatable",
        "zones[0].resources[0].available",
    ]
    with pytest.raises(InputError, match="names no NUMA node"):
        read_topology(a_file(tmp_path, an_object()), "")


def test_a_node_object_has_name_amounts_labels_taints_and_version(tmp_path: Path) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "4"},
            "allocatable": {"cpu": "3920m"},
            "nodeInfo": {"kubeletVersion": "v1.36.2+k3s1", "architecture": "arm64"},
        },
    }
    reported_node = read_node(a_file(tmp_path, document))
    assert (reported_node.name, reported_node.version, reported_node.architecture) == (
        "n1",
        "v1.36.2+k3s1",
        "arm64",
    )
    assert (reported_node.labels, reported_node.taints[0].key) == ({"a": "b"}, "k")
    assert (reported_node.capacity["cpu"], reported_node.allocatable["cpu"]) == (
        Quantity.parse("4"),
        Quantity.parse("3920m"),
    )


def test_other_documents_than_a_node_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected one Node \(v1\), found 0"):
        read_node(a_file(tmp_path, {"apiVersion": "v1", "kind": "Pod"}))
    bad = {"apiVersion": "v1", "kind": "Node", "metadata": [], "status": {"capacity": {"cpu": "much"}}}
    with pytest.raises(InputError) as raised:
        read_node(a_file(tmp_path, bad))
    assert [fault.path for fault in raised.value.faults] == ["metadata", "status.capacity[cpu]"]


@pytest.mark.parametrize(
    ("taints", "path"),
    [
        (1.5, "spec.taints"),
        ([{"key": {}}], "spec.taints[0].key"),
        ([5], "spec.taints[0]"),
        ("a", "spec.taints"),
    ],
)
def test_taints_of_a_wrong_type_are_rejected(tmp_path: Path, taints: object, path: str) -> None:
    bad = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": taints}}
    with pytest.raises(InputError) as raised:
        read_node(a_file(tmp_path, bad))
    assert [fault.path for fault in raised.value.faults] == [path]


def test_configz_holds_the_configuration(tmp_path: Path) -> None:
    typed = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "maxPods": 50}
    assert read_configz(a_file(tmp_path, {"kubeletconfig": typed})) == {"maxPods": 50}
    with pytest.raises(InputError, match="expected the response of a kubelet's configz"):
        read_configz(a_file(tmp_path, {"kind": "Node"}))
    with pytest.raises(InputError, match="expected an object"):
        read_configz(a_file(tmp_path, []))


@pytest.mark.parametrize(
    ("amounts", "wrong"),
    [
        (("1000000", "1000000", "1"), True),
        (("4", "4", "-1"), True),
        (("4", "4", "5"), True),
        (("4", "4", "4"), False),
    ],
)
def test_impossible_amounts_are_rejected(tmp_path: Path, amounts: tuple[str, ...], wrong: bool) -> None:
    resource = dict(zip(("capacity", "allocatable", "available"), amounts, strict=True))
    path = a_file(tmp_path, an_object(a_zone(0, resources=[{"name": "cpu", **resource}])))
    if wrong:
        with pytest.raises(InputError, match="impossible amounts"):
            read_topology(path, "")
    else:
        assert read_topology(path, "").zones[0].resources["cpu"].used == 0


def test_a_numa_node_has_one_zone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="names a NUMA node twice"):
        read_topology(a_file(tmp_path, an_object(a_zone(0), a_zone(0))), "")
