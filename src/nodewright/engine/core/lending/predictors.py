"""Predictors of usage: how much of its requests a pod, or a whole node, keeps; the rest may be lent.

A predictor is a function of a state and samples, called with a whole history or with one sample at a time; both give the same.
What holds for every predictor, custom ones included, is applied to its answer: nothing that is in use is lent, unknown usage
counts as the request, and never more is kept than is requested or used.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise
from math import gcd, isqrt, log
from typing import Any, ClassVar, TypeAlias

import msgspec

from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)

SECOND_NS = 10**9
STARTUP_NS = 300 * SECOND_NS
"""How long Borg's decay waits after a start."""
PEAK_NS = 300 * SECOND_NS
"""Predictors that remember take the highest sample of each such interval."""
WARM_UP_PEAKS = 24
"""Intervals that have to be known before a percentile counts: 2 hours."""
HISTORY_PEAKS = 120
"""Intervals that percentiles and deviations are taken of: 10 hours."""
SIGMAS = 5
_PERCENT = 100


class PredictorScope(StrEnum):
    """What a predictor is asked about."""

    POD = "pod"
    NODE = "node"


class UsageSamples(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Samples of one resource of a pod, or of a node as a whole.

    Units: thousandths of a CPU, or bytes; times in nanoseconds, ascending.
    """

    times_ns: Sequence[int]
    usage: Sequence[int | None]
    """None: unknown."""
    request: int
    capacity: int = 0
    """The node's allocatable amount."""
    is_memory: bool = False

    @cached_property
    def known_usage(self) -> Sequence[int]:
        """The usage; unknown usage counts as the request."""
        if None not in self.usage:
            return self.usage  # type: ignore[return-value] # all are known
        return [self.request if used is None else used for used in self.usage]

    @cached_property
    def intervals(self) -> tuple[Sequence[int], Sequence[slice]]:
        """Numbers and places of the intervals of PEAK_NS."""
        return _peak_intervals(tuple(self.times_ns))

    @property
    def peaks(self) -> Iterator[tuple[int, int | None]]:
        """For each interval of PEAK_NS its number, and its highest known sample."""
        numbers, parts = self.intervals
        if self.usage is self.known_usage:
            return zip(numbers, self.known_peaks, strict=True)
        highest = (
            max((used for used in self.usage[part] if used is not None), default=None) for part in parts
        )
        return zip(numbers, highest, strict=True)

    @cached_property
    def known_peaks(self) -> Sequence[int]:
        """For each interval its highest sample; unknown usage counts as the request."""
        return list(map(max, map(self.known_usage.__getitem__, self.intervals[1])))


@lru_cache(2)
def _peak_intervals(times_ns: tuple[int, ...]) -> tuple[Sequence[int], Sequence[slice]]:
    """Those of all pods of a node are the same."""
    start, numbers, slices = 0, list[int](), list[slice]()
    while start < len(times_ns):
        numbers.append(times_ns[start] // PEAK_NS)
        end = bisect_left(times_ns, (numbers[-1] + 1) * PEAK_NS, start)
        slices.append(slice(start, end))
        start = end
    return numbers, slices


State: TypeAlias = Any
"""What a predictor remembers; None before the first sample."""
PredictorFunction: TypeAlias = Callable[[State, UsageSamples], tuple[State, Sequence[int]]]
"""From the state and the next samples to the state after them, and a prediction for each sample."""


class Predictor(CustomPolicy, frozen=True, kw_only=True):
    """How much a pod or a node keeps of its requests."""

    function: PredictorFunction
    scope: PredictorScope = PredictorScope.POD
    margin_percent: int = 0
    """Added to each prediction."""
    greatest_of: tuple["Predictor", ...] = ()
    """Predictors whose greatest reservation counts, instead of the function."""
    by_peak: bool = False
    """Whether the function answers once for each of the samples' `peaks` instead of each sample."""

    kind: ClassVar[str] = "predictor"
    profile_field: ClassVar[str] = "predictor"

    def reservations(self, state: State, samples: UsageSamples) -> tuple[State, list[int]]:
        """The state after the samples, and what is reserved from each sample until the next one.

        At least the usage, as far as it is requested, and at most the request; the request where usage is unknown.
        Errors: CustomPolicyError if the function fails, or does not return one whole number for each sample.
        """
        state, predictions = self.predictions(state, samples)
        return state, self.reserved(predictions, samples)

    def predictions(self, state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
        """What the function answers, without the margin. Errors: as of `reservations`."""
        try:
            state, predictions = self.function(state, samples)
        except Exception as error:
            raise CustomPolicyError(self, f"fails: {failure_text(error)}") from error
        count = len(samples.intervals[1] if self.by_peak else samples.usage)
        if len(predictions) != count or not _are_whole_numbers(predictions):
            raise CustomPolicyError(self, "does not return one whole number for each sample")
        return state, predictions

    def reserved(self, predictions: Sequence[int], samples: UsageSamples) -> list[int]:
        """What is reserved of the request by these predictions, with the margin."""
        if self.by_peak:
            predictions = [
                each
                for each, part in zip(predictions, samples.intervals[1], strict=True)
                for _ in range(part.start, part.stop)
            ]
        request = samples.request
        return [kept if kept < request else request for kept in self.kept(predictions, samples)]  # noqa: FURB136 - as in `kept`

    def kept(self, predictions: Sequence[int], samples: UsageSamples) -> list[int]:
        """What is reserved by a prediction for each sample, and what is used beyond the request."""
        request, margin = samples.request, _PERCENT + self.margin_percent
        return [
            # No call of `max` or `min`: this runs for each sample of each pod.
            (level if level > used else used)  # noqa: FURB136 - as above
            if (level := (predicted * margin + _PERCENT - 1) // _PERCENT) < request
            else (used if used > request else request)  # noqa: FURB136 - as above
            for predicted, used in zip(predictions, samples.known_usage, strict=True)
        ]

    def levels(self, predictions: Sequence[int], request: int) -> list[int]:
        """The predictions with the margin, at most the request."""
        margin = _PERCENT + self.margin_percent
        if min(predictions, default=0) >= request:
            return [request] * len(predictions)
        levels = [(each * margin + _PERCENT - 1) // _PERCENT for each in predictions]
        return [each if each < request else request for each in levels]  # noqa: FURB136 - as in `kept`


def _are_whole_numbers(values: Sequence[int]) -> bool:
    try:
        return type(sum(values)) is int  # A tenth of the time of looking at each.
    except TypeError:
        return False


def predictor(
    name: str,
    *,
    scope: PredictorScope = PredictorScope.POD,
    margin_percent: int = 0,
    by_peak: bool = False,
) -> Callable[[PredictorFunction], Predictor]:
    """Decorator that makes a function a predictor; its docstring's first line is the description."""

    def decorated(function: PredictorFunction) -> Predictor:
        return Predictor(
            name=name,
            description=docstring_summary(function.__doc__),
            function=function,
            scope=scope,
            margin_percent=margin_percent,
            by_peak=by_peak,
        )

    return decorated


# ---------------------------------------------------------------- without memory


@predictor("request", by_peak=True)
def request(state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
    """Reserves the request: nothing is lent.

    As Kubernetes' scheduler, which counts requests whatever is used.
    """
    return state, [samples.request] * len(samples.intervals[0])


@predictor("koordinator", scope=PredictorScope.NODE)
def koordinator(state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
    """Lends up to 60 % of the node's CPU and 65 % of its memory, less what is used.

    Follows: Koordinator v1.6, pkg/slo-controller/noderesource/plugins/batchresource, calculateBatchResourceByPolicy, policy
        usage; pkg/util/sloconfig/colocation_config.go, DefaultColocationStrategy.
    Departs: only what is requested is lent; memory is the working set, page cache included. A history has no usage outside the
        pods: kube-reserved and system-reserved stand for it.
    """
    threshold = 65 if samples.is_memory else 60
    most = samples.capacity * threshold // _PERCENT
    return state, [
        samples.request - max(most - (samples.request if used is None else used), 0) for used in samples.usage
    ]


@predictor("borg-decay", margin_percent=10)
def borg_decay(state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
    """Reserves the request for 300 s, then decays by a hundredth of the distance to usage a second; rises at once.

    After Verma et al., Large-scale cluster management at Google with Borg, EuroSys 2015, section 5.5.
    Departs: the paper names neither margin nor speed: 10 %, and e-fold in 100 s. Unknown usage starts it again.
    """
    since_ns, last_ns, level = state or (None, 0, samples.request)
    usage, kept, divided = samples.usage, *_decays(last_ns, tuple(samples.times_ns))
    known_from = 0 if usage is samples.known_usage else len(usage) - usage[::-1].index(None)
    levels: list[int] = []
    for at, (now_ns, used) in enumerate(zip(samples.times_ns, usage, strict=True)):
        if used is None:
            since_ns, level = None, samples.request
        elif since_ns is None:
            since_ns, level = now_ns, max(samples.request, used)
        elif at >= known_from and now_ns - since_ns >= STARTUP_NS:
            break  # From here on the same rule holds for all samples, which a comprehension applies faster.
        elif used >= level:
            level = used
        elif now_ns - since_ns >= STARTUP_NS:
            level = used + (level - used) * kept[at] // divided[at]
        levels.append(level)
    start = len(levels)
    settled = zip(samples.known_usage[start:], kept[start:], divided[start:], strict=True)
    levels += [
        level := used if used >= level else used + (level - used) * part // whole
        for used, part, whole in settled
    ]
    return (since_ns, samples.times_ns[-1] if levels else last_ns, level), levels


@lru_cache(2)
def _decays(last_ns: int, times_ns: tuple[int, ...]) -> tuple[Sequence[int], Sequence[int]]:
    """The share that is left of the distance to usage at each time, as small numerators and denominators."""
    elapsed_ns = [now_ns - before_ns for before_ns, now_ns in pairwise((last_ns, *times_ns))]
    divisors = [gcd(DECAY_NS, each) for each in elapsed_ns]
    return (
        [DECAY_NS // divisor for divisor in divisors],
        [(DECAY_NS + each) // divisor for each, divisor in zip(elapsed_ns, divisors, strict=True)],
    )


DECAY_NS = 100 * SECOND_NS


# ---------------------------------------------------------------- with memory


class PeakState(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks of the last intervals, and what follows from them until the next interval ends."""

    interval: int | None = None
    """The number of the interval that is not yet complete; None: no sample was known."""
    peak: int = 0
    peaks: tuple[int, ...] = ()
    """The oldest first."""
    prediction: int | None = None
    """None: too little is known."""


def _from_peaks(predict: Callable[[Sequence[int], Sequence[int]], int]) -> PredictorFunction:
    """The predictor function that applies ``predict`` to the peaks, by time and by size, whenever an interval ends."""

    def function(state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
        before = state or PeakState()
        interval, peak, prediction = before.interval, before.peak, before.prediction
        peaks, ordered = list(before.peaks), sorted(before.peaks)
        predictions: list[int] = []
        for number, highest in samples.peaks:
            if highest is None:
                pass
            elif number == interval:
                peak = max(peak, highest)
            else:
                if interval is not None:
                    peaks.append(peak)
                    insort(ordered, peak)
                    if len(peaks) > HISTORY_PEAKS:
                        del ordered[bisect_left(ordered, peaks.pop(0))]
                    if len(peaks) >= WARM_UP_PEAKS:
                        prediction = predict(peaks, ordered)
                interval, peak = number, highest
            predictions.append(samples.request if prediction is None else prediction)
        return PeakState(interval=interval, peak=peak, peaks=tuple(peaks), prediction=prediction), predictions

    return function


def percentile(values: Sequence[int], percent: int) -> int:
    """The smallest value that so many percent of the values do not exceed.

    >>> percentile([4, 1, 3, 2], 50), percentile([7], 99)
    (2, 7)
    """
    return sorted(values)[max(-(-len(values) * percent // _PERCENT), 1) - 1]


def _n_sigma(peaks: Sequence[int], ordered: Sequence[int]) -> int:
    del ordered
    count, total = len(peaks), sum(peaks)
    variance = (count * sum(each * each for each in peaks) - total * total) // (count * count)
    return total // count + SIGMAS * (isqrt(variance) + 1)


n_sigma = Predictor(
    name="n-sigma",
    description="Mean of the node's peaks in 10 hours plus 5 standard deviations.",
    function=_from_peaks(_n_sigma),
    scope=PredictorScope.NODE,
    by_peak=True,
)
"""After Bashir et al., Take it to the limit: peak prediction-driven resource overcommitment in datacenters, EuroSys 2021,
section 4: N = 5, 2 hours of warm-up, 10 hours of history."""

percentile_sum = Predictor(
    name="percentile-sum",
    description="Sum over the pods of the 99th percentile of their peaks in 10 hours.",
    function=_from_peaks(lambda peaks, ordered: ordered[-(-len(peaks) * 99 // _PERCENT) - 1]),
    by_peak=True,
)
"""As in the work of `n_sigma`, the RC-like predictor, after Cortez et al., Resource Central, SOSP 2017."""

HALF_LIFE_PEAKS = 24 * 3600 * SECOND_NS // PEAK_NS
_FIRST_BUCKETS = {False: 10, True: 10_000_000}
_GROWTH = 1.05
_REFRESH_INTERVALS = 12


class HistogramState(msgspec.Struct, frozen=True, kw_only=True):
    """Weights by bucket that halve in a day, and the level that they gave last."""

    interval: int | None = None
    peak: int = 0
    base: int | None = None
    """The interval whose weight is 1; a thousand days later the weights exceed a float."""
    count: int = 0
    """Complete intervals."""
    weights: Mapping[int, float] = {}
    prediction: int | None = None


@predictor("half-life-histogram", margin_percent=15, by_peak=True)
def half_life_histogram(state: State, samples: UsageSamples) -> tuple[State, Sequence[int]]:
    """The 90th percentile of a histogram whose weights halve in 24 hours, plus 15 %; renewed each hour.

    After Kubernetes' VerticalPodAutoscaler, pkg/recommender/model/aggregations_config.go, util/decaying_histogram.go and
        logic/recommender.go: half-life, buckets that grow by 5 %, percentile and margin.
    Departs: memory is treated as CPU is, by peaks of 5 minutes; a sample's weight does not depend on the request. Floats, as
        there.
    """
    before = state or HistogramState()
    interval, peak, count, prediction = before.interval, before.peak, before.count, before.prediction
    weights, first, base = dict(before.weights), _FIRST_BUCKETS[samples.is_memory], before.base
    predictions: list[int] = []
    for number, highest in samples.peaks:
        if highest is None:
            pass
        elif number == interval:
            peak = max(peak, highest)
        else:
            if interval is not None:
                bucket = _bucket(peak, first)
                base = interval if base is None else base
                weight = 2.0 ** ((interval - base) / HALF_LIFE_PEAKS)
                weights[bucket] = weights.get(bucket, 0.0) + weight
                count += 1
                if count >= WARM_UP_PEAKS and count % _REFRESH_INTERVALS == 0:
                    prediction = _weighted_percentile(weights, first)
            interval, peak = number, highest
        predictions.append(samples.request if prediction is None else prediction)
    state = HistogramState(
        interval=interval, peak=peak, base=base, count=count, weights=weights, prediction=prediction
    )
    return state, predictions


_LOG_GROWTH = log(_GROWTH)


@lru_cache(1 << 14)
def _bucket(peak: int, first: int) -> int:
    return int(log(1 + peak * (_GROWTH - 1) / first) / _LOG_GROWTH)


def _weighted_percentile(weights: Mapping[int, float], first: int) -> int:
    """The end of the bucket in which nine tenths of the weight are reached."""
    left = 0.9 * sum(weights.values())
    for bucket in sorted(weights):
        left -= weights[bucket]
        if left <= 0:
            break
    return int(first * (_GROWTH ** (bucket + 1) - 1) / (_GROWTH - 1)) + 1


machine_peak = Predictor(
    name="machine-peak",
    description="The greater of n-sigma and percentile-sum.",
    function=request.function,
    scope=PredictorScope.NODE,
    greatest_of=(n_sigma, percentile_sum),
)
"""As in the work of `n_sigma`: the predictor that ran in production, the maximum of both."""

PREDICTORS: Mapping[str, Predictor] = {
    each.name: each
    for each in (
        request,
        borg_decay,
        n_sigma,
        percentile_sum,
        machine_peak,
        half_life_histogram,
        koordinator,
    )
}
"""The built-in predictors by name."""
