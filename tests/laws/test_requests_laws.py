"""What a pod asks for: the quick way agrees with the slow and obvious one, and derivations add up."""

from fractions import Fraction
from functools import reduce
from operator import add

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.requests.effective_resources import (
    ResourceField,
    container_limits,
    container_requests,
    pod_limits,
    pod_requests,
    preemption_requests,
    scheduler_requests,
    scheduler_usage,
)
from nodewright.engine.core.requests.oom_adjust import oom_score_adjs, oom_scores
from nodewright.engine.core.requests.qos_and_priority import (
    LimitsMissing,
    QOSClass,
    RequestsDiffer,
    computed_qos_class,
    qos_verdict,
)
from nodewright.engine.core.requests.resource_breakdown import ResourceDerivation, resource_derivations
from nodewright.engine.core.requests.resource_defaults import (
    RequestFromLimit,
    defaulted_pod,
    with_defaults,
    with_pod_level_defaults,
)
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.quantity import ZERO, Quantity
from nodewright.testing.strategies import RESOURCES, pods, requirements


def in_use_over_time(pod: Pod, name: str, side: ResourceField) -> list[Fraction]:
    """Plays the pod's life: init containers start one by one, sidecars stay; then everything runs."""

    def own(container: Container) -> Fraction:
        resources = container.resources
        amounts = resources.requests if side is ResourceField.REQUESTS else resources.limits
        return amounts.get(name, ZERO).as_fraction()

    history = []
    staying: list[Container] = []
    for starting in pod.spec.init_containers:
        history.append(sum(map(own, (*staying, starting)), Fraction(0)))
        if starting.is_sidecar:
            staying.append(starting)
    history.append(sum(map(own, (*staying, *pod.spec.containers)), Fraction(0)))
    return history


def with_container(pod: Pod, resources: ResourceRequirements) -> Pod:
    extra = Container(name="extra", resources=resources)
    return replace(pod, spec=replace(pod.spec, containers=(*pod.spec.containers, extra)))


def without_pod_level(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, resources=None))


def covers(large: ResourceList, small: ResourceList) -> bool:
    return all(large.get(name, ZERO) >= amount for name, amount in small.items())


@given(pods(), st.sampled_from(RESOURCES), st.sampled_from(tuple(ResourceField)))
def test_containers_together_need_the_most_that_is_in_use_at_any_time(
    pod: Pod, name: str, side: ResourceField
) -> None:
    together = container_requests(pod) if side is ResourceField.REQUESTS else container_limits(pod)
    assert together.get(name, ZERO).as_fraction() == max(in_use_over_time(pod, name, side))


@given(pods())
def test_the_pod_asks_for_at_least_what_each_container_asks_for(pod: Pod) -> None:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        assert covers(container_requests(pod), container.resources.requests)
        assert covers(container_limits(pod), container.resources.limits)


@given(pods(), requirements())
def test_one_more_container_never_lowers_anything(pod: Pod, resources: ResourceRequirements) -> None:
    more = with_container(pod, resources)
    assert covers(pod_requests(more), pod_requests(pod))
    assert covers(pod_limits(more), pod_limits(pod))


@given(pods(), st.sampled_from(tuple(ResourceField)))
def test_derivations_add_up_to_the_amounts(pod: Pod, side: ResourceField) -> None:
    effective = pod_requests(pod) if side is ResourceField.REQUESTS else pod_limits(pod)
    result = resource_derivations(pod, side)
    assert {each.resource: each.amount for each in result} == effective
    for each in result:
        assert rebuilt(each) == each.amount.as_fraction()


def rebuilt(derivation: ResourceDerivation) -> Fraction:
    """The amount, from the numbers of its derivation alone."""
    for moment in derivation.moments:
        assert moment.amount == reduce(add, (addend.amount for addend in moment.addends), ZERO)
        assert derivation.deciding is not None
        assert moment.amount <= derivation.deciding.amount
    quantity = ZERO if derivation.deciding is None else derivation.deciding.amount
    quantity = derivation.pod_level if derivation.pod_level is not None else quantity
    return (quantity + (derivation.overhead or ZERO)).as_fraction()


@given(pods())
def test_defaults_are_filled_in_once(pod: Pod) -> None:
    once = defaulted_pod(pod).pod
    assert with_pod_level_defaults(with_defaults(once), DEFAULT_GATES) == once
    assert defaulted_pod(once).defaults == ()


@given(pods())
def test_defaults_only_add_or_round_up_and_name_what_they_added(pod: Pod) -> None:
    pod_with_defaults = defaulted_pod(pod)
    assert pod_with_defaults.pod == with_pod_level_defaults(with_defaults(pod), DEFAULT_GATES)
    before = (*pod.spec.containers, *pod.spec.init_containers)
    after = (*pod_with_defaults.pod.spec.containers, *pod_with_defaults.pod.spec.init_containers)
    for was, now in zip(before, after, strict=True):
        assert covers(now.resources.requests, was.resources.requests)
        assert now.resources.limits.keys() <= now.resources.requests.keys()
        named = {
            fact.resource
            for fact in pod_with_defaults.defaults
            if isinstance(fact, RequestFromLimit) and fact.container == was.name
        }
        assert named == now.resources.requests.keys() - was.resources.requests.keys()


@given(pods(), requirements())
def test_a_container_without_limits_takes_a_pod_out_of_guaranteed(
    pod: Pod, resources: ResourceRequirements
) -> None:
    pod = without_pod_level(pod)
    unlimited = with_container(pod, replace(resources, limits={}))
    assert computed_qos_class(unlimited) is not QOSClass.GUARANTEED


@given(pods())
def test_a_pod_is_kept_out_of_guaranteed_by_something_that_is_named(pod: Pod) -> None:
    verdict = qos_verdict(pod)
    assert verdict.qos_class is computed_qos_class(pod)
    assert verdict.because
    kept_out = [fact for fact in verdict.because if isinstance(fact, LimitsMissing | RequestsDiffer)]
    assert bool(kept_out) == (verdict.qos_class is QOSClass.BURSTABLE)


@given(pods(), st.sampled_from(PodLevelQOS))
def test_the_class_is_that_of_the_sums_and_of_the_containers_without_limits(
    pod: Pod, pod_level: PodLevelQOS
) -> None:
    assert computed_qos_class(pod, pod_level) == class_by_sums(pod, pod_level)


def class_by_sums(pod: Pod, pod_level: PodLevelQOS) -> QOSClass:
    """The slow, obvious version, in the kubelet's own steps."""
    own = None if pod_level is PodLevelQOS.NEVER else pod.spec.resources
    if own is not None and pod_level is PodLevelQOS.WHERE_SUPPORTED:
        named = {*own.requests, *own.limits}
        own = (
            own if any(name in ("cpu", "memory") or name.startswith("hugepages-") for name in named) else None
        )
    owners = (*pod.spec.containers, *pod.spec.init_containers)
    lists = [own] if own is not None else [owner.resources for owner in owners]
    sums: dict[tuple[str, str], Fraction] = {}
    is_limited = True
    for resources in lists:
        for side, amounts in (("requests", resources.requests), ("limits", resources.limits)):
            for name in ("cpu", "memory"):
                amount = amounts.get(name, ZERO).as_fraction()
                if amount > 0:
                    sums[side, name] = sums.get((side, name), Fraction(0)) + amount
                elif side == "limits":
                    is_limited = False
    if not sums:
        return QOSClass.BEST_EFFORT
    are_equal = all(sums.get(("requests", name)) == sums.get(("limits", name)) for name in ("cpu", "memory"))
    return QOSClass.GUARANTEED if is_limited and are_equal else QOSClass.BURSTABLE


@given(pods(), st.integers(1, 2**44))
def test_burstable_scores_lie_between_the_two_fixed_ones(pod: Pod, capacity: int) -> None:
    pod = without_pod_level(pod)
    scores = set(oom_score_adjs(pod, capacity).values())
    match computed_qos_class(pod):
        case QOSClass.GUARANTEED:
            assert scores == {-997}
        case QOSClass.BURSTABLE:
            assert all(3 <= score <= 999 for score in scores)
        case QOSClass.BEST_EFFORT:
            assert scores == {1000}


@given(pods(), st.integers(1, 2**44))
def test_every_container_has_one_score(pod: Pod, capacity: int) -> None:
    result = oom_scores(pod, capacity)
    assert [score.container for score in result] == [
        container.name for container in (*pod.spec.containers, *pod.spec.init_containers)
    ]


@given(pods())
def test_whole_numbers_are_the_amounts_rounded_up(pod: Pod) -> None:
    requests = pod_requests(pod)
    for item in (scheduler_requests(pod), scheduler_usage(pod)):
        assert item.keys() == requests.keys()
        for name, number in item.items():
            assert number == ceiling(requests[name], name)


@given(pods())
def test_a_pod_never_frees_more_than_it_takes(pod: Pod) -> None:
    taken = scheduler_usage(pod)
    assert all(
        freed <= taken.get(name, 0) for name, freed in preemption_requests(pod).items() if name != "pods"
    )


def ceiling(amount: Quantity, name: str) -> int:
    return amount.milli_value() if name == "cpu" else amount.value()
