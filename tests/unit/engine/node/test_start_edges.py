"""Starts on state that does not fit the machine, who holds a resource, and memory on odd machines."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.device_managers import (
    ALL_GATES,
    MIB,
    NO_AFFINITY,
    a_memory_pod,
    memory_policy,
)

from nodewright.engine.core.memory.memory_allocation import (
    allocate_pod_memory,
    best_hint,
    is_allowed_node_set,
    memory_hints,
    pod_hints,
)
from nodewright.engine.core.memory.memory_state import Block, MemoryState, with_blocks
from nodewright.engine.node.resource_holders import FullNames, resource_evidence
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import ContainerAllocation, MemoryBlock
from nodewright.model.reasons.memory import NoNUMAFits
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand
from nodewright.model.values.topology_hints import Fitting, Hint, HintList
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container

GIB = 1 << 30

# ---------------------------------------------------------------- starts


def memory(size: int, *numa: int) -> tuple[MemoryBlock, ...]:
    return (MemoryBlock(numa, "memory", size),)


# What the pod's container holds, on two NUMA nodes of 4 CPUs and 4 GiB, 1 GiB of node 0 reserved; the fault.
HELD_IN_VAIN: list[tuple[ContainerAllocation, str]] = [
    (ContainerAllocation("default/old", "main", "1-2", memory(5 * GIB, 1)), "memory in use"),
    (
        ContainerAllocation("default/old", "main", "1-2", memory(8 * GIB, 0, 1)),
        "memory in use together with 1",
    ),
    (
        ContainerAllocation("default/old", "main", "0-1", memory(GIB, 1)),
        'not all reserved cpus: "0" are present in defaultCpuSet',
    ),
]


@pytest.mark.parametrize(("held", "words"), HELD_IN_VAIN)
def test_no_kubelet_starts_on_allocations_that_its_machine_does_not_have(
    held: ContainerAllocation, words: str
) -> None:
    old = a_guaranteed_pod("old", "cpu=2 memory=1Gi")
    profile = a_profile(pods=[old], allocations=[held], **STATIC_CPUS, **STATIC_MEMORY)
    with pytest.raises(InputError) as refused:
        Node.from_profile(profile)
    assert words in str(refused.value)


def test_pods_hold_memory_of_several_nodes_up_to_what_these_have_together() -> None:
    old = a_guaranteed_pod("old", "cpu=2 memory=7Gi")
    held = ContainerAllocation("default/old", "main", "1-2", memory(7 * GIB, 0, 1))
    node = Node.from_profile(a_profile(pods=[old], allocations=[held], **STATIC_CPUS, **STATIC_MEMORY))
    machine = node.state.held.memory.machine
    assert [machine[numa].tables["memory"].free for numa in (0, 1)] == [0, 0]
    assert {machine[numa].cells for numa in (0, 1)} == {NUMASet.of(0, 1)}


# ---------------------------------------------------------------- holders


def test_names_are_made_as_they_are_asked_for() -> None:
    asked = []

    def pod_of(name: str) -> Any:
        asked.append(name)
        return a_pod(name)

    names = FullNames({"u1": "a", "u2": "b"}, pod_of)
    assert (len(names), list(names), asked) == (2, ["u1", "u2"], [])
    assert (names["u2"], names.get("u3", "u3"), asked) == ("default/b", "u3", ["b"])


def test_without_the_static_policy_nothing_is_known_about_the_holders_of_cpus() -> None:
    without, static = Node.from_profile(a_profile()), Node.from_profile(a_profile(**STATIC_CPUS))
    assert resource_evidence(without.state.config, without.state.held, "cpu", {}) is None
    evidence = resource_evidence(static.state.config, static.state.held, "cpu", {})
    assert evidence is not None
    assert len(evidence) == 2


# ---------------------------------------------------------------- memory


def test_a_pod_that_fits_on_no_nodes_gets_no_memory_as_a_whole() -> None:
    policy = memory_policy(100, 100, gates=ALL_GATES)
    state = MemoryState(policy.initial_machine)
    whole = a_memory_pod("p", container("a"), whole="cpu=1 memory=191Mi")
    allocation = allocate_pod_memory(policy, state, policy.demand(whole), NO_AFFINITY)
    assert isinstance(allocation.verdict, Refused)
    (reason,) = allocation.verdict.because
    assert isinstance(reason, NoNUMAFits)
    assert reason.requested == (("memory", 191 * MIB),)
    assert allocation.state is state
    fits = a_memory_pod("p", container("a"), whole="cpu=1 memory=190Mi")
    assert isinstance(allocate_pod_memory(policy, state, policy.demand(fits)).verdict, Granted)


def test_more_reserved_than_there_is_makes_sums_wrap_around() -> None:
    """By v1.36, calculateHints: sums of unsigned numbers, so that two nodes together may have less than one."""
    policy = memory_policy(4, 100)
    hints = memory_hints(policy.initial_machine, {"memory": 50 * MIB}, {})
    assert hints.fitting is None
    assert [(str(hint.numa), hint.preferred) for hint in hints.listed] == [
        ("0", True),
        ("1", True),
        ("0-1", False),
    ]
    assert [
        str(hint.numa) for hint in memory_hints(policy.initial_machine, {"memory": 99 * MIB}, {}).listed
    ] == [
        "0",
        "1",
    ]


def test_a_node_in_a_group_may_not_be_used_alone() -> None:
    machine = memory_policy(100, 100, 100).initial_machine
    used = with_blocks(machine, Block((0, 1), "memory", 120 * MIB))
    allowed = [mask for mask in range(1, 8) if is_allowed_node_set(used, mask)]
    assert allowed == [0b011, 0b100]
    assert [mask for mask in range(1, 8) if is_allowed_node_set(machine, mask)] == list(range(1, 8))


def test_a_rule_that_no_set_meets_gives_no_best_hint() -> None:
    nodes = NUMASet.of(0, 1)
    short, enough = (Fitting(nodes, (Demand(size, ((1, 2), (2, 2))),), 2, at_least=2) for size in (5, 4))
    assert best_hint(HintList(fitting=short)) is None
    assert best_hint(HintList(fitting=enough)) == Hint(nodes, preferred=True)


@pytest.mark.parametrize("has_no_hints", [True, False])
def test_a_pod_that_requests_no_memory_has_no_preference_from_1_36_on(has_no_hints: bool) -> None:
    policy = memory_policy(100)
    rules = replace(policy.gates.rules, pods_without_memory_have_no_hints=has_no_hints)
    policy = replace(policy, gates=replace(policy.gates, rules=rules))
    demand = policy.demand(a_memory_pod("p", container("a", "cpu=1", "cpu=1")))
    demand = replace(demand, is_guaranteed=True)
    hints = pod_hints(policy, MemoryState(policy.initial_machine), demand)
    assert hints == Granted(None if has_no_hints else {})


def test_huge_pages_of_0_are_not_subtracted_from_what_containers_share() -> None:
    policy = memory_policy(100, pages=10, gates=ALL_GATES)
    asked = "cpu=1 memory=10Mi hugepages-2Mi=0"
    whole = a_memory_pod("p", container("a", asked, asked), container("b"), whole="cpu=2 memory=30Mi")
    state = allocate_pod_memory(policy, MemoryState(policy.initial_machine), policy.demand(whole)).state
    assert state.blocks("p", "a") == (Block((0,), "memory", 10 * MIB),)
    assert state.blocks("p", "b") == (Block((0,), "memory", 20 * MIB),)
