"""What a fleet costs by the number of its pods: measured one run after the other, kept as figures, and drawn.

`python -m tools bench-fleet` measures runs of up to 100,000 pods, `python -m tools bench-fleet million` the one of
1,000,000 pods on 10,000 nodes, `python -m tools bench-fleet sweep` 16 runs by one process, by one for each CPU and by the
engines that are installed; `draw` only draws again what was measured.
"""

import filecmp
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from math import ceil, floor, log, log10
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import step
from nodewright.fleet import run as simulate
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.reasons.verdict import Granted
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod
from tools.source import ROOT

FOLDER = ROOT / "docs" / "figures"
SERIES, MILLION, SWEEP, PICTURE = (
    FOLDER / "fleet-cost.json",
    FOLDER / "fleet-million.json",
    FOLDER / "fleet-sweep.json",
    FOLDER / "fleet-cost.svg",
)
RUNS = (
    *((1000, pods) for pods in (1000, 3000, 10_000, 30_000, 100_000)),
    *((10_000, pods) for pods in (10_000, 100_000)),
)
WHOLE = (10_000, 1_000_000)
TARGETS = {"cpuSeconds": 120, "rssMiB": 400}
SWEPT = (1000, 60_000)
"""Nodes and pods of each run of the sweep."""
AXES = (
    "topologyManagerPolicy=none,best-effort,restricted,single-numa-node",
    "scores=default,most-allocated,best-fit,numa-aware",
)
LINEAR = 0.9
"""The part of the CPUs' number by which a sweep on all of them is to be faster than in one process."""
SEED = 1
COMMAND = (sys.executable, "-m", "nodewright", "fleet")

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 420, 70, 20, 40, 50
STYLES = ("#1f5fbf", "#b3541e", "#2a7d3f", "#7a3fa0")
_HEAD = (
    f'<svg role="img" aria-label="CPU seconds of a run by its number of pods" viewBox="0 0 {WIDTH} {HEIGHT}" '
    f'width="{WIDTH}" height="{HEIGHT}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
    f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
)

Point: TypeAlias = tuple[float, float]
"""Pods and CPU seconds, or where they are drawn."""


def main(arguments: Sequence[str]) -> int:
    """Measure what is asked for and draw all that is known; 1 where the target of the million is missed."""
    what = arguments[0] if arguments else "series"
    missed = False
    if what == "series":
        _write(SERIES, {"runs": [_measured(*run) for run in RUNS]})
    elif what == "million":
        measured = _measured(*WHOLE)
        missed = any(measured[name] >= most for name, most in TARGETS.items())
        _write(MILLION, {**measured, "targets": TARGETS})
    elif what == "sweep":
        sweep = _sweep()
        missed = not all(run["isEqual"] and run["ofLinear"] >= LINEAR for run in sweep["engines"])
        _write(SWEEP, sweep)
    PICTURE.write_text(picture(_known()), "utf-8")
    print(f"{PICTURE.relative_to(ROOT)} written")
    return int(missed)


def _measured(nodes: int, pods: int) -> dict[str, Any]:
    """One run of the command by itself, from its files to the report."""
    with tempfile.TemporaryDirectory() as folder:
        files = _generated(Path(folder), nodes, pods)
        load, output = os.getloadavg()[0], Path(folder) / "report.txt"
        wall_s, used = _timed(files, output)
        first_line = output.read_text("utf-8").splitlines()[0]
    document = {
        "nodes": nodes,
        "pods": pods,
        "cpuSeconds": round(used.ru_utime + used.ru_stime, 1),
        "wallSeconds": round(wall_s, 1),
        "rssMiB": round(_rss_bytes(used) / 2**20),
        "loadAverage": round(load, 1),
        "told": first_line,
    }
    print(document, flush=True)
    return document


def _sweep() -> dict[str, Any]:
    """Times of a sweep by each engine, and whether its report is that of one process, byte for byte."""
    cpus = os.cpu_count() or 1
    engines = ["local", *(engine for engine in ("ray", "dask") if find_spec(engine) is not None)]
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        sweep = [*_generated(Path(folder), *SWEPT), "--output", "json"]
        sweep += [word for axis in AXES for word in ("--sweep", axis)]
        alone = Path(folder) / "alone.json"
        load = os.getloadavg()[0]
        alone_s, _ = _timed(sweep, alone)
        print({"engine": "one process", "wallSeconds": round(alone_s, 1)}, flush=True)
        for engine in engines:
            output = Path(folder) / f"{engine}.json"
            wall_s, _ = _timed([*sweep, "--workers", str(cpus), "--engine", engine], output)
            is_equal = filecmp.cmp(alone, output, shallow=False)
            of_linear = round(alone_s / (cpus * wall_s), 3)
            run = {"engine": engine, "wallSeconds": round(wall_s, 1), "ofLinear": of_linear}
            runs.append({**run, "isEqual": is_equal})
            print(runs[-1], flush=True)
    return {
        "nodes": SWEPT[0],
        "podsOfEachRun": SWEPT[1],
        "axes": AXES,
        "cpus": cpus,
        "loadAverage": round(load, 1),
        "oneProcessWallSeconds": round(alone_s, 1),
        "engines": runs,
    }


def _generated(folder: Path, nodes: int, pods: int) -> list[str]:
    """The options that name tables of so many nodes and pods, which are made in the folder."""
    tables = str(folder / "nodes.csv"), str(folder / "pods.csv")
    amounts = ["--seed", str(SEED), "--nodes", str(nodes), "--pods", str(pods)]
    made = ["--nodes-file", tables[0], "--pods-file", tables[1]]
    subprocess.run([*COMMAND, "generate", *amounts, *made], check=True)
    return ["--nodes", tables[0], "--pods", tables[1]]


def _timed(arguments: Sequence[str], output: Path) -> tuple[float, resource.struct_rusage]:
    """Wall time in seconds and resource usage of a run of the command, with its output in the file."""
    began_s = time.perf_counter()
    with output.open("wb") as file:
        run = subprocess.Popen([*COMMAND, *arguments], stdout=file)
        _, status, used = os.wait4(run.pid, 0)
    wall_s = time.perf_counter() - began_s
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"the run with {' '.join(arguments)} failed")
    return wall_s, used


def _rss_bytes(used: resource.struct_rusage) -> int:
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _write(path: Path, figures: dict[str, Any]) -> None:
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
    path.write_text(json.dumps({**figures, **where}, indent=2) + "\n", "utf-8")


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs"


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


GROWTH_FIGURES, GROWTH_PICTURE = FOLDER / "growth.json", FOLDER / "growth.svg"
STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": "0",
    "maxPods": 250,
}
LIMIT = 1.1
"""The largest exponent where the problem is linear."""
ROUNDS = 3


def pods(count: int) -> Callable[[], object]:
    """So many pods come and go on 30 nodes."""
    nodes = some_nodes(30, a_profile(numa=2, cpus=24, **STATIC))
    kinds = [a_template(f"cpu={cpu} memory=1Gi") for cpu in ("500m", "1", "2", "4")]
    arrivals = [
        pod
        for at in range(count)
        for pod in some_pods(1, kinds[at % len(kinds)], f"p{at}-", arrives_s=at * 3, runs_s=150 + at % 7 * 15)
    ]
    return lambda: simulate(nodes, arrivals)


def nodes(count: int) -> Callable[[], object]:
    """1,000 pods arrive on so many nodes."""
    machines = some_nodes(count, a_profile(numa=2, cpus=24, **STATIC))
    arrivals = some_pods(1000, a_template("cpu=1 memory=1Gi"))
    return lambda: simulate(machines, arrivals)


def numa_nodes(count: int) -> Callable[[], object]:
    """A pod with exclusive CPUs is admitted on a machine of 128 CPUs with so many NUMA nodes."""
    options = {"max-allowable-numa-nodes": "16"} if count > MOST_NUMA else {}
    profile = a_profile(numa=count, cpus=128 // count, topologyManagerPolicyOptions=options, **STATIC)
    return _admission(profile, {"cpu": "4", "memory": "1Gi"})


MOST_NUMA = 8
"""NUMA nodes that the kubelet accepts without an option."""


def devices(count: int) -> Callable[[], object]:
    """A pod with a device is admitted on a machine with so many."""
    listed = " ".join(f"d{at}@{at % 2}" for at in range(count))
    profile = a_profile(numa=2, cpus=24, devices={"example.com/d": listed}, **STATIC)
    return _admission(profile, {"cpu": "2", "memory": "1Gi", "example.com/d": "1"})


def _admission(profile: NodeProfile, requests: Mapping[str, str]) -> Callable[[], object]:
    parts, _ = node_parts(profile)
    started = initial_node(parts)
    assert isinstance(started, Granted)
    event = PodAdded(a_guaranteed_pod("new", requests))
    return lambda: [step(started.value, event) for _ in range(100)]


GROWTH_SERIES: Mapping[str, tuple[Callable[[int], Callable[[], object]], Sequence[int]]] = {
    "pods": (pods, (250, 500, 1000, 2000, 4000)),
    "nodes": (nodes, (50, 100, 200, 400, 800)),
    "NUMA nodes": (numa_nodes, (1, 2, 4, 8, 16)),
    "devices": (devices, (8, 32, 128, 512, 2048)),
}


def exponent(points: Sequence[Point]) -> float:
    """The slope of the line through the points on logarithmic scales, by least squares."""
    across, up = [log(size) for size, _ in points], [log(cost_s) for _, cost_s in points]
    middle, level = sum(across) / len(across), sum(up) / len(up)
    rise = sum((x - middle) * (y - level) for x, y in zip(across, up, strict=True))
    return rise / sum((x - middle) ** 2 for x in across)


def least_cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of some rounds.

    Units: seconds.
    """
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        work()
        rounds.append(time.process_time() - began)
    return min(rounds)


def measure_growth() -> int:
    """Measure and draw; 1 where an exponent is above the limit."""
    series = {
        name: [(float(size), least_cpu_s(prepared(size))) for size in sizes]
        for name, (prepared, sizes) in GROWTH_SERIES.items()
    }
    exponents = {name: round(exponent(points), 2) for name, points in series.items()}
    figures = {"exponents": exponents, "limit": LIMIT, "cpuSeconds": series}
    GROWTH_FIGURES.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    named = {f"{name}: exponent {exponents[name]}": points for name, points in series.items()}
    GROWTH_PICTURE.write_text(picture(named, axis="size"), "utf-8")
    print(f"{GROWTH_PICTURE.relative_to(ROOT)} written: {exponents}")
    return int(any(value > LIMIT for value in exponents.values()))
