"""The smallest possible choice of victims; docs/decisions defines "smallest"."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.engine.core.preemption.greedy import MissingAmount, PreemptionCandidate, PreemptionVictims
from nodewright.engine.core.preemption.set_cover import Cover, CoverItem, smallest_cover
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, PODS

BUDGET = 50_000
"""The number of partial sets after which the search ends without a proof; about half a second."""

_TIERS = {QOSClass.GUARANTEED: 0, QOSClass.BURSTABLE: 1, QOSClass.BEST_EFFORT: 2}

ExactSolver: TypeAlias = Callable[[Cover], tuple[int, ...] | None]
"""Another solver for the cheapest set of items, in their order; None if it cannot prove one."""


class PreemptionCost(NamedTuple):
    """The cost of a choice of victims; the smaller tuple is better.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    guaranteed: int
    burstable: int
    best_effort: int
    requests: tuple[int, ...]
    """The sum of their requests for each of `SmallestPreemption.resources`."""


class SmallestPreemption(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest choice of victims that was found, and the cost of the kubelet's choice for comparison."""

    victims: tuple[PreemptionCandidate, ...]
    """In the order in which the kubelet would kill them: best effort, burstable, guaranteed."""
    cost: PreemptionCost
    greedy_cost: PreemptionCost
    resources: tuple[str, ...]
    """The resources compared among choices of equally many pods: memory, cpu, then other missing resources."""
    proved: bool
    """Whether it is proved that there is no smaller choice."""
    steps: int
    """The number of partial choices examined."""


def smallest_preemption(
    greedy: PreemptionVictims, *, budget: int = BUDGET, exact: ExactSolver | None = None
) -> SmallestPreemption:
    """The smallest choice of victims: fewest guaranteed, burstable, best-effort pods, then smallest requests.

    It is never worse than the kubelet's choice and contains no superfluous pod. ``exact`` is called where the
    search ends without a proof.

    Departs: the kubelet makes one pass and never revises a choice.
    """
    resources = _compared_resources(greedy.missing)
    cover = _cover(greedy, resources)
    chosen = frozenset(map(id, greedy.victims))
    start = [index for index, candidate in enumerate(greedy.candidates) if id(candidate) in chosen]
    result = smallest_cover(cover, start, budget=budget)
    picked, proved = result.picked, result.proved
    if not proved and exact is not None:
        alternative = exact(cover)
        # The other solver's answer is only used as far as it can be checked here.
        if (
            alternative is not None
            and cover.covers(alternative)
            and cover.cost(alternative) <= cover.cost(picked)
        ):
            picked, proved = alternative, True
    victims = [greedy.candidates[index] for index in picked]
    victims.sort(
        key=lambda victim: -_TIERS[victim.qos_class]
    )  # stable: the kubelet's order within a class stays
    return SmallestPreemption(
        victims=tuple(victims),
        cost=_cost(victims, resources),
        greedy_cost=_cost(greedy.victims, resources),
        resources=resources,
        proved=proved,
        steps=result.steps,
    )


def _compared_resources(missing: Iterable[MissingAmount]) -> tuple[str, ...]:
    """The resources with sums that decide between equally many victims, each once."""
    others = (amount.resource for amount in missing if amount.resource != PODS)
    return tuple(dict.fromkeys((MEMORY, CPU, *others)))


def _cover(greedy: PreemptionVictims, resources: tuple[str, ...]) -> Cover:
    needs = [need for need in greedy.missing if need.amount > 0]
    names = [need.resource for need in needs]
    return Cover(
        needs=tuple(need.amount for need in needs),
        items=tuple(
            CoverItem(
                _TIERS[candidate.qos_class],
                tuple(min(candidate.frees(need.resource), need.amount) for need in needs),
                tuple(map(candidate.frees, resources)),
            )
            for candidate in greedy.candidates
        ),
        needs_of_sizes=tuple(names.index(name) if name in names else None for name in resources),
    )


def _cost(victims: Iterable[PreemptionCandidate], resources: tuple[str, ...]) -> PreemptionCost:
    victims = tuple(victims)
    return PreemptionCost(
        guaranteed=sum(victim.qos_class is QOSClass.GUARANTEED for victim in victims),
        burstable=sum(victim.qos_class is QOSClass.BURSTABLE for victim in victims),
        best_effort=sum(victim.qos_class is QOSClass.BEST_EFFORT for victim in victims),
        requests=tuple(sum(victim.frees(name) for victim in victims) for name in resources),
    )
