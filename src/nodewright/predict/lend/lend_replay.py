"""A history of usage played against predictors: what was lent, how it came back, and what a need met too late.

A loan is decided at each sample and holds until the next one. Between two samples usage changes evenly. Borrowers take the whole
loan in pieces of one size; when it shrinks, the youngest pieces end.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_policy import MONITORING_INTERVAL_NS, NEAR_INTERVAL_NS
from nodewright.engine.core.lending.node_loans import NodeSamples, node_loans
from nodewright.engine.core.lending.predictors import Predictor

SECOND_NS = 10**9
PIECES = {False: 1000, True: 1 << 30}
"""What a borrower takes: 1 CPU, or 1 GiB."""
AT_ONCE = "at-once"
LOOPS_NS = {"kubelet": MONITORING_INTERVAL_NS, "agent": NEAR_INTERVAL_NS, AT_ONCE: 10**9 * SECOND_NS}
"""The time until a loop observes a need: 10 s, and 50 ms near a threshold. `at-once`: usage rises before any loop looks."""
MARGINS_PERCENT = (0, 5, 10, 15, 20, 30, 50, 100)
"""The margins that an advice tries."""


class LateReturns(msgspec.Struct, frozen=True, kw_only=True):
    """Needs that exceed what is free before a loop observes them.

    Units: thousandths of a CPU, or bytes.
    """

    loop: str
    count: int
    evicted: int
    """Borrowers that end in these returns."""
    largest: int
    """The largest amount that was needed and still lent."""


class ReplayedLoans(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor lends of one resource over a history.

    Units: thousandths of a CPU, or bytes; seconds.
    """

    predictor: str
    margin_percent: int
    lent: tuple[int, ...]
    mean: int
    amount_seconds: int
    return_count: int
    """Samples at which less is lent than before."""
    largest_return: int
    largest_need_per_s: int
    """The fastest rise of usage into what was lent."""
    term_seconds: tuple[int, ...]
    """Uninterrupted time of borrowers: 10th, 50th and 90th percentile; empty: no borrower."""
    evicted: int
    late: tuple[LateReturns, ...]

    def is_late(self, loop: str) -> bool:
        """Whether a need met a loan too late under this loop."""
        return any(late.count for late in self.late if late.loop == loop)


def replayed_loans(predictor: Predictor, node: NodeSamples, *, spare: int) -> ReplayedLoans:
    """The loans of a predictor over the history; ``spare`` is free whatever is lent.

    Errors: CustomPolicyError of the predictor.
    """
    lent, used, times_ns = node_loans(predictor, node), node.used, node.times_ns
    piece = PIECES[node.is_memory]
    seconds = [(after - before) / SECOND_NS for before, after in pairwise(times_ns)]
    amount_seconds = int(sum(amount * span for amount, span in zip(lent, seconds, strict=False)))
    falls = [before - after for before, after in pairwise(lent) if after < before]
    terms = borrower_terms([amount // piece for amount in lent], times_ns)
    duration_s = (times_ns[-1] - times_ns[0]) / SECOND_NS if times_ns else 0
    needs = _needs(lent, used, node.requested, seconds)
    return ReplayedLoans(
        predictor=predictor.name,
        margin_percent=predictor.margin_percent,
        lent=tuple(lent),
        mean=int(amount_seconds / duration_s) if duration_s else 0,
        amount_seconds=amount_seconds,
        return_count=len(falls),
        largest_return=max(falls, default=0),
        largest_need_per_s=int(max((rate for _, _, rate in needs), default=0)),
        term_seconds=term_percentiles(terms),
        evicted=sum(max(before // piece - after // piece, 0) for before, after in pairwise(lent)),
        late=tuple(
            _late(loop, delay_ns / SECOND_NS, needs, lent, piece, spare)
            for loop, delay_ns in LOOPS_NS.items()
        ),
    )


def _needs(
    lent: Sequence[int], used: Sequence[int], requested: int, seconds: Sequence[float]
) -> list[tuple[int, int, float]]:
    """Rises of usage into what is lent: the sample before, the amount, and the rise per second."""
    needs = []
    for index, span_s in enumerate(seconds):
        amount = used[index + 1] + lent[index] - requested
        if lent[index] and amount > 0 and used[index + 1] > used[index]:
            amount = min(amount, lent[index])
            needs.append((index, amount, (used[index + 1] - used[index]) / span_s))
    return needs


def _late(
    loop: str,
    delay_s: float,
    needs: Sequence[tuple[int, int, float]],
    lent: Sequence[int],
    piece: int,
    spare: int,
) -> LateReturns:
    late = [
        (index, int(min(amount, rate * delay_s) - spare))
        for index, amount, rate in needs
        if min(amount, rate * delay_s) - spare >= 1
    ]
    return LateReturns(
        loop=loop,
        count=len(late),
        evicted=sum(max(lent[index] // piece - lent[index + 1] // piece, 0) for index, _ in late),
        largest=max((amount for _, amount in late), default=0),
    )


def borrower_terms(counts: Sequence[int], times_ns: Sequence[int]) -> Counter[int]:
    """The number of borrowers by how long they run, in seconds; those of the end count with the time that they have had.

    >>> borrower_terms([2, 5, 1], [0, 60 * 10**9, 120 * 10**9])
    Counter({60: 3, 120: 2})
    """
    started: list[tuple[int, int]] = []
    terms, running = Counter[int](), 0
    for count, now_ns in zip(counts, times_ns, strict=True):
        while running > count:
            since_ns, together = started.pop()
            ended = min(together, running - count)
            terms[(now_ns - since_ns) // SECOND_NS] += ended
            running -= ended
            if together > ended:
                started.append((since_ns, together - ended))
        if count > running:
            started.append((now_ns, count - running))
            running = count
    for since_ns, together in started:
        terms[(times_ns[-1] - since_ns) // SECOND_NS] += together
    return terms


def term_percentiles(terms: Counter[int]) -> tuple[int, ...]:
    """The 10th, 50th and 90th percentile of the times of borrowers; empty: no borrower.

    >>> term_percentiles(Counter({60: 3, 120: 2}))
    (60, 60, 120)
    """
    ordered = sorted(terms.items())
    upto = list(accumulate(count for _, count in ordered))
    return tuple(
        ordered[bisect_left(upto, -(-upto[-1] * percent // 100))][0]
        for percent in ((10, 50, 90) if ordered else ())
    )


class LendAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The predictor and margin that lend most without a late return in the first half, and their second half."""

    first: ReplayedLoans
    second: ReplayedLoans
    """The test; predictors that remember begin again."""


def lending_advice(
    predictors: Sequence[Predictor], node: NodeSamples, *, spare: int, loop: str
) -> LendAdvice | None:
    """The advice for one resource; None if every predictor that lends has a late return under this loop."""
    half = len(node.times_ns) // 2
    first = _part(node, 0, half)
    best: tuple[ReplayedLoans, Predictor] | None = None
    for predictor in predictors:
        for margin in MARGINS_PERCENT:
            trial = replace(predictor, margin_percent=margin)
            loans = replayed_loans(trial, first, spare=spare)
            if loans.amount_seconds < (1 if best is None else best[0].amount_seconds):
                break  # A greater margin never lends more.
            if not loans.is_late(loop) and (best is None or _rank(loans) > _rank(best[0])):
                best = (loans, trial)
    if best is None:
        return None
    return LendAdvice(first=best[0], second=replayed_loans(best[1], _part(node, half, None), spare=spare))


def _rank(loans: ReplayedLoans) -> tuple[int, int, str]:
    return loans.amount_seconds, loans.margin_percent, loans.predictor


def _part(node: NodeSamples, start: int, end: int | None) -> NodeSamples:
    times_ns = node.times_ns[start:end]
    pods = tuple(replace(pod, times_ns=times_ns, usage=pod.usage[start:end]) for pod in node.pods)
    return replace(node, times_ns=times_ns, pods=pods)
