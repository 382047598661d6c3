"""Restores the CPUs, memory and devices of pods when a kubelet starts."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_policy import validated_state as start_cpus
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy as StaticMemory
from nodewright.engine.core.memory.memory_policy import start_memory_manager as start_memory
from nodewright.engine.core.memory.memory_state import Block, MemoryState, NUMANodeMap, with_block
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import MemoryBlock, PodAllocations
from nodewright.model.reasons.cpu_start import SharedPoolEmpty
from nodewright.model.reasons.memory import MachineMemoryChanged
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import CPUSet, NUMASet

T = TypeVar("T")

WHOLE_POD = ""
"""The container name of pod-level entries in `PodAllocations`."""


def with_restored_holdings(state: NodeState, allocations: PodAllocations) -> Verdict[NodeState]:
    """The started node with the allocations of its pods, or why they are not possible.

    A state that a running kubelet can reach, but on which it would not start again, is accepted with the reason.

    Follows: v1.36, cpumanager/policy_static.go, Start; memorymanager/policy_static.go, Start;
        devicemanager/manager.go, readCheckpoint.
    """
    held = state.held
    because: tuple[Reason, ...] = ()
    for provider in state.config.managers.providers:
        match provider:
            case CPUProvider(policy=StaticCPUPolicy() as policy):
                cpu_state = _cpu_state(held.cpu.default, allocations.cpus)
                cpus = start_cpus(policy, cpu_state)
                if isinstance(cpus, Refused):
                    # With strict-cpu-reservation, pods can hold all allocatable CPUs.
                    if cpus.because != (SharedPoolEmpty(),):
                        return cpus
                    because = cpus.because
                held = replace(held, cpu=cpu_state)
            case MemoryProvider(policy=StaticMemory() as policy):
                stored = _memory_state(policy.initial_machine, allocations.memory)
                memory = stored if isinstance(stored, Refused) else start_memory(policy, stored.value)
                if isinstance(memory, Refused):
                    return memory
                held = replace(held, memory=memory.value)
            case _:
                pass
    held = replace(held, devices=DeviceState.of(state.config.facts.devices, allocations.devices))
    return Granted(replace(state, held=held), because)


def _cpu_state(default: CPUSet, allocations: Mapping[str, Mapping[str, CPUSet]]) -> CPUState:
    for containers in allocations.values():
        for cpus in containers.values():
            default -= cpus
    return CPUState(
        default=default,
        assignments=_container_allocations(allocations),
        pods={
            uid: containers[WHOLE_POD] for uid, containers in allocations.items() if WHOLE_POD in containers
        },
    )


def _memory_state(
    idle: NUMANodeMap, allocations: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
) -> Verdict[MemoryState]:
    """The memory manager's state with these blocks.

    Follows: v1.36, memorymanager/policy_static.go, areMachineStatesEqual: a state that reserves more than is
        allocatable does not belong to this machine.
    """
    blocks = {
        uid: {name: _blocks(allocated) for name, allocated in containers.items()}
        for uid, containers in allocations.items()
    }
    machine = idle
    for _, containers in sorted(blocks.items()):
        for _, allocated in (
            [(WHOLE_POD, containers[WHOLE_POD])] if WHOLE_POD in containers else sorted(containers.items())
        ):
            for block in allocated:
                before, machine = machine, with_block(machine, block)
                reserved = _free(before, block) - _free(machine, block)
                if reserved < block.size:
                    return Refused((_overdrawn(before, block),))
    pods = {uid: containers[WHOLE_POD] for uid, containers in blocks.items() if WHOLE_POD in containers}
    return Granted(MemoryState(machine=machine, assignments=_container_allocations(blocks), pods=pods))


def _free(machine: NUMANodeMap, block: Block) -> int:
    return sum(machine[numa].tables[block.resource].free for numa in block.numa)


def _overdrawn(machine: NUMANodeMap, block: Block) -> MachineMemoryChanged:
    tables = [machine[numa].tables[block.resource] for numa in block.numa]
    other_numa = NUMASet.from_ids(block.numa[1:])
    return MachineMemoryChanged(
        numa=block.numa[0],
        what=f"{block.resource} in use" + (f" together with {other_numa}" if other_numa else ""),
        stored=str(sum(table.reserved for table in tables) + block.size),
        expected=f"at most {sum(table.allocatable for table in tables)}",
    )


def _blocks(memory_blocks: tuple[MemoryBlock, ...]) -> tuple[Block, ...]:
    return tuple(Block(tuple(sorted(block.numa_nodes)), block.type, block.size) for block in memory_blocks)


def _container_allocations(allocations: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """The allocations of containers, without pod-level ones."""
    return {
        uid: {name: allocation for name, allocation in containers.items() if name != WHOLE_POD}
        for uid, containers in allocations.items()
    }
