from itertools import chain, combinations
from random import Random

import pytest

from nodewright.engine.core.preemption.optimal import Cover, CoverCost, CoverItem, smallest_cover

AMPLE = 100_000


def by_trying_all(cover: Cover) -> CoverCost:
    """The lowest cost of all sets that cover the needs, the slow and obvious way."""
    subsets = chain.from_iterable(combinations(cover.indices, size) for size in range(len(cover.items) + 1))
    return min(cover.cost(taken) for taken in subsets if cover.covers(taken))


def a_cover(random: Random, *, items: int, needs: int, largest: int = 60) -> Cover:
    """Items of mixed tiers that together give enough, with two sizes of which the first is a need as well."""
    gives = [[random.randint(at == 0, largest) for _ in range(needs)] for at in range(items)]
    wanted = tuple(max(1, random.randint(0, sum(row[at] for row in gives))) for at in range(needs))
    return Cover(
        needs=wanted,
        items=tuple(
            CoverItem(
                random.randint(0, 2),
                tuple(min(give, need) for give, need in zip(row, wanted, strict=True)),
                (row[0], random.randint(0, 3)),
            )
            for row in gives
        ),
        needs_of_sizes=(0, None),
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_set_of_all_there_are_costs_less(seed: int) -> None:
    random = Random(seed)
    cover = a_cover(random, items=random.randint(2, 9), needs=random.randint(1, 4))
    cover_result = smallest_cover(cover, cover.indices, budget=AMPLE)
    assert cover_result.proved
    assert cover.covers(cover_result.picked)
    assert cover.cost(cover_result.picked) == by_trying_all(cover)


@pytest.mark.parametrize("seed", range(3))
def test_a_hard_case_ends_at_the_budget_with_a_set_that_covers_and_no_proof(seed: int) -> None:
    random = Random(seed)
    items = tuple(
        CoverItem(1, give, give) for give in ((random.randint(10**6, 2 * 10**6),) * 3 for _ in range(60))
    )
    need = sum(item.sizes[0] for item in items) // 3
    cover = Cover((need,) * 3, items, (0, 1, 2))
    cover_result = smallest_cover(cover, cover.indices, budget=2_000)
    assert (cover_result.proved, cover_result.steps) == (False, 2_000)
    assert cover.covers(cover_result.picked)
    assert cover_result.picked == cover.without_redundant(cover_result.picked)
    assert smallest_cover(cover, cover.indices, budget=2_000) == cover_result


def test_equal_items_are_tried_once() -> None:
    items = tuple(CoverItem(1, (10,), (10,)) for _ in range(200))
    cover_result = smallest_cover(Cover((995,), items, (0,)), range(200), budget=AMPLE)
    assert cover_result.proved
    assert len(cover_result.picked) == 100
    assert cover_result.steps < 1_000


def test_where_nothing_is_needed_nothing_is_taken() -> None:
    cover = Cover((), (CoverItem(0, (), (5,)),), (None,))
    assert smallest_cover(cover, (0,), budget=AMPLE).picked == ()
    assert smallest_cover(Cover((), (), ()), (), budget=AMPLE).picked == ()


def test_one_more_item_of_a_higher_tier_is_worse_than_all_lower_items() -> None:
    small = [CoverItem(2, (1,), (0,)) for _ in range(9)]
    cover = Cover((9,), (CoverItem(0, (9,), (0,)), CoverItem(1, (9,), (0,)), *small), (None,))
    assert smallest_cover(cover, (0,), budget=AMPLE).picked == tuple(range(2, 11))


def test_redundant_items_are_dropped_from_the_highest_tier_first() -> None:
    cover = Cover((2,), tuple(CoverItem(tier, (1,), (0,)) for tier in (2, 0, 1, 2)), (None,))
    assert cover.without_redundant(cover.indices) == (0, 3)


def test_an_item_without_a_needed_contribution_is_left_out() -> None:
    gives = ((5, 0), (4, 0), (1, 0), (0, 3), (0, 2))
    items = tuple(CoverItem(1, give, (1,)) for give in gives)
    cover_result = smallest_cover(Cover((5, 5), items, (None,)), (1, 2, 3, 4), budget=AMPLE)
    assert (cover_result.picked, cover_result.proved) == ((0, 3, 4), True)
