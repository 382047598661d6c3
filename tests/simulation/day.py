"""A day on which all happens that can happen to pods."""

import os
import random
from typing import Any

from msgspec.structs import replace

from nodewright.agent.keeping import JOURNAL, OLD_JOURNALS, PODS
from nodewright.agent.values import Source, Stage
from nodewright.ask import Node
from nodewright.model.objects import Container, Pod
from nodewright.model.usage import Usage
from nodewright.render.replay import action_documents
from nodewright.sim.replay import replay
from nodewright.testing.lives import Lives, named
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.runtime import Script
from nodewright.testing.usage import a_reading, a_use
from nodewright.world.files import File
from nodewright.world.scenarios import node_of, scenario_from

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
    """Init container, sidecar, probes and a hook."""
    pod = named(a_pod("web", "500m/64Mi"), "app")
    (app,) = pod.spec.containers
    hook = {"postStart": {"exec": {"command": ["greet"]}}}
    app = replace(app, liveness_probe={**CHECK, "periodSeconds": 1}, readiness_probe=CHECK, lifecycle=hook)
    inits = (Container(name="init"), Container(name="side", restart_policy="Always"))
    return replace(pod, spec=replace(pod.spec, containers=(app,), init_containers=inits))


async def a_day(lives: Lives, slack_s: int = 0) -> dict[str, Any]:
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
    await lives.live(45 + slack_s)
    after = _summary(lives)
    lives.have(Source.FILE)
    lives.have(Source.WORKLOAD)
    lives.unask(*lives.asked)
    await lives.live(45 + slack_s)
    await lives.stop()
    return after


def _usage(lives: Lives) -> Usage:
    """The hog has too much memory, until it is asked to end."""
    hog = lives.loop.mind.pods.get("hog") if lives.loop is not None else None
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


def nothing_is_left(lives: Lives) -> None:
    """All pods are gone, and all that was there for them."""
    assert lives.runtime.sandboxes == {}
    assert lives.runtime.containers == {}
    assert [path for path in lives.cgroups.groups if "/pod" in path.replace("/kubepods", "")] == []
    assert lives.disk.names(PODS) == ()
    assert b'"defaultCpuSet":"0-7"' in lives.disk.files["cpu_manager_state"]


def journals_decide_the_same(lives: Lives) -> int:
    """How many events the journals have, each with what came of it; all of it comes of it again."""
    count = 0
    for name in (*OLD_JOURNALS, JOURNAL):
        if name not in lives.disk.files:
            continue
        loaded = scenario_from(File(name, lives.disk.files[name]))
        spec = loaded.scenario.spec
        for one in replay(Node.of(node_of(loaded)).state, spec.events, live=spec.live):
            assert action_documents(one.actions) == list(one.event.actions or ()), (name, one.number)
            count += 1
    return count


SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
"""Another one each time; FAULT_SEED repeats a run."""
