"""How long it takes to judge a pod beside others, and to choose who makes way among 500."""

from random import Random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.engine.core.predicates.predicate_check import NodeView, check_predicates, node_usage
from nodewright.engine.core.preemption.greedy import PreemptionVictims, victims_for
from nodewright.engine.core.preemption.optimal import smallest_preemption
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import InsufficientResource, PredicateFailure
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.testing.objects import a_node, a_pod

NODE = NodeView.of(a_node({"cpu": 1000, "memory": "4Ti", "pods": 600}, labels={"zone": "a"}))
NEW = a_pod("new", {"cpu": 1, "memory": "1Gi"}, nodeSelector={"zone": "a"})
CRITICAL = a_pod("critical", {"cpu": 1}, priority=2_000_000_000)


def pods(count: int, *, sizes: int) -> list[Pod]:
    """Pods of some sizes, of every class, a few of them with limits that equal their requests."""
    random = Random(count)
    made = []
    for number in range(count):
        size = random.randrange(sizes) + 1
        requests = {"cpu": f"{size * 50}m", "memory": f"{size * 37 % (sizes + 1) * 16}Mi"}
        made.append(a_pod(f"p{number}", requests if number % 5 else {}, requests if number % 3 == 0 else {}))
    return made


def shortages(cpu: int, memory_mib: int) -> list[PredicateFailure]:
    return [
        InsufficientResource(resource=name, requested=amount, used=0, capacity=0)
        for name, amount in (("cpu", cpu), ("memory", memory_mib << 20))
    ]


def chosen(active: list[Pod], failures: list[PredicateFailure]) -> PreemptionVictims:
    victims = victims_for(CRITICAL, active, failures)
    assert isinstance(victims, Granted)
    return victims.value


@pytest.mark.parametrize("others", [110, 500])
def test_judge_one_pod_beside_counted_others(benchmark: BenchmarkFixture, others: int) -> None:
    totals = node_usage(pods(others, sizes=20))
    judgement = benchmark(check_predicates, NEW, NODE, totals, fresh=NODE)
    assert not isinstance(judgement.verdict, Refused)


def test_count_one_pod_more(benchmark: BenchmarkFixture) -> None:
    totals = node_usage(pods(500, sizes=20))
    assert benchmark(totals.plus, NEW).pods == 501


def test_count_500_pods(benchmark: BenchmarkFixture) -> None:
    assert benchmark(node_usage, pods(500, sizes=20)).pods == 500


@pytest.mark.parametrize(("cpu", "memory_mib"), [(1000, 1024), (20_000, 10_240)])
def test_choose_victims_among_500_pods(benchmark: BenchmarkFixture, cpu: int, memory_mib: int) -> None:
    active = pods(500, sizes=20)
    assert benchmark(chosen, active, shortages(cpu, memory_mib)).victims


@pytest.mark.parametrize("count", [60, 500])
def test_search_for_the_smallest_choice(benchmark: BenchmarkFixture, count: int) -> None:
    greedy = chosen(pods(count, sizes=20), shortages(5000, 2048))
    best = benchmark(smallest_preemption, greedy)
    assert best.cost <= best.greedy_cost
