from collections.abc import Iterable

from nodewright.core.preemption import Cover, Optimum, Toll, Victims, optimum, preempt
from nodewright.model.objects import Pod
from nodewright.model.reasons import InsufficientResource
from nodewright.model.verdict import Granted
from nodewright.testing.objects import a_pod

CRITICAL = a_pod("critical", priority=2_000_000_000)


def greedy(active: Iterable[Pod], **missing: int) -> Victims:
    failures = [
        InsufficientResource(resource=name, requested=amount, used=0, capacity=0)
        for name, amount in missing.items()
    ]
    found = preempt(CRITICAL, list(active), failures)
    assert isinstance(found, Granted)
    return found.value


def names(found: Victims | Optimum) -> list[str]:
    return [one.pod.uid for one in found.victims]


def burstable(name: str, cpu: str, memory: str = "0") -> Pod:
    return a_pod(name, {"cpu": cpu, "memory": memory})


def test_the_kubelet_takes_the_nearest_pod_and_then_needs_more_than_the_smallest_choice() -> None:
    active = [
        burstable("both", "510m", "510M"),
        burstable("memory", "100m", "900M"),
        burstable("cpu", "900m", "100M"),
    ]
    chosen = greedy(active, cpu=1000, memory=1_000_000_000)
    best = optimum(chosen)
    assert names(chosen) == ["both", "cpu", "memory"]
    assert names(best) == ["memory", "cpu"]
    assert best.toll == Toll(0, 2, 0, (1_000_000_000, 1000))
    assert best.greedy_toll == Toll(0, 3, 0, (1_510_000_000, 1510))
    assert best.proved


def test_of_equally_many_pods_those_that_request_less_are_chosen_memory_before_cpu() -> None:
    chosen = greedy([burstable("a", "600m", "2M"), burstable("b", "500m", "3M")], cpu=500)
    assert names(chosen) == names(optimum(chosen)) == ["a"]
    assert optimum(chosen).resources == ("memory", "cpu")


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
    found = preempt(CRITICAL, active, failures)
    assert isinstance(found, Granted)
    best = optimum(found.value)
    assert best.resources == ("memory", "cpu", licence)
    assert (names(best), best.toll) == (["few"], Toll(0, 0, 1, (0, 0, 5)))


def test_victims_are_named_in_the_kubelets_order_of_kills() -> None:
    active = [
        a_pod("guaranteed", {"cpu": 1, "memory": "1M"}, {"cpu": 1, "memory": "1M"}),
        burstable("burstable", "1"),
        a_pod("best-effort"),
    ]
    assert names(optimum(greedy(active, cpu=2000, pods=3))) == ["best-effort", "burstable", "guaranteed"]


def test_where_nothing_is_missing_nobody_goes() -> None:
    best = optimum(greedy([burstable("a", "1")], cpu=0))
    assert (best.victims, best.proved, best.toll) == ((), True, Toll(0, 0, 0, (0, 0)))


NEAR = [burstable(name, f"{cpu}m") for name, cpu in (("a", 400), ("b", 300), ("c", 301), ("d", 250))]


def test_without_a_proof_another_solver_is_asked_and_believed_only_if_its_choice_holds() -> None:
    chosen = greedy(NEAR, cpu=600)
    proven = optimum(chosen)
    assert proven.proved

    def right(cover: Cover) -> tuple[int, ...]:
        return tuple(at for at, one in enumerate(chosen.candidates) if one in proven.victims)

    def too_little(cover: Cover) -> tuple[int, ...]:
        return (0,)

    def too_much(cover: Cover) -> tuple[int, ...]:
        return tuple(cover.indices)

    def stumped(cover: Cover) -> None:
        return None

    asked = optimum(chosen, budget=0, exact=right)
    assert (asked.victims, asked.proved) == (proven.victims, True)
    for solver in (too_little, too_much, stumped):
        assert not optimum(chosen, budget=0, exact=solver).proved
    assert not optimum(chosen, budget=0).proved
