"""Family memory-manager: a memory manager policy created, started, and driven through a list of operations."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.core.memory.allocate import allocate, allocate_pod, remove
from nodewright.core.memory.hints import container_hints, pod_hints
from nodewright.core.memory.policy import (
    MemoryPolicy,
    MemorySettings,
    Reservation,
    allocatable_memory,
    create_policy,
    start,
)
from nodewright.core.memory.state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.core.memory.wants import MemoryGates, MemoryWants
from nodewright.model.hints import HintList, ProviderHints
from nodewright.model.machine import MachineInfo
from nodewright.model.memory_reasons import MemoryReason
from nodewright.model.objects import Container, Pod, ResourceList
from nodewright.model.verdict import Refused, Verdict
from nodewright.render.memory_messages import memory_message
from nodewright.testing.conformance.topology_merge import plain_hint, read_hint
from nodewright.values.idset import NUMASet
from nodewright.values.quantity import Quantity
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the policy came to, what it started with, what each step gave, and the last state."""
    del machines
    settings = _settings(question)
    machine = decode(question["machine"] or {}, MachineInfo)
    made = create_policy(machine.topology, settings)
    if isinstance(made, Refused):
        return {"creation": _error(made), "start": None, "steps": []}
    policy, state = made.value, _state(question.get("initialState"))
    expect: dict[str, Any] = {"creation": {}, "start": None, "steps": []}
    if question.get("callStart") is not False:
        started = start(policy, state)
        if isinstance(started, Refused):
            return expect | {"start": _error(started)}
        state = started.value
        expect["start"] = {
            "machineState": plain_machine(state),
            "allocatableMemory": [_block(one) for one in allocatable_memory(state.machine)],
        }
    run = _Run(policy, state, settings.gates, question["pods"])
    expect["steps"] = [run.step(step) for step in question["steps"]]
    return expect | {
        "final": {"machineState": plain_machine(run.state), "assignments": _assignments(run.state)}
    }


class _Run:
    """The policy's state from step to step."""

    def __init__(
        self, policy: MemoryPolicy, state: MemoryState, gates: MemoryGates, pods: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.state = state
        self.wants = {key: MemoryWants.of(decode(pod, Pod), gates) for key, pod in pods.items()}

    def step(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """What the step gave; the machine only if it changed."""
        wants, before = self.wants[step["pod"]], self.state.machine
        match step["op"]:
            case "podHints":
                gave = _hints(pod_hints(self.policy, self.state, wants))
            case "containerHints":
                gave = _hints(container_hints(self.policy, self.state, wants, _container(wants, step)))
            case "allocate":
                gave = self.allocate(wants, step)
            case "allocatePod":
                gave = self.allocate_pod(wants, step)
            case _:
                self.state = remove(self.policy, self.state, wants.pod.uid, step["container"])
                gave = {}
        return gave if self.state.machine == before else gave | {"machineState": plain_machine(self.state)}

    def allocate(self, wants: MemoryWants, step: Mapping[str, Any]) -> dict[str, Any]:
        container = _container(wants, step)
        done = allocate(self.policy, self.state, wants, container, read_hint(step["affinity"]))
        self.state = done.state
        held = self.state.blocks(wants.pod.uid, container.name)
        gave: dict[str, Any] = {"blocks": None if held is None else _blocks(held)}
        if wants.pod.spec.init_containers:
            gave["podAssignments"] = _of_pod(self.state, wants.pod)
        return gave | _error(done.verdict)

    def allocate_pod(self, wants: MemoryWants, step: Mapping[str, Any]) -> dict[str, Any]:
        done = allocate_pod(self.policy, self.state, wants, read_hint(step["affinity"]))
        self.state = done.state
        whole = self.state.pods.get(wants.pod.uid)
        return {
            "podBlocks": None if whole is None else _blocks(whole),
            "podAssignments": _of_pod(self.state, wants.pod),
        } | _error(done.verdict)


def _settings(question: Mapping[str, Any]) -> MemorySettings:
    gates = question.get("featureGates") or {}
    return MemorySettings(
        policy=question["policy"],
        reserved=[
            Reservation(entry["numaNode"], _amounts(entry["limits"]))
            for entry in question.get("reservedMemory") or ()
        ],
        node_allocatable=_amounts(question.get("nodeAllocatableReservation") or {}),
        gates=MemoryGates(
            pod_level_resources=gates.get("PodLevelResources", True),
            pod_level_managers=gates.get("PodLevelResourceManagers", False),
        ),
    )


def _amounts(plain: Mapping[str, Any]) -> ResourceList:
    return {name: Quantity.parse(str(amount)) for name, amount in plain.items()}


def _state(document: Mapping[str, Any] | None) -> MemoryState:
    if document is None:
        return MemoryState()
    return MemoryState(
        {int(numa): _node(node) for numa, node in (document.get("machineState") or {}).items()},
        {
            pod: {name: _read_blocks(blocks) for name, blocks in containers.items()}
            for pod, containers in (document.get("assignments") or {}).items()
        },
    )


def _node(plain: Mapping[str, Any]) -> NUMAMemory:
    tables = {
        kind: MemoryTable(
            table["total"], table["systemReserved"], table["allocatable"], table["reserved"], table["free"]
        )
        for kind, table in (plain.get("memoryMap") or {}).items()
    }
    return NUMAMemory(plain["numberOfAssignments"], NUMASet.from_ids(plain.get("cells") or ()), tables)


def _read_blocks(blocks: Sequence[Mapping[str, Any]] | None) -> tuple[Block, ...]:
    return tuple(Block(tuple(one["numaAffinity"]), one["type"], one["size"]) for one in blocks or ())


def _container(wants: MemoryWants, step: Mapping[str, Any]) -> Container:
    spec = wants.pod.spec
    return next(one for one in (*spec.init_containers, *spec.containers) if one.name == step["container"])


def plain_machine(state: MemoryState) -> dict[str, Any]:
    """The table of every NUMA node as plain JSON, with the kubelet's names."""
    return {
        str(numa): {
            "numberOfAssignments": node.assignments,
            "cells": list(node.cells),
            "memoryMap": {
                kind: {
                    "total": table.total,
                    "systemReserved": table.system_reserved,
                    "allocatable": table.allocatable,
                    "reserved": table.reserved,
                    "free": table.free,
                }
                for kind, table in node.tables.items()
            },
        }
        for numa, node in state.machine.items()
    }


def _of_pod(state: MemoryState, pod: Pod) -> dict[str, Any] | None:
    held = state.assignments.get(pod.uid)
    return None if held is None else {name: _blocks(blocks) for name, blocks in held.items()}


def _assignments(state: MemoryState) -> dict[str, Any]:
    return {
        pod: {name: _blocks(blocks) for name, blocks in containers.items()}
        for pod, containers in state.assignments.items()
    }


def _blocks(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [_block(one) for one in sorted(blocks, key=lambda block: block.resource)]


def _block(block: Block) -> dict[str, Any]:
    return {"numaAffinity": list(block.numa), "type": block.resource, "size": block.size}


def _hints(verdict: Verdict[ProviderHints | None]) -> dict[str, Any]:
    if isinstance(verdict, Refused):
        return _error(verdict)
    if verdict.value is None:
        return {"hints": None}
    return {"hints": {kind: _hint_list(hints) for kind, hints in verdict.value.items() if hints is not None}}


def _hint_list(hints: HintList) -> list[dict[str, Any]]:
    plain = map(plain_hint, hints)
    return sorted(plain, key=lambda hint: (len(hint["numaNodeAffinity"]), hint["numaNodeAffinity"]))


def _error(verdict: Verdict[Any]) -> dict[str, str]:
    if not isinstance(verdict, Refused):
        return {}
    reason = verdict.because[0]
    assert isinstance(reason, MemoryReason), reason
    return {"error": memory_message(reason)}
