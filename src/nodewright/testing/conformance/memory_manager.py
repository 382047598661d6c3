"""Family memory-manager: a memory manager policy created, started, and driven through a list of operations."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.memory.memory_allocation import (
    allocate_container_memory,
    allocate_pod_memory,
    container_hints,
    pod_hints,
    release_memory,
)
from nodewright.engine.core.memory.memory_policy import (
    MemoryPolicy,
    MemorySettings,
    Reservation,
    allocatable_memory,
    create_memory_policy,
    start_memory_manager,
)
from nodewright.engine.core.memory.memory_state import (
    Block,
    MemoryState,
    MemoryTable,
    NUMAMemory,
    PodMemoryDemand,
)
from nodewright.engine.core.requests.managed_pods import ManagerGates
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.memory import MemoryReason
from nodewright.model.reasons.verdict import Refused, Verdict
from nodewright.model.releases.feature_gates import FeatureGates, resolve_gates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import HintList, ProviderHints
from nodewright.testing.conformance.topology_merge import plain_hint, read_hint
from nodewright.testing.conformance.vectors import by_container, named_container, read_amounts


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The policy, its initial state, the result of each step, and the final state."""
    resolved = resolve_gates(question.get("featureGates") or {}, release=release)
    if resolved.errors:
        return {"creation": {"error": resolved.errors[0]}, "start": None, "steps": []}
    settings = _settings(question, resolved.gates)
    machine = decode(question["machine"] or {}, MachineInfo)
    made = create_memory_policy(machine.topology, settings)
    if isinstance(made, Refused):
        return {"creation": _error(made), "start": None, "steps": []}
    policy, state = made.value, _state(question.get("initialState"))
    expect: dict[str, Any] = {"creation": {}, "start": None, "steps": []}
    if question.get("callStart") is not False:
        started = start_memory_manager(policy, state)
        if isinstance(started, Refused):
            return expect | {"start": _error(started)}
        state = started.value
        expect["start"] = {
            "machineState": plain_machine(state),
            "allocatableMemory": [plain_block(block) for block in allocatable_memory(state.machine)],
        }
    run = _MemoryManagerRun(policy, state, settings.gates, question["pods"])
    expect["steps"] = [run.step(step) for step in question["steps"]]
    return expect | {
        "final": {
            "machineState": plain_machine(run.state),
            "assignments": by_container(_blocks, run.state.assignments),
        }
    }


class _MemoryManagerRun:
    """A policy with its state."""

    def __init__(
        self, policy: MemoryPolicy, state: MemoryState, gates: ManagerGates, pods: Mapping[str, Any]
    ) -> None:
        self.policy = policy
        self.state = state
        self.demands = {key: PodMemoryDemand.of(decode(pod, Pod), gates) for key, pod in pods.items()}

    def step(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """The result of the step, with the machine only if it changed."""
        demands, before = self.demands[step["pod"]], self.state.machine
        match step["op"]:
            case "podHints":
                result = _hints(pod_hints(self.policy, self.state, demands))
            case "containerHints":
                result = _hints(
                    container_hints(
                        self.policy, self.state, demands, named_container(demands.pod, step["container"])
                    )
                )
            case "allocate":
                result = self.allocate(demands, step)
            case "allocatePod":
                result = self.allocate_pod(demands, step)
            case _:
                self.state = release_memory(self.policy, self.state, demands.pod.uid, step["container"])
                result = {}
        return (
            result if self.state.machine == before else result | {"machineState": plain_machine(self.state)}
        )

    def allocate(self, demands: PodMemoryDemand, step: Mapping[str, Any]) -> dict[str, Any]:
        container = named_container(demands.pod, step["container"])
        allocation = allocate_container_memory(
            self.policy, self.state, demands, container, read_hint(step["affinity"])
        )
        self.state = allocation.state
        held = self.state.blocks(demands.pod.uid, container.name)
        result: dict[str, Any] = {"blocks": None if held is None else _blocks(held)}
        if demands.pod.spec.init_containers:
            result["podAssignments"] = _of_pod(self.state, demands.pod)
        return result | _error(allocation.verdict)

    def allocate_pod(self, demands: PodMemoryDemand, step: Mapping[str, Any]) -> dict[str, Any]:
        allocation = allocate_pod_memory(self.policy, self.state, demands, read_hint(step["affinity"]))
        self.state = allocation.state
        whole = self.state.pods.get(demands.pod.uid)
        return {
            "podBlocks": None if whole is None else _blocks(whole),
            "podAssignments": _of_pod(self.state, demands.pod),
        } | _error(allocation.verdict)


def _settings(question: Mapping[str, Any], gates: FeatureGates) -> MemorySettings:
    return MemorySettings(
        policy=question["policy"],
        reserved=[
            Reservation(entry["numaNode"], read_amounts(entry["limits"]))
            for entry in question.get("reservedMemory") or ()
        ],
        node_allocatable=read_amounts(question.get("nodeAllocatableReservation") or {}),
        gates=ManagerGates.of(gates),
    )


def _state(document: Mapping[str, Any] | None) -> MemoryState:
    if document is None:
        return MemoryState()
    return MemoryState(
        read_machine(document.get("machineState")),
        by_container(read_blocks, document.get("assignments")),
    )


def read_machine(machine: Mapping[str, Any] | None) -> dict[int, NUMAMemory]:
    """The table of every NUMA node from plain JSON."""
    return {
        int(numa): NUMAMemory(
            node["numberOfAssignments"],
            NUMASet.from_ids(node.get("cells") or ()),
            {
                kind: MemoryTable(*(table[name] for name in _TABLE))
                for kind, table in (node.get("memoryMap") or {}).items()
            },
        )
        for numa, node in (machine or {}).items()
    }


_TABLE = ("total", "systemReserved", "allocatable", "reserved", "free")


def read_blocks(blocks: Sequence[Mapping[str, Any]] | None) -> tuple[Block, ...]:
    """Blocks from plain JSON."""
    return tuple(Block(tuple(block["numaAffinity"]), block["type"], block["size"]) for block in blocks or ())


def plain_machine(state: MemoryState) -> dict[str, Any]:
    """The table of every NUMA node as plain JSON, with the kubelet's names."""
    return {
        str(numa): {
            "numberOfAssignments": node.assignments,
            "cells": list(node.cells),
            "memoryMap": {
                kind: dict(zip(_TABLE, astuple(table), strict=True)) for kind, table in node.tables.items()
            },
        }
        for numa, node in state.machine.items()
    }


def _of_pod(state: MemoryState, pod: Pod) -> dict[str, Any] | None:
    held = state.assignments.get(pod.uid)
    return None if held is None else {name: _blocks(blocks) for name, blocks in held.items()}


def _blocks(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [plain_block(block) for block in sorted(blocks, key=lambda block: block.resource)]


def plain_block(block: Block) -> dict[str, Any]:
    """A block as plain JSON."""
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
    return {"error": reason.kubelet_error()}
