"""What the extender counts, in the Prometheus text format."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from nodewright.documents.output.exposition import (
    HistogramBuckets,
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)
from nodewright.engine.node.step import Decision
from nodewright.scheduling.verdicts.tracked_cluster import Basis, TrackedCluster
from nodewright.scheduling.verdicts.verdict_ledger import VerdictLedger

_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_NAME = "nodewright_extender"


def _family(name: str, kind: MetricType, help_text: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"{_NAME}_{name}", kind, help_text, labels)


_CALLS = _family("calls_total", MetricType.COUNTER, "Calls by verb and result.", "verb", "result")
_DURATIONS = _family(
    "call_duration_seconds", MetricType.HISTOGRAM, "How long a call is computed, without waiting.", "verb"
)
_VERDICTS = _family(
    "verdicts_total", MetricType.COUNTER, "Verdicts of filter by decision and basis.", "decision", "basis"
)
_COMPUTED = _family("verdicts_computed_total", MetricType.COUNTER, "Verdicts that were computed.")
_SHARED = _family("verdicts_shared_total", MetricType.COUNTER, "Verdicts taken from an equal node or call.")
_NODES = _family("nodes", MetricType.GAUGE, "Nodes by what their verdicts are based on.", "basis")
_OLDEST = _family(
    "oldest_export_seconds", MetricType.GAUGE, "Time since the oldest exact state was confirmed."
)
_RESERVATIONS = _family(
    "reservations", MetricType.GAUGE, "Pods on their way to nodes that do not show them yet."
)
_COMPARED = _family(
    "compared_verdicts_total",
    MetricType.COUNTER,
    "Verdicts about bound pods by what the kubelet then did.",
    "basis",
    "outcome",
)
_WRONG = _family("wrong_verdicts_total", MetricType.COUNTER, "Compared verdicts that were wrong.", "basis")
_EXPORT_ERRORS = _family("export_errors_total", MetricType.COUNTER, "Exports that were of no use.", "kind")
_UNREADABLE = _family(
    "unreadable_objects_total", MetricType.COUNTER, "Objects of the API server that cannot be read.", "path"
)


class ExtenderMetrics:
    """Counts calls, verdicts and times."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.verdicts: Counter[tuple[Decision, Basis]] = Counter()
        self.durations: dict[str, HistogramBuckets] = {}

    def record_call(self, verb: str, result: str, duration_s: float) -> None:
        """Counts a call."""
        self.calls[verb, result] += 1
        buckets = self.durations.get(verb)
        if buckets is None:
            buckets = self.durations[verb] = HistogramBuckets(_BOUNDS)
        buckets.observe(duration_s)

    def record_verdicts(self, decisions: Mapping[tuple[Decision, Basis], int]) -> None:
        """Counts the verdicts of a call."""
        self.verdicts.update(decisions)

    def text(
        self,
        cluster: TrackedCluster,
        ledger: VerdictLedger,
        errors: tuple[Mapping[str, int], Mapping[str, int]],
        *,
        now_s: float,
    ) -> str:
        """All metrics: the calls so far, the nodes as they are, and what became of bound pods; useless exports and objects."""
        histograms = [
            MetricHistogram((verb,), _BOUNDS, tuple(buckets.counts), buckets.total)
            for verb, buckets in sorted(self.durations.items())
        ]
        ages = [now_s - node.received_s for node in cluster.nodes.values() if node.basis is Basis.EXACT]
        verdict_counts, reservations = cluster.pool.counts, sum(1 for _ in cluster.reservations())
        wrong = dict.fromkeys(Basis, 0)
        for (outcome, basis), count in ledger.counts.items():
            wrong[basis] += count if outcome.is_wrong else 0
        return "".join(
            (
                family_text(_CALLS, _samples(self.calls)),
                family_text(_DURATIONS, histograms),
                family_text(_VERDICTS, _samples(self.verdicts)),
                family_text(_COMPUTED, [MetricSample((), verdict_counts.computed)]),
                family_text(_SHARED, [MetricSample((), verdict_counts.shared)]),
                family_text(_NODES, _samples(cluster.count_by_basis())),
                family_text(_OLDEST, [MetricSample((), max(ages, default=0.0))]),
                family_text(_RESERVATIONS, [MetricSample((), reservations)]),
                family_text(
                    _COMPARED,
                    _samples({(basis, outcome): n for (outcome, basis), n in ledger.counts.items()}),
                ),
                family_text(_WRONG, _samples(wrong)),
                family_text(_EXPORT_ERRORS, _samples(errors[0])),
                family_text(_UNREADABLE, _samples(errors[1])),
            )
        )


def _samples(counts: Mapping[Any, int]) -> list[MetricSample]:
    """The counts by label, or by a tuple of labels."""
    return [
        MetricSample(tuple(map(str, key if isinstance(key, tuple) else (key,))), counts[key])
        for key in sorted(counts)
    ]
