"""What a node may lend of one resource, at each sample of its pods."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.lending.predictors import (
    Predictor,
    PredictorFunction,
    PredictorScope,
    State,
    UsageSamples,
)

_COLUMNS_AT_ONCE = 16


class NodeSamples(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Samples of one resource of all pods, at the same times.

    Units: thousandths of a CPU, or bytes; times in nanoseconds, ascending.
    """

    times_ns: Sequence[int]
    pods: tuple[UsageSamples, ...]
    names: tuple[str, ...] = ()
    """Of the pods, for samples that come one after the other; empty: the pods are the same in all samples."""
    capacity: int
    """The node's allocatable amount."""
    is_memory: bool = False

    @cached_property
    def requested(self) -> int:
        """The sum of the requests."""
        return sum(pod.request for pod in self.pods)

    @cached_property
    def used(self) -> Sequence[int]:
        """The sum of the usage; unknown usage counts as the request."""
        return _sums([pod.known_usage for pod in self.pods], len(self.times_ns))

    @cached_property
    def whole(self) -> UsageSamples:
        """The node as if it were one pod."""
        return UsageSamples(
            times_ns=self.times_ns,
            usage=self.used,
            request=self.requested,
            capacity=self.capacity,
            is_memory=self.is_memory,
        )

    @cached_property
    def sums(self) -> dict[tuple[PredictorFunction, int], list[int]]:
        """What is reserved without earlier samples, by function and margin: a predictor may consist of others."""
        return {}

    @cached_property
    def _predictions(self) -> dict[PredictorFunction, Mapping[str, tuple[State, Sequence[int]]]]:
        return {}

    def predictions(
        self, predictor: Predictor, states: Mapping[str, State]
    ) -> Mapping[str, tuple[State, Sequence[int]]]:
        """For each pod by its name, or for the whole node, the state after the samples and the predictions.

        Without earlier samples they are asked for once, whatever the margin.
        Errors: CustomPolicyError of the predictor.
        """
        known = {} if states else self._predictions
        if predictor.function not in known:
            names = self.names or tuple(map(str, range(len(self.pods))))
            is_whole = predictor.scope is PredictorScope.NODE
            samples_by_name = {"": self.whole} if is_whole else dict(zip(names, self.pods, strict=True))
            known[predictor.function] = {
                name: predictor.predictions(states.get(name), samples)
                for name, samples in samples_by_name.items()
            }
        return known[predictor.function]


def node_loans(predictor: Predictor, node: NodeSamples) -> list[int]:
    """What may be lent from each sample until the next one: requested, and neither reserved nor used by any pod.

    Units:  as the samples.
    Errors: CustomPolicyError of the predictor.
    """
    requested = node.requested
    return [max(requested - reserved, 0) for reserved in node_reservations(predictor, node, {})[1]]


def node_reservations(
    predictor: Predictor, node: NodeSamples, states: Mapping[str, State]
) -> tuple[Mapping[str, State], list[int]]:
    """What is reserved of the requests from each sample until the next one, beyond the requests what is used.

    ``states`` are what the predictor remembers of earlier samples; returned with those after these samples.
    Units:  as the samples.
    Errors: CustomPolicyError of the predictor.
    """
    if predictor.greatest_of:
        parts = {
            part.name: replace(part, margin_percent=part.margin_percent + predictor.margin_percent)
            for part in predictor.greatest_of
        }
        results = {
            name: node_reservations(part, node, states.get(name) or {}) for name, part in parts.items()
        }
        after = {name: result[0] for name, result in results.items()}
        return after, list(map(max, *(result[1] for result in results.values())))
    predictions = node.predictions(predictor, states)
    after = {name: state for name, (state, _) in predictions.items()}
    if predictor.scope is PredictorScope.NODE:
        return after, predictor.reserved(predictions[""][1], node.whole)
    sums = {} if states else node.sums
    key = (predictor.function, predictor.margin_percent)
    if key not in sums:
        sums[key] = _kept(predictor, node, [predicted for _, predicted in predictions.values()])
    return after, sums[key]


def _kept(predictor: Predictor, node: NodeSamples, predictions: Sequence[Sequence[int]]) -> list[int]:
    """The sums of what the pods keep by these predictions; what they use beyond their requests is what others request."""
    pairs = list(zip(predictions, node.pods, strict=True))
    if not predictor.by_peak:
        return _sums((predictor.kept(predicted, pod) for predicted, pod in pairs), len(node.times_ns))
    # Between peaks predictions stay, and few samples exceed them: only those are looked at one by one.
    parts = node.whole.intervals[1]
    columns = [predictor.levels(predicted, pod.request) for predicted, pod in pairs]
    sums: list[int] = []
    for level, part in zip(_sums(columns, len(parts)), parts, strict=True):
        sums += [level] * (part.stop - part.start)
    for column, pod in zip(columns, node.pods, strict=True):
        for level, peak, part in zip(column, pod.known_peaks, parts, strict=True):
            if peak > level:
                sums[part] = [
                    kept + used - level if used > level else kept
                    for kept, used in zip(sums[part], pod.known_usage[part], strict=True)
                ]
    return sums


def _sums(columns: Iterable[Sequence[int]], length: int) -> list[int]:
    """The sums of the columns, of few at once so that generated ones need not all be in memory."""
    total, left = [0] * length, iter(columns)
    while group := list(islice(left, _COLUMNS_AT_ONCE)):
        total = list(map(sum, zip(total, *group, strict=True)))
    return total
