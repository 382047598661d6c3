"""A Guaranteed process doubles its memory in 0.2 s beside borrowers, and neither waits for it nor is ended."""

import asyncio
import os

import pytest
from tests.support.lending_race import run_rounds

ROUNDS = int(os.environ.get("LENDING_ROUNDS", "3"))
"""`make soak` runs 20."""
pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_an_owner_that_doubles_its_memory_is_never_throttled_nor_ended() -> None:
    rounds = asyncio.run(run_rounds(ROUNDS))
    assert [(one.is_same_process, one.throttled, one.oom_kills) for one in rounds] == [(True, 0, 0)] * ROUNDS
    # What was lent did come back: without an eviction all pods together would need more than they may have.
    assert all(one.evicted for one in rounds)
