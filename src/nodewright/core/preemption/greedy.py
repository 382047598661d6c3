"""The kubelet's choice: class by class, each time the pod that comes nearest to what is missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from nodewright.core.requests import QOSClass, can_preempt, is_critical, preemption_requests, qos_class
from nodewright.model.objects import Pod
from nodewright.model.reasons import InsufficientResource, NoVictimsSuffice, PredicateFailure
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.model.verdict import Granted, Refused, Verdict


class Missing(NamedTuple):
    """How much of a resource has to be freed.

    Units: amount in thousandths for cpu, else bytes or pieces.
    """

    resource: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pod that the critical one may push out, and what that would free.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    pod: Pod
    qos_class: QOSClass
    requests: Mapping[str, int]

    def frees(self, resource: str) -> int:
        """How much of the resource comes free with the pod."""
        return self.requests.get(resource, 0)


class Distance(NamedTuple):
    """How far a candidate is from freeing what is missing: 0 frees it all."""

    candidate: Candidate
    distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One choice among the candidates of a class."""

    qos_class: QOSClass
    missing: tuple[Missing, ...]
    """What is missing before."""
    candidates: tuple[Candidate, ...]
    """All that are left in the class, in the order in which the kubelet comes by them."""
    picked: Candidate
    left: tuple[Missing, ...]
    """What is missing after."""

    @property
    def distances(self) -> tuple[Distance, ...]:
        """The distance of every candidate, worked out again for whoever reads it."""
        return tuple(Distance(one, _distance(self.missing, one.requests)) for one in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """The pods to end so that the critical one can run, and how they were found."""

    victims: tuple[Candidate, ...]
    """In the order in which they are ended. A kill that fails is passed over."""
    missing: tuple[Missing, ...]
    candidates: tuple[Candidate, ...]
    """All of them, in the order of the kubelet's list of pods."""
    rounds: tuple[Round, ...] = ()
    """In the order of the choices: guaranteed, burstable, best effort."""

    @property
    def signal(self) -> str:
        """The label under which the kubelet counts each kill: the first missing resource."""
        return self.missing[0].resource if self.missing else ""


def preempt(pod: Pod, active: Sequence[Pod], failures: Sequence[PredicateFailure]) -> Verdict[Victims]:
    """The pods that make way for a critical pod, or the reasons that are left.

    ``active`` are the node's pods in the kubelet's order, which decides ties, without ``pod`` itself;
    ``failures`` are what the predicates found. A pod that is not critical gets them back; a critical one
    gets back those that are no shortages; else NoVictimsSuffice tells what no victims could free.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, HandleAdmissionFailure, getPodsToPreempt.
    """
    if not is_critical(pod):
        return Refused(tuple(failures))
    others = tuple(one for one in failures if not isinstance(one, InsufficientResource))
    if others:
        return Refused(others)
    missing = shortfalls(failures)
    candidates = candidates_for(pod, active)
    unmet = still_missing(missing, candidates)
    if unmet:
        return Refused((NoVictimsSuffice(unmet=unmet),))
    return Granted(_chosen(missing, candidates))


def shortfalls(failures: Iterable[PredicateFailure]) -> tuple[Missing, ...]:
    """How much is missing of what, in the order of the failures."""
    return tuple(
        Missing(one.resource, one.missing) for one in failures if isinstance(one, InsufficientResource)
    )


def candidates_for(pod: Pod, active: Iterable[Pod]) -> tuple[Candidate, ...]:
    """The pods that this one may push out.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, sortPodsByQOS.
    """
    return tuple(
        Candidate(pod=other, qos_class=qos_class(other), requests=preemption_requests(other))
        for other in active
        if can_preempt(pod, other)
    )


def still_missing(missing: Iterable[Missing], freed_by: Iterable[Candidate]) -> tuple[Missing, ...]:
    """What these candidates leave missing; what they free is not in it.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, admissionRequirementList.subtract.
    """
    freed_by = tuple(freed_by)
    left = (
        Missing(name, amount - sum(one.requests.get(name, 0) for one in freed_by)) for name, amount in missing
    )
    return tuple(one for one in left if one.amount > 0)


def _chosen(missing: tuple[Missing, ...], candidates: tuple[Candidate, ...]) -> Victims:
    """The victims, each class chosen for what the others leave missing."""
    best_effort = _of(candidates, QOSClass.BEST_EFFORT)
    burstable = _of(candidates, QOSClass.BURSTABLE)
    guaranteed = _of(candidates, QOSClass.GUARANTEED)
    # What guaranteed pods must free if all the lesser ones go; then burstable ones, if all of best effort go.
    first = _nearest(guaranteed, still_missing(missing, (*best_effort, *burstable)))
    chosen = tuple(one.picked for one in first)
    second = _nearest(burstable, still_missing(missing, (*best_effort, *chosen)))
    chosen = (*(one.picked for one in second), *chosen)
    third = _nearest(best_effort, still_missing(missing, chosen))
    return Victims(
        victims=(*(one.picked for one in third), *chosen),
        missing=missing,
        candidates=candidates,
        rounds=(*first, *second, *third),
    )


def _of(candidates: Iterable[Candidate], qos: QOSClass) -> list[Candidate]:
    return [one for one in candidates if one.qos_class is qos]


def _nearest(pool: list[Candidate], missing: tuple[Missing, ...]) -> list[Round]:
    """The choices in one class until nothing is missing.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, getPodsToPreemptByDistance.
    """
    pool, rounds = list(pool), []
    names = [one.resource for one in missing]
    # Many pods are alike: what each frees tells them apart, and how far it is from enough is worked out once a round.
    freed = [tuple([one.frees(name) for name in names]) for one in pool]
    sizes = [(one.frees(MEMORY), one.frees(CPU)) for one in pool]
    while missing:
        distances = {each: _distance(missing, dict(zip(names, each, strict=True))) for each in set(freed)}
        # Of the nearest the one that requests least, and of those the last.
        _, _, before_last = min(zip(map(distances.__getitem__, freed), sizes, count(0, -1), strict=False))
        best = -before_last
        picked, left = pool[best], still_missing(missing, (pool[best],))
        rounds.append(
            Round(
                qos_class=picked.qos_class,
                missing=missing,
                candidates=tuple(pool),
                picked=picked,
                left=left,
            )
        )
        # The last one takes the place of the one picked, which decides who comes last in the next round.
        for column in (pool, freed, sizes):
            _take_out(column, best)
        missing = left
    return rounds


def _take_out(column: list[Any], index: int) -> None:
    column[index] = column[-1]
    column.pop()


def _distance(missing: tuple[Missing, ...], frees: Mapping[str, int]) -> float:
    """The sum of the squares of the shares that would stay missing.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, admissionRequirementList.distance, in float64 as
        there: which of two candidates is nearer can hang on the rounding.
    """
    distance = 0.0
    for name, amount in missing:
        left = amount - frees.get(name, 0)
        if left > 0:
            share = float(left) / float(amount)
            distance += share * share
    return distance
