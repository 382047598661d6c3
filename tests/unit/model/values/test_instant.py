import pickle

import pytest

from nodewright.model.values.instant import ZERO_TIME, Instant, InstantError

# text -> seconds since 1970
TIMES = """
    1970-01-01T00:00:00Z                 ->  0
    1969-12-31T23:59:59Z                 ->  -1
    2000-02-29T00:00:00Z                 ->  951782400
    2000-03-01T00:00:00Z                 ->  951868800
    1900-03-01T00:00:00Z                 ->  -2203891200
    2024-12-31T23:59:59Z                 ->  1735689599
    2026-01-31T13:30:00+01:30            ->  1769860800
    2026-01-31T10:30:00-01:30            ->  1769860800
    2026-01-31T12:00:00+24:60            ->  1769770800
    2026-01-31T9:00:00Z                  ->  1769850000
    0001-01-01T00:00:00Z                 ->  -62135596800
    9999-12-31T23:59:59Z                 ->  253402300799
"""


@pytest.mark.parametrize("line", TIMES.strip().splitlines())
def test_a_timestamp_is_a_number_of_seconds_since_1970(line: str) -> None:
    text, _, seconds = line.split()
    assert Instant.parse(text) == Instant(int(seconds) * 10**9)


@pytest.mark.parametrize(
    ("fraction", "nanoseconds"),
    [(".5", 500_000_000), (",000000001", 1), (".1234567899", 123_456_789), (".000", 0)],
)
def test_fractions_are_kept_to_the_nanosecond(fraction: str, nanoseconds: int) -> None:
    assert Instant.parse(f"1970-01-01T00:00:00{fraction}Z").nanoseconds == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "today",
        "2026-01-31",
        "2026-01-31t12:00:00Z",
        "2026-01-31T12:00:00z",
        "2026-01-31T12:00:00",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-04-00T00:00:00Z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T12:00:60Z",
        "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00+25:00",
        "2026-01-31T12:00:00+01:61",
        "٢026-01-31T12:00:00Z",
    ],
)
def test_other_texts_are_not_timestamps(text: str) -> None:
    with pytest.raises(InstantError):
        Instant.parse(text)


def test_instants_are_values() -> None:
    early, late = Instant(1), Instant(2)
    assert early < late
    assert late >= early
    assert early != 1
    assert {early, Instant(1)} == {early}
    assert pickle.loads(pickle.dumps(early)) == early  # noqa: S301 - our own bytes
    assert repr(early) == "Instant(1)"
    assert Instant.parse("0001-01-01T00:00:01Z") > ZERO_TIME
    with pytest.raises(AttributeError):
        early.nanoseconds = 3


@pytest.mark.parametrize("year", [0, 1, 399, 400, 401, 1600, 1899, 1900, 1999, 2000, 2001, 2400, 9999])
def test_the_ends_of_a_year_are_written_as_they_are_read(year: int) -> None:
    for day in ("01-01", "02-28", "03-01", "12-31"):
        text = f"{year:04}-{day}T00:00:00Z"
        assert str(Instant.parse(text)) == text


def test_times_far_away_are_written_at_once() -> None:
    """A number of seconds in a request may have 18 digits: no loop over years."""
    cycle_ns = 146_097 * 86_400 * 10**9
    for cycles in (-(10**8), -3, 3, 10**8, 10**400):
        moment = Instant(Instant.parse("2026-02-28T12:00:00Z").nanoseconds + cycles * cycle_ns)
        assert str(moment) == f"{2026 + 400 * cycles:04}-02-28T12:00:00Z"
