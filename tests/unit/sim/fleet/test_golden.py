"""The same draw comes to the same events, to the byte: what is made faster must not decide otherwise."""

import csv
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nodewright.fleet import Options, run
from nodewright.sim.fleet.synthetic import NODE_HEADER, POD_HEADER, Draw, node_rows, pod_rows
from nodewright.sim.fleet.values import Happening
from nodewright.world.fleet.load import Wish, load_fleet
from nodewright.world.fleet.nodes import USUAL_CONFIGURATION, Furniture

DRAW = Draw(seed=7, nodes=12, pods=1000, load=1.1)
STRICT = {"topologyManagerPolicy": "single-numa-node", "memoryManagerPolicy": "Static"}
RUNS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "default", "1774d3f18d3c69b2"),
    (STRICT, "numa-aware", "9a93bd8a11e00797"),
    ({"topologyManagerScope": "pod", "topologyManagerPolicy": "restricted"}, "best-fit", "1915bc44a05c8f32"),
]


@pytest.mark.parametrize(("settings", "scores", "digest"), RUNS)
def test_events_of_a_draw_are_as_they_were(
    tmp_path: Path, settings: dict[str, Any], scores: str, digest: str
) -> None:
    paths = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    for path, header, rows in (
        (paths[0], NODE_HEADER, node_rows(DRAW)),
        (paths[1], POD_HEADER, pod_rows(DRAW)),
    ):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    furniture = Furniture(configuration={**USUAL_CONFIGURATION, **settings})
    fleet = load_fleet(Wish(nodes=(str(paths[0]),), pods=(str(paths[1]),), furniture=furniture))
    told = sha256()

    def hear(one: Happening) -> None:
        cpus = [str(held.cpus) for held in one.placement.containers]
        reasons = [type(reason).__name__ for reason in one.because]
        told.update(f"{one.at_s} {one.kind} {one.pod} {one.node} {cpus} {reasons}\n".encode())

    run(fleet.nodes, fleet.pods(), Options(scores=scores), sink=hear)
    assert told.hexdigest()[:16] == digest
