from collections.abc import Iterable

from nodewright.engine.core.preemption.greedy import PreemptionVictims, victims_for
from nodewright.engine.core.preemption.optimal import (
    Cover,
    PreemptionCost,
    SmallestPreemption,
    smallest_preemption,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.verdict import Granted
from nodewright.testing.objects import a_pod

CRITICAL = a_pod("critical", priority=2_000_000_000)


def greedy(active: Iterable[Pod], **missing: int) -> PreemptionVictims:
    failures = [
        InsufficientResource(resource=name, requested=amount, used=0, capacity=0)
        for name, amount in missing.items()
    ]
    victims = victims_for(CRITICAL, list(active), failures)
    assert isinstance(victims, Granted)
    return victims.value


def names(found: PreemptionVictims | SmallestPreemption) -> list[str]:
    return [victim.pod.uid for victim in found.victims]


def burstable(name: str, cpu: str, memory: str = "0") -> Pod:
    return a_pod(name, {"cpu": cpu, "memory": memory})


def test_the_kubelet_takes_the_nearest_pod_and_then_needs_more_than_the_smallest_choice() -> None:
    active = [
        burstable("both", "510m", "510M"),
        burstable("memory", "100m", "900M"),
        burstable("cpu", "900m", "100M"),
    ]
    chosen = greedy(active, cpu=1000, memory=1_000_000_000)
    best = smallest_preemption(chosen)
    assert names(chosen) == ["both", "cpu", "memory"]
    assert names(best) == ["memory", "cpu"]
    assert best.cost == PreemptionCost(0, 2, 0, (1_000_000_000, 1000))
    assert best.greedy_cost == PreemptionCost(0, 3, 0, (1_510_000_000, 1510))
    assert best.proved


def test_of_equally_many_pods_those_that_request_less_are_chosen_memory_before_cpu() -> None:
    chosen = greedy([burstable("a", "600m", "2M"), burstable("b", "500m", "3M")], cpu=500)
    assert names(chosen) == names(smallest_preemption(chosen)) == ["a"]
    assert smallest_preemption(chosen).resources == ("memory", "cpu")


def test_what_else_is_missing_is_compared_too_but_places_for_pods_are_their_number() -> None:
    licence = "example.com/licence"
    active = [
        a_pod("many", limits={licence: 9}, requests={licence: 9}),
        a_pod("few", {licence: 5}, {licence: 5}),
    ]
    failures = [
        InsufficientResource(resource=name, requested=amount, used=0, capacity=0)
        for name, amount in (("pods", 1), (licence, 4))
    ]
    victims = victims_for(CRITICAL, active, failures)
    assert isinstance(victims, Granted)
    best = smallest_preemption(victims.value)
    assert best.resources == ("memory", "cpu", licence)
    assert (names(best), best.cost) == (["few"], PreemptionCost(0, 0, 1, (0, 0, 5)))


def test_victims_are_named_in_the_kubelets_order_of_kills() -> None:
    active = [
        a_pod("guaranteed", {"cpu": 1, "memory": "1M"}, {"cpu": 1, "memory": "1M"}),
        burstable("burstable", "1"),
        a_pod("best-effort"),
    ]
    assert names(smallest_preemption(greedy(active, cpu=2000, pods=3))) == [
        "best-effort",
        "burstable",
        "guaranteed",
    ]


def test_without_a_shortage_there_are_no_victims() -> None:
    best = smallest_preemption(greedy([burstable("a", "1")], cpu=0))
    assert (best.victims, best.proved, best.cost) == ((), True, PreemptionCost(0, 0, 0, (0, 0)))


NEAR = [burstable(name, f"{cpu}m") for name, cpu in (("a", 400), ("b", 300), ("c", 301), ("d", 250))]


def test_without_a_proof_another_solver_is_called_and_its_choice_is_checked() -> None:
    chosen = greedy(NEAR, cpu=600)
    proven = smallest_preemption(chosen)
    assert proven.proved

    def right(cover: Cover) -> tuple[int, ...]:
        return tuple(at for at, one in enumerate(chosen.candidates) if one in proven.victims)

    def too_little(cover: Cover) -> tuple[int, ...]:
        return (0,)

    def too_much(cover: Cover) -> tuple[int, ...]:
        return tuple(cover.indices)

    def stumped(cover: Cover) -> None:
        return None

    result = smallest_preemption(chosen, budget=0, exact=right)
    assert (result.victims, result.proved) == (proven.victims, True)
    for solver in (too_little, too_much, stumped):
        assert not smallest_preemption(chosen, budget=0, exact=solver).proved
    assert not smallest_preemption(chosen, budget=0).proved
