"""Nodes of a fleet have the release that their Node objects report."""

from nodewright.fleet.load.assembled_nodes import NodeDefaults, NodeEntry, assembled_nodes
from nodewright.model.values.quantity import Quantity


def entry(name: str, release: str) -> NodeEntry:
    amounts = {"cpu": Quantity.of(4), "memory": Quantity.parse("16Gi"), "pods": Quantity.of(110)}
    return NodeEntry(name=name, capacity=amounts, allocatable=amounts, release=release)


def test_nodes_of_different_releases_are_of_different_shapes() -> None:
    nodes = assembled_nodes(
        [entry("a", "1.33"), entry("b", "1.36"), entry("c", "1.33")], NodeDefaults()
    ).nodes
    assert [node.profile.spec.kubernetes_version for node in nodes] == ["1.33", "1.36", "1.33"]
    assert nodes[0].shape == nodes[2].shape != nodes[1].shape
