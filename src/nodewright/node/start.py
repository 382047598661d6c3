"""The node when its kubelet has started: the managers that its configuration makes, nothing allocated yet."""

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
from nodewright.core.topology import topology_manager
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.alignment import Managers
from nodewright.node.config import Defects, NodeConfig, NodeParts
from nodewright.node.providers import CPUs, Devices, Holdings, Memory
from nodewright.node.state import NodeState


def start(parts: NodeParts) -> Verdict[NodeState]:
    """The node without pods, or why the kubelet does not start.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager, Start.
    """
    kubelet = parts.kubelet
    topology = topology_manager(
        kubelet.topology_manager_policy,
        kubelet.topology_manager_scope,
        kubelet.topology_manager_policy_options,
        parts.machine.topology,
    )
    if isinstance(topology, Refused):
        return topology
    cpu = _cpu_policy(parts)
    if isinstance(cpu, Refused):
        return cpu
    memory = _memory_policy(parts)
    if isinstance(memory, Refused):
        return memory
    cpus = start_cpus(cpu.value, CPUState())
    if isinstance(cpus, Refused):
        return cpus
    blocks = start_memory(memory.value, MemoryState())
    if isinstance(blocks, Refused):
        return blocks
    devices = DeviceManager.of(
        parts.machine.topology,
        parts.facts.devices,
        parts.facts.preferred_allocation,
        skips_claimed=parts.gates["DRAExtendedResource"],
        follows_defects=parts.defects is Defects.FOLLOW,
    )
    managers = Managers(
        topology=topology.value,
        providers=(Devices(devices), CPUs(cpu.value), Memory(memory.value)),
        pod_level=parts.gates["PodLevelResourceManagers"],
    )
    held = Holdings(cpu=cpus.value, memory=blocks.value, devices=DeviceState.of(parts.facts.devices))
    return Granted(NodeState(NodeConfig.of(parts, managers), held))


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
