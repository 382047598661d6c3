"""A whole node: the recorded sequences, a node that fills up and empties, and who makes way among 500 pods."""

import gc
import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import mean, median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.documents.formats.decode import decode
from nodewright.engine.node.events import PodAdded, PodRecovered, PodRemoved, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import Decision, step
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import sentence
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.conformance.vectors import read_machines
from nodewright.testing.objects import a_guaranteed_pod, a_pod

RECORDED = Path(__file__).parents[1] / "tests/conformance/vectors/node.jsonl.gz"
STATIC = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "best-effort",
    "reservedSystemCPUs": "0-1",
    "systemReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
}


class Sequence(NamedTuple):
    """A node as it starts, and what then happens to it: pods that arrive, and uids of those that go."""

    name: str
    numa_nodes: int
    node: NodeState
    events: tuple[Pod | str, ...]


@cache
def sequences() -> tuple[Sequence, ...]:
    """The recorded sequences whose kubelet starts, read and decoded."""
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return tuple(sequence for sequence in map(_sequence, lines) if sequence is not None)


def _sequence(line: str) -> Sequence | None:
    vector = json.loads(line)
    script = vector["input"].pop("events", None) or ()
    vector["input"].pop("tag", None)
    try:
        parts, _ = node_parts(NodeProfile(spec=decode(vector["input"], NodeProfileSpec)))
    except InputError:
        return None
    # The node object of these vectors declares no features of its runtime.
    started = initial_node(replace(parts, facts=replace(parts.facts, has_supplemental_groups_policy=False)))
    if isinstance(started, Refused):
        return None
    events = tuple(decode(event["add"], Pod) if "add" in event else event["remove"] for event in script)
    return Sequence(vector["id"], len(parts.machine.topology), started.value, events)


def arrivals(chosen: list[Sequence]) -> Iterator[float]:
    """How long each decision on a pod took, one sequence after the other.

    Units: seconds.
    """
    for sequence in chosen:
        state = sequence.node
        for event in sequence.events:
            if isinstance(event, str):
                state = step(state, PodRemoved(event)).state
                continue
            begin = perf_counter()
            taken = step(state, PodAdded(event))
            yield perf_counter() - begin
            state = step(taken.state, PodStarted(event.uid)).state


@pytest.mark.benchmark(group="node: recorded sequences")
@pytest.mark.parametrize("numa_nodes", [1, 2, 4, 8, "all"])
def test_every_pod_of_the_recorded_sequences(benchmark: BenchmarkFixture, numa_nodes: int | str) -> None:
    """Every round decides on all pods again; the figures a pod are the shortest of the rounds."""
    chosen = [sequence for sequence in sequences() if numa_nodes in ("all", sequence.numa_nodes)]
    rounds: list[list[float]] = []
    # What was read stays: a process that decides holds one node, not some hundreds, for the collector to look at.
    gc.collect()
    gc.freeze()
    pedantic: Any = benchmark.pedantic
    pedantic(lambda: rounds.append(list(arrivals(chosen))), rounds=5, warmup_rounds=1)
    shortest = sorted(map(min, zip(*rounds, strict=True)))
    benchmark.extra_info |= {
        "pods": len(shortest),
        "pod_mean_s": mean(shortest),
        "pod_median_s": median(shortest),
        "pod_p99_s": quantiles(shortest, n=100)[98],
    }


def a_machine(name: str, **kubelet: Any) -> NodeState:
    """The machine of that name with a kubelet configured so, before any pod has come."""
    spec = {
        "machineInfo": read_machines()[name],
        "rootFsCapacity": 1 << 40,
        "kubeletConfiguration": {**STATIC, "maxPods": 600, **kubelet},
    }
    parts, _ = node_parts(NodeProfile(spec=decode(spec, NodeProfileSpec)))
    started = initial_node(parts)
    assert isinstance(started, Granted)
    return started.value


def some_pods(count: int) -> list[Pod]:
    """Pods of every class; each third has CPUs and memory of its own."""
    kinds: list[Callable[[str], Pod]] = [
        lambda name: a_guaranteed_pod(name, "2/256Mi"),
        lambda name: a_pod(name, "100m/64Mi", "200m/128Mi"),
        a_pod,
    ]
    return [kinds[number % 3](f"pod-{number}") for number in range(count)]


def come_and_go(state: NodeState, pods: list[Pod]) -> NodeState:
    for pod in pods:
        taken = step(state, PodAdded(pod))
        assert taken.decision is Decision.ADMITTED
        state = step(taken.state, PodStarted(pod.uid)).state
    for pod in pods:
        state = step(state, PodRemoved(pod.uid)).state
    return state


@pytest.mark.benchmark(group="node: pods come and go")
@pytest.mark.parametrize("machine", ["big-2s-2n-64c-smt2-l3x8", "big-2s-8n-16c-smt2-l3x8"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_110_pods_come_and_go(benchmark: BenchmarkFixture, machine: str, scope: str) -> None:
    idle, pods = a_machine(machine, topologyManagerScope=scope), some_pods(110)
    assert benchmark(come_and_go, idle, pods).pods == {}
    benchmark.extra_info["pods"] = len(pods)


def filled(state: NodeState, pods: list[Pod]) -> NodeState:
    for pod in pods:
        state = step(state, PodRecovered(pod)).state
    return state


@pytest.mark.benchmark(group="node: one more pod")
@pytest.mark.parametrize("others", [0, 110, 500])
def test_one_more_guaranteed_pod(benchmark: BenchmarkFixture, others: int) -> None:
    state = filled(a_machine("big-2s-8n-16c-smt2-l3x8"), some_pods(others)[: others * 2 // 3])
    event = PodAdded(a_guaranteed_pod("new", "4/1Gi"))
    assert benchmark(step, state, event).decision is Decision.ADMITTED


@pytest.mark.benchmark(group="node: one more pod")
def test_the_reasons_of_a_refusal_in_words(benchmark: BenchmarkFixture) -> None:
    state = filled(a_machine("big-2s-8n-16c-smt2-l3x8", topologyManagerPolicy="restricted"), some_pods(110))
    event = PodAdded(a_guaranteed_pod("huge", "300/1Gi"))

    def refused() -> list[str]:
        return [sentence(reason) for reason in step(state, event).because]

    assert benchmark(refused)


@pytest.mark.benchmark(group="node: preemption")
@pytest.mark.parametrize(("cpus", "victims"), [("8", 4), ("60", 112)])
def test_a_critical_pod_among_500_others(benchmark: BenchmarkFixture, cpus: str, victims: int) -> None:
    others = [a_pod(f"pod-{number}", "500m/512Mi") for number in range(500)]
    state = filled(a_machine("big-2s-2n-64c-smt2-l3x8"), others)
    event = PodAdded(a_pod("vip", {"cpu": cpus}, priority=2_000_000_000))
    taken = benchmark(step, state, event)
    assert taken.victims is not None
    assert len(taken.victims.victims) >= victims
