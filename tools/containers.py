"""An agent with containerd, for real: shown, measured, worn out. `python -m tools.containers demo|measure|soak|evictions`."""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.live.containerd import APP, Containerd, lacking
from tests.live.cri_races import container_races
from tests.support.eviction_race import ThresholdScope

from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.runtimes.cri import CRIChannel, CRIRuntime
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import LIST_CONTAINERS, LIST_POD_SANDBOX
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec
from tools.container_agent import EXCLUSIVE, SLEEPS, Agent, an_agent, groups
from tools.pressure import figures as race_figures
from tools.source import ROOT, commit

FIGURES = ROOT / "docs" / "figures" / "containers.json"
_IDLE_PODS, _IDLE_S, _IN_FLIGHT = 10, 20, 20
_PRECISION_S = 0.002
_KUBELET = {"startSeconds": 0.25, "startExclusiveSeconds": 0.31, "rssMiB": 89, "cpuPercent": 1.3}
"""What a kubelet 1.36.2 takes for the same, on a machine of this kind, idle otherwise."""


def demo() -> None:
    """Runs pods, one with an exclusive CPU, kills the agent, and checks that the next agent adopts the pods."""
    with an_agent() as agent:
        agent.write("web")
        agent.write("pinned", EXCLUSIVE)
        agent.until(lambda: agent.runs("web") and agent.runs("pinned"), "both pods run")
        time.sleep(1)
        print(agent.ask("get", "pods", "-o", "wide"))
        shims = sorted(agent.containerd.shims())
        print("The agent is killed; containers go on.")
        agent.kill()
        assert sorted(agent.containerd.shims()) == shims
        agent.start()
        time.sleep(1)
        print("The next one has them, with the same restart counts:\n")
        print(agent.ask("get", "pods"))
        assert sorted(agent.containerd.shims()) == shims


def measure(times: int) -> dict[str, Any]:
    """Figures: how long a pod takes to run, and what the agent takes while nothing happens."""
    with an_agent() as agent:
        plain, exclusive, alone = list[float](), list[float](), list[float]()
        # By turns, so that whatever else the machine does weighs on all alike.
        for number in range(times):
            plain.append(_start_s(agent, f"plain{number}", {}))
            exclusive.append(_start_s(agent, f"exclusive{number}", EXCLUSIVE))
            alone.append(asyncio.run(_alone_s(agent, f"alone{number}")))
        for number in range(_IDLE_PODS):
            agent.write(f"idle{number}")
        for number in range(_IDLE_PODS):
            agent.until(partial(agent.runs, f"idle{number}"), "all of them run")
        time.sleep(5)
        before_s, _ = agent.uses()
        time.sleep(_IDLE_S)
        after_s, rss_mib = agent.uses()
    return {
        "times": times,
        "startSeconds": round(statistics.median(plain), 3),
        "startExclusiveSeconds": round(statistics.median(exclusive), 3),
        "runtimeAloneSeconds": round(statistics.median(alone), 3),
        "idlePods": _IDLE_PODS,
        "rssMiB": round(rss_mib, 1),
        "cpuPercent": round((after_s - before_s) / _IDLE_S * 100, 2),
        "kubelet": _KUBELET,
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def soak(pods: int, in_flight: int, seed: int) -> dict[str, Any]:
    """Very many pods that start and end: none is lost, and nothing is left of them."""
    choose = random.Random(seed)
    with an_agent() as agent:
        # What is opened once for all is open after as many as there ever are at once.
        _churn(agent, [f"first{number}" for number in range(in_flight)], in_flight, choose)
        _until_quiet(agent)
        before, began_s = _counts(agent), time.monotonic()
        _churn(agent, [f"soak{number}" for number in range(pods)], in_flight, choose)
        _until_quiet(agent)
        took_s = time.monotonic() - began_s
        after = _counts(agent)
        ran = len(list(agent.started.iterdir())) - in_flight
        assert ran == pods, f"{ran} of {pods} ran"
        assert after == before, f"before {before}, after {after}"
    return {
        "pods": pods,
        "inFlight": in_flight,
        "seed": seed,
        "commit": commit(),
        "seconds": round(took_s, 1),
        "ran": ran,
        "before": before,
        "after": after,
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def _churn(agent: Agent, names: list[str], in_flight: int, choose: random.Random) -> None:
    """Pods start, so many at once; whichever runs may be the next to end."""
    waiting, running = list(reversed(names)), list[str]()
    while waiting or running:
        while waiting and len(running) < in_flight:
            running.append(waiting.pop())
            agent.write(running[-1], choose.choice(({}, EXCLUSIVE if len(running) == 1 else {})))
        agent.until(lambda: any(map(agent.runs, running)), f"one of {running} runs", _PRECISION_S)
        name = choose.choice([text for text in running if agent.runs(text)])
        agent.drop(name)
        running.remove(name)


def _until_quiet(agent: Agent) -> None:
    agent.until(lambda: not agent.containerd.shims(), "all shims are gone")
    agent.until(lambda: not groups(agent), "all groups of pods are gone")
    agent.until(lambda: not agent.pods(), "the agent has none")
    time.sleep(2)


def _counts(agent: Agent) -> dict[str, int]:
    """What there is of everything that a pod takes."""
    assert agent.process is not None
    sandboxes, containers = asyncio.run(_held(agent.containerd.endpoint))
    return {
        "sandboxes": sandboxes,
        "containers": containers,
        "shims": len(agent.containerd.shims()),
        "groups": len(groups(agent)),
        "mounts": len(agent.containerd.mounts()),
        "directories": sum(
            len(list((agent.root / "agent" / name).glob("*"))) for name in ("pods", "volumes", "logs")
        ),
        "agentDescriptors": len(list(Path(f"/proc/{agent.process.pid}/fd").iterdir())),
        "runtimeDescriptors": len(list(Path(f"/proc/{agent.containerd.pid}/fd").iterdir())),
    }


async def _held(endpoint: str) -> tuple[int, int]:
    """Number of sandboxes and containers of the runtime, including foreign ones."""
    line = CRIChannel(endpoint)
    sandboxes = await line.call(LIST_POD_SANDBOX, cri.ListPodSandboxRequest(), "")
    containers = await line.call(LIST_CONTAINERS, cri.ListContainersRequest(), "")
    await line.close()
    return len(sandboxes.items), len(containers.containers)


def evictions(times: int) -> dict[str, Any]:
    """How late the signal is for a container that grows by 512 MiB a second, at the node and below all pods' limit."""
    document: dict[str, Any] = {}
    with Containerd() as containerd:
        for where in ThresholdScope:
            document[where.value] = race_figures(asyncio.run(container_races(containerd, where, times)))
    return {
        **document,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "loadAverage": round(os.getloadavg()[1], 1),
    }


def _start_s(agent: Agent, name: str, resources: dict[str, Any]) -> float:
    began_ns = time.time_ns()
    agent.write(name, resources)
    agent.until(lambda: agent.runs(name), f"{name} runs", _PRECISION_S)
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    agent.drop(name)
    agent.until(lambda: not agent.containerd.shims(), f"{name} ends")
    agent.until(lambda: not groups(agent), f"nothing of {name} is left")
    time.sleep(0.2)
    return took_s


async def _alone_s(agent: Agent, name: str) -> float:
    """How long the runtime itself takes for the same container, asked directly: no agent can be faster."""
    runtime = CRIRuntime(CRIChannel(agent.containerd.endpoint), owner="alone")
    container = Container(name="app", image=APP)
    pod = Pod(ObjectMeta(name=name, namespace="default", uid=name), PodSpec(host_network=True))
    container_config = ContainerConfig(
        pod=pod,
        container=container,
        attempt=0,
        spec_hash="",
        command=("sh", "-c", SLEEPS),
        env={"POD": name},
        log_path="0.log",
        mounts=(Mount(host_path=str(agent.started), container_path="/out"),),
        settings=ContainerSettings(),
        cgroup_files=(),
    )
    group = f"{agent.cgroup_root}/{name}"
    await runtime.facts()
    began_ns = time.time_ns()
    sandbox = await runtime.run_sandbox(
        PodSandboxConfig(
            pod=pod, attempt=0, cgroup_parent=group, log_directory=str(agent.root / "logs" / name)
        )
    )
    await runtime.start_container(await runtime.create_container(sandbox, container_config))
    await asyncio.to_thread(agent.until, partial(agent.runs, name), f"{name} runs", _PRECISION_S)
    took_s = ((agent.started / name).stat().st_mtime_ns - began_ns) / 10**9
    await runtime.stop_sandbox(sandbox)
    await runtime.remove_sandbox(sandbox)
    await runtime.close()
    return took_s


def main() -> None:
    """Do what was asked for; figures are printed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("demo", "measure", "soak", "evictions"))
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--into", type=Path, help="the file for the figures; default: one in docs/figures")
    arguments = parser.parse_args()
    if why := lacking():
        print(f"left out: {why}", file=sys.stderr)
        return
    if arguments.what == "demo":
        demo()
        return
    match arguments.what:
        case "measure":
            found, place = measure(arguments.times), FIGURES
        case "soak":
            found, place = (
                soak(arguments.pods, _IN_FLIGHT, arguments.seed),
                FIGURES.with_name("containers-soak.json"),
            )
        case _:
            found, place = evictions(arguments.times), FIGURES.with_name("containers-evictions.json")
    text = json.dumps(found, indent=2)
    (arguments.into or place).write_text(f"{text}\n")
    print(text)


if __name__ == "__main__":
    main()
