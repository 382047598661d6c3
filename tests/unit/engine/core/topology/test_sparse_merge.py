"""Sharing nodes out among rules, on machines with too many NUMA nodes to write all sets down."""

import pytest

from nodewright.engine.core.topology.hint_merge import merged_hint
from nodewright.engine.core.topology.manager_config import TopologyManager
from nodewright.engine.core.topology.sparse_merge import (
    SearchBounds,
    best_intersection,
    best_intersection_by_search,
)
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand, StepBudget, narrowest_set_meeting
from nodewright.model.values.topology_hints import (
    Fitting,
    Hint,
    HintList,
    Offer,
    demand_by_numa_node,
    resource_hint_lists,
)

NODES = 20
TWENTY = NUMASet((1 << NODES) - 1)
BEST_EFFORT = TopologyManager(policy="best-effort", numa=TWENTY)

# Two rules with the same amounts; `most` nodes at the end have `large`, the others 1. None is preferred.
SHARED_OUT = """
    10 with 3   need 12  ->  0-3      each rule gives up half of the rest
    1 with 10   need 20  ->  0-9,19   node 19 is more than either rule can give up
    2 with 10   need 29  ->  0-8,18-19
"""


def unpreferred(needed: int, amounts: dict[int, int]) -> HintList:
    return HintList(fitting=Fitting(TWENTY, (demand_by_numa_node(needed, amounts),), preferred_size=1))


@pytest.mark.parametrize("line", SHARED_OUT.strip().splitlines())
def test_every_other_node_is_given_up_by_one_rule(line: str) -> None:
    left, _, right = line.partition("->")
    most, _, large, _, needed = left.split()
    amounts = {node: int(large) if node >= NODES - int(most) else 1 for node in range(NODES)}
    offers = [Offer(name, {name: unpreferred(int(needed), amounts)}) for name in ("cpu", "memory")]
    merged = merged_hint(BEST_EFFORT, offers)
    assert merged.proved
    assert merged.hint == Hint(NUMASet.parse(right.split()[0]), preferred=False)


PAIRS = Demand(2, ((0b0011, 1), (0b0110, 1), (0b1100, 1)))
ONES = Demand(3, ((0b0001, 1), (0b0010, 1), (0b0100, 1), (0b1000, 1)))
TWOS = Demand(3, ((0b0001, 1), (0b0010, 2), (0b0100, 2), (0b1000, 1)))
NEVER_SPARED = Demand(6, ((0b0001, 1), (0b0010, 2), (0b0100, 2), (0b1000, 1)))
FOUR = NUMASet(0b1111)


@pytest.mark.parametrize("narrowest", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "demands",
    [(PAIRS, PAIRS), (PAIRS, ONES), (TWOS, ONES), (TWOS, PAIRS), (NEVER_SPARED, ONES), (PAIRS, NEVER_SPARED)],
)
def test_searching_agrees_with_writing_all_sets_down(demands: tuple[Demand, ...], narrowest: int) -> None:
    some = {str(at): HintList(fitting=Fitting(FOUR, (one,), 1)) for at, one in enumerate(demands)}
    lists = resource_hint_lists([Offer("some", some)])
    upwards = range(narrowest, 5)
    expected = best_intersection(lists, FOUR.mask, upwards, None)
    (number,) = best_intersection_by_search(
        lists, FOUR.mask, SearchBounds(narrowest, None, StepBudget(), small=0)
    )
    assert number == expected


def test_a_search_without_budget_falls_back_to_all_nodes() -> None:
    lists = resource_hint_lists([Offer("some", {"a": unpreferred(12, dict.fromkeys(range(NODES), 1))})])
    assert best_intersection_by_search(lists, TWENTY.mask, SearchBounds(12, None, StepBudget(2))) == [
        TWENTY.mask
    ]


def test_few_nodes_are_written_out_within_a_search() -> None:
    few = HintList((Hint(NUMASet(0b111), preferred=False),))
    offers = [Offer("some", {"a": few, "b": unpreferred(5, dict.fromkeys(range(NODES), 1))})]
    lists = resource_hint_lists(offers)
    assert best_intersection_by_search(lists, TWENTY.mask, SearchBounds(2, None, StepBudget())) == [0b011]


NARROWEST = """
    need 3   at least 1  ->  0-1
    need 3   at least 3  ->  0-2
    need 3   at least 4  ->  0-3
    need 3   at least 5  ->  none
    need 9   at least 1  ->  none
    need 6   at least 1  ->  0-3
"""


@pytest.mark.parametrize("line", NARROWEST.strip().splitlines())
def test_the_narrowest_set_is_the_numerically_smallest_of_its_size(line: str) -> None:
    _, needed, _, _, at_least, _, outcome = line.split()
    demand = Demand(int(needed), TWOS.shares)
    number = narrowest_set_meeting(0b1111, [demand], int(at_least))
    assert number == (0 if outcome == "none" else NUMASet.parse(outcome).mask)
