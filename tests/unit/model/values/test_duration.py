import pickle

import pytest

from nodewright.model.values.duration import Duration, DurationError

READ = """
    0                    ->  0s
    -0                   ->  0s
    +5s                  ->  5s
    90s                  ->  1m30s
    1.5h                 ->  1h30m0s
    1h0.5s               ->  1h0m0.5s
    500us                ->  500µs
    500µs                ->  500µs
    500μs                ->  500µs
    .5ms                 ->  500µs
    1.ms                 ->  1ms
    7ns                  ->  7ns
    -1.25s               ->  -1.25s
    0.1234567891234s     ->  123.456789ms
    0.99999999999999999999999s  ->  1s
    9223372036854775807ns       ->  2562047h47m16.854775807s
    -9223372036854775808ns      ->  -2562047h47m16.854775808s
    000000000000000000000001s   ->  1s
"""

REFUSED = """
    x                        ->  time: invalid duration "x"
    -                        ->  time: invalid duration "-"
    .s                       ->  time: invalid duration ".s"
    5                        ->  time: missing unit in duration "5"
    1d                       ->  time: unknown unit "d" in duration "1d"
    1µ                       ->  time: unknown unit "\\xc2\\xb5" in duration "1\\xc2\\xb5"
    1"                       ->  time: unknown unit "\\"" in duration "1\\""
    9223372036854775808ns    ->  time: invalid duration "9223372036854775808ns"
    99999999999999999999999h ->  time: invalid duration "99999999999999999999999h"
    2562047h48m              ->  time: invalid duration "2562047h48m"
    9999999h9999999h         ->  time: invalid duration "9999999h9999999h"
"""


def pairs(table: str) -> list[tuple[str, str]]:
    lines = [line.strip().partition("->") for line in table.strip().splitlines()]
    return [(left.strip(), right.strip()) for left, _, right in lines]


@pytest.mark.parametrize(("text", "shown"), pairs(READ))
def test_a_duration_is_parsed_and_printed_as_in_go(text: str, shown: str) -> None:
    assert str(Duration.parse(text)) == shown


@pytest.mark.parametrize(("text", "message"), pairs(REFUSED))
def test_an_invalid_duration_has_gos_error(text: str, message: str) -> None:
    with pytest.raises(DurationError) as refused:
        Duration.parse(text)
    assert str(refused.value) == message


def test_an_empty_text_is_not_a_duration() -> None:
    with pytest.raises(DurationError, match='time: invalid duration ""'):
        Duration.parse("")


def test_a_duration_is_a_value() -> None:
    minute = Duration.seconds(60)
    assert minute == Duration.parse("1m")
    assert minute != 60
    assert len({minute, Duration.parse("60s")}) == 1
    assert Duration() < minute <= Duration.parse("1m")
    assert pickle.loads(pickle.dumps(minute)) == minute  # noqa: S301 - our own bytes
    assert not Duration()
    assert repr(minute) == "Duration('1m0s')"
    assert Duration.parse("-300.9s").total_seconds == -300.9
    with pytest.raises(AttributeError):
        minute.nanoseconds = 1
