"""The answers of the kubelet's PodResources API for a node."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodewright.engine.core.devices.device_state import EMPTY_DEVICE_LIST, NO_NUMA_NODE, DeviceState
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import Device, MemoryBlock
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_resources_api import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.values.idset import CPUSet


def pod_resources_of(state: NodeState, pod: Pod) -> PodResources:
    """The resources of the pod's containers; of init containers only sidecars are included.

    Follows: v1.37, pkg/kubelet/apis/podresources/server_v1.go, List, getContainerResources;
        cm/container_manager_linux.go, GetCPUs, GetMemory, GetDevices.
    Departs: CPUs, blocks and devices are sorted, where the kubelet iterates over maps in random order. Devices of
        resource claims (DRA) are not included.
    """
    listed = (
        *(container for container in pod.spec.init_containers if container.is_sidecar),
        *pod.spec.containers,
    )
    cpu, memory, gates = state.held.cpu, state.held.memory, state.config.gates
    with_pod_level = gates["PodLevelResourceManagers"] and gates.rules.pod_level_in_pod_resources
    return PodResources(
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        containers=tuple(
            ContainerResources(
                name=container.name,
                devices=tuple(_allocated(state.held.devices, pod.uid, container.name)),
                cpus=cpu.exclusive(pod.uid, container.name) or CPUSet(),
                memory=_sorted_blocks(memory.blocks(pod.uid, container.name) or ()),
            )
            for container in listed
        ),
        cpus=cpu.pods.get(pod.uid, CPUSet()) if with_pod_level else CPUSet(),
        memory=_sorted_blocks(memory.pods.get(pod.uid, ())) if with_pod_level else (),
    )


def _sorted_blocks(blocks: Iterable[Block]) -> tuple[MemoryBlock, ...]:
    listed = (MemoryBlock(block.numa, block.resource, block.size) for block in blocks)
    return tuple(sorted(listed, key=lambda block: (block.type, block.numa_nodes)))


def allocatable_resources(state: NodeState) -> AllocatableResources:
    """The resources for exclusive allocation: unreserved CPUs, unreserved memory and healthy devices.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources;
        devicemanager/manager.go, GetAllocatableDevices.
    Departs: as `pod_resources_of`.
    """
    return replace(allocatable_cpus_and_memory(state.config), devices=tuple(_healthy(state.held.devices)))


def allocatable_cpus_and_memory(config: NodeConfig) -> AllocatableResources:
    """The part that is constant while the kubelet runs: CPUs and memory, without devices.

    Follows: v1.36, cpumanager/policy_static.go, GetAllocatableCPUs; memorymanager/policy_static.go,
        GetAllocatableMemory.
    """
    cpu_policy, memory_policy = config.managers.static_cpu_policy, config.managers.static_memory_policy
    return AllocatableResources(
        cpus=cpu_policy.allocatable if cpu_policy else CPUSet(),
        memory=tuple(
            MemoryBlock((numa,), resource, table.allocatable)
            for numa, node in sorted((memory_policy.initial_machine if memory_policy else {}).items())
            for resource, table in sorted(node.tables.items())
            if table.allocatable
        ),
    )


def _allocated(devices: DeviceState, uid: str, container: str) -> Iterator[ContainerDevices]:
    """Each device separately, once for each of its NUMA nodes.

    Follows: v1.36, cm/devicemanager/pod_devices.go, getContainerDevices; cm/container_manager.go,
        containerDevicesFromResourceDeviceInstances.
    """
    for resource, ids in sorted(devices.container_devices(uid, container).items()):
        listed: Mapping[str, Device] = devices.device_lists.get(resource, EMPTY_DEVICE_LIST).devices
        for id_ in sorted(ids):
            yield from _at_each(resource, id_, listed[id_].numa_nodes or () if id_ in listed else ())


def _healthy(devices: DeviceState) -> Iterator[ContainerDevices]:
    """The healthy devices; as in the kubelet, a device with a topology without NUMA nodes is omitted."""
    for resource, listed in sorted(devices.device_lists.items()):
        for device in sorted(listed.healthy):
            numa_nodes = listed.devices[device].numa_nodes
            if numa_nodes is None:
                yield ContainerDevices(resource, (device,))
            else:
                for numa in numa_nodes:
                    yield ContainerDevices(resource, (device,), (numa,))


def _at_each(resource: str, device: str, numa_nodes: Iterable[int]) -> Iterator[ContainerDevices]:
    places = sorted({*numa_nodes} - {NO_NUMA_NODE})
    if not places:
        yield ContainerDevices(resource, (device,))
    for numa in places:
        yield ContainerDevices(resource, (device,), (numa,))
