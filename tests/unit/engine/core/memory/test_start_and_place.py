"""The memory manager: starting, placing, groups of NUMA nodes, reuse, and what it refuses."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.device_managers import (
    ALL_GATES,
    MIB,
    NO_AFFINITY,
    STATIC,
    a_guaranteed_container,
    a_memory_pod,
    memory_policy,
    numa_nodes,
    state_after_allocation,
)

from nodewright.engine.core.memory.memory_allocation import (
    allocate_container_memory,
    allocate_pod_memory,
    container_hints,
)
from nodewright.engine.core.memory.memory_policy import (
    MemorySettings,
    NoneMemoryPolicy,
    Reservation,
    allocatable_memory,
    create_memory_policy,
    start_memory_manager,
)
from nodewright.engine.core.memory.memory_state import (
    Block,
    MemoryState,
    NUMANodeMap,
    with_blocks,
    without_block,
)
from nodewright.model.reasons.memory import (
    MachineMemoryChanged,
    MemoryPlaced,
    MemoryReason,
    NoNUMAFits,
    NUMAMemoryLeft,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint
from nodewright.testing.objects import amounts


def verdict_text(verdict: Verdict[object]) -> str:
    if isinstance(verdict, Granted):
        return "ok"
    (reason,) = verdict.because
    assert isinstance(reason, MemoryReason)
    return reason.kubelet_error()


# ---------------------------------------------------------------- making and starting

MADE = """
    None                                                  ->  ok
    BestEffort                                            ->  policy "BestEffort" is not available for platform "linux"
    static                                                ->  unknown policy: "static"
    Static  0 memory=10Mi                                 ->  ok
    Static  0 memory=4Mi  1 memory=6Mi                    ->  ok
    Static  2 memory=10Mi                                 ->  the reserved memory configuration references a NUMA node 2 that does not exist on this machine
    Static  0 memory=9Mi                                  ->  the total amount "9Mi" of type "memory" is not equal to the value "10Mi" determined by Node Allocatable feature
    Static  0 memory=10Mi  1 hugepages-2Mi=2Mi            ->  the total amount "2Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node Allocatable feature
    Static  0 memory=9.5Mi  1 memory=0.5Mi                ->  could not covert a variable of type Quantity to int64
"""


@pytest.mark.parametrize("line", MADE.strip().splitlines())
def test_a_manager_is_created_or_the_fault_is_reported(line: str) -> None:
    left, _, outcome = line.partition("->")
    policy, *entries = left.split()
    reserved = [
        Reservation(int(numa), amounts(text)) for numa, text in zip(entries[::2], entries[1::2], strict=True)
    ]
    verdict = create_memory_policy(numa_nodes(100, 100), replace(STATIC, policy=policy, reserved=reserved))
    assert verdict_text(verdict) == outcome.strip()


def test_static_needs_reserved_memory() -> None:
    verdict = create_memory_policy(numa_nodes(100), MemorySettings(policy="Static"))
    assert "[memorymanager] you should specify the system reserved memory" in verdict_text(verdict)


def test_reserved_memory_and_huge_pages_are_not_for_containers() -> None:
    assert allocatable_memory(memory_policy(100, 50).initial_machine) == (
        Block((0,), "memory", 90 * MIB),
        Block((1,), "memory", 50 * MIB),
    )
    assert allocatable_memory(memory_policy(100, pages=10).initial_machine) == (
        Block((0,), "hugepages-2Mi", 20 * MIB),
        Block((0,), "memory", 70 * MIB),
    )


def test_reserving_more_than_there_is_wraps_around() -> None:
    (block,) = allocatable_memory(memory_policy(4).initial_machine)
    assert block.size == 2**64 - 6 * MIB


def test_a_fresh_state_is_the_idle_machine() -> None:
    policy = memory_policy(100)
    assert start_memory_manager(policy, MemoryState()) == Granted(MemoryState(machine=policy.initial_machine))
    assert start_memory_manager(NoneMemoryPolicy(), MemoryState()) == Granted(MemoryState())


OLD = {"old": {"app": (Block((0,), "memory", 5 * MIB),)}}


def test_assignments_without_a_machine_are_refused() -> None:
    text = verdict_text(start_memory_manager(memory_policy(100), MemoryState(assignments=OLD)))
    assert "[memorymanager] machine state can not be empty when it has memory assignments" in text


STORED = """
    numa 3  memory         ->  (pod: old, container: app) the memory assignment uses the NUMA that does not exist
    numa 0  hugepages-1Gi  ->  (pod: old, container: app) the memory assignment uses memory resource that does not exist
    numa 0  memory         ->  the expected machine state is different from the real one
"""


@pytest.mark.parametrize("line", STORED.strip().splitlines())
def test_a_state_that_does_not_fit_the_machine_is_refused(line: str) -> None:
    left, _, text = line.partition("->")
    _, numa, kind = left.split()
    policy = memory_policy(100)
    stored = MemoryState(policy.initial_machine, {"old": {"app": (Block((int(numa),), kind, MIB),)}})
    assert f"[memorymanager] {text.strip()}" in verdict_text(start_memory_manager(policy, stored))


CHANGES: dict[str, dict[str, Any]] = {
    "NUMA node": {"drop": 1},
    "number of assignments": {"assignments": 1},
    "group": {"cells": NUMASet.of(0, 1)},
    "kinds of memory": {"kinds": ("memory",)},
    "memory total": {"table": {"total": 1}},
    "memory system_reserved": {"table": {"system_reserved": 1}},
    "memory allocatable": {"table": {"allocatable": 1}},
    "memory free of the group": {"table": {"free": 1}},
    "memory reserved of the group": {"table": {"reserved": 1}},
}


def changed(machine: NUMANodeMap, change: Mapping[str, Any]) -> NUMANodeMap:
    first = machine[0]
    if "drop" in change:
        return {at: node for at, node in machine.items() if at != change["drop"]}
    if "kinds" in change:
        first = replace(first, tables={kind: first.tables[kind] for kind in change["kinds"]})
    elif "table" in change:
        table = replace(first.tables["memory"], **change["table"])
        first = replace(first, tables={**first.tables, "memory": table})
    else:
        first = replace(first, **change)
    return {**machine, 0: first}


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_of_the_machine_is_noticed(what: str) -> None:
    policy = memory_policy(100, 100, pages=10)
    verdict = start_memory_manager(policy, MemoryState(changed(policy.initial_machine, CHANGES[what])))
    assert isinstance(verdict, Refused)
    (reason,) = verdict.because
    assert isinstance(reason, MachineMemoryChanged)
    assert reason.what == what
    assert (
        verdict_text(verdict) == "[memorymanager] the expected machine state is different from the real one"
    )


def test_a_group_that_a_removed_block_leaves_behind_stops_the_kubelet_and_not_the_agent() -> None:
    policy = memory_policy(100, 100)
    both, one_node = Block((0, 1), "memory", 120 * MIB), Block((1,), "memory", MIB)
    machine = with_blocks(with_blocks(policy.initial_machine, both), one_node)
    stored = MemoryState(without_block(machine, one_node), {"a": {"main": (both,)}})
    verdict = start_memory_manager(policy, stored)
    assert verdict == Refused((MachineMemoryChanged(numa=1, what="group", stored="1", expected="0-1"),))
    corrected = start_memory_manager(replace(policy, follows_defects=False), stored)
    assert isinstance(corrected, Granted)
    assert {str(node.cells) for node in corrected.value.machine.values()} == {"0-1"}


def test_a_group_with_a_node_that_is_not_there_crashes_the_kubelet() -> None:
    policy = memory_policy(100, pages=10)
    cells = NUMASet.of(0, 7)
    machine = {0: replace(policy.initial_machine[0], cells=cells)}
    verdict = start_memory_manager(replace(policy, initial_machine=machine), MemoryState(machine))
    assert verdict_text(verdict) == "the kubelet crashes: NUMA node 7 lists no hugepages-2Mi"


def test_pod_level_memory_is_validated_as_a_whole() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    pod = a_memory_pod("p", a_guaranteed_container("app", "memory=20Mi"), whole="cpu=2 memory=30Mi")
    done = allocate_pod_memory(policy, MemoryState(machine=policy.initial_machine), policy.demand(pod))
    stored = done.state
    assert start_memory_manager(policy, stored) == Granted(stored)


# ---------------------------------------------------------------- placing

SEQUENCE = """
    a  30Mi                  ->  0
    b  60Mi                  ->  1
    c  20Mi                  ->  0
    d  130Mi                 ->  2-3
    e  10Mi  on 2            ->  2-3
    f  20Mi  on 2-3          ->  2-3
    g  30Mi  on 0,2          ->  [memorymanager] failed to find NUMA nodes to extend the current topology hint
    h  10Mi  on 0-1          ->  [memorymanager] preferred hint violates NUMA node allocation
    i  300Mi                 ->  [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available
    j  20Mi  preferred any   ->  0
"""


def test_nodes_are_used_alone_or_in_one_group() -> None:
    policy = memory_policy(100, 100, 100, 100, pages=10)
    state = MemoryState(machine=policy.initial_machine)
    for line in SEQUENCE.strip().splitlines():
        left, _, outcome = line.partition("->")
        name, memory, *where = left.split()
        affinity = Hint(None, preferred="preferred" in where)
        if where[:1] == ["on"]:
            affinity = Hint(NUMASet.parse(where[1]), preferred=False)
        pod = a_memory_pod(name, a_guaranteed_container("app", f"memory={memory}"))
        done = allocate_container_memory(policy, state, policy.demand(pod), pod.spec.containers[0], affinity)
        state = done.state
        text = verdict_text(done.verdict)
        if isinstance(done.verdict, Granted):
            (placed,) = done.verdict.because
            assert isinstance(placed, MemoryPlaced)
            text = str(placed.numa)
        assert text == outcome.strip(), line


def test_a_preferred_affinity_is_honoured_or_refused() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.initial_machine)
    for uid in ("a", "b"):
        state = state_after_allocation(
            state, policy, a_memory_pod(uid, a_guaranteed_container("app", "memory=70Mi")), "app", NO_AFFINITY
        )
    # Nodes in use one by one can be no group, so nothing is left to be found preferred or not.
    late = a_memory_pod("late", a_guaranteed_container("app", "memory=50Mi"))
    hints = container_hints(policy, state, policy.demand(late), late.spec.containers[0])
    assert hints == Granted({})


def test_a_preferred_affinity_requires_a_preferred_hint() -> None:
    policy = memory_policy(100, 100, 100)
    state = MemoryState(machine=policy.initial_machine)
    wide = a_memory_pod("wide", a_guaranteed_container("app", "memory=110Mi"))
    state = state_after_allocation(state, policy, wide, "app", Hint(NUMASet.of(0, 1), preferred=True))
    # 60 MiB would fit on one node if none were grouped, and do: on node 2. After that, only the group is left.
    state = state_after_allocation(
        state, policy, a_memory_pod("one", a_guaranteed_container("app", "memory=60Mi")), "app", NO_AFFINITY
    )
    late = a_memory_pod("late", a_guaranteed_container("app", "memory=60Mi"))
    wants, only = policy.demand(late), late.spec.containers[0]
    promised = allocate_container_memory(policy, state, wants, only, Hint(None, preferred=True))
    assert verdict_text(promised.verdict) == "[memorymanager] failed to find the default preferred hint"
    assert promised.state is state
    grown = allocate_container_memory(policy, state, wants, only, Hint(NUMASet.of(0), preferred=True))
    assert verdict_text(grown.verdict) == "[memorymanager] failed to find the extended preferred hint"
    assert isinstance(allocate_container_memory(policy, state, wants, only).verdict, Granted)


def test_a_refusal_shows_what_every_node_has_left() -> None:
    policy = memory_policy(100)
    big = a_memory_pod("big", a_guaranteed_container("app", "memory=1Gi"))
    done = allocate_container_memory(
        policy, MemoryState(machine=policy.initial_machine), policy.demand(big), big.spec.containers[0]
    )
    left = NUMAMemoryLeft(
        numa=0, resource="memory", free=90 * MIB, allocatable=90 * MIB, group=NUMASet.of(0), is_used=False
    )
    assert done.verdict == Refused((NoNUMAFits(requested=(("memory", 1024 * MIB),), left=(left,)),))
