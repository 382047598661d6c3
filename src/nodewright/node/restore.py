"""The node when its kubelet starts on what an earlier one left: CPUs, memory and devices that pods hold."""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.cpu.policy import start as start_cpus
from nodewright.core.cpu.state import CPUState
from nodewright.core.devices import DeviceState
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.memory.policy import start as start_memory
from nodewright.core.memory.state import Block, Machine, MemoryState, with_block
from nodewright.model.cpu_reasons import SharedPoolEmpty
from nodewright.model.memory_reasons import MachineMemoryChanged
from nodewright.model.profile import Kept, MemoryBlock
from nodewright.model.reasons import Reason
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.providers import CPUs, Memory
from nodewright.node.state import NodeState
from nodewright.values.idset import CPUSet, NUMASet

T = TypeVar("T")

WHOLE = ""
"""The name under which `Kept` has what a pod holds as a whole."""


def restored(state: NodeState, kept: Kept) -> Verdict[NodeState]:
    """The node that has just started, with its pods' holdings, or why that cannot be.

    A state that a running kubelet may well be in, and on which it would not start again, is taken, with the reason.

    Follows: v1.36, cpumanager/policy_static.go, Start; memorymanager/policy_static.go, Start;
        devicemanager/manager.go, readCheckpoint.
    """
    held = state.held
    because: tuple[Reason, ...] = ()
    for provider in state.config.managers.providers:
        match provider:
            case CPUs(policy=StaticPolicy() as policy):
                books = _cpu_state(held.cpu.default, kept.cpus)
                cpus = start_cpus(policy, books)
                if isinstance(cpus, Refused):
                    # With strict-cpu-reservation, pods may have all the CPUs that there are for them.
                    if cpus.because != (SharedPoolEmpty(),):
                        return cpus
                    because = cpus.because
                held = replace(held, cpu=books)
            case Memory(policy=StaticMemory() as policy):
                stored = _memory_state(policy.idle, kept.memory)
                memory = stored if isinstance(stored, Refused) else start_memory(policy, stored.value)
                if isinstance(memory, Refused):
                    return memory
                held = replace(held, memory=memory.value)
            case _:
                pass
    held = replace(held, devices=DeviceState.of(state.config.facts.devices, kept.devices))
    return Granted(replace(state, held=held), because)


def _cpu_state(default: CPUSet, kept: Mapping[str, Mapping[str, CPUSet]]) -> CPUState:
    for containers in kept.values():
        for cpus in containers.values():
            default -= cpus
    return CPUState(
        default=default,
        assignments=_of_containers(kept),
        pods={uid: containers[WHOLE] for uid, containers in kept.items() if WHOLE in containers},
    )


def _memory_state(
    idle: Machine, kept: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]]
) -> Verdict[MemoryState]:
    """The memory manager's books with these blocks.

    Follows: v1.36, memorymanager/policy_static.go, areMachineStatesEqual: books in which more is reserved than
        can be had are not those of this machine.
    """
    blocks = {
        uid: {name: _blocks(held) for name, held in containers.items()} for uid, containers in kept.items()
    }
    machine = idle
    for _, containers in sorted(blocks.items()):
        for _, held in [(WHOLE, containers[WHOLE])] if WHOLE in containers else sorted(containers.items()):
            for block in held:
                before, machine = machine, with_block(machine, block)
                taken = _free(before, block) - _free(machine, block)
                if taken < block.size:
                    return Refused((_overdrawn(before, block),))
    pods = {uid: containers[WHOLE] for uid, containers in blocks.items() if WHOLE in containers}
    return Granted(MemoryState(machine=machine, assignments=_of_containers(blocks), pods=pods))


def _free(machine: Machine, block: Block) -> int:
    return sum(machine[numa].tables[block.resource].free for numa in block.numa)


def _overdrawn(machine: Machine, block: Block) -> MachineMemoryChanged:
    tables = [machine[numa].tables[block.resource] for numa in block.numa]
    others = NUMASet.from_ids(block.numa[1:])
    return MachineMemoryChanged(
        numa=block.numa[0],
        what=f"{block.resource} in use" + (f" together with {others}" if others else ""),
        stored=str(sum(table.reserved for table in tables) + block.size),
        expected=f"at most {sum(table.allocatable for table in tables)}",
    )


def _blocks(kept: tuple[MemoryBlock, ...]) -> tuple[Block, ...]:
    return tuple(Block(tuple(sorted(one.numa_nodes)), one.type, one.size) for one in kept)


def _of_containers(kept: Mapping[str, Mapping[str, T]]) -> dict[str, dict[str, T]]:
    """What containers hold, without what pods hold as a whole."""
    return {
        uid: {name: held for name, held in containers.items() if name != WHOLE}
        for uid, containers in kept.items()
    }
