"""The memory manager: starting, placing, groups of NUMA nodes, reuse, and what it refuses."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.core.memory.allocate import allocate, allocate_pod
from nodewright.core.memory.hints import container_hints
from nodewright.core.memory.policy import (
    MemorySettings,
    NonePolicy,
    Reservation,
    allocatable_memory,
    create_policy,
    start,
)
from nodewright.core.memory.state import Block, Machine, MemoryState
from nodewright.model.hints import Hint
from nodewright.model.memory_reasons import (
    MachineMemoryChanged,
    MemoryPlaced,
    MemoryReason,
    NoNUMAFits,
    NUMAMemoryLeft,
)
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.render.memory_messages import memory_message
from nodewright.testing.memory import (
    ALL_GATES,
    ANYWHERE,
    MIB,
    STATIC,
    guaranteed,
    memory_policy,
    numa_nodes,
    placed_on,
    pod_of,
)
from nodewright.testing.objects import amounts
from nodewright.values.idset import NUMASet


def said(verdict: Verdict[object]) -> str:
    if isinstance(verdict, Granted):
        return "ok"
    (reason,) = verdict.because
    assert isinstance(reason, MemoryReason)
    return memory_message(reason)


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
def test_a_manager_is_made_or_says_what_is_wrong(line: str) -> None:
    left, _, outcome = line.partition("->")
    policy, *entries = left.split()
    reserved = [
        Reservation(int(numa), amounts(text)) for numa, text in zip(entries[::2], entries[1::2], strict=True)
    ]
    verdict = create_policy(
        numa_nodes(100, 100), dataclasses.replace(STATIC, policy=policy, reserved=reserved)
    )
    assert said(verdict) == outcome.strip()


def test_static_needs_reserved_memory() -> None:
    verdict = create_policy(numa_nodes(100), MemorySettings(policy="Static"))
    assert "[memorymanager] you should specify the system reserved memory" in said(verdict)


def test_reserved_memory_and_huge_pages_are_not_for_containers() -> None:
    assert allocatable_memory(memory_policy(100, 50).idle) == (
        Block((0,), "memory", 90 * MIB),
        Block((1,), "memory", 50 * MIB),
    )
    assert allocatable_memory(memory_policy(100, pages=10).idle) == (
        Block((0,), "hugepages-2Mi", 20 * MIB),
        Block((0,), "memory", 70 * MIB),
    )


def test_reserving_more_than_there_is_wraps_around() -> None:
    (block,) = allocatable_memory(memory_policy(4).idle)
    assert block.size == 2**64 - 6 * MIB


def test_a_fresh_state_is_the_idle_machine() -> None:
    policy = memory_policy(100)
    assert start(policy, MemoryState()) == Granted(MemoryState(machine=policy.idle))
    assert start(NonePolicy(), MemoryState()) == Granted(MemoryState())


OLD = {"old": {"app": (Block((0,), "memory", 5 * MIB),)}}


def test_assignments_without_a_machine_are_refused() -> None:
    text = said(start(memory_policy(100), MemoryState(assignments=OLD)))
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
    stored = MemoryState(policy.idle, {"old": {"app": (Block((int(numa),), kind, MIB),)}})
    assert f"[memorymanager] {text.strip()}" in said(start(policy, stored))


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


def changed(machine: Machine, change: Mapping[str, Any]) -> Machine:
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
    verdict = start(policy, MemoryState(changed(policy.idle, CHANGES[what])))
    assert isinstance(verdict, Refused)
    (reason,) = verdict.because
    assert isinstance(reason, MachineMemoryChanged)
    assert reason.what == what
    assert said(verdict) == "[memorymanager] the expected machine state is different from the real one"


def test_a_group_with_a_node_that_is_not_there_crashes_the_kubelet() -> None:
    policy = memory_policy(100, pages=10)
    cells = NUMASet.of(0, 7)
    machine = {0: replace(policy.idle[0], cells=cells)}
    verdict = start(dataclasses.replace(policy, idle=machine), MemoryState(machine))
    assert said(verdict) == "the kubelet crashes: NUMA node 7 lists no hugepages-2Mi"


def test_a_pod_that_held_memory_as_a_whole_is_checked_as_a_whole() -> None:
    policy = memory_policy(100, gates=ALL_GATES)
    one = pod_of("p", guaranteed("app", "memory=20Mi"), whole="cpu=2 memory=30Mi")
    done = allocate_pod(policy, MemoryState(machine=policy.idle), policy.wants(one))
    stored = done.state
    assert start(policy, stored) == Granted(stored)


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
    state = MemoryState(machine=policy.idle)
    for line in SEQUENCE.strip().splitlines():
        left, _, outcome = line.partition("->")
        name, memory, *where = left.split()
        affinity = Hint(None, preferred="preferred" in where)
        if where[:1] == ["on"]:
            affinity = Hint(NUMASet.parse(where[1]), preferred=False)
        one = pod_of(name, guaranteed("app", f"memory={memory}"))
        done = allocate(policy, state, policy.wants(one), one.spec.containers[0], affinity)
        state = done.state
        text = said(done.verdict)
        if isinstance(done.verdict, Granted):
            (placed,) = done.verdict.because
            assert isinstance(placed, MemoryPlaced)
            text = str(placed.numa)
        assert text == outcome.strip(), line


def test_a_promise_of_a_preferred_place_is_kept_or_refused() -> None:
    policy = memory_policy(100, 100)
    state = MemoryState(machine=policy.idle)
    for uid in ("a", "b"):
        state = placed_on(state, policy, pod_of(uid, guaranteed("app", "memory=70Mi")), "app", ANYWHERE)
    # Nodes in use one by one can be no group, so nothing is left to be found preferred or not.
    late = pod_of("late", guaranteed("app", "memory=50Mi"))
    hints = container_hints(policy, state, policy.wants(late), late.spec.containers[0])
    assert hints == Granted({})


def test_what_is_promised_preferred_must_be_found_preferred() -> None:
    policy = memory_policy(100, 100, 100)
    state = MemoryState(machine=policy.idle)
    wide = pod_of("wide", guaranteed("app", "memory=110Mi"))
    state = placed_on(state, policy, wide, "app", Hint(NUMASet.of(0, 1), preferred=True))
    # 60 MiB would fit on one node if none were grouped, and do: on node 2. After that, only the group is left.
    state = placed_on(state, policy, pod_of("one", guaranteed("app", "memory=60Mi")), "app", ANYWHERE)
    late = pod_of("late", guaranteed("app", "memory=60Mi"))
    wants, only = policy.wants(late), late.spec.containers[0]
    promised = allocate(policy, state, wants, only, Hint(None, preferred=True))
    assert said(promised.verdict) == "[memorymanager] failed to find the default preferred hint"
    assert promised.state is state
    grown = allocate(policy, state, wants, only, Hint(NUMASet.of(0), preferred=True))
    assert said(grown.verdict) == "[memorymanager] failed to find the extended preferred hint"
    assert isinstance(allocate(policy, state, wants, only).verdict, Granted)


def test_a_refusal_shows_what_every_node_has_left() -> None:
    policy = memory_policy(100)
    big = pod_of("big", guaranteed("app", "memory=1Gi"))
    done = allocate(policy, MemoryState(machine=policy.idle), policy.wants(big), big.spec.containers[0])
    left = NUMAMemoryLeft(
        numa=0, resource="memory", free=90 * MIB, allocatable=90 * MIB, group=NUMASet.of(0), is_used=False
    )
    assert done.verdict == Refused((NoNUMAFits(requested=(("memory", 1024 * MIB),), left=(left,)),))
