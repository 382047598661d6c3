"""Fleets: as many nodes and pods as in a well-known set, and as much again; cost is to grow with pods alone.

Real traces are timed by path: `nodewright fleet run --nodes FILE --pods FILE` with `time`.
"""

from random import Random
from typing import Any

import pytest

from nodewright.fleet import run
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.hardware import GIB
from nodewright.testing.fleets import a_template, some_nodes
from nodewright.testing.nodes import a_profile

STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "restricted",
    "reservedSystemCPUs": "0-1",
}
TEMPLATES = [
    a_template(f"cpu={cpu} memory={memory * GIB // 64}")
    for cpu in ("500m", "1", "2", "3", "4", "8", "16")
    for memory in (1, 4, 8)
]
LIFE_S = 3600


def nodes(count: int) -> list[FleetNode]:
    return some_nodes(count, a_profile(numa=2, cpus=48, maxPods=250, **STATIC))


def pods(count: int, on: int, *, leave: bool) -> list[FleetPod]:
    """Pods of 21 kinds: all at once, or coming and going so that about 12 are on each node."""
    random, at_s, found = Random(1), 0.0, []
    for number in range(count):
        at_s += random.expovariate(on * 12 / LIFE_S) if leave else 0
        runs_s = random.expovariate(1 / LIFE_S) if leave else None
        template = TEMPLATES[random.randrange(len(TEMPLATES))]
        found.append(FleetPod(name=f"p{number}", pod=template, arrives_s=at_s, runs_s=runs_s))
    return found


def placed(result: FleetResult) -> int:
    return sum(pod.node >= 0 for pod in result.pods)


def test_7000_pods_come_to_1200_nodes(benchmark: Any) -> None:
    fleet = nodes(1200), pods(7000, 1200, leave=False)
    assert placed(benchmark.pedantic(run, args=fleet, rounds=3)) == 7000


@pytest.mark.parametrize("count", [5000, 10_000, 20_000, 200_000])
def test_pods_come_and_go_on_300_nodes(benchmark: Any, count: int) -> None:
    fleet = nodes(300), pods(count, 300, leave=True)
    rounds = 2 if count <= 20_000 else 1
    assert placed(benchmark.pedantic(run, args=fleet, rounds=rounds)) > count * 0.95


def test_10000_pods_come_and_go_on_10000_nodes(benchmark: Any) -> None:
    fleet = nodes(10_000), pods(10_000, 10_000, leave=True)
    assert placed(benchmark.pedantic(run, args=fleet, rounds=2)) == 10_000
