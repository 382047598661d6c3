"""CPUs of big machines: the workloads that the kubelet's own code was timed with (budgets in docs)."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cpu.cpu_allocation import allocate, container_hints, remove_container
from nodewright.engine.core.cpu.cpu_policy import (
    AssignmentStrategy,
    CPUSettings,
    StaticCPUPolicy,
    create_policy,
    take_cpus,
    validated_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.cpu.cpu_topology import CPUTopology, discover
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity
from nodewright.testing.conformance.vectors import read_machines
from nodewright.testing.objects import a_pod
from nodewright.testing.strategies import topology

MACHINES = read_machines()
OPTIONS = {
    "packed": (),
    "full-pcpus-only": ("full-pcpus-only",),
    "distribute": ("distribute-cpus-across-numa", "full-pcpus-only"),
    "prefer-l3": ("prefer-align-cpus-by-uncorecache",),
}
WORKLOADS = [
    ("2s-2n-8c-smt2-offset", 2),
    ("big-2s-2n-64c-smt2-l3x8", 2),
    ("big-2s-2n-64c-smt2-l3x8", 64),
    ("2s-8n-2c-smt2", 2),
    ("big-8n-16c", 2),
    ("big-8n-16c", 64),
    ("big-2s-8n-16c-smt2-l3x8", 2),
    ("big-2s-8n-16c-smt2-l3x8", 64),
]


def info(name: str) -> MachineInfo:
    return decode(MACHINES[name], MachineInfo)


def machine(name: str) -> CPUTopology:
    result = discover(info(name))
    assert isinstance(result, Granted)
    return result.value


def running(on: CPUTopology, *options: str) -> tuple[StaticCPUPolicy, CPUState]:
    """The static policy on an idle machine, CPUs 0 and 1 reserved."""
    made = create_policy(
        on,
        CPUSettings(
            policy="static",
            options=dict.fromkeys(options, "true"),
            reservation=Quantity.parse("2"),
            reserved_cpus=CPUSet.of(0, 1),
        ),
    )
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticCPUPolicy)
    started = validated_state(made.value, CPUState())
    assert isinstance(started, Granted)
    return made.value, started.value


def guaranteed(cpus: int) -> Pod:
    return a_pod("p", {"cpu": cpus, "memory": "1Gi"}, {"cpu": cpus, "memory": "1Gi"})


@pytest.mark.benchmark(group="cpu: discover")
@pytest.mark.parametrize("name", ["2s-2n-8c-smt2-offset", "big-2s-8n-16c-smt2-l3x8"])
def test_discover(benchmark: Any, name: str) -> None:
    assert isinstance(benchmark(discover, info(name)), Granted)


@pytest.mark.benchmark(group="cpu: hints")
@pytest.mark.parametrize(("name", "cpus"), WORKLOADS)
def test_hints_as_a_rule(benchmark: Any, name: str, cpus: int) -> None:
    policy, state = running(machine(name))
    pod = guaranteed(cpus)
    container = pod.spec.containers[0]
    assert benchmark(lambda: container_hints(policy, state, policy.cpu_requests(pod), container))["cpu"]


@pytest.mark.benchmark(group="cpu: hints")
@pytest.mark.parametrize(("name", "cpus"), WORKLOADS)
def test_hints_as_a_list(benchmark: Any, name: str, cpus: int) -> None:
    policy, state = running(machine(name))
    pod = guaranteed(cpus)
    container = pod.spec.containers[0]

    def listed() -> int:
        hints = container_hints(policy, state, policy.cpu_requests(pod), container)
        return len(list((hints or {})["cpu"] or ()))

    assert benchmark(listed)


@pytest.mark.benchmark(group="cpu: hints")
@pytest.mark.parametrize("nodes", [16, 34, 64])
def test_hints_on_many_numa_nodes(benchmark: Any, nodes: int) -> None:
    policy, state = running(topology(numa_per_socket=nodes, cores=4))
    pod = guaranteed(20)
    container = pod.spec.containers[0]
    assert benchmark(lambda: container_hints(policy, state, policy.cpu_requests(pod), container))["cpu"]


@pytest.mark.benchmark(group="cpu: allocate")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("name", "cpus"), WORKLOADS)
@pytest.mark.parametrize("where", ["anywhere", "all nodes"])
def test_allocate_and_remove(benchmark: Any, name: str, cpus: int, options: str, where: str) -> None:
    on = machine(name)
    policy, state = running(on, *OPTIONS[options])
    pod = guaranteed(cpus)
    container = pod.spec.containers[0]
    affinity = None if where == "anywhere" else on.numa_ids

    def both() -> CPUState:
        done = allocate(policy, state, policy.cpu_requests(pod), container, affinity)
        assert isinstance(done.verdict, Granted)
        return remove_container(policy, done.state, pod.uid, container.name)

    assert benchmark(both).default == state.default


def uneven(on: CPUTopology) -> CPUSet:
    """NUMA node i has i CPUs less than all: no two are alike, the worst case of the search."""
    taken = CPUSet.from_ids(
        cpu for i, mask in enumerate(on.in_numa.values()) for cpu in list(CPUSet(mask))[:i]
    )
    return on.cpus - taken


@pytest.mark.benchmark(group="cpu: distribute, worst case")
@pytest.mark.parametrize(
    ("name", "cpus"),
    [
        ("big-2s-8n-16c-smt2-l3x8", 97),
        ("big-2s-8n-16c-smt2-l3x8", 122),
        ("big-8n-16c", 59),
        ("2s-8n-2c-smt2", 8),
    ],
)
def test_distribute_over_uneven_nodes(benchmark: Any, name: str, cpus: int) -> None:
    on = machine(name)
    assert isinstance(
        benchmark(take_cpus, on, uneven(on), cpus, AssignmentStrategy(cpu_group_size=1)), Granted
    )


@pytest.mark.benchmark(group="cpu: distribute, worst case")
@pytest.mark.parametrize("nodes", [16, 32])
def test_distribute_over_many_uneven_nodes(benchmark: Any, nodes: int) -> None:
    on = topology(sockets=2, numa_per_socket=nodes // 2, cores=16)
    assert isinstance(
        benchmark(take_cpus, on, uneven(on), 103, AssignmentStrategy(cpu_group_size=1)), Granted
    )
