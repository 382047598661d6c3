"""What a fleet costs by the number of its pods: measured one run after the other, kept as figures, and drawn.

`python -m tools.fleet_cost` measures runs of up to 100,000 pods, `python -m tools.fleet_cost million` the one of
1,000,000 pods on 10,000 nodes; `draw` only draws again what was measured.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tools.source import ROOT

FOLDER = ROOT / "docs" / "figures"
SERIES, MILLION, PICTURE = (
    FOLDER / "fleet-cost.json",
    FOLDER / "fleet-million.json",
    FOLDER / "fleet-cost.svg",
)
RUNS = (
    *((1000, pods) for pods in (1000, 3000, 10_000, 30_000, 100_000)),
    *((10_000, pods) for pods in (10_000, 100_000)),
)
WHOLE = (10_000, 1_000_000)
TARGETS = {"cpuSeconds": 600, "rssMiB": 4096}
SEED = 1

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 70, 20, 40, 50
STYLES = ("#1f5fbf", "#b3541e", "#2a7d3f", "#7a3fa0")
_HEAD = (
    f'<svg role="img" aria-label="CPU seconds of a run by its number of pods" viewBox="0 0 {WIDTH} {HEIGHT}" '
    f'width="{WIDTH}" height="{HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
    f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
)

Point: TypeAlias = tuple[float, float]
"""Pods and CPU seconds, or where they are drawn."""


def main(what: str = "series") -> int:
    """Measure what is asked for and draw all that is known; 1 where the target of the million is missed."""
    missed = False
    if what == "series":
        _write(SERIES, {"runs": [_measured(*run) for run in RUNS]})
    elif what == "million":
        measured = _measured(*WHOLE)
        missed = any(measured[name] >= most for name, most in TARGETS.items())
        _write(MILLION, {**measured, "targets": TARGETS})
    PICTURE.write_text(picture(_known()), "utf-8")
    print(f"{PICTURE.relative_to(ROOT)} written")
    return int(missed)


def _measured(nodes: int, pods: int) -> dict[str, Any]:
    """One run of the command by itself, from its files to the report."""
    command = [sys.executable, "-m", "nodewright", "fleet"]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "nodes.csv", Path(folder) / "pods.csv"
        made = ["--nodes-file", str(files[0]), "--pods-file", str(files[1])]
        amounts = ["--seed", str(SEED), "--nodes", str(nodes), "--pods", str(pods)]
        subprocess.run([*command, "generate", *amounts, *made], check=True)
        load, began = os.getloadavg()[0], time.perf_counter()
        output = Path(folder) / "report.txt"
        with output.open("wb") as file:
            run = subprocess.Popen([*command, "--nodes", str(files[0]), "--pods", str(files[1])], stdout=file)
            _, status, used = os.wait4(run.pid, 0)
        wall_s = time.perf_counter() - began
        splitlines = output.read_text("utf-8").splitlines()[0]
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"the run of {pods} pods failed")
    document = {
        "nodes": nodes,
        "pods": pods,
        "cpuSeconds": round(used.ru_utime + used.ru_stime, 1),
        "wallSeconds": round(wall_s, 1),
        "rssMiB": round(_rss_bytes(used) / 2**20),
        "loadAverage": round(load, 1),
        "told": splitlines,
    }
    print(document, flush=True)
    return document


def _rss_bytes(used: resource.struct_rusage) -> int:
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _write(path: Path, found: dict[str, Any]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    where = {
        "seed": SEED,
        "commit": commit.stdout.strip(),
        "machine": _machine(),
        "python": platform.python_version(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    path.write_text(json.dumps({**found, **where}, indent=2) + "\n", "utf-8")


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs; one is used"


def _known() -> dict[str, list[Point]]:
    """By the number of nodes in words, pods and CPU seconds of each run that was measured."""
    runs = json.loads(SERIES.read_text("utf-8"))["runs"] if SERIES.exists() else []
    runs += [json.loads(MILLION.read_text("utf-8"))] if MILLION.exists() else []
    document: dict[int, list[Point]] = {}
    for run in runs:
        document.setdefault(run["nodes"], []).append((run["pods"], run["cpuSeconds"]))
    return {f"{nodes:,} nodes": sorted(points) for nodes, points in sorted(document.items())}


def picture(series: Mapping[str, Sequence[Point]], axis: str = "pods") -> str:
    """CPU seconds over pods, both on logarithmic scales; the dashed line has the slope of linear growth."""
    points = [point for line in series.values() for point in line]
    frame = Frame.around(points)
    parts = [_HEAD, *frame.grid(axis), *frame.linear(max(points))]
    for row, ((name, line), color) in enumerate(zip(series.items(), STYLES, strict=False)):
        parts += _line([frame.at(point) for point in line], color)
        y = TOP + 20 * (row + 1)
        parts.append(f'<path d="M{LEFT + 12} {y - 4}h24" stroke="{color}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 44}" y="{y}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class Frame(NamedTuple):
    """The part of the plane that is drawn, in powers of ten."""

    pods_least: int
    pods_most: int
    cost_least: int
    cost_most: int

    @classmethod
    def around(cls, points: Sequence[Point]) -> "Frame":
        """The smallest one with all the points."""
        pods, costs = ([log10(point[at]) for point in points] for at in (0, 1))
        return cls(floor(min(pods)), ceil(max(pods)), floor(min(costs)), ceil(max(costs)))

    def at(self, point: Point) -> Point:
        """Where the point is drawn."""
        across = (log10(point[0]) - self.pods_least) / (self.pods_most - self.pods_least)
        up = (log10(point[1]) - self.cost_least) / (self.cost_most - self.cost_least)
        x, y = LEFT + (WIDTH - LEFT - RIGHT) * across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up
        return round(x, 1), round(y, 1)

    def grid(self, axis: str) -> Iterator[str]:
        """A line for each power of ten, with what it stands for."""
        for power in range(self.pods_least, self.pods_most + 1):
            x, _ = self.at((10.0**power, 10.0**self.cost_least))
            yield f'<path d="M{x} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
            yield f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>'
        for power in range(self.cost_least, self.cost_most + 1):
            _, y = self.at((10.0**self.pods_least, 10.0**power))
            yield f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g} s</text>'
        middle = (LEFT + WIDTH - RIGHT) / 2
        yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{axis}</text>'

    def linear(self, last: Point) -> Iterator[str]:
        """As much a pod as the longest run takes, for as few pods as the frame has."""
        least = max(10.0**self.pods_least, last[0] * 10.0**self.cost_least / last[1])
        (x, y), (right, top) = self.at((least, last[1] * least / last[0])), self.at(last)
        yield f'<path d="M{x} {y}L{right} {top}" stroke="#888" stroke-dasharray="4 4"/>'
        yield f'<text x="{x + 14}" y="{y}" fill="#666">linear</text>'


def _line(points: Sequence[Point], color: str) -> Iterator[str]:
    path = "L".join(f"{x} {y}" for x, y in points)
    yield f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    yield from (f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}"/>' for x, y in points)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
