"""What holds for every predictor, whatever the history."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.lending.node_loans import NodeSamples, node_loans
from nodewright.engine.core.lending.predictors import (
    PREDICTORS,
    Predictor,
    PredictorScope,
    UsageSamples,
    percentile,
)
from nodewright.predict.lend.lend_replay import (
    AT_ONCE,
    MARGINS_PERCENT,
    borrower_terms,
    lending_advice,
    replayed_loans,
    term_percentiles,
)

SECOND_NS = 10**9
predictors = st.sampled_from(list(PREDICTORS.values()))
amounts = st.one_of(st.none(), st.integers(0, 9000))


@st.composite
def histories(draw: st.DrawFn) -> NodeSamples:
    count = draw(st.integers(1, 60))
    steps_s = draw(st.lists(st.integers(1, 900), min_size=count, max_size=count))
    times_ns = [at_s * SECOND_NS for at_s in accumulate(steps_s)]
    pods = tuple(
        UsageSamples(
            times_ns=times_ns,
            usage=draw(st.lists(amounts, min_size=count, max_size=count)),
            request=draw(st.integers(0, 6000)),
        )
        for _ in range(draw(st.integers(1, 4)))
    )
    return NodeSamples(times_ns=times_ns, pods=pods, capacity=draw(st.integers(0, 30000)))


def slow_loans(predictor: Predictor, node: NodeSamples) -> list[int]:
    """The loans, sample by sample, from one state to the next."""
    states = dict.fromkeys(range(len(node.pods)))
    loans, state = [], None
    for at, now_ns in enumerate(node.times_ns):
        used = [pod.request if pod.usage[at] is None else pod.usage[at] or 0 for pod in node.pods]
        requests = [pod.request for pod in node.pods]
        if predictor.scope is PredictorScope.NODE:
            whole = UsageSamples(
                times_ns=(now_ns,), usage=(sum(used),), request=sum(requests), capacity=node.capacity
            )
            state, (reserved,) = predictor.reservations(state, whole)
        else:
            reserved = 0
            for index, pod in enumerate(node.pods):
                sample = replace(pod, times_ns=(now_ns,), usage=(pod.usage[at],))
                states[index], (own,) = predictor.reservations(states[index], sample)
                reserved += own + max(used[index] - pod.request, 0)
        loans.append(max(sum(requests) - reserved, 0))
    return loans


@given(predictors, histories())
def test_never_more_is_lent_than_is_requested_and_unused(predictor: Predictor, node: NodeSamples) -> None:
    for lent, used in zip(node_loans(predictor, node), node.used, strict=True):
        assert 0 <= lent <= max(node.requested - used, 0)


@given(histories())
def test_requests_lend_nothing(node: NodeSamples) -> None:
    assert not any(node_loans(PREDICTORS["request"], node))


@given(predictors.filter(lambda each: not each.greatest_of), histories())
def test_whole_histories_are_decided_as_one_sample_after_another(
    predictor: Predictor, node: NodeSamples
) -> None:
    assert node_loans(predictor, node) == slow_loans(predictor, node)


@given(histories())
def test_the_machine_peak_is_the_lesser_loan(node: NodeSamples) -> None:
    parts = [node_loans(PREDICTORS[name], node) for name in ("n-sigma", "percentile-sum")]
    assert node_loans(PREDICTORS["machine-peak"], node) == list(map(min, *parts))


@given(predictors, histories(), st.integers(1, 100))
def test_a_greater_margin_never_lends_more(predictor: Predictor, node: NodeSamples, more: int) -> None:
    greater = replace(predictor, margin_percent=predictor.margin_percent + more)
    assert all(map(int.__le__, node_loans(greater, node), node_loans(predictor, node)))


@given(predictors, histories())
def test_a_sample_without_usage_lends_nothing_of_its_pod(predictor: Predictor, node: NodeSamples) -> None:
    unknown = replace(node.pods[0], usage=[None] * len(node.times_ns))
    assert not any(node_loans(predictor, replace(node, pods=(unknown,))))


@given(predictors, histories())
def test_a_return_is_complete_at_the_next_sample(predictor: Predictor, node: NodeSamples) -> None:
    """No loan outlasts the sample that shows the need: what is left fits beside the usage."""
    replayed = replayed_loans(predictor, node, spare=0)
    for lent, used in zip(replayed.lent, node.used, strict=True):
        assert lent == 0 or lent + used <= node.requested


@pytest.mark.parametrize("name", ["kubelet", "agent"])
@given(predictor=predictors, node=histories())
def test_spare_that_covers_everything_makes_nothing_late(
    name: str, predictor: Predictor, node: NodeSamples
) -> None:
    assert not replayed_loans(predictor, node, spare=10**6).is_late(name)


@given(histories())
def test_the_advice_lends_as_much_as_the_best_of_all_trials(node: NodeSamples) -> None:
    half = len(node.times_ns) // 2
    pods = tuple(replace(pod, times_ns=pod.times_ns[:half], usage=pod.usage[:half]) for pod in node.pods)
    first = replace(node, times_ns=node.times_ns[:half], pods=pods)
    trials = [
        replayed_loans(replace(each, margin_percent=margin), first, spare=0)
        for each in PREDICTORS.values()
        for margin in MARGINS_PERCENT
    ]
    safe = [loans for loans in trials if loans.amount_seconds and not loans.is_late(AT_ONCE)]
    best = max(
        safe, key=lambda each: (each.amount_seconds, each.margin_percent, each.predictor), default=None
    )
    advice = lending_advice(list(PREDICTORS.values()), node, spare=0, loop=AT_ONCE)
    assert (None if advice is None else advice.first) == best


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 90)), max_size=20))
def test_the_times_of_borrowers_are_those_of_each_borrower_by_itself(samples: list[tuple[int, int]]) -> None:
    counts, times_s = [count for count, _ in samples], list(accumulate(span_s for _, span_s in samples))
    started: list[int] = []
    terms = []
    for count, now_s in zip(counts, times_s, strict=True):
        while len(started) > count:
            terms.append(now_s - started.pop())
        started += [now_s] * (count - len(started))
    terms = sorted([*terms, *(times_s[-1] - since_s for since_s in started)])
    fast = borrower_terms(counts, [at_s * SECOND_NS for at_s in times_s])
    assert sorted(fast.elements()) == terms
    assert term_percentiles(fast) == tuple(percentile(terms, share) for share in (10, 50, 90) if terms)
    assert borrower_terms([10**18], [0]) == {0: 10**18}
