"""The node when its kubelet has started: the managers that its configuration makes, nothing allocated yet."""

from dataclasses import dataclass

from nodewright.core.cpu.options import CPUGates
from nodewright.core.cpu.policy import CPUPolicy, CPUSettings, create_policy
from nodewright.core.cpu.policy import start as start_cpus
from nodewright.core.cpu.state import CPUState
from nodewright.core.cpu.topology import discover
from nodewright.core.devices import DeviceManager, DeviceState
from nodewright.core.memory.policy import MemoryPolicy, MemorySettings, Reservation
from nodewright.core.memory.policy import create_policy as create_memory_policy
from nodewright.core.memory.policy import start as start_memory
from nodewright.core.memory.state import MemoryState
from nodewright.core.memory.wants import MemoryGates
from nodewright.core.topology import TopologyManager, topology_manager
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.alignment import Managers
from nodewright.node.config import Defects, NodeConfig, NodeParts
from nodewright.node.providers import CPUs, Devices, Holdings, Memory
from nodewright.node.state import NodeState


def start(parts: NodeParts) -> Verdict[NodeState]:
    """The node without pods, or why the kubelet does not start.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager, Start.
    """
    made = create_managers(parts)
    if isinstance(made, Refused):
        return made
    cpus = start_cpus(made.value.cpu, CPUState())
    if isinstance(cpus, Refused):
        return cpus
    blocks = start_memory(made.value.memory, MemoryState())
    if isinstance(blocks, Refused):
        return blocks
    held = Holdings(cpu=cpus.value, memory=blocks.value, devices=DeviceState.of(parts.facts.devices))
    return Granted(NodeState(node_config(parts, made.value), held))


@dataclass(frozen=True, slots=True)
class Created:
    """The managers that a configuration makes on a machine, before they have looked at any state."""

    topology: TopologyManager
    cpu: CPUPolicy
    memory: MemoryPolicy


def create_managers(parts: NodeParts) -> Verdict[Created]:
    """The managers, or all that keeps them from being made; the kubelet tells the first reason.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager.
    """
    kubelet = parts.kubelet
    topology = topology_manager(
        kubelet.topology_manager_policy,
        kubelet.topology_manager_scope,
        kubelet.topology_manager_policy_options,
        parts.machine.topology,
        is_overruled=parts.policies.topology is not None,
    )
    cpu, memory = _cpu_policy(parts), _memory_policy(parts)
    if isinstance(topology, Granted) and isinstance(cpu, Granted) and isinstance(memory, Granted):
        return Granted(Created(topology.value, cpu.value, memory.value))
    refused = (one for one in (topology, cpu, memory) if isinstance(one, Refused))
    return Refused(tuple(one.because[0] for one in refused))


def node_config(parts: NodeParts, made: Created) -> NodeConfig:
    """What does not change while pods come and go, with these managers."""
    devices = DeviceManager.of(
        parts.machine.topology,
        parts.facts.devices,
        parts.facts.preferred_allocation,
        skips_claimed=parts.gates["DRAExtendedResource"],
        follows_defects=parts.defects is Defects.FOLLOW,
    )
    managers = Managers(
        topology=made.topology,
        providers=(Devices(devices), CPUs(made.cpu), Memory(made.memory)),
        pod_level=parts.gates["PodLevelResourceManagers"],
        own=parts.policies.topology,
    )
    return NodeConfig.of(parts, managers)


def _cpu_policy(parts: NodeParts) -> Verdict[CPUPolicy]:
    kubelet = parts.kubelet
    settings = CPUSettings(
        policy=kubelet.cpu_manager_policy,
        options=kubelet.cpu_manager_policy_options,
        reservation=parts.resources.reservation.get("cpu"),
        reserved_cpus=parts.resources.reservations.cpus,
        topology_policy=kubelet.topology_manager_policy,
        gates=CPUGates.of(parts.gates),
        follow_defects=parts.defects is Defects.FOLLOW,
        picker=parts.policies.cpu_picker,
    )
    found = discover(parts.machine)
    return found if isinstance(found, Refused) else create_policy(found.value, settings)


def _memory_policy(parts: NodeParts) -> Verdict[MemoryPolicy]:
    kubelet = parts.kubelet
    settings = MemorySettings(
        policy=kubelet.memory_manager_policy,
        reserved=tuple(Reservation(one.numa_node, one.limits) for one in kubelet.reserved_memory),
        node_allocatable=parts.resources.reservation,
        gates=MemoryGates(
            pod_level_resources=parts.gates["PodLevelResources"],
            pod_level_managers=parts.gates["PodLevelResourceManagers"],
        ),
    )
    return create_memory_policy(parts.machine.topology, settings)
