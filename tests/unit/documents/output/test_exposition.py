"""The text format is readable by Prometheus' own parser."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nodewright.documents.output.exposition import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
    number_text,
)


def test_a_histogram_is_cumulative_with_a_sum_and_a_count() -> None:
    family = MetricFamily("took_seconds", MetricType.HISTOGRAM, "How long.", ("what",))
    (read,) = text_string_to_metric_families(
        family_text(family, [MetricHistogram(("a",), (0.1, 1), [1, 2, 3], 7.5)])
    )
    samples = {(sample.name, sample.labels.get("le")): sample.value for sample in read.samples}
    assert samples == {
        ("took_seconds_bucket", "0.1"): 1,
        ("took_seconds_bucket", "1"): 3,
        ("took_seconds_bucket", "+Inf"): 6,
        ("took_seconds_sum", None): 7.5,
        ("took_seconds_count", None): 6,
    }


def test_a_family_without_samples_is_omitted() -> None:
    assert family_text(MetricFamily("a", MetricType.GAUGE, "A.", ("b",)), []) == ""


@pytest.mark.slow
@given(
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e")
    )
)
def test_any_label_value_round_trips(text: str) -> None:
    (read,) = text_string_to_metric_families(
        family_text(MetricFamily("a", MetricType.GAUGE, "A.", ("b",)), [MetricSample((text,), 1)])
    )
    assert read.samples[0].labels == {"b": text}


@given(st.floats(allow_nan=False))
def test_any_number_round_trips(value: float) -> None:
    assert float(number_text(value)) == value


def test_numbers_are_printed_as_go_prints_them() -> None:
    assert number_text(math.nan) == "NaN"
    assert number_text(-math.inf) == "-Inf"
    assert number_text(-1234567) == "-1.234567e+06"
