"""Scores of nodes, with the numbers of the scheduler's own tests.

Sources: v1.36, pkg/scheduler/framework/plugins/noderesources/{least,most}_allocated_test.go and
balanced_allocation_test.go.
"""

from typing import Any

import pytest

from nodewright.fleet import CandidateNode, NodeScorer, Options, node_scorer, run
from nodewright.fleet.simulation import scores
from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.scores import ImageLocality
from nodewright.model.errors import InputError
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.testing.fleets import a_node_slot, a_pod_template, a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

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


def read(line: str) -> tuple[PodTemplate, NodeSlot, int]:
    has, taken, asked, score = line.split()
    (cpu, memory), (used_cpu, used_memory) = amounts(has), amounts(taken)
    seat, template = a_node_slot(0, cpu=cpu, memory=memory), a_pod_template()
    seat.free_cpu, seat.free_memory = cpu - used_cpu, memory - used_memory
    seat.nonzero_cpu, seat.nonzero_memory = used_cpu, used_memory
    template.cpu, template.memory = template.nonzero_cpu, template.nonzero_memory = amounts(asked)
    return template, seat, int(score)


@pytest.mark.parametrize("line", lines(LEAST))
def test_least_allocated_prefers_free_nodes(line: str) -> None:
    template, seat, score = read(line)
    assert scores.least_allocated(template, seat) == score


@pytest.mark.parametrize("line", lines(MOST))
def test_most_allocated_prefers_used_nodes(line: str) -> None:
    template, seat, score = read(line)
    assert scores.most_allocated(template, seat) == score


@pytest.mark.parametrize("line", lines(BALANCED))
def test_balanced_allocation_prefers_equal_shares_of_cpu_and_memory(line: str) -> None:
    template, seat, score = read(line)
    assert scores.balanced_allocation(template, seat) == score


@pytest.mark.parametrize("line", lines(BEST_FIT))
def test_best_fit_uses_the_scarcer_of_cpu_and_memory(line: str) -> None:
    template, seat, score = read(line)
    assert scores.best_fit(template, seat) == score


@pytest.mark.parametrize(
    ("cpu", "free", "score"),
    [("2", (2, 2), 100), ("3", (2, 2), 88), ("5", (2, 2), 0), ("1500m", (0, 0), 100)],
)
def test_each_further_numa_node_for_exclusive_cpus_costs_an_eighth(
    cpu: str, free: tuple[int, ...], score: int
) -> None:
    seat = a_node_slot(0)
    seat.cpus_free_by_numa = lambda: free
    assert scores.few_numa_nodes(a_pod_template(0, f"cpu={cpu} memory=1Gi"), seat) == score


def test_pods_without_requests_are_scored_with_default_requests() -> None:
    template = a_pod_template()
    assert (template.cpu, template.nonzero_cpu, template.nonzero_memory) == (0, 100, 200 * 2**20)


def test_a_node_without_cpus_is_scored_by_its_memory_alone() -> None:
    template, seat = a_pod_template(0, "memory=1Gi"), a_node_slot(0, memory=4 * 2**30)
    assert scores.default_score(template, seat) == 75 + 75


MIB = 1 << 20
IMAGES = {
    "small:1": 20 * MIB,
    "db:1": 500 * MIB,
    "huge:latest": 4000 * MIB,
    "host:5000/app:latest": 500 * MIB,
}


def score(*images: str, **spec: Any) -> int:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    return ImageLocality(some_nodes(1, images=IMAGES)).score(a_pod(containers=containers, **spec), 0)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (("unknown:1",), 0),
        (("small:1",), 0),
        (("db:1",), 48),  # (500 - 23) of (1000 - 23) MiB
        (("db:2",), 0),
        (("huge",), 100),  # without a tag it is the latest
        (("host:5000/app",), 48),  # a port is no tag
        (("db:1", "unknown:1"), 24),  # of two containers, up to 1000 MiB each
        (("db:1", "db:1"), 49),
        (("huge", "huge", "huge"), 100),
    ],
)
def test_nodes_score_by_the_bytes_that_they_have(images: tuple[str, ...], expected: int) -> None:
    assert score(*images) == expected


def test_images_of_volumes_and_init_containers_count() -> None:
    volume = {"name": "v", "image": {"reference": "db:1"}}
    assert score("unknown:1", volumes=[volume]) == 48
    assert score("unknown:1", initContainers=[{"name": "i", "image": "db:1"}]) == 24


def test_an_image_on_few_nodes_counts_less() -> None:
    nodes = [*some_nodes(1, images={"db:1": 500 * MIB}), *some_nodes(3)]
    locality, pod = ImageLocality(nodes), a_pod(containers=[{"name": "c", "image": "db:1"}])
    assert [locality.score(pod, node) for node in range(4)] == [10, 0, 0, 0]  # (125 - 23) of 977 MiB


@node_scorer("by-name")
def by_name(candidate: CandidateNode) -> int:
    """The last by name."""
    return int(candidate.node_name[1:])


@node_scorer("everything")
def everything(candidate: CandidateNode) -> int:
    """Looks at all that there is."""
    assert candidate.pod.metadata.name == "pod"
    assert candidate.labels == {"kind": "x"}
    assert candidate.allocatable["cpu"] == 7000
    taken = candidate.requested.get("cpu", 0) // 1000
    assert sum(candidate.cpus_free_by_numa) == 7 - taken
    return 100 - 10 * taken - candidate.requests["cpu"] // 1000


def places(scorer: NodeScorer, count: int = 2) -> list[int]:
    strict = a_profile(cpuManagerPolicy="static", reservedSystemCPUs="0")
    nodes = some_nodes(3, strict, labels={"kind": "x"})
    options = Options(scores=scorer.name, policies=(scorer,))
    return [pod.node for pod in run(nodes, some_pods(count, a_template("cpu=2 memory=1Gi")), options).pods]


def test_a_custom_score_chooses_nodes() -> None:
    assert places(by_name, 4) == [2, 2, 2, 1]


def test_a_custom_score_has_access_to_node_and_pod() -> None:
    assert places(everything) == [0, 1]


@pytest.mark.parametrize("answer", [101, -1, 0.5, None])
def test_an_invalid_score_is_an_error(answer: object) -> None:
    broken = NodeScorer(name="broken", score=lambda _: answer)  # type: ignore[arg-type,return-value] # as people do
    with pytest.raises(CustomPolicyError, match="is no whole number from 0 to 100"):
        places(broken)


def test_a_failing_score_is_reported_with_its_line() -> None:
    broken = NodeScorer(name="broken", score=lambda candidate: candidate.labels["rack"])  # type: ignore[arg-type,return-value] # as people do
    with pytest.raises(CustomPolicyError, match="node scorer broken: KeyError: 'rack'"):
        places(broken)


def test_unknown_scores_are_an_error() -> None:
    with pytest.raises(InputError, match="must be one of default, most-allocated, best-fit, numa-aware"):
        run([], [], Options(scores="other"))
