from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from nodewright.core.preemption import Candidate, Missing, Toll, Victims, optimum, preempt, still_missing
from nodewright.core.requests import QOSClass
from nodewright.model.objects import Pod
from nodewright.model.reasons import (
    InsufficientResource,
    NodeNameMismatch,
    NoVictimsSuffice,
    PredicateFailure,
)
from nodewright.model.verdict import Granted, Refused
from nodewright.testing.objects import a_pod

CRITICAL = a_pod("critical", priority=2_000_000_000)
NAMES = ("cpu", "memory", "example.com/gpu", "pods")

amounts = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 9).map(str) for name in ("cpu", "memory", "example.com/gpu")}
)


def build(drawn: list[tuple[dict[str, str], bool]]) -> list[Pod]:
    """Guaranteed pods are those that are to be and request cpu and memory; the others are what they are."""
    return [
        a_pod(f"p{at}", requests, requests if equal else {}) for at, (requests, equal) in enumerate(drawn)
    ]


pods = st.lists(st.tuples(amounts, st.booleans()), min_size=1, max_size=7).map(build)
shortages = st.lists(
    st.builds(
        lambda name, amount: InsufficientResource(
            resource=name, requested=amount * (1000 if name == "cpu" else 1), used=0, capacity=0
        ),
        st.sampled_from(NAMES),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.resource,
)


def granted(active: list[Pod], failures: list[InsufficientResource]) -> Victims | None:
    found = preempt(CRITICAL, active, failures)
    return found.value if isinstance(found, Granted) else None


@given(active=pods, failures=shortages)
def test_preemption_frees_enough_or_nobody_could(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    missing = tuple(Missing(one.resource, one.missing) for one in failures)
    found = preempt(CRITICAL, active, failures)
    if isinstance(found, Granted):
        victims = found.value.victims
        assert not still_missing(missing, victims)
        assert len({one.pod.uid for one in victims}) == len(victims)
        assert still_missing(missing, found.value.candidates) == ()
    else:
        [reason] = found.because
        assert isinstance(reason, NoVictimsSuffice)
        assert reason.unmet


@given(active=pods, failures=shortages, priority=st.none() | st.integers(-5, 1_999_999_999))
def test_only_a_critical_pod_preempts(
    active: list[Pod], failures: list[InsufficientResource], priority: int | None
) -> None:
    assert preempt(a_pod(priority=priority), active, failures) == Refused(tuple(failures))


@given(active=pods, failures=shortages, at=st.integers(0, 3))
def test_nobody_goes_if_anything_but_a_shortage_speaks_against_the_pod(
    active: list[Pod], failures: list[InsufficientResource], at: int
) -> None:
    elsewhere = NodeNameMismatch(wanted="a", actual="b")
    mixed: list[PredicateFailure] = [*failures[:at], elsewhere, *failures[at:]]
    assert preempt(CRITICAL, active, mixed) == Refused((elsewhere,))


@given(active=pods, failures=shortages)
def test_no_guaranteed_pod_goes_while_lesser_ones_hold_enough(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    found = granted(active, failures)
    if found is None:
        return
    lesser = [one for one in found.candidates if one.qos_class is not QOSClass.GUARANTEED]
    if not still_missing(found.missing, lesser):
        assert all(one.qos_class is not QOSClass.GUARANTEED for one in found.victims)


@given(active=pods, failures=shortages, budget=st.sampled_from([0, 3, 100_000]))
def test_the_optimum_frees_enough_spares_whom_it_can_and_is_never_worse_than_the_kubelets_choice(
    active: list[Pod], failures: list[InsufficientResource], budget: int
) -> None:
    found = granted(active, failures)
    if found is None:
        return
    best = optimum(found, budget=budget)
    assert not still_missing(found.missing, best.victims)
    assert best.toll <= best.greedy_toll
    for spared in best.victims:
        rest = [one for one in best.victims if one is not spared]
        assert still_missing(found.missing, rest)


@given(active=pods, failures=shortages)
def test_with_budget_enough_no_choice_at_all_is_smaller(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    found = granted(active, failures)
    if found is None:
        return
    best = optimum(found, budget=100_000)
    assert best.proved
    choices = chain.from_iterable(
        combinations(found.candidates, size) for size in range(len(found.candidates) + 1)
    )
    tolls = [toll(chosen, best.resources) for chosen in choices if not still_missing(found.missing, chosen)]
    assert best.toll == min(tolls)


def toll(victims: tuple[Candidate, ...], resources: tuple[str, ...]) -> Toll:
    classes = [one.qos_class for one in victims]
    return Toll(
        classes.count(QOSClass.GUARANTEED),
        classes.count(QOSClass.BURSTABLE),
        classes.count(QOSClass.BEST_EFFORT),
        tuple(sum(one.frees(name) for one in victims) for name in resources),
    )
