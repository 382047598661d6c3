"""Scores of nodes, with the numbers of the scheduler's own tests.

Sources: v1.36, pkg/scheduler/framework/plugins/noderesources/{least,most}_allocated_test.go and
balanced_allocation_test.go.
"""

import pytest

from nodewright.fleet.simulation import scores
from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.testing.fleets import a_node_slot, a_shape

# What the node has, what its pods take, what the pod asks (cpu/memory each), and the score.
LEAST = """
    4000/10000   0/0        0/0        100
    4000/10000   0/0        3000/5000   37
    6000/10000   0/0        3000/5000   50
    10000/20000  6000/0     0/0         70
    10000/20000  6000/5000  0/0         57
    10000/20000  3000/0     3000/5000   57
    10000/20000  3000/5000  3000/5000   45
    10000/50000  3000/5000  3000/5000   60
    4000/10000   3000/0     3000/0      50
    4000/10000   3000/5000  3000/0      25
    0/0          0/0        3000/0       0
"""
MOST = """
    4000/10000   0/0        0/0          0
    4000/10000   0/0        3000/5000   62
    6000/10000   0/0        3000/5000   50
    10000/20000  6000/0     0/0         30
    10000/20000  6000/5000  0/0         42
    10000/20000  3000/0     3000/5000   42
    10000/20000  3000/5000  3000/5000   55
    5000/10000   0/0        6000/9000   95
"""
BALANCED = """
    4000/10000   0/0        0/0          0
    4000/10000   0/0        3000/5000   68
    6000/10000   0/0        3000/5000   75
    10000/20000  3000/0     3000/5000   73
    10000/20000  3000/5000  3000/5000   74
    10000/50000  3000/5000  3000/5000   70
    3000/5000    3000/0     0/5000     100
    3000/5000    0/0        3000/0      50
    6000/10000   3000/0     3000/0      62
    6000/10000   3000/5000  3000/0      62
"""
BEST_FIT = """
    4000/10000   0/0        1000/1000   25
    4000/10000   3000/0     1000/1000  100
    4000/10000   0/9000     1000/1000  100
    0/0          0/0        0/0          0
"""


def lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


def amounts(word: str) -> tuple[int, int]:
    cpu, _, memory = word.partition("/")
    return int(cpu), int(memory)


def read(line: str) -> tuple[PodShape, NodeSlot, int]:
    has, taken, asked, score = line.split()
    (cpu, memory), (used_cpu, used_memory) = amounts(has), amounts(taken)
    seat, shape = a_node_slot(0, cpu=cpu, memory=memory), a_shape()
    seat.free_cpu, seat.free_memory = cpu - used_cpu, memory - used_memory
    seat.nonzero_cpu, seat.nonzero_memory = used_cpu, used_memory
    shape.cpu, shape.memory = shape.nonzero_cpu, shape.nonzero_memory = amounts(asked)
    return shape, seat, int(score)


@pytest.mark.parametrize("line", lines(LEAST))
def test_least_allocated_prefers_free_nodes(line: str) -> None:
    shape, seat, score = read(line)
    assert scores.least_allocated(shape, seat) == score


@pytest.mark.parametrize("line", lines(MOST))
def test_most_allocated_prefers_used_nodes(line: str) -> None:
    shape, seat, score = read(line)
    assert scores.most_allocated(shape, seat) == score


@pytest.mark.parametrize("line", lines(BALANCED))
def test_balanced_allocation_prefers_equal_shares_of_cpu_and_memory(line: str) -> None:
    shape, seat, score = read(line)
    assert scores.balanced_allocation(shape, seat) == score


@pytest.mark.parametrize("line", lines(BEST_FIT))
def test_best_fit_uses_the_scarcer_of_cpu_and_memory(line: str) -> None:
    shape, seat, score = read(line)
    assert scores.best_fit(shape, seat) == score


@pytest.mark.parametrize(
    ("cpu", "free", "score"),
    [("2", (2, 2), 100), ("3", (2, 2), 88), ("5", (2, 2), 0), ("1500m", (0, 0), 100)],
)
def test_each_further_numa_node_for_exclusive_cpus_costs_an_eighth(
    cpu: str, free: tuple[int, ...], score: int
) -> None:
    seat = a_node_slot(0)
    seat.cpus_free_by_numa = lambda: free
    assert scores.few_numa_nodes(a_shape(0, f"cpu={cpu} memory=1Gi"), seat) == score


def test_pods_without_requests_are_scored_with_default_requests() -> None:
    shape = a_shape()
    assert (shape.cpu, shape.nonzero_cpu, shape.nonzero_memory) == (0, 100, 200 * 2**20)


def test_a_node_without_cpus_is_scored_by_its_memory_alone() -> None:
    shape, seat = a_shape(0, "memory=1Gi"), a_node_slot(0, memory=4 * 2**30)
    assert scores.default_score(shape, seat) == 75 + 75
