"""The node right after kubelet startup: its managers, without allocations."""

import msgspec

from nodewright.engine.core.cpu.cpu_policy import CPUPolicy, CPUSettings, create_policy
from nodewright.engine.core.cpu.cpu_policy import validated_state as start_cpus
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.cpu.cpu_topology import discover
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.engine.core.devices.device_manager import DeviceManager
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_demand import MemoryGates
from nodewright.engine.core.memory.memory_policy import (
    MemoryPolicy,
    MemorySettings,
    Reservation,
    create_memory_policy,
)
from nodewright.engine.core.memory.memory_policy import start_memory_manager as start_memory
from nodewright.engine.core.memory.memory_state import MemoryState
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
from nodewright.model.reasons.verdict import Granted, Refused, Verdict


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
        gates=MemoryGates.of(parts.gates),
        follow_defects=parts.defects is KubeletDefects.FOLLOW,
    )
    return create_memory_policy(parts.machine.topology, settings)
