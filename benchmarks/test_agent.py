"""An agent: how long its decisions take, how long 110 static pods take to run, and what it takes while nothing happens."""

import asyncio
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.support.agent_bench import AgentBench
from tests.support.live_agent import private_cgroups

from nodewright.agent.decide.decide import decide
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.testing.objects import container
from nodewright.testing.objects import pod as a_pod
from tools.agent_idle import count_running, idle_figures, running, sleeping_pod

PODS = 110
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "maxPods": 2 * PODS,
    "failCgroupV1": False,
}


def static_pods() -> list[Pod]:
    spec = a_pod(container("main", "10m/8Mi")).spec
    return [
        Pod(metadata=ObjectMeta(name=f"p{at}", namespace="default", uid=f"p{at}"), spec=spec)
        for at in range(PODS)
    ]


def test_decisions_on_110_static_pods(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """All decisions from the list of the pods until all of them run, on a simulated runtime; by CPU time."""
    rounds: list[list[float]] = []

    def timed(*arguments: Any) -> Any:
        began_s = time.process_time()
        result = decide(*arguments)
        rounds[-1].append(time.process_time() - began_s)
        return result

    async def run_all() -> None:
        rounds.append([])
        async with AgentBench() as agent:
            await agent.set_source_pods(*static_pods())
            assert {agent.phase(f"p{at}") for at in range(PODS)} == {"Running"}

    monkeypatch.setattr("nodewright.agent.loop.decide", timed)
    pedantic: Any = benchmark.pedantic
    pedantic(lambda: asyncio.run(run_all()), rounds=5)
    least = min(rounds, key=sum)
    benchmark.extra_info |= {"mean_s": mean(least), "longest_s": max(least), "decisions": len(least)}


def test_110_static_pods_run(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """From the moment at which the manifests are there until all pods run, as plain processes; the end is not counted."""
    with private_cgroups():
        pass  # skips where there can be none
    pods, config = tmp_path / "pods", tmp_path / "kubelet.json"
    pods.mkdir()
    config.write_text(json.dumps(KUBELET), "utf-8")
    with running(tmp_path, "--workload-dir", str(pods), "--config", str(config)) as (_, client):

        def start_all() -> None:
            for number in range(PODS):
                (pods / f"p{number}.json").write_text(json.dumps(sleeping_pod(number)), "utf-8")
            while count_running(client) < PODS:
                time.sleep(0.5)

        pedantic: Any = benchmark.pedantic
        pedantic(start_all, rounds=1)


def test_an_agent_at_rest_with_10_pods(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """CPU time in a minute, RSS and wake-ups, of the agent's process alone."""
    with private_cgroups():
        pass
    figures = idle_figures(tmp_path, pods=10, seconds=30)
    benchmark.extra_info |= {"cpu_s": figures["cpuPercent"] * 60 / 100, **figures}
    pedantic: Any = benchmark.pedantic
    pedantic(lambda: None, rounds=1)
