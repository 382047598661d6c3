"""When processes collect garbage, and what they give back."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.support.fake_clock import FakeClock

from nodewright.documents.files import process_tuning
from nodewright.documents.files.process_tuning import ShortCollections
from tools.source import ROOT


@pytest.fixture(autouse=True)
def no_other_callbacks() -> Iterator[None]:
    """Commands and agents that ran before in this process may have installed theirs."""
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


def run_alone(code: Callable[[], None]) -> None:
    """Runs it in a process of its own: here, each full collection would examine what thousands of tests keep."""
    line = f"from {code.__module__} import {code.__name__} as code; code()"
    subprocess.run([sys.executable, "-c", line], cwd=ROOT, check=True, timeout=60)


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


def installed(**options: int) -> FakeClock:
    """Follows the collections of this process, and makes none by itself."""
    clock = FakeClock()
    gc.disable()
    ShortCollections(clock.monotonic_s, **options).install()
    return clock


def is_examined(sought: object) -> bool:
    return any(each is sought for each in gc.get_objects())


def keep_survivors_aside() -> None:
    installed()
    kept = [[number] for number in range(50_000)]
    gc.collect(1)
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects()) < len(kept)


def examine_all_after_an_hour() -> None:
    clock, cycle = installed(), list[object]()
    cycle.append(cycle)
    gc.collect()
    assert not is_examined(cycle)
    asyncio.run(clock.advance(ShortCollections.PERIOD_S))
    gc.collect()
    assert is_examined(cycle)
    gc.collect()
    assert not is_examined(cycle)
    assert gc.callbacks, "the next hour is followed as well"


def keep_survivors_of_short_ones_aside() -> None:
    clock, cycle = installed(generation=1), list[object]()
    cycle.append(cycle)
    assert gc.get_threshold() == ShortCollections.LATENCY_THRESHOLDS
    gc.collect(1)
    assert not is_examined(cycle)
    asyncio.run(clock.advance(ShortCollections.PERIOD_S))
    gc.collect(1)
    gc.collect(1)
    assert not is_examined(cycle), "no pause for all objects within an hour"
    asyncio.run(clock.advance(ShortCollections.LATENCY_PERIOD_S - ShortCollections.PERIOD_S))
    # From now on all objects wait for the next full collection.
    gc.collect(1)
    gc.collect(1)
    assert is_examined(cycle)
    gc.collect()
    assert not is_examined(cycle)


@pytest.mark.slow
def test_what_survives_a_full_collection_is_not_examined_again() -> None:
    run_alone(keep_survivors_aside)


@pytest.mark.slow
def test_once_an_hour_everything_is_examined_again() -> None:
    run_alone(examine_all_after_an_hour)


@pytest.mark.slow
def test_survivors_of_short_collections_can_be_set_aside_as_well() -> None:
    run_alone(keep_survivors_of_short_ones_aside)


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
