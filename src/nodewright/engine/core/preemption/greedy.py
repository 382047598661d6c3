"""The kubelet's choice of victims: by QoS class, each time the pod closest to the missing amounts."""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.engine.core.requests.effective_resources import (
    NEWEST_REQUEST_RULES,
    RequestRules,
    preemption_requests,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, can_preempt, is_critical, qos_class
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.reasons.predicates import InsufficientResource, NoVictimsSuffice, PredicateFailure
from nodewright.model.reasons.verdict import Granted, Refused, Verdict

_Amounts: TypeAlias = tuple[tuple[int, ...], int, int]
"""What a pod frees of each missing resource, then its requests of memory and cpu."""


class MissingAmount(NamedTuple):
    """The amount of a resource that preemption has to free.

    Units: amount in thousandths for cpu, else bytes or pieces.
    """

    resource: str
    amount: int


class PreemptionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may be preempted, and the requests that this would free.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    pod: Pod
    qos_class: QOSClass
    requests: Mapping[str, int]

    def frees(self, resource: str) -> int:
        """The amount of the resource that preempting the pod frees."""
        return self.requests.get(resource, 0)


class CandidateDistance(NamedTuple):
    """The distance of a candidate from freeing the missing amounts: 0 frees all of them."""

    candidate: PreemptionCandidate
    distance: float


class PreemptionRound(msgspec.Struct, frozen=True, kw_only=True):
    """One choice among the candidates of a QoS class."""

    qos_class: QOSClass
    missing: tuple[MissingAmount, ...]
    """The missing amounts before the choice."""
    candidates: tuple[PreemptionCandidate, ...]
    """The remaining candidates of the class, in the kubelet's order."""
    picked: PreemptionCandidate
    still_missing: tuple[MissingAmount, ...]
    """The missing amounts after the choice."""

    @property
    def distances(self) -> tuple[CandidateDistance, ...]:
        """The distance of every candidate, computed on demand."""
        return tuple(
            CandidateDistance(candidate, _distance(self.missing, candidate.requests))
            for candidate in self.candidates
        )


class PreemptionVictims(msgspec.Struct, frozen=True, kw_only=True):
    """The pods to preempt for the critical pod, and how they were chosen."""

    victims: tuple[PreemptionCandidate, ...]
    """In the order in which they are killed. A kill that fails is skipped."""
    missing: tuple[MissingAmount, ...]
    candidates: tuple[PreemptionCandidate, ...]
    """All candidates, in the order of the kubelet's list of pods."""
    rounds: tuple[PreemptionRound, ...] = ()
    """In the order of the choices: guaranteed, burstable, best effort."""

    @property
    def signal(self) -> str:
        """The metric label under which the kubelet counts each kill: the first missing resource."""
        return self.missing[0].resource if self.missing else ""


def victims_for(
    pod: Pod,
    active: Sequence[Pod],
    failures: Sequence[PredicateFailure],
    rules: RequestRules = NEWEST_REQUEST_RULES,
) -> Verdict[PreemptionVictims]:
    """The victims of preemption for a critical pod, or the reasons why there are none.

    ``active`` are the node's pods in the kubelet's order, which decides ties, without ``pod`` itself;
    ``failures`` are the predicate failures. A pod that is not critical is refused with all of them, a critical
    one with those that are no shortages; else NoVictimsSuffice states the amounts that no victims can free.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, HandleAdmissionFailure, getPodsToPreempt.
    """
    if not is_critical(pod):
        return Refused(tuple(failures))
    others = tuple(failure for failure in failures if not isinstance(failure, InsufficientResource))
    if others:
        return Refused(others)
    missing = missing_amounts(failures)
    candidates = preemption_candidates(pod, active, rules)
    unmet = remaining_missing(missing, candidates)
    if unmet:
        return Refused((NoVictimsSuffice(unmet=unmet),))
    return Granted(_victims(missing, candidates))


def missing_amounts(failures: Iterable[PredicateFailure]) -> tuple[MissingAmount, ...]:
    """The missing amounts, in the order of the failures."""
    return tuple(
        MissingAmount(failure.resource, failure.missing)
        for failure in failures
        if isinstance(failure, InsufficientResource)
    )


def preemption_candidates(
    pod: Pod, active: Iterable[Pod], rules: RequestRules = NEWEST_REQUEST_RULES
) -> tuple[PreemptionCandidate, ...]:
    """The pods that this pod may preempt.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, sortPodsByQOS.
    """
    return tuple(
        PreemptionCandidate(
            pod=other,
            qos_class=qos_class(other, rules.qos),
            requests=preemption_requests(other, rules),
        )
        for other in active
        if can_preempt(pod, other)
    )


def remaining_missing(
    missing: Iterable[MissingAmount], freed_by: Iterable[PreemptionCandidate]
) -> tuple[MissingAmount, ...]:
    """The amounts that are still missing once these candidates are preempted.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, admissionRequirementList.subtract.
    """
    freed_by = tuple(freed_by)
    remaining = (
        MissingAmount(name, amount - sum(candidate.requests.get(name, 0) for candidate in freed_by))
        for name, amount in missing
    )
    return tuple(missing_amount for missing_amount in remaining if missing_amount.amount > 0)


def _victims(
    missing: tuple[MissingAmount, ...], candidates: tuple[PreemptionCandidate, ...]
) -> PreemptionVictims:
    """The victims, each class chosen for the amounts that the other classes leave missing."""
    best_effort = _of_class(candidates, QOSClass.BEST_EFFORT)
    burstable = _of_class(candidates, QOSClass.BURSTABLE)
    guaranteed = _of_class(candidates, QOSClass.GUARANTEED)
    # Guaranteed pods must free what all lower ones cannot; then burstable pods what best-effort ones cannot.
    first = _rounds(guaranteed, remaining_missing(missing, (*best_effort, *burstable)))
    chosen = tuple(round_.picked for round_ in first)
    second = _rounds(burstable, remaining_missing(missing, (*best_effort, *chosen)))
    chosen = (*(round_.picked for round_ in second), *chosen)
    third = _rounds(best_effort, remaining_missing(missing, chosen))
    return PreemptionVictims(
        victims=(*(round_.picked for round_ in third), *chosen),
        missing=missing,
        candidates=candidates,
        rounds=(*first, *second, *third),
    )


def _of_class(candidates: Iterable[PreemptionCandidate], qos: QOSClass) -> list[PreemptionCandidate]:
    return [candidate for candidate in candidates if candidate.qos_class is qos]


def _rounds(pool: list[PreemptionCandidate], missing: tuple[MissingAmount, ...]) -> list[PreemptionRound]:
    """The rounds in one class until nothing is missing.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, getPodsToPreemptByDistance.
    """
    pool, rounds = list(pool), []
    order = _PoolOrder(pool, [missing_amount.resource for missing_amount in missing])
    while missing:
        best = order.nearest(missing)
        picked, still_missing = pool[best], remaining_missing(missing, (pool[best],))
        rounds.append(
            PreemptionRound(
                qos_class=picked.qos_class,
                missing=missing,
                candidates=tuple(pool),
                picked=picked,
                still_missing=still_missing,
            )
        )
        # The last element replaces the picked one, as in the kubelet: that decides ties in the next round.
        pool[best] = pool[-1]
        pool.pop()
        order.swap_remove_nearest(best)
        missing = still_missing
    return rounds


class _PoolOrder:
    """The positions of a pool's candidates by what decides between them: many pods request the same amounts.

    So a round compares the distinct amounts, not all candidates.
    """

    def __init__(self, pool: Sequence[PreemptionCandidate], names: Sequence[str]) -> None:
        self.names = names
        self.amounts_at = [self._amounts(candidate) for candidate in pool]
        self.positions: dict[_Amounts, list[int]] = {}
        """In ascending order."""
        for index, amounts in enumerate(self.amounts_at):
            self.positions.setdefault(amounts, []).append(index)

    def _amounts(self, candidate: PreemptionCandidate) -> _Amounts:
        freed = tuple([candidate.frees(name) for name in self.names])
        return freed, candidate.frees(MEMORY), candidate.frees(CPU)

    def nearest(self, missing: tuple[MissingAmount, ...]) -> int:
        """The position of the nearest candidate: among several the smallest requests, among those the last one."""

        def key(amounts: _Amounts) -> tuple[float, int, int, int]:
            freed, memory_bytes, cpu = amounts
            distance = _distance(missing, dict(zip(self.names, freed, strict=True)))
            return distance, memory_bytes, cpu, -self.positions[amounts][-1]

        return self.positions[min(self.positions, key=key)][-1]

    def swap_remove_nearest(self, index: int) -> None:
        """Removes the nearest position; the last element takes it."""
        self._drop_last_of(self.amounts_at[index])
        last = self.amounts_at.pop()
        if index < len(self.amounts_at):
            self._drop_last_of(last)
            self.amounts_at[index] = last
            insort(self.positions.setdefault(last, []), index)

    def _drop_last_of(self, amounts: _Amounts) -> None:
        positions = self.positions[amounts]
        positions.pop()
        if not positions:
            del self.positions[amounts]


def _distance(missing: tuple[MissingAmount, ...], frees: Mapping[str, int]) -> float:
    """The sum of the squares of the relative amounts that would still be missing.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, admissionRequirementList.distance, in float64 as
        there: the rounding can decide which of two candidates is nearer.
    """
    distance = 0.0
    for name, amount in missing:
        still_missing = amount - frees.get(name, 0)
        if still_missing > 0:
            relative = float(still_missing) / float(amount)
            distance += relative * relative
    return distance
