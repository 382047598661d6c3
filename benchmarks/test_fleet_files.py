"""How long it takes to read fleets from files, and whole runs of traces that are not part of this project.

`NODEWRIGHT_TRACES=FOLDER` names a folder with the tables of Alibaba's cluster-trace-gpu-v2023 and the manifests of
GCDA-UDL/k8s-sims, compressed: `openb_{node_list_all_node,pod_list_default}.csv.gz`, `k8s-sims-{nodes,pods}-1200.yaml.gz`.
"""

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.synthetic import NODE_HEADER, POD_HEADER, SyntheticFleet, node_rows, pod_rows

ROWS = 100_000
TRACES = Path(os.environ.get("NODEWRIGHT_TRACES", "nowhere"))
OPENB = ("openb_node_list_all_node.csv.gz", "openb_pod_list_default.csv.gz")
SIMS = (
    "k8s-sims-nodes-1200.yaml.gz",
    "k8s-sims-pods-1200.yaml.gz",
    "--gpu-annotation",
    "alibabacloud.com/gpu-count",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A table of 1,000 nodes and one of 100,000 pods."""
    folder = tmp_path_factory.mktemp("fleet")
    draw = SyntheticFleet(seed=1, nodes=1000, pods=ROWS)
    paths = folder / "nodes.csv", folder / "pods.csv"
    for path, header, rows in (
        (paths[0], NODE_HEADER, node_rows(draw)),
        (paths[1], POD_HEADER, pod_rows(draw)),
    ):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    return str(paths[0]), str(paths[1])


def read(nodes: str, pods: str) -> int:
    fleet = load_fleet(FleetFiles(nodes=(nodes,), pods=(pods,)))
    return len(fleet.nodes) and sum(1 for _ in fleet.pods())


def test_a_table_of_100000_pods(benchmark: Any, tables: tuple[str, str]) -> None:
    assert benchmark.pedantic(read, args=tables, rounds=3) == ROWS


def test_manifests_of_5000_pods_that_differ_in_name(
    benchmark: Any, tmp_path: Path, tables: tuple[str, str]
) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: worker-{}\nspec:\n  containers:\n  - {{name: main, image: main}}\n"
    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join(pod.format(number) for number in range(5000)), "utf-8")
    assert benchmark.pedantic(read, args=(tables[0], str(path)), rounds=3) == 5000


@pytest.mark.parametrize("files", [OPENB, SIMS], ids=["openb", "k8s-sims"])
def test_traces_from_files_to_the_report(benchmark: Any, files: Sequence[str]) -> None:
    if not (TRACES / files[0]).exists():
        pytest.skip(f"NODEWRIGHT_TRACES names no folder with {files[0]}")
    arguments = ["fleet", "--nodes", str(TRACES / files[0]), "--pods", str(TRACES / files[1]), *files[2:]]
    assert benchmark.pedantic(run, args=(arguments,), rounds=2) in (0, 3)
