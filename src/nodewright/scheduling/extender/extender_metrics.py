"""What the extender counts, in the Prometheus text format."""

from collections import Counter
from collections.abc import Mapping

import msgspec

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


class ExtenderCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one process, or several together, have counted.

    Units: durations and oldest_s in seconds.
    """

    calls: dict[str, int] = {}
    """By verb and result, with a blank between them."""
    durations: dict[str, tuple[tuple[int, ...], float]] = {}
    """The buckets and the sum, by verb."""
    verdicts: dict[str, int] = {}
    """By decision and basis."""
    computed: int = 0
    shared: int = 0
    nodes: dict[str, int] = {}
    """By basis."""
    oldest_s: float = 0.0
    reservations: int = 0
    compared: dict[str, int] = {}
    """By basis and outcome."""
    wrong: dict[str, int] = {}
    """By basis."""
    export_errors: dict[str, int] = {}

    def plus(self, other: "ExtenderCounts") -> "ExtenderCounts":
        """Both together; calls and durations are those of this one, which has taken them."""
        return ExtenderCounts(
            calls=self.calls,
            durations=self.durations,
            verdicts=_sums(self.verdicts, other.verdicts),
            computed=self.computed + other.computed,
            shared=self.shared + other.shared,
            nodes=_sums(self.nodes, other.nodes),
            oldest_s=max(self.oldest_s, other.oldest_s),
            reservations=self.reservations + other.reservations,
            compared=_sums(self.compared, other.compared),
            wrong=_sums(self.wrong, other.wrong),
            export_errors=_sums(self.export_errors, other.export_errors),
        )

    def text(self) -> str:
        """All metrics."""
        histograms = [
            MetricHistogram((verb,), _BOUNDS, counts, total)
            for verb, (counts, total) in sorted(self.durations.items())
        ]
        return "".join(
            (
                family_text(_CALLS, _samples(self.calls)),
                family_text(_DURATIONS, histograms),
                family_text(_VERDICTS, _samples(self.verdicts)),
                family_text(_COMPUTED, [MetricSample((), self.computed)]),
                family_text(_SHARED, [MetricSample((), self.shared)]),
                family_text(_NODES, _samples(self.nodes)),
                family_text(_OLDEST, [MetricSample((), self.oldest_s)]),
                family_text(_RESERVATIONS, [MetricSample((), self.reservations)]),
                family_text(_COMPARED, _samples(self.compared)),
                family_text(_WRONG, _samples(self.wrong)),
                family_text(_EXPORT_ERRORS, _samples(self.export_errors)),
            )
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

    def call_counts(self) -> ExtenderCounts:
        """The calls and verdicts so far."""
        durations = {verb: (tuple(buckets.counts), buckets.total) for verb, buckets in self.durations.items()}
        return ExtenderCounts(
            calls=_joined(self.calls),
            durations=durations,
            verdicts=_joined(
                {(str(decision), str(basis)): n for (decision, basis), n in self.verdicts.items()}
            ),
        )


def cluster_counts(
    cluster: TrackedCluster, ledger: VerdictLedger, export_errors: Mapping[str, int], *, now_s: float
) -> ExtenderCounts:
    """What is to be counted of the nodes and of what became of the pods."""
    ages = [now_s - node.received_s for node in cluster.nodes.values() if node.basis is Basis.EXACT]
    wrong = dict.fromkeys(map(str, Basis), 0)
    for (outcome, basis), count in ledger.counts.items():
        wrong[basis] += count if outcome.is_wrong else 0
    return ExtenderCounts(
        computed=cluster.pool.counts.computed,
        shared=cluster.pool.counts.shared,
        nodes={str(basis): count for basis, count in cluster.count_by_basis().items()},
        oldest_s=max(ages, default=0.0),
        reservations=sum(1 for _ in cluster.reservations()),
        compared={f"{basis} {outcome}": count for (outcome, basis), count in ledger.counts.items()},
        wrong=wrong,
        export_errors=dict(export_errors),
    )


def _sums(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in (*first, *second)}


def _joined(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    return {f"{first} {second}": count for (first, second), count in counts.items()}


def _samples(counts: Mapping[str, int]) -> list[MetricSample]:
    """The samples; a blank separates two labels."""
    return [MetricSample(tuple(labels.split(" ", 1)), count) for labels, count in sorted(counts.items())]
