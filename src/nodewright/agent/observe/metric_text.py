"""The text of counts and times: families by what they count, in tables."""

from collections.abc import Iterable, Mapping

from nodewright.agent.observe.metric_names import (
    CounterMetric,
    GaugeMetric,
    HistogramMetric,
    Labels,
    MetricValues,
)
from nodewright.documents.output.exposition import (
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)


def counter_families(
    rows: Iterable[tuple[CounterMetric, str, str, Labels]],
) -> Mapping[CounterMetric, MetricFamily]:
    """A table of counters: what is counted, the name, the help and the names of the labels."""
    return {what: MetricFamily(name, MetricType.COUNTER, about, labels) for what, name, about, labels in rows}


def histogram_families(
    rows: Iterable[tuple[HistogramMetric, str, str, Labels]],
) -> Mapping[HistogramMetric, MetricFamily]:
    """A table of histograms, as of `counter_families`."""
    return {
        what: MetricFamily(name, MetricType.HISTOGRAM, about, labels) for what, name, about, labels in rows
    }


def gauge_families(rows: Iterable[tuple[GaugeMetric, str, str]]) -> Mapping[GaugeMetric, MetricFamily]:
    """A table of gauges without labels."""
    return {what: MetricFamily(name, MetricType.GAUGE, about) for what, name, about in rows}


def counters_text(values: MetricValues, families: Mapping[CounterMetric, MetricFamily]) -> str:
    """The counters that have counted something."""
    return "".join(
        family_text(family, [MetricSample(key, counts[key]) for key in sorted(counts)])
        for what, family in families.items()
        if (counts := values.counts[what])
    )


def histograms_text(values: MetricValues, families: Mapping[HistogramMetric, MetricFamily]) -> str:
    """The histograms that have observed something."""
    return "".join(family_text(family, _histograms(values, what)) for what, family in families.items())


def gauges_text(values: MetricValues, families: Mapping[GaugeMetric, MetricFamily]) -> str:
    """The gauges that have a value."""
    return "".join(
        family_text(family, [MetricSample((), values.gauges[what])])
        for what, family in families.items()
        if what in values.gauges
    )


def _histograms(values: MetricValues, metric: HistogramMetric) -> list[MetricHistogram]:
    histograms = sorted(values.histograms_of(metric), key=lambda each: each[0])
    return [
        MetricHistogram(labels, buckets.bounds, buckets.counts, buckets.total)
        for labels, buckets in histograms
    ]
