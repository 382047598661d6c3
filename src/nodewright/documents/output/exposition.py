"""Metrics in the Prometheus text format, version 0.0.4.

This replaces prometheus-client, which appends `_total` to every counter, also where the kubelet's name has none, and
needs ten times as long for a scrape of a full node.

>>> family = MetricFamily("kubelet_evictions", MetricType.COUNTER, "Pods that were evicted.", ("eviction_signal",))
>>> print(family_text(family, [MetricSample(("memory.available",), 2)]), end="")
# HELP kubelet_evictions Pods that were evicted.
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 2
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricType(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(NamedTuple):
    """The name, type, help and label names of a metric."""

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()


class MetricSample(NamedTuple):
    """One value of a metric.

    Units: at_ms in milliseconds since 1970.
    """

    labels: tuple[str, ...]
    """The labels' values, in the family's order."""
    value: float
    at_ms: int | None = None
    """Time of measurement; None: time of the scrape."""


class MetricHistogram(NamedTuple):
    """Observations counted by bucket."""

    labels: tuple[str, ...]
    bounds: Sequence[float]
    """The upper bounds of all buckets except the last, which is unbounded."""
    counts: Sequence[int]
    sum: float
    """The sum of all observations."""


def family_text(family: MetricFamily, samples: Iterable[MetricSample | MetricHistogram]) -> str:
    """The family with its samples; empty if there are none."""
    lines = [line for sample in samples for line in _lines(family, sample)]
    if not lines:
        return ""
    head = f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.type}\n"
    return head + "".join(lines)


def number_text(value: float) -> str:
    """The shortest text that parses back to the number, as Go's `%g` writes it.

    >>> number_text(3), number_text(0.25), number_text(8388608), number_text(0.00002), number_text(float("inf"))
    ('3', '0.25', '8.388608e+06', '2e-05', '+Inf')
    """
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        return repr(float(value)).removesuffix(".0")
    decimal = Decimal(repr(float(value)))
    if not decimal.is_finite():
        return "NaN" if decimal.is_nan() else "-Inf" if value < 0 else "+Inf"
    sign, digits, exponent = decimal.normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    power = exponent + len(digits) - 1
    mantissa = f"{first}.{rest}" if rest else first
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _lines(family: MetricFamily, sample: MetricSample | MetricHistogram) -> Iterable[str]:
    if isinstance(sample, MetricSample):
        at = "" if sample.at_ms is None else f" {sample.at_ms}"
        yield f"{family.name}{_labels(family.labels, sample.labels)} {number_text(sample.value)}{at}\n"
        return
    names = (*family.labels, "le")
    count = 0
    for bound, count in zip((*sample.bounds, float("inf")), accumulate(sample.counts), strict=True):
        yield f"{family.name}_bucket{_labels(names, (*sample.labels, number_text(bound)))} {count}\n"
    labels = _labels(family.labels, sample.labels)
    yield f"{family.name}_sum{labels} {number_text(sample.sum)}\n"
    yield f"{family.name}_count{labels} {count}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


DEFAULT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HistogramBuckets:
    """The buckets of a histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Adds a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
