"""A furnished node has just the allocatable amounts that its object tells, whatever its kubelet's policies."""

from typing import Any

import pytest

from nodewright.ask import Node
from nodewright.values.quantity import Quantity
from nodewright.world.errors import InputError
from nodewright.world.fleet.nodes import USUAL_CONFIGURATION, Furniture, ReadNode, furnished
from nodewright.world.fleet.shapes import parse_rules

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


def read(name: str, capacity: dict[str, str], allocatable: dict[str, str], **more: Any) -> ReadNode:
    return ReadNode(
        name=name,
        capacity={key: Quantity.parse(text) for key, text in capacity.items()},
        allocatable={key: Quantity.parse(text) for key, text in allocatable.items()},
        **more,
    )


@pytest.mark.parametrize("configuration", [{}, USUAL_CONFIGURATION, ALL_STATIC])
@pytest.mark.parametrize(
    ("capacity", "allocatable"), [(TRACE, TRACE), (CLUSTER, KEEPING), (CLUSTER, CLUSTER)]
)
def test_allocatable_is_what_the_object_says(
    configuration: dict[str, str], capacity: dict[str, str], allocatable: dict[str, str]
) -> None:
    one = read("n1", capacity, allocatable)
    if allocatable is CLUSTER:  # huge pages are no memory for pods
        one = read("n1", capacity, {**allocatable, "memory": "31Gi"})
    (node,) = furnished([one], Furniture(configuration=configuration)).nodes
    asked = Node.of(node.profile)
    assert {name: asked.allocatable[name] for name in one.allocatable} == one.allocatable


def test_nodes_that_are_alike_but_for_name_and_labels_share_a_profile() -> None:
    nodes = [
        read("n1", CLUSTER, KEEPING, labels={"zone": "a"}, place="nodes.yaml:1"),
        read("n2", CLUSTER, KEEPING, labels={"zone": "b"}),
        read("n3", CLUSTER, CLUSTER),
    ]
    found = furnished(nodes, Furniture(rules=parse_rules(["1x2x2x2"])))
    first, second, third = found.nodes
    assert first.profile is second.profile
    assert first.profile is not third.profile
    assert first.labels == {
        "kubernetes.io/hostname": "n1",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "zone": "a",
    }
    assert (found.named, found.assumed, found.with_system_core) == ({"1x2x2x2": 3}, {}, 1)
    assert (first.shape, first.place) == ("1x2x2x2 30Gi", "nodes.yaml:1")


def test_gpus_are_devices_on_numa_nodes_and_shares_of_them_are_only_counted() -> None:
    (node,) = furnished([read("n1", TRACE, TRACE)], Furniture()).nodes
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
def test_nodes_that_cannot_be_are_told_by_name(wrong: dict[str, str], rule: str) -> None:
    capacity = {**CLUSTER, "example.com/x": "2"}
    with pytest.raises(InputError) as found:
        furnished([read("n1", capacity, {**capacity, **wrong}, place="nodes.yaml:1")], Furniture())
    assert str(found.value).removeprefix("error: ") == f"nodes.yaml:1, Node n1: {rule}"


def test_a_machine_of_more_cpus_than_linux_knows_is_told() -> None:
    many = {**CLUSTER, "cpu": "100k"}
    with pytest.raises(InputError, match="no machine has more than 8,192 CPUs"):
        furnished([read("n1", many, many)], Furniture())


def test_a_node_of_a_part_of_a_cpu_has_whole_ones_and_gives_out_that_part() -> None:
    part = {"cpu": "1500m", "memory": "1Gi", "pods": "10"}
    (node,) = furnished([read("n1", part, part)], Furniture()).nodes
    assert node.profile.spec.machine_info.num_cores == 2
    assert Node.of(node.profile, source="n1").state.config.view.allocatable["cpu"] == 1500


def test_a_shape_that_does_not_fit_is_told_with_the_node_and_its_place() -> None:
    wrong = read("n1", CLUSTER, CLUSTER, labels={"type": "vm-4"}, place="nodes.yaml:7")
    with pytest.raises(
        InputError, match=r"nodes.yaml:7, Node n1: status.capacity\[cpu\]: .* vm-4 has 4 CPUs"
    ):
        furnished([wrong], Furniture(rules=parse_rules(["label:type"])))
