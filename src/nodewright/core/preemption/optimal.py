"""The smallest choice of victims that there is, beside the kubelet's: docs/decisions tells what smallest means."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nodewright.core.preemption.cover import Cover, Item, smallest_cover
from nodewright.core.preemption.greedy import Candidate, Missing, Victims
from nodewright.core.requests import QOSClass
from nodewright.model.resource_names import CPU, MEMORY, PODS

BUDGET = 50_000
"""Partial sets that are looked at before the search gives up on a proof; about half a second."""

_TIERS = {QOSClass.GUARANTEED: 0, QOSClass.BURSTABLE: 1, QOSClass.BEST_EFFORT: 2}

ExactSolver: TypeAlias = Callable[[Cover], tuple[int, ...] | None]
"""Another way to the cheapest set of items, in their order; None if it cannot prove one."""


class Toll(NamedTuple):
    """What victims cost; the smaller tuple is the better choice.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    guaranteed: int
    burstable: int
    best_effort: int
    requests: tuple[int, ...]
    """What they request together, of each of `Optimum.resources`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The smallest choice of victims that was found, and what the kubelet's costs beside it."""

    victims: tuple[Candidate, ...]
    """In the order in which the kubelet would end them: best effort, burstable, guaranteed."""
    toll: Toll
    greedy_toll: Toll
    resources: tuple[str, ...]
    """What is compared among choices of equally many pods: memory, cpu, then what else is missing."""
    proved: bool
    """Whether it is certain that there is no smaller choice."""
    steps: int
    """How many partial choices were looked at."""


def optimum(greedy: Victims, *, budget: int = BUDGET, exact: ExactSolver | None = None) -> Optimum:
    """The smallest choice of victims: fewest guaranteed, burstable, best-effort pods, then smallest requests.

    It is never worse than the kubelet's and holds no pod that could be spared. ``exact`` is asked where the
    search ends without a proof.

    Departs: the kubelet makes one pass and never takes a choice back.
    """
    resources = _compared(greedy.missing)
    cover = _cover(greedy, resources)
    chosen = frozenset(map(id, greedy.victims))
    start = [index for index, one in enumerate(greedy.candidates) if id(one) in chosen]
    found = smallest_cover(cover, start, budget=budget)
    taken, proved = found.taken, found.proved
    if not proved and exact is not None:
        offered = exact(cover)
        # Another's word is taken only for what can be checked here.
        if offered is not None and cover.covers(offered) and cover.cost(offered) <= cover.cost(taken):
            taken, proved = offered, True
    victims = [greedy.candidates[index] for index in taken]
    victims.sort(key=lambda one: -_TIERS[one.qos_class])  # stable: in a class the kubelet's order stays
    return Optimum(
        victims=tuple(victims),
        toll=_toll(victims, resources),
        greedy_toll=_toll(greedy.victims, resources),
        resources=resources,
        proved=proved,
        steps=found.steps,
    )


def _compared(missing: Iterable[Missing]) -> tuple[str, ...]:
    """The resources whose sums decide between equally many victims, each once."""
    others = (one.resource for one in missing if one.resource != PODS)
    return tuple(dict.fromkeys((MEMORY, CPU, *others)))


def _cover(greedy: Victims, resources: tuple[str, ...]) -> Cover:
    needs = [one for one in greedy.missing if one.amount > 0]
    names = [one.resource for one in needs]
    return Cover(
        needs=tuple(one.amount for one in needs),
        items=tuple(
            Item(
                _TIERS[candidate.qos_class],
                tuple(min(candidate.frees(one.resource), one.amount) for one in needs),
                tuple(map(candidate.frees, resources)),
            )
            for candidate in greedy.candidates
        ),
        needs_of_sizes=tuple(names.index(name) if name in names else None for name in resources),
    )


def _toll(victims: Iterable[Candidate], resources: tuple[str, ...]) -> Toll:
    victims = tuple(victims)
    return Toll(
        guaranteed=sum(one.qos_class is QOSClass.GUARANTEED for one in victims),
        burstable=sum(one.qos_class is QOSClass.BURSTABLE for one in victims),
        best_effort=sum(one.qos_class is QOSClass.BEST_EFFORT for one in victims),
        requests=tuple(sum(one.frees(name) for one in victims) for name in resources),
    )
