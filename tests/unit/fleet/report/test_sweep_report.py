"""The page that compares the runs of a sweep."""

import re
from xml.etree import ElementTree as ET

import pytest

from nodewright.fleet import run
from nodewright.fleet.fleet_summary import FleetSummary, fleet_summary
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.report.sweep_report import Metric, metric_bars, sweep_metrics, sweep_page
from nodewright.fleet.sweep_runs import SweepPoint
from tools.source import ROOT

EXAMPLE = ROOT / "examples" / "fleet"


@pytest.fixture(scope="module")
def summary() -> FleetSummary:
    fleet = load_fleet(FleetFiles(nodes=(str(EXAMPLE / "nodes.csv"),), pods=(str(EXAMPLE / "pods.csv"),)))
    return fleet_summary(run(fleet.nodes, fleet.pods()))


def test_a_page_is_well_formed_and_has_a_row_and_a_bar_for_each_run(summary: FleetSummary) -> None:
    swept = [(SweepPoint({"policy": f"<{name}>"}), summary) for name in "ab"]
    page = sweep_page(swept, run_count=2, notes=["assumed: 1 < 2"])
    ET.fromstring(page[page.index("<body>") : page.index("</html>")])  # noqa: S314 - our own page
    assert "<td>policy=&lt;a&gt;</td>" in page
    metrics = [metric for metric in sweep_metrics([summary]) if metric.value(summary)]
    assert page.count('class="bar"') == 2 * len(metrics)
    assert page.count("<polyline") == 4
    assert "Interrupted" not in page


def test_an_interrupted_sweep_says_how_many_runs_are_complete(summary: FleetSummary) -> None:
    page = sweep_page([(SweepPoint({"a": 1}), summary)], run_count=3)
    assert "Interrupted: complete runs: 1 of 3." in page
    assert "Interrupted: complete runs: 0 of 3." in sweep_page([], run_count=3)


def test_lines_of_more_runs_than_line_styles_are_not_drawn(summary: FleetSummary) -> None:
    swept = [(SweepPoint({"a": at}), summary) for at in range(5)]
    assert "<polyline" not in sweep_page(swept, run_count=5)


@pytest.mark.parametrize(("whole", "widths"), [(0, [850.0, 425.0]), (1, [425.0, 212.5])])
def test_bars_of_a_metric_are_on_one_scale_up_to_its_whole(whole: float, widths: list[float]) -> None:
    metric = Metric("m", lambda _: 0.0, str, whole)
    drawn = metric_bars(metric, [("a", 0.5), ("b", 0.25)])
    assert [float(width) for width in re.findall(r'class="bar"[^>]* width="([\d.]+)"', drawn)] == widths
