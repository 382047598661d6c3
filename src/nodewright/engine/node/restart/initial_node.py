"""The node right after kubelet startup: its managers, without allocations.

Also restores the CPUs, memory and devices of pods when a kubelet starts.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import CPUPolicy, CPUSettings, create_policy
from nodewright.engine.core.cpu.cpu_policy import validated_state as start_cpus
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.cpu.cpu_topology import discover
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState
from nodewright.engine.core.memory.memory_policy import (
    MemoryPolicy,
    MemorySettings,
    Reservation,
    create_memory_policy,
)
from nodewright.engine.core.memory.memory_policy import start_memory_manager as start_memory
from nodewright.engine.core.memory.memory_state import (
    Block,
    MemoryState,
    NUMANodeMap,
    with_blocks,
)
from nodewright.engine.core.requests.managed_pods import ManagerGates
from nodewright.engine.core.topology.manager_config import TopologyManager, topology_manager
from nodewright.engine.node.managers.hint_providers import (
    CPUProvider,
    DeviceProvider,
    Holdings,
    MemoryProvider,
)
from nodewright.engine.node.managers.manager_admission import ResourceManagers
from nodewright.engine.node.node_config import KubeletDefects, NodeConfig, NodeParts
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import MemoryBlock, PodAllocations
from nodewright.model.reasons.cpu import SharedPoolEmpty
from nodewright.model.reasons.memory import MachineMemoryChanged
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import CPUSet, NUMASet

T = TypeVar("T")

WHOLE_POD = ""
"""The container name of pod-level entries in `PodAllocations`."""


def initial_node(parts: NodeParts) -> Verdict[NodeState]:
    """The node without pods, or why the kubelet does not start.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager, Start.
    """
    managers = create_managers(parts)
    if isinstance(managers, Refused):
        return managers
    cpus = start_cpus(managers.value.cpu, CPUState())
    if isinstance(cpus, Refused):
        return cpus
    blocks = start_memory(managers.value.memory, MemoryState())
    if isinstance(blocks, Refused):
        return blocks
    held = Holdings(cpu=cpus.value, memory=blocks.value, devices=DeviceState.of(parts.facts.devices))
    config = node_config(parts, managers.value)
    return Granted(NodeState(config, held, usage=config.rules.no_usage))


def next_start_refusals(state: NodeState) -> tuple[Reason, ...]:
    """Why a kubelet does not start with the state that this node's managers hold, though it was right to grant it.

    With strict-cpu-reservation pods may hold all CPUs but the reserved ones, and no kubelet starts on an empty shared
    pool: not at its next restart, after a reboot, or as another release.

    Follows: v1.36, cpumanager/policy_static.go, validateState.
    """
    managers, held = state.config.managers, state.held
    started = (
        managers.static_cpu_policy and start_cpus(managers.static_cpu_policy, held.cpu),
        managers.static_memory_policy and start_memory(managers.static_memory_policy, held.memory),
    )
    return tuple(verdict.because[0] for verdict in started if isinstance(verdict, Refused))


class CreatedManagers(msgspec.Struct, frozen=True):
    """The managers for a configuration and a machine, before they load any state."""

    topology: TopologyManager
    cpu: CPUPolicy
    memory: MemoryPolicy


def create_managers(parts: NodeParts) -> Verdict[CreatedManagers]:
    """The managers, or all reasons why they cannot be created; the kubelet reports the first.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager.
    """
    kubelet = parts.kubelet
    topology = topology_manager(
        kubelet.topology_manager_policy,
        kubelet.topology_manager_scope,
        kubelet.topology_manager_policy_options,
        parts.machine.topology,
        gates=parts.gates,
        is_overruled=parts.policies.topology is not None,
    )
    cpu, memory = _cpu_policy(parts), _memory_policy(parts)
    if isinstance(topology, Granted) and isinstance(cpu, Granted) and isinstance(memory, Granted):
        return Granted(CreatedManagers(topology.value, cpu.value, memory.value))
    refused = (refusal for refusal in (topology, cpu, memory) if isinstance(refusal, Refused))
    return Refused(tuple(refusal.because[0] for refusal in refused))


def node_config(parts: NodeParts, created: CreatedManagers) -> NodeConfig:
    """The node configuration with these managers."""
    devices = DeviceManager.of(
        parts.machine.topology,
        parts.facts.devices,
        parts.facts.preferred_allocation,
        gates=parts.gates,
        follows_defects=parts.defects is KubeletDefects.FOLLOW,
    )
    managers = ResourceManagers(
        topology=created.topology,
        providers=(DeviceProvider(devices), CPUProvider(created.cpu), MemoryProvider(created.memory)),
        pod_level=parts.gates["PodLevelResourceManagers"],
        custom_policy=parts.policies.topology,
    )
    return NodeConfig.of(parts, managers)


def with_restored_holdings(state: NodeState, allocations: PodAllocations) -> Verdict[NodeState]:
    """The started node with the allocations of its pods, or why they are not possible.

    A state that a running kubelet can reach, but on which it would not start again, is accepted with the reason.

    Follows: v1.36, cpumanager/policy_static.go, Start; memorymanager/policy_static.go, Start;
        devicemanager/manager.go, readCheckpoint.
    """
    held = state.held
    because: tuple[Reason, ...] = ()
    managers = state.config.managers
    if managers.static_cpu_policy is not None:
        cpu_state = _cpu_state(held.cpu.default, allocations.cpus)
        cpus = start_cpus(managers.static_cpu_policy, cpu_state)
        if isinstance(cpus, Refused):
            # With strict-cpu-reservation, pods can hold all allocatable CPUs.
            if cpus.because != (SharedPoolEmpty(),):
                return cpus
            because = cpus.because
        held = replace(held, cpu=cpu_state)
    if managers.static_memory_policy is not None:
        policy = managers.static_memory_policy
        stored = _memory_state(policy.initial_machine, allocations.memory)
        memory = stored if isinstance(stored, Refused) else start_memory(policy, stored.value)
        if isinstance(memory, Refused):
            return memory
        held = replace(held, memory=memory.value)
    held = replace(held, devices=DeviceState.of(state.config.facts.devices, allocations.devices))
    return Granted(replace(state, held=held), because)


def _cpu_policy(parts: NodeParts) -> Verdict[CPUPolicy]:
    kubelet = parts.kubelet
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        options=kubelet.cpu_manager_policy_options,
        reservation=parts.resources.total_reserved.get("cpu"),
        reserved_cpus=parts.resources.reservations.cpus,
        topology_policy=kubelet.topology_manager_policy,
        gates=CPUGates.of(parts.gates),
        follow_defects=parts.defects is KubeletDefects.FOLLOW,
        picker=parts.policies.cpu_picker,
    )
    topology = discover(parts.machine)
    return topology if isinstance(topology, Refused) else create_policy(topology.value, settings)


def _memory_policy(parts: NodeParts) -> Verdict[MemoryPolicy]:
    kubelet = parts.kubelet
    settings = MemorySettings(
        policy=kubelet.memory_manager_policy,
        reserved=tuple(
            Reservation(reservation.numa_node, reservation.limits) for reservation in kubelet.reserved_memory
        ),
        node_allocatable=parts.resources.total_reserved,
        gates=ManagerGates.of(parts.gates),
        follow_defects=parts.defects is KubeletDefects.FOLLOW,
    )
    return create_memory_policy(parts.machine.topology, settings)


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
                before, machine = machine, with_blocks(machine, block)
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
