"""The text format, read by Prometheus' own client."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nodewright.render.exposition import Family, Histogram, Kind, Sample, exposed, number_text


def test_a_histogram_is_cumulative_with_a_sum_and_a_count() -> None:
    family = Family("took_seconds", Kind.HISTOGRAM, "How long.", ("what",))
    (read,) = text_string_to_metric_families(exposed(family, [Histogram(("a",), (0.1, 1), [1, 2, 3], 7.5)]))
    found = {(one.name, one.labels.get("le")): one.value for one in read.samples}
    assert found == {
        ("took_seconds_bucket", "0.1"): 1,
        ("took_seconds_bucket", "1"): 3,
        ("took_seconds_bucket", "+Inf"): 6,
        ("took_seconds_sum", None): 7.5,
        ("took_seconds_count", None): 6,
    }


def test_nothing_is_said_of_what_there_is_nothing_of() -> None:
    assert exposed(Family("a", Kind.GAUGE, "A.", ("b",)), []) == ""


@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e")
    )
)
def test_whatever_a_label_says_it_is_read_back(text: str) -> None:
    (read,) = text_string_to_metric_families(
        exposed(Family("a", Kind.GAUGE, "A.", ("b",)), [Sample((text,), 1)])
    )
    assert read.samples[0].labels == {"b": text}


@given(st.floats(allow_nan=False))
def test_whatever_a_number_is_it_is_read_back(value: float) -> None:
    assert float(number_text(value)) == value


def test_what_is_no_number_is_said_so() -> None:
    assert number_text(math.nan) == "NaN"
    assert number_text(-math.inf) == "-Inf"
    assert number_text(-1234567) == "-1.234567e+06"
