"""The smallest number of places that meet demands."""

import pytest

from nodewright.model.values.subsets import Demand, MinimumSize, minimum_size


def amounts(*each: int) -> tuple[tuple[int, int], ...]:
    return tuple((1 << place, amount) for place, amount in enumerate(each))


ONE_DEMAND = """
    amounts 4 4 4 4    need 0    ->  1
    amounts 4 4 4 4    need 4    ->  1
    amounts 4 4 4 4    need 5    ->  2
    amounts 1 9 1 1    need 9    ->  1
    amounts 1 9 1 1    need 11   ->  3
    amounts 1 9 1 1    need 12   ->  4
    amounts 1 9 1 1    need 13   ->  4
"""


@pytest.mark.parametrize("line", ONE_DEMAND.strip().splitlines())
def test_the_largest_amounts_are_chosen_first(line: str) -> None:
    left, _, size = line.partition("->")
    have, _, needed = left.removeprefix("    amounts").strip().removeprefix("amounts").partition("need")
    demand = Demand(int(needed), amounts(*map(int, have.split())))
    assert minimum_size(0b1111, [demand]) == MinimumSize(int(size))


# Place 2 brings most at once, but then it takes both others; 0 and 1 do together.
GREED_ERRS = (Demand(6, amounts(3, 3, 6, 0)), Demand(6, amounts(3, 3, 1, 0)))


def test_the_search_finds_what_the_greedy_choice_misses() -> None:
    assert minimum_size(0b1111, GREED_ERRS) == MinimumSize(2)


def test_an_aborted_search_returns_a_sufficient_size() -> None:
    smallest = minimum_size(0b1111, GREED_ERRS, budget=1)
    assert smallest.size >= 2
    assert not smallest.proved


def test_the_search_may_confirm_the_greedy_choice() -> None:
    apart = (Demand(2, amounts(2, 0, 1, 0)), Demand(2, amounts(0, 2, 1, 0)), Demand(2, amounts(0, 0, 0, 2)))
    assert minimum_size(0b1111, apart) == MinimumSize(3)
