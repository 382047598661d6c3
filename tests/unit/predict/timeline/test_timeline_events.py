"""Lines over time."""

import pytest

from nodewright.predict.timeline.timeline_model import LinearAmount

SECOND = 10**9


def test_an_amount_has_past_and_future_values() -> None:
    line = LinearAmount(100)
    line.change(0, by_rate=10)
    line.change(5 * SECOND, by_nanobytes=-20 * SECOND, by_rate=-15)
    assert [line.bytes_at(at * SECOND) for at in (0, 2, 5, 6, 10)] == [100, 120, 130, 125, 105]
    assert line.breakpoints(10 * SECOND) == [
        (0, 100),
        (5 * SECOND, 150),
        (5 * SECOND, 130),
        (10 * SECOND, 105),
    ]
    assert line.breakpoints(3 * SECOND)[-1] == (3 * SECOND, 130)


@pytest.mark.parametrize(
    ("start", "rate", "limit", "reached_ns"),
    [
        (0, 3, 1, 333_333_334),
        (0, 1, 0, 0),
        (5, 0, 5, 0),
        (5, 0, 6, None),
        (5, -1, 6, None),
        (9, -1, 6, 0),
    ],
)
def test_a_limit_is_reached_in_the_first_nanosecond_that_has_it(
    start: int, rate: int, limit: int, reached_ns: int | None
) -> None:
    line = LinearAmount(start)
    line.change(0, by_rate=rate)
    assert line.reaches_ns(limit) == reached_ns
    if reached_ns:
        assert line.bytes_at(reached_ns - 1) < limit <= line.bytes_at(reached_ns)


def test_a_shrinking_amount_is_empty_at_some_time() -> None:
    line = LinearAmount(10)
    assert line.empties_ns() is None
    line.change(SECOND, by_rate=-4)
    assert line.empties_ns() == SECOND + 2_500_000_000
