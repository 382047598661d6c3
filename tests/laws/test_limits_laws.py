"""Limit ranges: what they fill in, and what they let pass."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.admission.limit_ranger import (
    BeyondLimits,
    limit_range_as_stored,
    limit_ranger_verdict,
    pod_limit_violations,
    pod_totals,
    with_limit_range_defaults,
)
from nodewright.engine.core.requests.effective_resources import RequestOptions, pod_limits, pod_requests
from nodewright.model.kubernetes.api_request import create_request
from nodewright.model.kubernetes.cluster_objects import LimitRange, LimitRangeItem, LimitRangeSpec
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements
from nodewright.model.kubernetes.resource_names import is_huge_page
from nodewright.model.reasons.api_server import (
    NoRatio,
    NothingToBound,
    OutOfBounds,
    RequestOrLimit,
)
from nodewright.testing.strategies import pods, resource_lists

ITEMS = st.builds(
    LimitRangeItem,
    type=st.sampled_from(("Container", "Container", "Pod")),
    max=resource_lists(),
    min=resource_lists(),
    default=resource_lists(),
    default_request=resource_lists(),
    max_limit_request_ratio=resource_lists(),
)


def ranges() -> st.SearchStrategy[LimitRange]:
    items = st.lists(ITEMS, max_size=2).map(tuple)
    return items.map(lambda limits: LimitRange(spec=LimitRangeSpec(limits=limits)))


def resources_of(pod: Pod) -> list[ResourceRequirements]:
    return [each.resources for each in (*pod.spec.containers, *pod.spec.init_containers)]


@given(ranges())
def test_a_range_is_stored_once(limit_range: LimitRange) -> None:
    once = limit_range_as_stored(limit_range)
    assert limit_range_as_stored(once) == once


@given(pods(), ranges())
def test_defaults_are_filled_in_once_and_change_nothing_that_was_said(
    pod: Pod, limit_range: LimitRange
) -> None:
    filled = with_limit_range_defaults(pod, limit_range)
    again = with_limit_range_defaults(filled.pod, limit_range)
    assert again.pod == filled.pod
    assert again.defaults == ()
    for before, after in zip(resources_of(pod), resources_of(filled.pod), strict=True):
        assert before.requests.items() <= after.requests.items()
        assert before.limits.items() <= after.limits.items()


@given(pods(), ranges())
def test_violations_are_true(pod: Pod, limit_range: LimitRange) -> None:
    """What is shown is on the wrong side of its bound, or is what must be there and is not."""
    for reason in pod_limit_violations(pod, limit_range):
        if isinstance(reason, OutOfBounds):
            assert (reason.observed < reason.enforced) is (reason.bound == "minimum")
        elif isinstance(reason, NothingToBound):
            wanted = RequestOrLimit.REQUEST if reason.bound == "minimum" else RequestOrLimit.LIMIT
            assert reason.figure is wanted
        elif not isinstance(reason, NoRatio):
            assert reason.ratio > reason.enforced.as_float()


@given(pods(), st.lists(ranges(), max_size=2))
def test_a_pod_passes_that_breaks_none_of_the_ranges(pod: Pod, limit_ranges: list[LimitRange]) -> None:
    verdict = limit_ranger_verdict(create_request(pod), limit_ranges)
    broken = [bool(pod_limit_violations(verdict.pod, each)) for each in limit_ranges]
    assert isinstance(verdict, BeyondLimits) is any(broken)


@given(pods())
def test_totals_are_those_of_the_pod_but_for_overhead_and_pod_level_huge_pages(pod: Pod) -> None:
    plain = RequestOptions(exclude_overhead=True)
    resource_requirements = pod_totals(pod)
    for mine, theirs in (
        (resource_requirements.requests, pod_requests(pod, plain)),
        (resource_requirements.limits, pod_limits(pod, plain)),
    ):
        assert {name: v for name, v in mine.items() if not is_huge_page(name)} == {
            name: v for name, v in theirs.items() if not is_huge_page(name)
        }
