"""How the cost of decisions grows with pods, nodes, NUMA nodes and devices: measured at five sizes each, and drawn.

`python -m tools.growth` writes docs/figures/growth.json and growth.svg. Times are CPU times of this process, the least of
some rounds; the exponent is the slope of the line through the points on logarithmic scales.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import step
from nodewright.fleet import run
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.reasons.verdict import Granted
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod
from tools.fleet_cost import FOLDER, Point, picture
from tools.source import ROOT

FIGURES, PICTURE = FOLDER / "growth.json", FOLDER / "growth.svg"
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
    return lambda: run(nodes, arrivals)


def nodes(count: int) -> Callable[[], object]:
    """1,000 pods arrive on so many nodes."""
    machines = some_nodes(count, a_profile(numa=2, cpus=24, **STATIC))
    arrivals = some_pods(1000, a_template("cpu=1 memory=1Gi"))
    return lambda: run(machines, arrivals)


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


SERIES: Mapping[str, tuple[Callable[[int], Callable[[], object]], Sequence[int]]] = {
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


def main() -> int:
    """Measure and draw; 1 where an exponent is above the limit."""
    series = {
        name: [(float(size), least_cpu_s(prepared(size))) for size in sizes]
        for name, (prepared, sizes) in SERIES.items()
    }
    exponents = {name: round(exponent(points), 2) for name, points in series.items()}
    figures = {"exponents": exponents, "limit": LIMIT, "cpuSeconds": series}
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    named = {f"{name}: exponent {exponents[name]}": points for name, points in series.items()}
    PICTURE.write_text(picture(named, axis="size"), "utf-8")
    print(f"{PICTURE.relative_to(ROOT)} written: {exponents}")
    return int(any(value > LIMIT for value in exponents.values()))


if __name__ == "__main__":
    sys.exit(main())
