"""What holds for loans of a node, whatever its pods use."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.lending.loans import GROWTH_PERCENT, LendableAmount, Loans, loans_after
from nodewright.engine.core.lending.node_loans import NodeSamples, node_reservations
from nodewright.engine.core.lending.predictors import PREDICTORS, Predictor, UsageSamples

MIB = 1 << 20
amounts = st.integers(0, 10_000)
optional_amounts = st.one_of(st.none(), amounts)


@st.composite
def lendable(draw: st.DrawFn) -> LendableAmount:
    return LendableAmount(allocatable=draw(amounts), requested=draw(amounts), reserved=draw(optional_amounts))


before = st.builds(Loans, cpu_milli=amounts, memory_bytes=amounts)
observations = st.tuples(lendable(), lendable(), st.integers(0, 20_000))


@given(before, observations)
def test_loans_fit_beside_what_is_reserved_at_once(
    loans: Loans, observed: tuple[LendableAmount, LendableAmount, int]
) -> None:
    after = loans_after(loans, *observed)
    assert after is not None
    for ceiling, amount in zip((after.cpu_milli, after.memory_bytes), observed, strict=False):
        assert isinstance(amount, LendableAmount)
        if amount.reserved is not None:
            assert 0 <= ceiling <= max(amount.allocatable - amount.reserved, 0)


@given(st.one_of(st.none(), before), st.lists(observations, max_size=20))
def test_loans_grow_by_a_tenth_of_the_node_at_most(
    loans: Loans | None, history: list[tuple[LendableAmount, LendableAmount, int]]
) -> None:
    for observed in history:
        after = loans_after(loans, *observed)
        if after is not None and loans is not None:
            most = [amount.allocatable * GROWTH_PERCENT // 100 for amount in observed[:2]]
            assert after.cpu_milli - loans.cpu_milli <= most[0]
            assert after.memory_bytes - loans.memory_bytes <= most[1]
        loans = after


@given(before, observations)
def test_what_is_owed_is_what_is_held_beyond_the_ceiling(
    loans: Loans, observed: tuple[LendableAmount, LendableAmount, int]
) -> None:
    after = loans_after(loans, *observed)
    assert after is not None
    beyond = observed[2] - after.memory_bytes
    assert (after.owed_bytes > 0) == (beyond > 0)
    assert after.owed_bytes % MIB == 0
    assert 0 <= after.owed_bytes - max(beyond, 0) < MIB


@given(observations)
def test_nothing_is_limited_before_something_is_lent(
    observed: tuple[LendableAmount, LendableAmount, int],
) -> None:
    lends = any(
        amount.reserved is not None and amount.reserved < amount.requested
        for amount in observed
        if isinstance(amount, LendableAmount)
    )
    assert (loans_after(None, *observed) is not None) == lends


@given(before, lendable(), st.integers(0, 20_000))
def test_a_steady_node_comes_to_rest(loans: Loans, amount: LendableAmount, borrowed: int) -> None:
    history = [loans]
    for _ in range(25):
        after = loans_after(history[-1], amount, amount, borrowed)
        assert after is not None
        history.append(after)
    assert history[-1] == history[-2]
    falls = [one for one, other in pairwise(history) if other.cpu_milli < one.cpu_milli]
    assert falls in ([], [loans])


@given(
    st.sampled_from(list(PREDICTORS.values())),
    st.lists(st.tuples(optional_amounts, optional_amounts), min_size=1, max_size=40),
    st.tuples(amounts, amounts),
)
def test_an_agent_that_samples_reserves_as_a_history_is_judged(
    predictor: Predictor, usage: list[tuple[int | None, int | None]], requests: tuple[int, int]
) -> None:
    times_ns = [60 * 10**9 * number for number in range(len(usage))]

    def samples(begin: int, end: int) -> NodeSamples:
        pods = tuple(
            UsageSamples(
                times_ns=times_ns[begin:end],
                usage=[used[pod] for used in usage[begin:end]],
                request=requests[pod],
            )
            for pod in range(2)
        )
        return NodeSamples(times_ns=times_ns[begin:end], pods=pods, capacity=15_000, names=("a", "b"))

    states, reserved = dict[str, object](), list[int]()
    for number in range(len(usage)):
        after, column = node_reservations(predictor, samples(number, number + 1), states)
        states, reserved = dict(after), [*reserved, *column]
    assert reserved == node_reservations(predictor, samples(0, len(usage)), {})[1]
