from itertools import chain, combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.test_nodes import Script, played, scripts

from nodewright.engine.core.preemption.greedy import (
    MissingAmount,
    PreemptionCandidate,
    PreemptionVictims,
    remaining_missing,
    victims_for,
)
from nodewright.engine.core.preemption.optimal import PreemptionCost, smallest_preemption
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import (
    InsufficientResource,
    NodeNameMismatch,
    NoVictimsSuffice,
    PredicateFailure,
)
from nodewright.model.reasons.verdict import Granted, Refused
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
    unique_by=lambda insufficient_resource: insufficient_resource.resource,
)


def granted(active: list[Pod], failures: list[InsufficientResource]) -> PreemptionVictims | None:
    victims = victims_for(CRITICAL, active, failures)
    return victims.value if isinstance(victims, Granted) else None


@given(active=pods, failures=shortages)
def test_preemption_frees_enough_or_nobody_could(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    missing = tuple(MissingAmount(failure.resource, failure.missing) for failure in failures)
    result = victims_for(CRITICAL, active, failures)
    if isinstance(result, Granted):
        victims = result.value.victims
        assert not remaining_missing(missing, victims)
        assert len({victim.pod.uid for victim in victims}) == len(victims)
        assert remaining_missing(missing, result.value.candidates) == ()
    else:
        [reason] = result.because
        assert isinstance(reason, NoVictimsSuffice)
        assert reason.unmet


@given(active=pods, failures=shortages, priority=st.none() | st.integers(-5, 1_999_999_999))
def test_only_a_critical_pod_preempts(
    active: list[Pod], failures: list[InsufficientResource], priority: int | None
) -> None:
    assert victims_for(a_pod(priority=priority), active, failures) == Refused(tuple(failures))


@given(active=pods, failures=shortages, at=st.integers(0, 3))
def test_nobody_goes_if_anything_but_a_shortage_speaks_against_the_pod(
    active: list[Pod], failures: list[InsufficientResource], at: int
) -> None:
    elsewhere = NodeNameMismatch(wanted="a", actual="b")
    mixed: list[PredicateFailure] = [*failures[:at], elsewhere, *failures[at:]]
    assert victims_for(CRITICAL, active, mixed) == Refused((elsewhere,))


@given(active=pods, failures=shortages)
def test_no_guaranteed_pod_goes_while_lesser_ones_hold_enough(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    preemption_victims = granted(active, failures)
    if preemption_victims is None:
        return
    lesser = [
        candidate
        for candidate in preemption_victims.candidates
        if candidate.qos_class is not QOSClass.GUARANTEED
    ]
    if not remaining_missing(preemption_victims.missing, lesser):
        assert all(victim.qos_class is not QOSClass.GUARANTEED for victim in preemption_victims.victims)


@given(active=pods, failures=shortages, budget=st.sampled_from([0, 3, 100_000]))
def test_the_optimum_frees_enough_spares_whom_it_can_and_is_never_worse_than_the_kubelets_choice(
    active: list[Pod], failures: list[InsufficientResource], budget: int
) -> None:
    preemption_victims = granted(active, failures)
    if preemption_victims is None:
        return
    best = smallest_preemption(preemption_victims, budget=budget)
    assert not remaining_missing(preemption_victims.missing, best.victims)
    assert best.cost <= best.greedy_cost
    for spared in best.victims:
        rest = [victim for victim in best.victims if victim is not spared]
        assert remaining_missing(preemption_victims.missing, rest)


@given(active=pods, failures=shortages)
def test_with_budget_enough_no_choice_at_all_is_smaller(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    preemption_victims = granted(active, failures)
    if preemption_victims is None:
        return
    best = smallest_preemption(preemption_victims, budget=100_000)
    assert best.proved
    choices = chain.from_iterable(
        combinations(preemption_victims.candidates, size)
        for size in range(len(preemption_victims.candidates) + 1)
    )
    tolls = [
        toll(chosen, best.resources)
        for chosen in choices
        if not remaining_missing(preemption_victims.missing, chosen)
    ]
    assert best.cost == min(tolls)


@given(
    active=st.lists(st.tuples(amounts, st.booleans()), min_size=1, max_size=40).map(build),
    failures=shortages,
)
def test_each_round_picks_the_nearest_then_smallest_then_last_of_all_remaining_candidates(
    active: list[Pod], failures: list[InsufficientResource]
) -> None:
    preemption_victims = granted(active, failures)
    for round_ in preemption_victims.rounds if preemption_victims else ():
        keys = [
            (distance, candidate.frees("memory"), candidate.frees("cpu"), -at)
            for at, (candidate, distance) in enumerate(round_.distances)
        ]
        assert round_.picked is round_.candidates[keys.index(min(keys))]
    for before, after in pairwise(preemption_victims.rounds if preemption_victims else ()):
        if before.qos_class is after.qos_class:
            # The last candidate takes the place of the picked one.
            *rest, last = before.candidates
            remaining = [last if candidate is before.picked else candidate for candidate in rest]
            assert list(after.candidates) == remaining


def toll(victims: tuple[PreemptionCandidate, ...], resources: tuple[str, ...]) -> PreemptionCost:
    classes = [victim.qos_class for victim in victims]
    return PreemptionCost(
        classes.count(QOSClass.GUARANTEED),
        classes.count(QOSClass.BURSTABLE),
        classes.count(QOSClass.BEST_EFFORT),
        tuple(sum(victim.frees(name) for victim in victims) for name in resources),
    )


@given(script=scripts(), chosen=st.sets(st.integers(0, 6)))
def test_pods_are_removed_together_as_one_after_the_other(script: Script, chosen: set[int]) -> None:
    *_, (node, _) = played(script)
    uids = [uid for at, uid in enumerate(node.state.pods) if at in chosen]
    state = node.state
    for uid in uids:
        state = state.without_pod(uid)
    together = node.state.without_active(uids)
    assert together == (state if uids else replace(state, is_collected=False))
    assert list(together.pods) == list(state.pods)
