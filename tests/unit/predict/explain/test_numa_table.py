"""What is free on each NUMA node, as a table."""

from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.explain.reason_tree import NUMATable, numa_tables
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod

ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "restricted"}
GPUS = {"example.com/gpu": "g0@0 g1@1 any"}


def tables(profile: NodeProfile, *pods: Pod) -> tuple[NUMATable, ...]:
    """The tables of the last pod, after the others."""
    node = Node.from_profile(profile)
    for pod in pods[:-1]:
        node = node.admit(pod).node
    return numa_tables(node.explain(pods[-1]))


def cells(table: NUMATable) -> dict[str, list[str]]:
    return {
        row.name: [
            f"{'yes' if cell.is_enough else 'no'}: {cell.text} {cell.holders}".strip() if cell else "-"
            for cell in row.cells
        ]
        for row in table.rows
    }


def test_a_place_is_a_row_and_a_resource_is_a_column() -> None:
    first, second = (a_guaranteed_pod(name, "cpu=2 memory=1Gi example.com/gpu=1") for name in ("a", "b"))
    (table,) = tables(a_profile(devices=GPUS, **ALIGNED), first, second)
    assert table.container == "main"
    columns = {column.resource: (column.requested, column.hint) for column in table.columns}
    assert columns["cpu"] == ("2", "prefers {1}")
    assert columns["memory"] == ("1Gi", "prefers {0} or {1}")
    order = [column.resource for column in table.columns]
    by_row = {name: dict(zip(order, row, strict=True)) for name, row in cells(table).items()}
    assert by_row["NUMA 0"]["cpu"] == "no: 1 of 4 free default/a"
    assert by_row["NUMA 1"]["cpu"] == "yes: 4 of 4 free"
    assert by_row["NUMA 0"]["example.com/gpu"] == "no: 0 of 1 free default/a"
    assert by_row["no NUMA node"] == {"cpu": "-", "memory": "-", "example.com/gpu": "yes: 1 of 1 free"}


def test_numa_nodes_with_equal_cells_share_a_row() -> None:
    profile = a_profile(devices={"example.com/gpu": "g0@0 g1@1"}, topologyManagerPolicy="restricted")
    (table,) = tables(profile, a_guaranteed_pod("a", "cpu=1 memory=1Gi example.com/gpu=1"))
    assert cells(table) == {"NUMA 0-1": ["yes: 1 of 1 free"]}


def test_more_than_two_holders_are_counted() -> None:
    pods = [a_guaranteed_pod(name, "1/1Mi") for name in "abcd"]
    (table,) = tables(a_profile(**{**STATIC_CPUS, "topologyManagerPolicy": "restricted"}), *pods)
    assert cells(table)["NUMA 0"] == ["no: 0 of 4 free default/a, default/b and 1 more"]


def test_without_a_topology_manager_there_is_no_table() -> None:
    assert tables(a_profile(**STATIC_CPUS), a_guaranteed_pod("a", "5/1Gi")) == ()
