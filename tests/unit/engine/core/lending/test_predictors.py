"""What a predictor of one's own may return, and the error where it does not."""

import pytest

from nodewright.engine.core.lending.predictors import Predictor, State, UsageSamples
from nodewright.model.values.custom_policy import CustomPolicyError

SAMPLES = UsageSamples(times_ns=(0, 1), usage=(3, None), request=10)


def custom(answer: object, margin: int = 0) -> Predictor:
    def function(state: State, _samples: UsageSamples) -> tuple[State, list[int]]:
        if isinstance(answer, Exception):
            raise answer
        return state, answer  # type: ignore[return-value] # wrong answers are the subject

    return Predictor(name="own", description="", function=function, margin_percent=margin)


def test_the_request_is_reserved_where_usage_is_unknown_and_a_margin_is_added_before() -> None:
    assert custom([2, 2]).reservations((), SAMPLES)[1] == [3, 10]
    assert custom([4, 4], margin=10).reservations((), SAMPLES)[1] == [5, 10]
    assert custom([11, 11]).reservations((), SAMPLES)[1] == [10, 10]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (ValueError("no data"), "no data"),
        ([1], "does not return one whole number for each sample"),
        ([1.5, 2], "does not return one whole number for each sample"),
        (["1", 2], "does not return one whole number for each sample"),
    ],
)
def test_a_predictor_that_fails_is_named(answer: object, rule: str) -> None:
    with pytest.raises(CustomPolicyError, match=rule):
        custom(answer).reservations((), SAMPLES)
