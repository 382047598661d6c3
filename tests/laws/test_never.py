"""A pod that a node "never" admits, whatever is free, is refused whatever CPUs others hold: each set of free CPUs is tried.

The CPU manager's options choose CPUs in other orders and align to other groups; a wrong "never" would end a search for
free CPUs that exist.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import a_numa_pod

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.largest_pod import never_reasons
from nodewright.model.hardware import GIB, MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node

OPTIONS = (
    (),
    ("align-by-socket",),
    ("prefer-align-cpus-by-uncorecache",),
    ("prefer-align-cpus-by-uncorecache", "full-pcpus-only"),
    ("distribute-cpus-across-cores",),
    ("distribute-cpus-across-numa",),
    ("full-pcpus-only", "align-by-socket"),
)
SHAPES = {
    "two sockets of two NUMA nodes": MachineShape(
        sockets=2, numa_per_socket=2, cores=2, l3_cores=1, l3_bytes=1
    ),
    "two NUMA nodes of two cores of two threads": MachineShape(
        numa_per_socket=2, cores=2, threads=2, l3_cores=1, l3_bytes=1
    ),
    "two sockets of a core of four threads": MachineShape(
        sockets=2, cores=1, threads=4, l3_cores=1, l3_bytes=1
    ),
}
RESERVED = CPUSet.of(0)
PODS = (*((cpus,) for cpus in range(1, 8)), (1, 1), (1, 3), (2, 2), (3, 1), (2, 4), (4, 3), (5, 2))


@cache
def a_state(shape: str, options: tuple[str, ...], policy: str, scope: str) -> NodeState:
    """A node without pods."""
    configuration = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(options, "true"),
        "reservedSystemCPUs": "0",
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    }
    machine = machine_from_shape(replace(SHAPES[shape], memory_bytes=8 * GIB))
    spec = NodeProfileSpec(
        kubernetes_version="1.36", machine_info=machine, kubelet_configuration=configuration
    )
    return Node.from_profile(NodeProfile(metadata=ObjectMeta(name="node"), spec=spec)).state


def states_with_fewer_free_cpus(empty: NodeState) -> Iterator[NodeState]:
    """The node with every set of free CPUs; the others are those of a pod, whose requests do not count."""
    cpus = sorted(set(empty.held.cpu.default) - set(RESERVED))
    for count in range(len(cpus) + 1):
        for taken in combinations(cpus, count):
            default = CPUSet.from_ids(set(empty.held.cpu.default) - set(taken))
            held = CPUState(
                default=default, assignments={"other": {"c0": CPUSet.of(*taken)}} if taken else {}
            )
            # The pod that holds them is on the node, so that they are not released.
            yield replace(empty, held=replace(empty.held, cpu=held), is_collected=True)


def a_pod_of(cpus: tuple[int, ...]) -> Pod:
    return a_numa_pod("new", *({"cpu": 1000 * count, "memory": 1} for count in cpus))


CASES = [
    pytest.param(shape, options, policy, id=f"{shape}, {'+'.join(options) or 'no option'}, {policy}")
    for shape in SHAPES
    for options in OPTIONS
    for policy in ("restricted", "single-numa-node")
    if policy != "single-numa-node"
    or "align-by-socket" not in options  # the kubelet does not start with both
]


@pytest.mark.parametrize(("shape", "options", "policy"), CASES)
def test_what_never_fits_fits_with_no_set_of_free_cpus(
    shape: str, options: tuple[str, ...], policy: str
) -> None:
    never_count = 0
    for scope in ("container", "pod"):
        empty = a_state(shape, options, policy, scope)
        states = list(states_with_fewer_free_cpus(empty))
        one = pod_as_stored(a_pod_of((1,)), empty.config.gates)
        if "full-pcpus-only" not in options:
            outcomes = [step(state, PodAdded(one)).decision for state in states]
            assert outcomes.count(Decision.REFUSED) == 1  # where no CPU is free
        for cpus in PODS:
            pod = pod_as_stored(a_pod_of(cpus), empty.config.gates)
            if not never_reasons(empty, pod):
                continue
            never_count += 1
            admitting = [
                state for state in states if step(state, PodAdded(pod)).decision is Decision.ADMITTED
            ]
            assert not admitting, (scope, cpus, admitting[0].held.cpu.default)
    assert never_count or policy == "restricted"  # which spreads what no NUMA node has
