"""A furnished node has just the allocatable amounts that its object tells, whatever its kubelet's policies."""

from typing import Any

import pytest

from nodewright.documents.profiles.machine_shapes import parse_shape_rules
from nodewright.fleet.load.assembled_nodes import (
    DEFAULT_CONFIGURATION,
    NodeDefaults,
    NodeEntry,
    assembled_nodes,
    node_images,
)
from nodewright.model.errors import InputError
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node

ALL_STATIC = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
}
TRACE = {
    "cpu": "96",
    "memory": "384Gi",
    "pods": "1001",
    "example.com/gpu-count": "8",
    "example.com/gpu-milli": "8k",
}
CLUSTER = {"cpu": "8", "memory": "32Gi", "hugepages-2Mi": "1Gi", "ephemeral-storage": "100Gi", "pods": "110"}
KEEPING = {**CLUSTER, "cpu": "7500m", "memory": "30Gi", "ephemeral-storage": "90Gi"}


def read(name: str, capacity: dict[str, str], allocatable: dict[str, str], **more: Any) -> NodeEntry:
    return NodeEntry(
        name=name,
        capacity={key: Quantity.parse(text) for key, text in capacity.items()},
        allocatable={key: Quantity.parse(text) for key, text in allocatable.items()},
        **more,
    )


@pytest.mark.parametrize("configuration", [{}, DEFAULT_CONFIGURATION, ALL_STATIC])
@pytest.mark.parametrize(
    ("capacity", "allocatable"), [(TRACE, TRACE), (CLUSTER, KEEPING), (CLUSTER, CLUSTER)]
)
def test_allocatable_is_that_of_the_node_object(
    configuration: dict[str, str], capacity: dict[str, str], allocatable: dict[str, str]
) -> None:
    # Also if huge pages were taken from its memory after the kubelet had started, as in the third case.
    entry = read("n1", capacity, allocatable)
    (assembled,) = assembled_nodes([entry], NodeDefaults(configuration=configuration)).nodes
    node = Node.from_profile(assembled.profile)
    assert {name: node.allocatable[name] for name in entry.allocatable} == entry.allocatable


def test_nodes_that_differ_only_in_name_and_labels_share_a_profile() -> None:
    nodes = [
        read("n1", CLUSTER, KEEPING, labels={"zone": "a"}, source="nodes.yaml:1"),
        read("n2", CLUSTER, KEEPING, labels={"zone": "b"}),
        read("n3", CLUSTER, CLUSTER),
    ]
    result = assembled_nodes(nodes, NodeDefaults(rules=parse_shape_rules(["1x2x2x2"])))
    first, second, third = result.nodes
    assert first.profile is second.profile
    assert first.profile is not third.profile
    assert first.labels == {"zone": "a"}
    assert (result.configured_shapes, result.assumed_shapes, result.with_system_core) == (
        {"1x2x2x2": 3},
        {},
        1,
    )
    assert (first.shape, first.source) == ("1x2x2x2 30Gi", "nodes.yaml:1")


def test_gpus_are_devices_on_numa_nodes_and_shares_of_them_are_only_counted() -> None:
    (node,) = assembled_nodes([read("n1", TRACE, TRACE)], NodeDefaults()).nodes
    spec = node.profile.spec
    homes = [device.numa_nodes for device in spec.devices["example.com/gpu-count"]]
    assert homes == [(0,)] * 4 + [(1,)] * 4
    assert set(spec.extended_resources) == {"example.com/gpu-milli"}
    assert node.shape == "2x1x24x2 384Gi, 8 example.com/gpu-count"


IMPOSSIBLE = [
    ({"cpu": "0"}, 'status.allocatable[cpu]: Invalid value: "0": a node without any cannot hold pods'),
    ({"memory": "0"}, 'status.allocatable[memory]: Invalid value: "0": a node without any cannot hold pods'),
    ({"cpu": "9"}, 'status.allocatable[cpu]: Invalid value: "9": is more than the capacity, 8'),
    (
        {"example.com/x": "1500m"},
        'status.allocatable[example.com/x]: Invalid value: "1500m": must be an integer',
    ),
]


@pytest.mark.parametrize(("wrong", "rule"), IMPOSSIBLE)
def test_impossible_nodes_are_reported_by_name(wrong: dict[str, str], rule: str) -> None:
    capacity = {**CLUSTER, "example.com/x": "2"}
    with pytest.raises(InputError) as exception_info:
        assembled_nodes([read("n1", capacity, {**capacity, **wrong}, source="nodes.yaml:1")], NodeDefaults())
    assert str(exception_info.value).removeprefix("error: ") == f"nodes.yaml:1, Node n1: {rule}"


def test_a_machine_with_more_cpus_than_linux_supports_is_an_error() -> None:
    many = {**CLUSTER, "cpu": "100k"}
    with pytest.raises(InputError, match="no machine has more than 8,192 CPUs"):
        assembled_nodes([read("n1", many, many)], NodeDefaults())


def test_a_node_with_a_fraction_of_a_cpu_has_whole_cpus_and_that_allocatable_fraction() -> None:
    part = {"cpu": "1500m", "memory": "1Gi", "pods": "10"}
    (node,) = assembled_nodes([read("n1", part, part)], NodeDefaults()).nodes
    assert node.profile.spec.machine_info.num_cores == 2
    assert Node.from_profile(node.profile, source="n1").state.config.view.allocatable["cpu"] == 1500


def test_a_shape_that_does_not_fit_is_reported_with_the_node_and_its_location() -> None:
    wrong = read("n1", CLUSTER, CLUSTER, labels={"type": "vm-4"}, source="nodes.yaml:7")
    with pytest.raises(
        InputError, match=r"nodes.yaml:7, Node n1: status.capacity\[cpu\]: .* vm-4 has 4 CPUs"
    ):
        assembled_nodes([wrong], NodeDefaults(rules=parse_shape_rules(["label:type"])))


@pytest.mark.parametrize("size", [-1, 2**63, 10**400, "1", None])
def test_an_image_of_an_impossible_size_does_not_count(size: object) -> None:
    images = [{"names": ["a"], "sizeBytes": size}, {"names": ["b"], "sizeBytes": 2**63 - 1}]
    assert node_images({"images": images}) == {"b": 2**63 - 1}
