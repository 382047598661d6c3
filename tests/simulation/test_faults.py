"""Disks that are full, runtimes that fail or hang, clocks that jump and power that fails: in the end all is as it would have been."""

import asyncio
import os
import random
from functools import cache
from typing import Any

import pytest
from tests.simulation.day import MOST_FAILURES, PROFILE, SCRIPTS, SEED, a_day, nothing_is_left
from tests.support.agent_restarts import AgentRestarts
from tests.support.fault_injection import Fault, FaultInjector

FAULTS = int(os.environ.get("FAULT_POINTS") or 4)
SLACK_S = 200
"""What takes two minutes to be given up on, and is tried again, is done by then."""


@cache
def a_long_calm_day() -> tuple[dict[str, Any], int]:
    lives = AgentRestarts(PROFILE, SCRIPTS)
    return asyncio.run(a_day(lives, slack_s=SLACK_S)), lives.now_faults.count


def comes_right(faults: FaultInjector) -> None:
    lives = AgentRestarts(PROFILE, SCRIPTS, [faults])
    lives.is_careful = False
    after = asyncio.run(a_day(lives, slack_s=SLACK_S))
    assert lives.wrong == [], (faults.place, SEED)
    assert after == a_long_calm_day()[0], (faults.place, SEED)
    nothing_is_left(lives)


def places(count: int, seed: int) -> list[int]:
    choose, steps = random.Random(seed), a_long_calm_day()[1]
    return [(number * steps + choose.randrange(steps)) // count for number in range(count)]


@pytest.mark.slow
def test_what_fails_anywhere_is_done_later() -> None:
    choose = random.Random(SEED)
    for number, at in enumerate(places(FAULTS, SEED)):
        hangs = number % 3 == 2
        comes_right(
            FaultInjector(at, Fault.HANGS)
            if hangs
            else FaultInjector(at, Fault.FAILS, times=choose.choice((1, 3, 10, MOST_FAILURES)))
        )


@pytest.mark.parametrize("hours", [-30, 1])
def test_a_clock_that_jumps_changes_nothing(hours: int) -> None:
    lives = AgentRestarts(PROFILE, SCRIPTS)
    lives.jumps = {9: hours * 3600, 30: -hours * 1800, 52: hours * 60}
    assert asyncio.run(a_day(lives, slack_s=SLACK_S)) == a_long_calm_day()[0]
    nothing_is_left(lives)


@pytest.mark.parametrize("second", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (6, 17))])
def test_after_a_power_failure_pods_start_anew_where_they_were(second: int) -> None:
    lives = AgentRestarts(PROFILE, SCRIPTS)
    lives.failures = frozenset({second})
    after, calm = asyncio.run(a_day(lives, slack_s=SLACK_S)), a_long_calm_day()[0]
    assert lives.wrong == []
    assert after["held"] == calm["held"]
    assert after["running"] == calm["running"]
    ended = {"job", "hog", "big"}
    assert {uid: one for uid, one in after["pods"].items() if uid not in ended} == {
        uid: one for uid, one in calm["pods"].items() if uid not in ended
    }
    nothing_is_left(lives)
