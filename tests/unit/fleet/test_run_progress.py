"""What a run of a fleet shows while it goes on."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.simulation.fleet_simulation import Progress
from nodewright.fleet.sweep_runs import RunProgress

NODES, PODS = "examples/fleet/nodes.csv", "examples/fleet/pods.csv"


def test_each_run_of_a_sweep_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    rows = "".join(f"pod-{number},1m,1Mi,{number},60\n" for number in range(300))
    pods.write_text(f"name,cpu,memory,arrives,runs\n{rows}")
    lines: list[str] = []

    def noted(self: RunProgress, progress: Progress) -> bool:
        lines.append(self.line(progress, elapsed_s=10.0))
        return True

    monkeypatch.setattr(RunProgress, "show_progress", noted)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run(["fleet", "--nodes", NODES, "--pods", str(pods), "--sweep", "scores=default,best-fit"])
    assert {line[: line.index(", ")] for line in lines} == {
        "run 1 of 2 (scores=default)",
        "run 2 of 2 (scores=best-fit)",
    }
    assert all("% of the pods arrived" in line for line in lines)


@pytest.mark.parametrize(
    ("number", "arrived", "left"),
    [(1, 100, "about 30s left"), (2, 100, "about 3s left"), (1, 0, ""), (2, 200, "")],
)
def test_the_time_left_is_that_of_all_runs(number: int, arrived: int, left: str) -> None:
    progress = RunProgress(is_shown=False, expected=200)
    progress.start_run("", number, 2)
    line = progress.line(Progress(at_s=60.0, arrived=arrived, running=3, waiting=2), elapsed_s=10.0)
    counts = f"1m of virtual time: {arrived} arrived, 3 running, 2 waiting"
    share = f"{arrived // 2}% of the pods arrived"
    assert line == ", ".join(filter(None, (f"run {number} of 2", share, left, counts)))


def test_the_number_of_pods_is_known_before_they_arrive() -> None:
    fleet = load_fleet(FleetFiles(nodes=(NODES,), pods=(PODS, "examples/fleet/pods.yaml")))
    assert fleet.pod_count == sum(1 for _ in fleet.pods())
