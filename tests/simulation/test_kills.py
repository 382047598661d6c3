"""An agent that is killed at any step, and started again, goes on as if nothing had happened."""

import asyncio
import json
import os
import random
import resource
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.day import PROFILE, SCRIPTS, SEED, a_day, journals_decide_the_same, nothing_is_left
from tests.support.agent_restarts import AgentRestarts
from tests.support.fault_injection import Fault, FaultInjector

from nodewright.agent.state.agent_state import PodSource
from nodewright.testing.objects import a_pod

KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_WITHIN, Fault.KILLED_AFTER)
COUNT = int(os.environ.get("KILL_POINTS") or 10)


@cache
def a_calm_day() -> tuple[dict[str, Any], int]:
    """What comes of it when nobody is killed, and how many operations it takes."""
    lives = AgentRestarts(PROFILE, SCRIPTS)
    after = asyncio.run(a_day(lives))
    assert lives.wrong == []
    nothing_is_left(lives)
    assert journals_decide_the_same(lives) > 5
    return after, lives.now_faults.count


def test_a_calm_day_has_all_that_happens_to_pods() -> None:
    after, count = a_calm_day()
    document = {
        uid: str(phase) + (f" {reason}" if reason else "")
        for uid, (_, phase, reason) in after["pods"].items()
    }
    assert document == {
        "web": "Running",
        "job": "Succeeded",
        "crash": "Running",
        "hog": "Failed Evicted",
        "big": "Failed Preempting",
        "critical": "Running",
        "second": "Running",
        "other": "Running",
    }
    assert count > 300


def survives(faults: list[FaultInjector], downtime_s: float, disk_s: float) -> str:
    """Where the agent was killed, if all is as on a calm day."""
    lives = AgentRestarts(PROFILE, SCRIPTS, faults, downtime_s)
    lives.disk_s = disk_s
    after = asyncio.run(a_day(lives))
    place = ", then ".join(fault.place or "nowhere" for fault in faults)
    assert lives.wrong == [], (place, downtime_s, disk_s, SEED)
    assert after == a_calm_day()[0], (place, downtime_s, disk_s, SEED)
    nothing_is_left(lives)
    journals_decide_the_same(lives)
    return place


def kill_points(count: int, seed: int) -> list[tuple[list[FaultInjector], float, float]]:
    """The agent is killed at so many places, spread over the day; every fourth time the next one is, too.

    Some agents are gone for a while; some disks take longer than what depends on them.
    """
    steps = a_calm_day()[1]
    choose = random.Random(seed)
    rows: list[tuple[list[FaultInjector], float, float]] = []
    for number in range(count):
        at = (number * steps + choose.randrange(steps)) // count
        faults = [FaultInjector(at, choose.choice(KILLS))]
        if number % 4 == 3:
            faults.append(FaultInjector(choose.randrange(40), choose.choice(KILLS)))
        rows.append((faults, choose.choice((0, 0, 3)), choose.choice((0, 0.05, 0.4))))
    return rows


@pytest.mark.slow
def test_wherever_the_agent_is_killed_all_comes_as_it_would_have_come() -> None:
    print(f"FAULT_SEED={SEED}")
    texts = [survives(*each) for each in kill_points(COUNT, SEED)]
    kept = os.environ.get("KILL_FIGURES")
    if kept is not None:
        _keep_figures(Path(kept), texts)


@pytest.mark.slow
def test_pods_that_come_and_go_by_hundreds_leave_nothing_behind() -> None:
    async def churn() -> AgentRestarts:
        lives = AgentRestarts(PROFILE, SCRIPTS)
        for number in range(10 if COUNT > 40 else 3):
            lives.set_source_pods(PodSource.WORKLOAD, *(a_pod(f"pod-{number}-{each}") for each in range(100)))
            await lives.run_for(2)
            assert len(lives.running_containers()) == 100
            lives.set_source_pods(PodSource.WORKLOAD)
            await lives.run_for(2)
        await lives.stop()
        return lives

    lives = asyncio.run(churn())
    nothing_is_left(lives)
    assert sum(map(len, lives.disk.files.values())) < 2_000_000


def _keep_figures(path: Path, places: list[str]) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    figures = {
        "commit": commit.stdout.strip(),
        "seed": SEED,
        "kills": len(places),
        "operations": sorted({place.split(", then ")[0].partition(" ")[0] for place in places}),
        "most_rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    path.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
