"""Metrics as Prometheus reads them: the text format, version 0.0.4.

Not prometheus-client: it names every counter `…_total`, which some of the kubelet's are not, and a scrape of a node
full of pods takes it ten times as long.

>>> family = Family("kubelet_evictions", Kind.COUNTER, "Pods that were evicted.", ("eviction_signal",))
>>> print(exposed(family, [Sample(("memory.available",), 2)]), end="")
# HELP kubelet_evictions Pods that were evicted.
# TYPE kubelet_evictions counter
kubelet_evictions{eviction_signal="memory.available"} 2
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Kind(StrEnum):
    """What a number is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """Numbers of one name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One number.

    Units: at_ms in milliseconds since 1970.
    """

    labels: tuple[str, ...]
    """The labels' values, in the family's order."""
    value: float
    at_ms: int | None = None
    """When it was measured; None: now."""


class Histogram(NamedTuple):
    """Measures by class."""

    labels: tuple[str, ...]
    bounds: Sequence[float]
    """The upper bounds of all classes but the last, which has none."""
    counts: Sequence[int]
    total: float
    """All measures together."""


def exposed(family: Family, found: Iterable[Sample | Histogram]) -> str:
    """The family with what there is of it; nothing where there is nothing."""
    lines = [line for one in found for line in _lines(family, one)]
    if not lines:
        return ""
    head = f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.kind}\n"
    return head + "".join(lines)


def number_text(value: float) -> str:
    """A number in as few digits as give it back, as Go's `%g` has it.

    >>> number_text(3), number_text(0.25), number_text(8388608), number_text(0.00002), number_text(float("inf"))
    ('3', '0.25', '8.388608e+06', '2e-05', '+Inf')
    """
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        return repr(float(value)).removesuffix(".0")
    shown = Decimal(repr(float(value)))
    if not shown.is_finite():
        return "NaN" if shown.is_nan() else "-Inf" if value < 0 else "+Inf"
    sign, digits, exponent = shown.normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    power = exponent + len(digits) - 1
    mantissa = f"{first}.{rest}" if rest else first
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _lines(family: Family, one: Sample | Histogram) -> Iterable[str]:
    if isinstance(one, Sample):
        at = "" if one.at_ms is None else f" {one.at_ms}"
        yield f"{family.name}{_labels(family.labels, one.labels)} {number_text(one.value)}{at}\n"
        return
    names = (*family.labels, "le")
    count = 0
    for bound, count in zip((*one.bounds, float("inf")), accumulate(one.counts), strict=True):
        yield f"{family.name}_bucket{_labels(names, (*one.labels, number_text(bound)))} {count}\n"
    where = _labels(family.labels, one.labels)
    yield f"{family.name}_sum{where} {number_text(one.total)}\n"
    yield f"{family.name}_count{where} {count}\n"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_quoted(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
