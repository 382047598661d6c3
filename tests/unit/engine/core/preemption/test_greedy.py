from collections.abc import Iterable
from typing import Any

from nodewright.engine.core.preemption.greedy import (
    MissingAmount,
    PreemptionVictims,
    preemption_candidates,
    remaining_missing,
    victims_for,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import (
    InsufficientResource,
    NodeNameMismatch,
    NoVictimsSuffice,
    PredicateFailure,
)
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.testing.objects import Amounts, a_pod, a_static_pod

LICENCE = "example.com/licence"
CRITICAL = a_pod("critical", priority=2_000_000_000)


def short(resource: str, missing: int) -> InsufficientResource:
    return InsufficientResource(resource=resource, requested=missing, used=0, capacity=0)


def best_effort(name: str, licences: int = 0, **spec: Any) -> Pod:
    """Extended resources do not make a pod burstable."""
    return a_pod(name, {LICENCE: licences}, {LICENCE: licences}, **spec)


def burstable(name: str, cpu: str, memory: str = "0", licences: int = 0, **spec: Any) -> Pod:
    return a_pod(name, {"cpu": cpu, "memory": memory, LICENCE: licences}, {LICENCE: licences}, **spec)


def guaranteed(name: str, cpu: str, licences: int = 0, **spec: Any) -> Pod:
    amounts: Amounts = {"cpu": cpu, "memory": "64Mi", LICENCE: licences}
    return a_pod(name, amounts, amounts, **spec)


def chosen(pod: Pod, active: Iterable[Pod], *failures: PredicateFailure) -> PreemptionVictims:
    victims = victims_for(pod, list(active), failures)
    assert isinstance(victims, Granted)
    return victims.value


def killed(pod: Pod, active: Iterable[Pod], *failures: PredicateFailure) -> list[str]:
    return [victim.pod.uid for victim in chosen(pod, active, *failures).victims]


def reasons(pod: Pod, active: Iterable[Pod], *failures: PredicateFailure) -> tuple[Reason, ...]:
    victims = victims_for(pod, list(active), failures)
    assert isinstance(victims, Refused)
    return victims.because


def test_a_guaranteed_pod_is_preempted_if_all_lower_ones_hold_too_little_and_then_spares_burstable_pods() -> (
    None
):
    """100 are missing; best-effort pods hold 40, burstable ones 50, one guaranteed pod 90."""
    active = [
        best_effort("best-effort-1", 10),
        best_effort("best-effort-2", 30),
        burstable("burstable", "100m", licences=50),
        guaranteed("guaranteed", "100m", 90),
    ]
    victims = chosen(CRITICAL, active, short(LICENCE, 100))
    # 40 + 50 < 100, so the guaranteed pod must go. Of the remaining 10, best-effort pods hold enough: each
    # of them would do, they request equally little memory and CPU, so the later one goes.
    assert [victim.pod.uid for victim in victims.victims] == ["best-effort-2", "guaranteed"]
    assert [(each.qos_class, each.missing, each.still_missing) for each in victims.rounds] == [
        (QOSClass.GUARANTEED, (MissingAmount(LICENCE, 10),), ()),
        (QOSClass.BEST_EFFORT, (MissingAmount(LICENCE, 10),), ()),
    ]
    assert {each.candidate.pod.uid: each.distance for each in victims.rounds[1].distances} == {
        "best-effort-1": 0.0,
        "best-effort-2": 0.0,
    }
    assert victims.signal == LICENCE


def test_best_effort_pods_free_no_memory() -> None:
    mib = 1 << 20
    active = [
        best_effort("best-effort"),
        burstable("burstable", "100m", "50Mi"),
        a_pod("guaranteed", {"cpu": 1, "memory": "90Mi"}, {"cpu": 1, "memory": "90Mi"}),
    ]
    # Whatever best-effort pods use, ending them frees no request: the burstable pod goes as well.
    assert killed(CRITICAL, active, short("memory", 100 * mib)) == ["burstable", "guaranteed"]


def test_an_ordinary_pod_preempts_no_pod_and_keeps_its_failures() -> None:
    failures = (short("cpu", 1), NodeNameMismatch(wanted="a", actual="b"))
    assert reasons(a_pod("ordinary", priority=1_999_999_999), [burstable("web", "1")], *failures) == failures


def test_no_pod_is_preempted_for_a_pod_with_other_failures() -> None:
    elsewhere = NodeNameMismatch(wanted="a", actual="b")
    assert reasons(CRITICAL, [burstable("web", "1")], short("cpu", 1), elsewhere) == (elsewhere,)


def test_what_all_candidates_together_leave_missing_is_named() -> None:
    active = [burstable("web", "300m"), a_static_pod("static", {"cpu": 4})]
    assert reasons(CRITICAL, active, short("cpu", 1000), short("pods", 1), short("memory", 5)) == (
        NoVictimsSuffice(unmet=(("cpu", 700), ("memory", 5))),
    )


def test_candidates_are_ordinary_pods_and_those_of_lower_priority_where_both_have_one() -> None:
    node_critical = a_pod("new", priority=2_000_001_000)
    active = [
        a_pod("ordinary"),
        a_pod("cluster-critical", priority=2_000_000_000),
        a_pod("node-critical", priority=2_000_001_000),
        a_static_pod("static"),
        a_static_pod("static-and-ranked", priority=5),
    ]

    def names(pod: Pod) -> list[str]:
        return [candidate.pod.uid for candidate in preemption_candidates(pod, active)]

    assert names(node_critical) == ["ordinary", "cluster-critical", "static-and-ranked"]
    assert names(a_static_pod("new")) == ["ordinary"]


def test_the_nearest_pod_is_picked_first_and_distances_are_recomputed() -> None:
    active = [burstable("small", "100m"), burstable("middle", "300m"), burstable("large", "600m")]
    victims = chosen(CRITICAL, active, short("cpu", 700))
    assert [victim.pod.uid for victim in victims.victims] == ["large", "small"]
    first, second = victims.rounds
    assert [each.distance for each in first.distances] == [(6 / 7) ** 2, (4 / 7) ** 2, (1 / 7) ** 2]
    # `small` and `middle` would both do now: the one that requests less goes.
    assert [(each.candidate.pod.uid, each.distance) for each in second.distances] == [
        ("small", 0.0),
        ("middle", 0.0),
    ]


def test_every_missing_resource_weighs_the_same() -> None:
    active = [burstable("cpu-bound", "500m", "1Mi"), burstable("even", "400m", "4Mi")]
    victims = chosen(CRITICAL, active, short("cpu", 500), short("memory", 5 << 20))
    assert victims.rounds[0].picked.pod.uid == "even"


def test_ties_are_broken_by_smaller_memory_then_smaller_cpu_then_later_position() -> None:
    cpu = short("cpu", 100)
    assert killed(CRITICAL, [burstable("a", "200m", "2Mi"), burstable("b", "300m", "1Mi")], cpu) == ["b"]
    assert killed(CRITICAL, [burstable("a", "200m"), burstable("b", "300m")], cpu) == ["a"]
    assert killed(CRITICAL, [burstable("a", "200m"), burstable("b", "200m")], cpu) == ["b"]


def test_the_last_pod_takes_the_place_of_the_one_that_was_picked() -> None:
    active = [burstable(name, "200m") for name in ("a", "b", "c")] + [burstable("d", "300m", "1Mi")]
    victims = chosen(CRITICAL, active, short("cpu", 900))
    # d is picked first and last in the list anyway; then c, b, a. With d in front the order turns.
    assert [each.picked.pod.uid for each in victims.rounds] == ["d", "c", "b", "a"]
    turned = chosen(CRITICAL, [active[3], *active[:3]], short("cpu", 900))
    assert [each.picked.pod.uid for each in turned.rounds] == ["d", "b", "a", "c"]


def test_every_pod_frees_one_place() -> None:
    assert killed(CRITICAL, [best_effort("a"), burstable("b", "1")], short("pods", 1)) == ["a"]


def test_a_shortage_of_zero_needs_no_victim() -> None:
    victims = chosen(CRITICAL, [burstable("web", "1")], short("cpu", 0))
    assert (victims.victims, victims.rounds, victims.signal) == ((), (), "cpu")
    assert chosen(CRITICAL, []).signal == ""


def test_what_is_freed_is_no_longer_missing() -> None:
    candidates = preemption_candidates(CRITICAL, [burstable("a", "300m"), burstable("b", "400m")])
    missing = (MissingAmount("cpu", 500), MissingAmount("pods", 2), MissingAmount("memory", 1))
    assert remaining_missing(missing, candidates[:1]) == (
        MissingAmount("cpu", 200),
        MissingAmount("pods", 1),
        MissingAmount("memory", 1),
    )
    assert remaining_missing(missing, candidates) == (MissingAmount("memory", 1),)
