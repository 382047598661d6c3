"""Equal NUMA nodes are shown together, so that machines with many of them fit a screen."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.cpu import CPUHolder, CPUsOfNUMA
from nodewright.model.values.idset import CPUSet
from nodewright.predict.explain.reason_tree import NUMATable, numa_tables, sites_of
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod

KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0-1"
systemReserved: {memory: 1Gi}
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1124Mi}}]
"""
DPDK = """apiVersion: v1
kind: Pod
metadata: {name: dpdk}
spec:
  containers:
  - name: forwarder
    image: example.com/forwarder
    resources:
      requests: {cpu: "40", memory: 64Gi}
      limits: {cpu: "40", memory: 64Gi}
"""


def numa(number: int, free: str, *holders: CPUHolder) -> CPUsOfNUMA:
    return CPUsOfNUMA(numa=number, free=CPUSet.parse(free), reserved=CPUSet(), holders=holders)


def test_three_equal_numa_nodes_are_one_line() -> None:
    holder = CPUHolder(pod="a/b", container="c", cpus=CPUSet.parse("1"))
    sites = (numa(0, "0", holder), numa(1, "2-3"), numa(2, "4-5"), numa(3, "6-7"))
    assert sites_of("cpu", sites) == (
        "NUMA node 0: CPU 0 free; a/b (c) has 1",
        "NUMA nodes 1-3: 2 CPUs free each",
    )


def test_two_equal_numa_nodes_keep_their_lines() -> None:
    assert sites_of("cpu", (numa(0, "0-1"), numa(1, "2-3"))) == (
        "NUMA node 0: CPUs 0-1 free",
        "NUMA node 1: CPUs 2-3 free",
    )


def test_a_pod_on_eight_numa_nodes_is_explained_on_one_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod, kubelet = tmp_path / "dpdk.yaml", tmp_path / "kubelet.yaml"
    pod.write_text(DPDK)
    kubelet.write_text(KUBELET)
    arguments = [str(pod), "--node", "epyc-7742-2s-nps4", "--kubelet-config", str(kubelet), "-o", "wide"]
    assert run(["explain", *arguments]) == NO
    output = capsys.readouterr().out
    assert "NUMA nodes 1-7: 32 CPUs free each" in output
    assert len(output.splitlines()) <= 40


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
