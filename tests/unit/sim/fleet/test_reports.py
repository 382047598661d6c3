"""What is said of a fleet: hopeless pods, numbers, tables, documents, pages."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodewright.fleet import run
from nodewright.model.fleet import FleetPod
from nodewright.render.documents import as_json
from nodewright.render.fleet.document import POD_COLUMNS, fleet_document, pod_columns
from nodewright.render.fleet.page import fleet_page
from nodewright.render.fleet.text import fleet_text, pods_text
from nodewright.render.fleet.words import hopeless_text
from nodewright.sim.fleet.axes import Axis, points
from nodewright.sim.fleet.hopeless import Hopeless, judged
from nodewright.sim.fleet.summary import FleetSummary, summary
from nodewright.sim.fleet.synthetic import Draw, node_rows, pod_rows
from nodewright.sim.fleet.values import Fate, FleetResult
from nodewright.world.fleet.load import Wish, load_fleet
from tools.source import ROOT

EXAMPLE = ROOT / "examples" / "fleet"


def example(nodes: str = "nodes.yaml", pods: str = "pods.yaml") -> tuple[FleetSummary, FleetResult]:
    fleet = load_fleet(Wish(nodes=(str(EXAMPLE / nodes),), pods=(str(EXAMPLE / pods),)))
    result = run(fleet.nodes, fleet.pods())
    return summary(result), result


@pytest.fixture(scope="module")
def manifests() -> tuple[FleetSummary, FleetResult]:
    return example()


@pytest.fixture(scope="module")
def timed() -> tuple[FleetSummary, FleetResult]:
    return example("nodes.csv", "pods.csv")


def test_numbers_agree_with_the_pods(manifests: tuple[FleetSummary, FleetResult]) -> None:
    found, result = manifests
    assert found.fates == {Fate.RUNNING: 29, Fate.WAITING: 4}
    assert sum(one.pods for one in found.shapes) == found.placed == 29
    assert found.use["cpu"].at_end == sum(one.requested["cpu"] for one in found.shapes)
    assert found.use["nvidia.com/gpu"].allocatable == 8
    assert all(one.by_numa <= one.by_node for one in found.fragments)
    assert found.time_to_place.pods == found.time_to_place.at_once == 29
    assert result.complete


def test_waits_and_use_over_time_are_those_of_the_run(timed: tuple[FleetSummary, FleetResult]) -> None:
    found, result = timed
    waits = sorted(one.placed_s - one.arrived_s for one in result.pods)
    assert found.time_to_place.most_s == waits[-1]
    assert found.time_to_place.median_s == waits[len(waits) // 2 - 1]
    use = found.use["cpu"]
    assert use.at_end == 0
    assert 0 < use.mean < use.most <= use.allocatable


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_say_where_pods_went_and_why(
    columns: int, manifests: tuple[FleetSummary, FleetResult]
) -> None:
    found, result = manifests
    text = fleet_text(found, columns=columns)
    assert text.startswith("9 nodes, 33 pods: 29 running, 4 waiting\n")
    assert "NodeResourcesFit (cpu)" in text
    pods = pods_text(result, columns=columns)
    (trained,) = (line.split() for line in pods.splitlines() if line.startswith("ml/train-0 "))
    assert trained[:3] == ["ml/train-0", "running", "gpu-0"]
    assert ("gpu-0 gpu-1" in pods) == (columns == 200)


def test_a_document_and_columns_hold_every_pod(manifests: tuple[FleetSummary, FleetResult]) -> None:
    document = json.loads(as_json(fleet_document(*manifests)))
    assert document["counts"] == {"nodes": 9, "pods": 33, "running": 29, "waiting": 4}
    by_name = {one["name"]: one for one in document["pods"]}
    assert by_name["train-0"] == {
        "namespace": "ml",
        "name": "train-0",
        "fate": "running",
        "node": "gpu-0",
        "arrivedSeconds": 0.0,
        "placedSeconds": 0.0,
        "tries": 1,
        "refusals": 0,
        "cpus": "1-6,33-38",
        "numa": "0",
        "devices": "gpu-0 gpu-1",
    }
    assert by_name["giant"]["why"].startswith("NodeResourcesFit (cpu): 7 nodes")
    columns = pod_columns(manifests[1])
    assert list(columns) == list(POD_COLUMNS)
    assert {len(values) for values in columns.values()} == {33}


def test_a_page_is_sound_and_fetches_nothing(
    manifests: tuple[FleetSummary, FleetResult], timed: tuple[FleetSummary, FleetResult]
) -> None:
    for found, result in (manifests, timed):
        page = fleet_page(found, result)
        body = page[page.index("<body>") : page.index("</html>")]
        ET.fromstring(body)  # noqa: S314 - our own page
        assert "<script" not in page
        assert "src=" not in page
    assert "<polyline" in fleet_page(*timed)


def test_who_can_never_be_held_is_told_when_he_comes() -> None:
    fleet = load_fleet(Wish(nodes=(str(EXAMPLE / "nodes.yaml"),), pods=(str(EXAMPLE / "pods.yaml"),)))
    small = [
        (node, {"cpu": 8000, "memory": 1 << 40, "pods": 9}) for node in fleet.nodes if "gpu" not in node.name
    ]
    told: list[Hopeless] = []
    pods: list[FleetPod] = list(judged(fleet.pods(), small, told.append))
    assert len(pods) == 33
    texts = [hopeless_text(one).replace(f"{EXAMPLE}/", "") for one in told]
    assert texts == [
        "data/search-0 (pods.yaml:17): no node can ever hold it: cpu: 10 asked for, 8 is the most that a node has",
        "ml/train-0 (pods.yaml:32): no node can ever hold it: cpu: 12 asked for, 8 is the most that a node has",
        "data/giant (pods.yaml:61): no node can ever hold it: cpu: 80 asked for, 8 is the most that a node has",
    ]
    nobody = [(node, has) for node, has in small if "compute" not in node.name]
    told.clear()
    list(judged(fleet.pods(), nobody, told.append))
    assert hopeless_text(told[0]).endswith("none suits it by its labels and taints")


def test_a_draw_is_the_same_each_time_and_its_tables_can_be_read(tmp_path: Path) -> None:
    draw = Draw(seed=7, nodes=20, pods=300)
    assert list(pod_rows(draw)) == list(pod_rows(draw)) != list(pod_rows(Draw(seed=8, nodes=20, pods=300)))
    arrivals = [float(row[6]) for row in pod_rows(draw)]
    assert arrivals == sorted(arrivals)
    assert len(list(node_rows(draw))) == 20


def test_points_of_a_sweep_are_all_combinations() -> None:
    axes = (Axis("a.b", (1, 2)), Axis("c", (True,)))
    found = points(axes)
    assert [one.name for one in found] == ["a.b=1, c=true", "a.b=2, c=true"]
    base = {"a": {"x": 0}, "d": 1}
    assert found[1].configuration(base) == {"a": {"x": 0, "b": 2}, "c": True, "d": 1}
    assert base == {"a": {"x": 0}, "d": 1}
    assert points(()) != ()
