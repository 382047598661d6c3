import sys
from random import Random

import pytest

from nodewright.engine.core.preemption.set_cover import Cover, CoverItem, smallest_cover
from nodewright.model.errors import HostError
from nodewright.predict.admit.preemption_report import cheapest_cover


def a_cover(random: Random, items: int) -> Cover:
    contributions = [tuple(random.randint(0, 900) for _ in range(2)) for _ in range(items)]
    needs = tuple(sum(row[at] for row in contributions) // 2 for at in range(2))
    return Cover(
        needs=needs,
        items=tuple(
            CoverItem(random.randint(0, 2), (min(cpu, needs[0]), min(memory, needs[1])), (cpu << 20, memory))
            for cpu, memory in contributions
        ),
        needs_of_sizes=(0, 1),
    )


@pytest.mark.parametrize("seed", range(5))
def test_highs_and_the_search_find_sets_of_equal_cost(seed: int) -> None:
    cover = a_cover(Random(seed), 14)
    picked = cheapest_cover(cover)
    assert picked is not None
    assert cover.covers(picked)
    assert cover.cost(picked) == cover.cost(smallest_cover(cover, cover.indices, budget=100_000).picked)


def test_amounts_that_floats_cannot_hold_have_no_result() -> None:
    assert (
        cheapest_cover(Cover((1,), (CoverItem(0, (1,), (2**60 + 1,)), CoverItem(0, (1,), (2,))), (None,)))
        is None
    )


def test_needs_that_no_set_covers_have_no_result() -> None:
    assert cheapest_cover(Cover((2,), (CoverItem(0, (1,), (1,)),), (0,))) is None


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(HostError, match=r"pip install 'nodewright\[exact\]'"):
        cheapest_cover(Cover((1,), (CoverItem(0, (1,), (1,)),), (0,)))
