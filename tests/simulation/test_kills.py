"""An agent that is killed at any step, and started again, goes on as if nothing had happened."""

import asyncio
import os
import random
from functools import cache
from typing import Any

from msgspec.structs import replace

from nodewright.agent.keeping import PODS
from nodewright.agent.values import Source, Stage
from nodewright.model.objects import Container, Pod
from nodewright.model.usage import Usage
from nodewright.testing.faults import Fault, Faults
from nodewright.testing.lives import Lives, named
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.runtime import Script
from nodewright.testing.usage import a_reading, a_use

PROFILE = a_profile(**STATIC_CPUS, evictionHard={"memory.available": "100Mi"})
SCRIPTS = {
    "init": Script(runs_for_s=2),
    "job": Script(runs_for_s=5),
    "crash": Script(runs_for_s=1, exit_code=1),
    "stubborn": Script(ignores_sigterm=True),
}
CHECK = {"exec": {"command": ["check"]}}
PINNED = frozenset({"pinned", "second", "job"})


def a_web() -> Pod:
    """Init container, sidecar and probes."""
    pod = named(a_pod("web", "500m/64Mi"), "app")
    (app,) = pod.spec.containers
    app = replace(app, liveness_probe={**CHECK, "periodSeconds": 1}, readiness_probe=CHECK)
    inits = (Container(name="init"), Container(name="side", restart_policy="Always"))
    return replace(pod, spec=replace(pod.spec, containers=(app,), init_containers=inits))


async def a_day(lives: Lives) -> dict[str, Any]:
    """All that can happen to pods; what has come of them in the end, but before all is cleared away."""
    lives.pinned_uids = PINNED
    front = named(a_static_pod("front", "cpu=100m"), "front")
    lives.have(Source.FILE, front)
    lives.have(Source.WORKLOAD, a_web())
    lives.ask(
        named(a_guaranteed_pod("pinned", "2/64Mi"), "pinned"),
        named(a_guaranteed_pod("job", "1/64Mi", restartPolicy="Never"), "job"),
        named(a_pod("crash", metadata={"uid": "crash"}), "crash"),
        named(a_pod("hog"), "hog"),
    )
    await lives.live(8)
    lives.asker.bad.add("app")
    await lives.live(4)
    lives.asker.bad.clear()
    lives.ask(named(a_pod("big", "cpu=3", terminationGracePeriodSeconds=4), "stubborn"))
    await lives.live(4)
    critical = named(a_static_pod("critical", "cpu=3"), "critical")
    lives.have(Source.FILE, front, critical)
    await lives.live(12)
    lives.usage = lambda: _usage(lives)
    await lives.live(12)
    lives.unask("pinned")
    lives.ask(named(a_guaranteed_pod("pinned", "2/64Mi", metadata={"uid": "second"}), "second"))
    other = named(a_static_pod("front", "cpu=200m"), "front")
    other = replace(other, metadata=replace(other.metadata, uid="other"))
    lives.have(Source.FILE, other, critical)
    await lives.live(45)
    after = _summary(lives)
    lives.have(Source.FILE)
    lives.have(Source.WORKLOAD)
    lives.unask(*lives.asked)
    await lives.live(45)
    await lives.stop()
    return after


def _usage(lives: Lives) -> Usage:
    """The hog has too much memory, until it is asked to end."""
    hog = lives.kept().get("hog")
    is_there = hog is not None and hog.stage is Stage.ACTIVE
    available = "50Mi" if is_there else "8Gi"
    used = [a_use(uid, "9Gi" if uid == "hog" else "1Mi") for uid in lives.kept()]
    return a_reading(*used, memory=f"{available}/16Gi", at_s=lives.clock.now_ns() // 10**9)


def _summary(lives: Lives) -> dict[str, Any]:
    assert lives.loop is not None
    pods = lives.loop.mind.pods
    running = {(uid, name, cpus) for uid, name, cpus in lives.running() if uid != "crash"}
    return {
        "pods": {uid: (one.stage, one.status.phase, one.status.reason) for uid, one in pods.items()},
        "running": running,
        "held": lives.loop.mind.node.held.cpu.assignments,
    }


@cache
def a_calm_day() -> tuple[dict[str, Any], int]:
    """What comes of it when nobody is killed, and how many operations it takes."""
    lives = Lives(PROFILE, SCRIPTS)
    after = asyncio.run(a_day(lives))
    assert lives.wrong == []
    _nothing_is_left(lives)
    return after, lives.now_faults.count


def _nothing_is_left(lives: Lives) -> None:
    assert lives.runtime.sandboxes == {}
    assert lives.runtime.containers == {}
    assert [path for path in lives.cgroups.groups if "/pod" in path.replace("/kubepods", "")] == []
    assert lives.disk.names(PODS) == ()
    assert b'"defaultCpuSet":"0-7"' in lives.disk.files["cpu_manager_state"]


def test_a_calm_day_has_all_that_happens_to_pods() -> None:
    after, count = a_calm_day()
    found = {
        uid: str(phase) + (f" {reason}" if reason else "")
        for uid, (_, phase, reason) in after["pods"].items()
    }
    assert found == {
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


# ---------------------------------------------------------------- kills

SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
"""Another one each time; FAULT_SEED repeats a run."""
KILLS = (Fault.KILLED_BEFORE, Fault.KILLED_WITHIN, Fault.KILLED_AFTER)


def outcome_of(faults: list[Faults], downtime_s: float = 0) -> tuple[Lives, dict[str, Any]]:
    lives = Lives(PROFILE, SCRIPTS, faults, downtime_s)
    return lives, asyncio.run(a_day(lives))


def survives(faults: list[Faults], downtime_s: float) -> None:
    """All is as on a calm day."""
    lives, after = outcome_of(faults, downtime_s)
    place = ", then ".join(one.place or "nowhere" for one in faults)
    assert lives.wrong == [], (place, downtime_s)
    assert after == a_calm_day()[0], (place, downtime_s)
    _nothing_is_left(lives)


def kill_points(count: int) -> list[tuple[list[Faults], float]]:
    """The agent is killed at so many places, spread over the day; every fourth time the next one is, too."""
    steps = a_calm_day()[1]
    choose = random.Random(SEED)
    found: list[tuple[list[Faults], float]] = []
    for number in range(count):
        at = (number * steps + choose.randrange(steps)) // count
        faults = [Faults(at, choose.choice(KILLS))]
        if number % 4 == 3:
            faults.append(Faults(choose.randrange(40), choose.choice(KILLS)))
        found.append((faults, choose.choice((0, 0, 3))))
    return found


def test_wherever_the_agent_is_killed_all_comes_as_it_would_have_come() -> None:
    print(f"FAULT_SEED={SEED}")
    for faults, downtime_s in kill_points(4):
        survives(faults, downtime_s)
