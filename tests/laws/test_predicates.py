from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.predicates.predicate_check import (
    NodeUsage,
    NodeView,
    check_predicates,
    node_usage,
    shortages,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.verdict import Refused
from nodewright.testing.objects import a_pod

NAMES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")

amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 40))
rooms = st.fixed_dictionaries({"pods": st.integers(0, 4)}, optional=dict.fromkeys(NAMES, st.integers(0, 60)))
pods = st.builds(
    lambda requests: a_pod("other", {name: str(count) for name, count in requests.items()}), amounts
)


@given(asked=amounts, used=amounts, count=st.integers(0, 5), room=rooms)
def test_a_shortage_is_exact(
    asked: Mapping[str, int], used: Mapping[str, int], count: int, room: Mapping[str, int]
) -> None:
    """Add just what was named missing and the resource suffices; add one less and it does not."""
    others = NodeUsage(pods=count, requests=used)
    for short in shortages(asked, others, room):
        enough = {**room, short.resource: short.capacity + short.missing}
        one_less = {**room, short.resource: short.capacity + short.missing - 1}
        assert short.resource not in [shortage.resource for shortage in shortages(asked, others, enough)]
        assert short.resource in [shortage.resource for shortage in shortages(asked, others, one_less)]


@given(pod=pods, others=st.lists(pods, max_size=3), one_more=pods, room=rooms)
def test_one_more_pod_never_makes_room(
    pod: Pod, others: list[Pod], one_more: Pod, room: Mapping[str, int]
) -> None:
    node = NodeView(allocatable=room)
    before = check_predicates(pod, node, node_usage(others))
    after = check_predicates(pod, node, node_usage([*others, one_more]))
    assert isinstance(after.verdict, Refused) or not isinstance(before.verdict, Refused)
    short = {failure.resource for failure in before.failures if isinstance(failure, InsufficientResource)}
    assert short <= {
        failure.resource for failure in after.failures if isinstance(failure, InsufficientResource)
    }


@given(others=st.lists(pods, max_size=4), gone=pods)
def test_taking_a_pod_away_undoes_adding_it(others: list[Pod], gone: Pod) -> None:
    before = node_usage(others)
    after = before.plus(gone).minus(gone)
    assert after.pods == before.pods
    assert {name: amount for name, amount in after.requests.items() if amount} == {
        name: amount for name, amount in before.requests.items() if amount
    }
