"""The same draw comes to the same events, to the byte: what is made faster must not decide otherwise."""

import csv
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nodewright.fleet import Options, run
from nodewright.fleet.load.assembled_nodes import DEFAULT_CONFIGURATION, NodeDefaults
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.simulation.outcomes import FleetEvent
from nodewright.fleet.synthetic import NODE_HEADER, POD_HEADER, SyntheticFleet, node_rows, pod_rows

DRAW = SyntheticFleet(seed=7, nodes=12, pods=1000, cpu_load=1.1)
STRICT = {"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static"}
RUNS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "default", "1774d3f18d3c69b2"),
    (STRICT, "numa-aware", "9a93bd8a11e00797"),
    ({"topologyManagerScope": "pod", "topologyManagerPolicy": "restricted"}, "best-fit", "1915bc44a05c8f32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("settings", "scores", "digest"), RUNS)
def test_events_of_a_synthetic_fleet_are_unchanged(
    tmp_path: Path, settings: dict[str, Any], scores: str, digest: str
) -> None:
    paths = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    for path, header, rows in (
        (paths[0], NODE_HEADER, node_rows(DRAW)),
        (paths[1], POD_HEADER, pod_rows(DRAW)),
    ):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    furniture = NodeDefaults(configuration={**DEFAULT_CONFIGURATION, **settings})
    fleet = load_fleet(FleetFiles(nodes=(str(paths[0]),), pods=(str(paths[1]),), node_defaults=furniture))
    result = sha256()

    def hear(one: FleetEvent) -> None:
        cpus = [str(held.cpus) for held in one.placement.containers]
        reasons = [type(reason).__name__ for reason in one.because]
        result.update(f"{one.at_s} {one.kind} {one.pod} {one.node} {cpus} {reasons}\n".encode())

    run(fleet.nodes, fleet.pods(), Options(scores=scores), sink=hear)
    assert result.hexdigest()[:16] == digest
