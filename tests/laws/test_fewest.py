"""How few nodes will do and how many more pods fit, held against every possibility tried one by one."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.fleet import SCORES, Options, run
from nodewright.fleet.capacity import capacity_by_shape, total_capacity
from nodewright.fleet.fleet_summary import free_cpus_by_numa
from nodewright.fleet.minimise import minimum_nodes, node_lower_bound, packing_lower_bound, peak_demands
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.sweep_runs import nodes_with_allocatable
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.hardware import GIB, MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

CPUS = (4, 6)
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


@cache
def kind(cpus: int) -> FleetNode:
    """A node whose kubelet looks at sums alone, so that packing is all there is to it."""
    shape = MachineShape(sockets=1, cores=cpus, threads=1, memory_bytes=64 * GIB, l3_bytes=2**20)
    profile = NodeProfile(
        metadata=ObjectMeta(name=f"of-{cpus}"),
        spec=NodeProfileSpec(kubernetes_version="1.36", machine_info=machine_from_shape(shape)),
    )
    return FleetNode(name=f"of-{cpus}", profile=profile)


def packs(asks: Sequence[int], room: Sequence[int]) -> bool:
    """Whether nodes with so many CPUs hold pods that ask for so many: every place of every pod is tried."""
    if not asks:
        return True
    tried = set()
    for at, free in enumerate(room):
        if free >= asks[0] and free not in tried:
            tried.add(free)
            if packs(asks[1:], [*room[:at], free - asks[0], *room[at + 1 :]]):
                return True
    return False


def least(asks: Sequence[int], kinds: Sequence[int]) -> int:
    """The fewest nodes of these kinds that hold the pods."""
    sizes = range(1, len(asks) + 1)
    return next(
        size
        for size in sizes
        if any(packs(asks, room) for room in combinations_with_replacement(kinds, size))
    )


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.sampled_from((CPUS[:1], CPUS[1:], CPUS)),
    st.sampled_from(sorted(SCORES)),
)
def test_the_fewest_nodes_are_between_the_bound_and_what_the_search_finds(
    asks: list[int], kinds: Sequence[int], scores: str
) -> None:
    pods = [
        FleetPod(name=f"p{number}", pod=a_template(f"cpu={ask}"), arrives_s=number)
        for number, ask in enumerate(asks)
    ]
    nodes = [kind(cpus) for cpus in kinds]
    amounts = [has for _, has in nodes_with_allocatable(nodes)]

    def missed(these: Sequence[FleetNode]) -> int:
        return sum(
            pod.outcome is not PodOutcome.RUNNING for pod in run(these, pods, Options(scores=scores)).pods
        )

    (demands,) = peak_demands(pods)
    loose = node_lower_bound(demands, amounts)
    all_suit = [[True] * len(demands) for _ in nodes]
    sharp = packing_lower_bound(
        [demand.requests for demand in demands], [demand.count for demand in demands], amounts, all_suit
    )
    right = least(asks, kinds)
    assert max(loose, sharp) <= right
    result = minimum_nodes(nodes, missed, bound=max(loose, sharp), maximum=8)
    assert result.nodes >= right
    assert not result.is_proved_minimal or result.nodes == right


def as_many(free: Sequence[int], cpus: int, policy: str, of_numa: int) -> int:
    """How many pods of so many CPUs of their own fit into NUMA nodes of which so much is free, tried one by one.

    Where one NUMA node could hold the pod if it were empty, only one is preferred.
    """
    is_one = policy == "single-numa-node" or (policy == "restricted" and cpus <= of_numa)
    best = 0
    places = [[at] for at in range(len(free))] if is_one else [[at] for at in range(len(free))] + [[0, 1]]
    for place in places:
        left, wanted = list(free), cpus
        for at in place:
            taken = min(left[at], wanted)
            left[at] -= taken
            wanted -= taken
        if not wanted:
            best = max(best, 1 + as_many(left, cpus, policy, of_numa))
    return best


@pytest.mark.parametrize("policy", POLICIES)
def test_as_many_fit_as_there_is_any_way_for(policy: str) -> None:
    # Two NUMA nodes with four CPUs each, one of which is the system's.
    profile = a_profile(cpuManagerPolicy="static", reservedSystemCPUs="0", topologyManagerPolicy=policy)
    for held in ((), (1,), (2,), (3,), (3, 2), (3, 3), (2, 2, 2)):
        pods = [
            pod for cpus in held for pod in some_pods(1, a_template(f"cpu={cpus} memory=1Gi"), f"p{cpus}")
        ]
        (record,) = run(some_nodes(1, profile), pods).nodes
        for cpus in range(1, 8):
            number = total_capacity(
                capacity_by_shape([record], a_template(f"cpu={cpus} memory=1Mi"))
            ).admitted
            assert number == as_many(free_cpus_by_numa(record.state) or (), cpus, policy, 4), (held, cpus)
