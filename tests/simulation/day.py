"""A day on which all happens that can happen to pods."""

import os
import random
from typing import Any

from msgspec.structs import replace
from tests.support.agent_restarts import AgentRestarts, with_container_name

from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.store.store_files import JOURNAL, OLD_JOURNALS, PODS
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.scenario_files import scenario_from_file, scenario_node
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import action_documents
from nodewright.predict.replay.scenario_run import replay
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.usage import a_pod_usage, a_reading

PROFILE = a_profile(**STATIC_CPUS, evictionHard={"memory.available": "100Mi"})
SCRIPTS = {
    "init": ContainerScript(runs_for_s=2),
    "job": ContainerScript(runs_for_s=5),
    "crash": ContainerScript(runs_for_s=1, exit_code=1),
    "stubborn": ContainerScript(ignores_sigterm=True),
}
CHECK = {"exec": {"command": ["check"]}}
MOST_FAILURES = 40
"""Failures that tests inject in a row."""
PINNED = frozenset({"pinned", "second", "job"})


def a_web() -> Pod:
    """Init container, sidecar, probes and a hook."""
    pod = with_container_name(a_pod("web", "500m/64Mi"), "app")
    (app,) = pod.spec.containers
    hook = {"postStart": {"exec": {"command": ["greet"]}}}
    app = replace(app, liveness_probe={**CHECK, "periodSeconds": 1}, readiness_probe=CHECK, lifecycle=hook)
    inits = (Container(name="init"), Container(name="side", restart_policy="Always"))
    return replace(pod, spec=replace(pod.spec, containers=(app,), init_containers=inits))


async def a_day(lives: AgentRestarts, slack_s: int = 0) -> dict[str, Any]:
    """All that can happen to pods; what has come of them in the end, but before all is cleared away."""
    lives.pinned_uids = PINNED
    front = with_container_name(a_static_pod("front", "cpu=100m"), "front")
    lives.set_source_pods(PodSource.FILE, front)
    lives.set_source_pods(PodSource.WORKLOAD, a_web())
    lives.request_pods(
        with_container_name(a_guaranteed_pod("pinned", "2/64Mi"), "pinned"),
        with_container_name(a_guaranteed_pod("job", "1/64Mi", restartPolicy="Never"), "job"),
        with_container_name(a_pod("crash", metadata={"uid": "crash"}), "crash"),
        with_container_name(a_pod("hog"), "hog"),
    )
    await lives.run_for(8)
    lives.prober.failing.add("app")
    await lives.run_for(4)
    lives.prober.failing.clear()
    lives.request_pods(
        with_container_name(a_pod("big", "cpu=3", terminationGracePeriodSeconds=4), "stubborn")
    )
    await lives.run_for(4)
    critical = with_container_name(a_static_pod("critical", "cpu=3"), "critical")
    lives.set_source_pods(PodSource.FILE, front, critical)
    await lives.run_for(12)
    lives.usage = lambda: _usage(lives)
    await lives.run_for(12)
    lives.delete_pods("pinned")
    lives.request_pods(
        with_container_name(a_guaranteed_pod("pinned", "2/64Mi", metadata={"uid": "second"}), "second")
    )
    other = with_container_name(a_static_pod("front", "cpu=200m"), "front")
    other = replace(other, metadata=replace(other.metadata, uid="other"))
    lives.set_source_pods(PodSource.FILE, other, critical)
    await lives.run_for(45 + slack_s)
    after = _summary(lives)
    lives.set_source_pods(PodSource.FILE)
    lives.set_source_pods(PodSource.WORKLOAD)
    lives.delete_pods(*lives.asked)
    await lives.run_for(45 + slack_s)
    for _ in range(MOST_FAILURES if slack_s else 0):
        if lives.disk.names(PODS):
            await lives.run_for(10)  # then the agent repeats what failed
    await lives.stop()
    return after


def _usage(lives: AgentRestarts) -> StatsSummary:
    """The hog has too much memory, until it is asked to end."""
    hog = lives.loop.state.pods.get("hog") if lives.loop is not None else None
    is_there = hog is not None and hog.stage is PodStage.ACTIVE
    available = "50Mi" if is_there else "8Gi"
    used = [a_pod_usage(uid, "9Gi" if uid == "hog" else "1Mi") for uid in lives.stored_pods()]
    return a_reading(*used, memory=f"{available}/16Gi", at_s=lives.clock.now_ns() // 10**9)


def _summary(lives: AgentRestarts) -> dict[str, Any]:
    assert lives.loop is not None
    pods = lives.loop.state.pods
    running = {(uid, name, cpus) for uid, name, cpus in lives.running_containers() if uid != "crash"}
    return {
        "pods": {uid: (one.stage, one.status.phase, one.status.reason) for uid, one in pods.items()},
        "running": running,
        "held": lives.loop.state.node.held.cpu.assignments,
    }


def nothing_is_left(lives: AgentRestarts) -> None:
    """All pods are gone, and all that was there for them."""
    assert lives.runtime.sandboxes == {}
    assert lives.runtime.containers == {}
    assert [path for path in lives.cgroups.groups if "/pod" in path.replace("/kubepods", "")] == []
    assert lives.disk.names(PODS) == ()
    assert b'"defaultCpuSet":"0-7"' in lives.disk.files["cpu_manager_state"]


def journals_decide_the_same(lives: AgentRestarts) -> int:
    """How many events the journals have, each with what came of it; all of it comes of it again."""
    count = 0
    for name in (*OLD_JOURNALS, JOURNAL):
        if name not in lives.disk.files:
            continue
        loaded = scenario_from_file(InputFile(name, lives.disk.files[name]))
        spec = loaded.scenario.spec
        for event_outcome in replay(
            Node.from_profile(scenario_node(loaded)).state, spec.events, live=spec.live
        ):
            assert action_documents(event_outcome.actions) == list(event_outcome.event.actions or ()), (
                name,
                event_outcome.number,
            )
            count += 1
    return count


SEED = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(1_000_000))
"""Another one each time; FAULT_SEED repeats a run."""
