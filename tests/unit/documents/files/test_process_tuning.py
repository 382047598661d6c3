"""When processes collect garbage, and what they give back."""

import asyncio
import gc
from collections.abc import Iterator

import pytest
from tests.support.fake_clock import FakeClock

from nodewright.documents.files import process_tuning
from nodewright.documents.files.process_tuning import ShortCollections


@pytest.fixture(autouse=True)
def no_other_callbacks() -> Iterator[None]:
    """Commands and agents that ran before in this process may have installed theirs."""
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.fixture
def collections() -> Iterator[tuple[ShortCollections, FakeClock]]:
    clock = FakeClock()
    collections = ShortCollections(clock.monotonic_s)
    # Only the collections of the test count.
    gc.disable()
    collections.install()
    yield collections, clock
    gc.callbacks.remove(collections.on_collection)
    gc.unfreeze()
    gc.enable()


def test_the_agent_makes_many_collections_of_few_objects() -> None:
    before = gc.get_threshold()
    collections = ShortCollections(FakeClock().monotonic_s)
    gc.set_threshold(100_000, 20, 100)
    collections.install()
    try:
        assert gc.get_threshold() == ShortCollections.THRESHOLDS
    finally:
        gc.callbacks.remove(collections.on_collection)
        gc.set_threshold(*before)


@pytest.mark.slow
def test_what_survives_a_full_collection_is_not_examined_again(
    collections: tuple[ShortCollections, FakeClock],
) -> None:
    kept = [[number] for number in range(50_000)]
    gc.collect(1)
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < len(kept)


@pytest.mark.slow
def test_once_an_hour_everything_is_examined_again(
    collections: tuple[ShortCollections, FakeClock],
) -> None:
    shortened, clock = collections
    cycle: list[object] = []
    cycle.append(cycle)
    gc.collect()
    assert not any(each is cycle for each in gc.get_objects())
    asyncio.run(clock.advance(ShortCollections.PERIOD_S))
    gc.collect()
    assert any(each is cycle for each in gc.get_objects())
    gc.collect()
    assert not any(each is cycle for each in gc.get_objects())
    assert shortened.on_collection in gc.callbacks


@pytest.mark.slow
def test_survivors_of_short_collections_can_be_set_aside_as_well() -> None:
    clock, cycle = FakeClock(), list[object]()
    collections = ShortCollections(clock.monotonic_s, generation=1)
    cycle.append(cycle)
    before = gc.get_threshold()
    gc.disable()
    collections.install()
    try:
        assert gc.get_threshold() == ShortCollections.LATENCY_THRESHOLDS
        gc.collect(1)
        assert not any(each is cycle for each in gc.get_objects())
        asyncio.run(clock.advance(ShortCollections.PERIOD_S))
        gc.collect(1)
        gc.collect(1)
        assert not any(each is cycle for each in gc.get_objects()), "no pause for all objects within an hour"
        asyncio.run(clock.advance(ShortCollections.LATENCY_PERIOD_S - ShortCollections.PERIOD_S))
        # From now on all objects wait for the next full collection.
        gc.collect(1)
        gc.collect(1)
        assert any(each is cycle for each in gc.get_objects())
        gc.collect()
        assert not any(each is cycle for each in gc.get_objects())
    finally:
        gc.callbacks.remove(collections.on_collection)
        gc.unfreeze()
        gc.set_threshold(*before)
        gc.enable()


def test_free_memory_is_returned_in_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = []
    monkeypatch.setattr(process_tuning, "return_free_memory", lambda: returned.append(1))

    async def run() -> None:
        clock = FakeClock()
        task = asyncio.create_task(process_tuning.return_memory_regularly(clock.sleep))
        await asyncio.sleep(0)
        for _ in range(3):
            await clock.advance(process_tuning.RETURN_PERIOD_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert len(returned) == 3
