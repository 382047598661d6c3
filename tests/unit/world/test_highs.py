import sys
from random import Random

import pytest

from nodewright.core.preemption.cover import Cover, Item, smallest_cover
from nodewright.world.errors import WorldError
from nodewright.world.highs import cheapest_cover


def a_cover(random: Random, items: int) -> Cover:
    gives = [tuple(random.randint(0, 900) for _ in range(2)) for _ in range(items)]
    needs = tuple(sum(row[at] for row in gives) // 2 for at in range(2))
    return Cover(
        needs=needs,
        items=tuple(
            Item(random.randint(0, 2), (min(one, needs[0]), min(other, needs[1])), (one << 20, other))
            for one, other in gives
        ),
        needs_of_sizes=(0, 1),
    )


@pytest.mark.parametrize("seed", range(5))
def test_highs_and_the_search_find_equally_cheap_sets(seed: int) -> None:
    cover = a_cover(Random(seed), 14)
    taken = cheapest_cover(cover)
    assert taken is not None
    assert cover.covers(taken)
    assert cover.cost(taken) == cover.cost(smallest_cover(cover, cover.indices, budget=100_000).taken)


def test_amounts_that_floats_cannot_hold_are_left_alone() -> None:
    assert cheapest_cover(Cover((1,), (Item(0, (1,), (2**60 + 1,)), Item(0, (1,), (2,))), (None,))) is None


def test_needs_that_nothing_covers_have_no_cheapest_set() -> None:
    assert cheapest_cover(Cover((2,), (Item(0, (1,), (1,)),), (0,))) is None


def test_without_the_package_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(WorldError, match=r"pip install 'nodewright\[exact\]'"):
        cheapest_cover(Cover((1,), (Item(0, (1,), (1,)),), (0,)))
