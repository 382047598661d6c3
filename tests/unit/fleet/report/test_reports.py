"""What is said of a fleet: hopeless pods, numbers, tables, documents, pages."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from nodewright.documents.output.html_page import PageOrigin
from nodewright.documents.output.json_yaml import as_json
from nodewright.fleet import run
from nodewright.fleet.capacity import UnschedulablePod, report_unschedulable, unschedulable_text
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.report.fleet_page import SplitBar, bars_svg, fleet_page
from nodewright.fleet.report.fleet_report import POD_COLUMNS, FleetAssumptions, fleet_report, pod_columns
from nodewright.fleet.report.fleet_text import fleet_text, pods_text
from nodewright.fleet.simulation.outcomes import FleetResult, PodOutcome
from nodewright.fleet.sweep_runs import SweepAxis, sweep_points
from nodewright.fleet.synthetic import SyntheticFleet, node_rows, pod_rows
from nodewright.fleet.workload import FleetPod
from tools.source import ROOT

EXAMPLE = ROOT / "examples" / "fleet"


def example(nodes: str = "nodes.yaml", pods: str = "pods.yaml") -> tuple[FleetSummary, FleetResult]:
    fleet = load_fleet(FleetFiles(nodes=(str(EXAMPLE / nodes),), pods=(str(EXAMPLE / pods),)))
    result = run(fleet.nodes, fleet.pods())
    return fleet_summary(result), result


@pytest.fixture(scope="module")
def manifests() -> tuple[FleetSummary, FleetResult]:
    return example()


@pytest.fixture(scope="module")
def timed() -> tuple[FleetSummary, FleetResult]:
    return example("nodes.csv", "pods.csv")


def test_numbers_agree_with_the_pods(manifests: tuple[FleetSummary, FleetResult]) -> None:
    found, result = manifests
    assert found.outcomes == {PodOutcome.RUNNING: 29, PodOutcome.WAITING: 4}
    assert sum(shape.pods for shape in found.shapes) == found.placed == 29
    assert found.resource_use["cpu"].at_end == sum(shape.requested["cpu"] for shape in found.shapes)
    assert found.resource_use["nvidia.com/gpu"].allocatable == 8
    assert all(fragment.by_numa <= fragment.by_node for fragment in found.fragments)
    assert found.time_to_place.pods == found.time_to_place.immediately == 29
    assert result.complete


def test_waits_and_use_over_time_are_those_of_the_run(timed: tuple[FleetSummary, FleetResult]) -> None:
    found, result = timed
    waits = sorted(pod.placed_s - pod.arrived_s for pod in result.pods)
    assert found.time_to_place.longest_s == waits[-1]
    assert found.time_to_place.median_s == waits[len(waits) // 2 - 1]
    use = found.resource_use["cpu"]
    assert use.at_end == 0
    assert 0 < use.mean < use.most <= use.allocatable


ASSUMED = FleetAssumptions(
    shapes={}, shapes_by_rule={}, nodes_with_system_core=0, nodes_with_system_memory=0, policies={}
)


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_show_placements_and_reasons(
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
    document = json.loads(as_json(fleet_report(*manifests, ASSUMED)))
    assert document["counts"] == {"nodes": 9, "pods": 33, "running": 29, "waiting": 4}
    by_name = {pod["name"]: pod for pod in document["pods"]}
    assert by_name["train-0"] == {
        "namespace": "ml",
        "name": "train-0",
        "outcome": "running",
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


def test_a_page_is_well_formed_and_has_no_external_resources(
    manifests: tuple[FleetSummary, FleetResult], timed: tuple[FleetSummary, FleetResult]
) -> None:
    for found, result in (manifests, timed):
        page = fleet_page(found, result)
        body = page[page.index("<body>") : page.index("</html>")]
        ET.fromstring(body)  # noqa: S314 - our own page
        assert "<script" not in page
        assert "src=" not in page
    assert "<polyline" in fleet_page(*timed)


def test_a_page_names_the_pods_that_wait_with_their_reasons(
    manifests: tuple[FleetSummary, FleetResult],
) -> None:
    page = fleet_page(*manifests, origin=PageOrigin("nodewright fleet <x>", "1.2.3", "2026-11-23"))
    assert "<h2>Pods without a node: 4</h2>" in page
    assert (
        "<td>data/giant</td><td>waiting</td><td>cpu 80, memory 64Gi</td><td>NodeResourcesFit (cpu): 7 nodes"
        in page
    )
    facts = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page)
    assert facts == [
        ("Command", "nodewright fleet &lt;x&gt;"),
        ("Version", "1.2.3"),
        ("Seed", "none: the simulation draws no random numbers"),
        ("Date", "2026-11-23"),
    ]


def test_bars_of_fragments_are_on_the_scale_of_all_free_cpus() -> None:
    drawn = bars_svg("label", [SplitBar("8 CPUs", 10, 30, "1 + 3 pods")], whole=80)
    widths = re.findall(r'class="(\w+)"[^>]* width="([\d.]+)"', drawn)
    assert widths == [("rest", "680"), ("bar", "85.0"), ("lost", "255.0")]


def test_unschedulable_pods_are_reported_on_arrival() -> None:
    fleet = load_fleet(FleetFiles(nodes=(str(EXAMPLE / "nodes.yaml"),), pods=(str(EXAMPLE / "pods.yaml"),)))
    small = [
        (node, {"cpu": 8000, "memory": 1 << 40, "pods": 9}) for node in fleet.nodes if "gpu" not in node.name
    ]
    unschedulable_pods: list[UnschedulablePod] = []
    pods: list[FleetPod] = list(report_unschedulable(fleet.pods(), small, unschedulable_pods.append))
    assert len(pods) == 33
    texts = [
        unschedulable_text(unschedulable_pod).replace(f"{EXAMPLE}/", "")
        for unschedulable_pod in unschedulable_pods
    ]
    assert texts == [
        "data/search-0 (pods.yaml:17): no node can ever hold it: cpu: 10 requested, at most 8 allocatable on a node",
        "ml/train-0 (pods.yaml:32): no node can ever hold it: cpu: 12 requested, at most 8 allocatable on a node",
        "data/giant (pods.yaml:61): no node can ever hold it: cpu: 80 requested, at most 8 allocatable on a node",
    ]
    nobody = [(node, has) for node, has in small if "compute" not in node.name]
    unschedulable_pods.clear()
    list(report_unschedulable(fleet.pods(), nobody, unschedulable_pods.append))
    assert unschedulable_text(unschedulable_pods[0]).endswith("no node matches by labels and taints")


def test_a_synthetic_fleet_is_deterministic_and_readable(tmp_path: Path) -> None:
    draw = SyntheticFleet(seed=7, nodes=20, pods=300)
    assert (
        list(pod_rows(draw))
        == list(pod_rows(draw))
        != list(pod_rows(SyntheticFleet(seed=8, nodes=20, pods=300)))
    )
    arrivals = [float(row[6]) for row in pod_rows(draw)]
    assert arrivals == sorted(arrivals)
    assert len(list(node_rows(draw))) == 20


def test_points_of_a_sweep_are_all_combinations() -> None:
    axes = (SweepAxis("a.b", (1, 2)), SweepAxis("c", (True,)))
    result = sweep_points(axes)
    assert [sweep_point.name for sweep_point in result] == ["a.b=1, c=true", "a.b=2, c=true"]
    base = {"a": {"x": 0}, "d": 1}
    assert result[1].configuration(base) == {"a": {"x": 0, "b": 2}, "c": True, "d": 1}
    assert base == {"a": {"x": 0}, "d": 1}
    assert sweep_points(()) != ()
