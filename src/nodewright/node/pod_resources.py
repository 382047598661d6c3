"""What would the kubelet's PodResources API say of a node?"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodewright.core.devices.state import NOWHERE, UNLISTED, DeviceState
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.model.objects import Pod
from nodewright.model.pod_resources import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.profile import Device, MemoryBlock
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs, Memory
from nodewright.node.state import NodeState
from nodewright.values.idset import CPUSet


def pod_resources(state: NodeState, pod: Pod) -> PodResources:
    """What the pod's containers have in this state: of init containers only sidecars are told.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, List, getContainerResources;
        cm/container_manager_linux.go, GetCPUs, GetMemory, GetDevices.
    Departs: CPUs, blocks and devices in order, where the kubelet walks maps in random order. What resource
        claims (DRA) give is not told.
    """
    told = (*(one for one in pod.spec.init_containers if one.is_sidecar), *pod.spec.containers)
    return PodResources(
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        containers=tuple(
            ContainerResources(
                name=one.name,
                devices=tuple(_held(state.held.devices, pod.uid, one.name)),
                cpus=state.held.cpu.exclusive(pod.uid, one.name) or CPUSet(),
                memory=tuple(
                    sorted(
                        (
                            MemoryBlock(block.numa, block.resource, block.size)
                            for block in state.held.memory.blocks(pod.uid, one.name) or ()
                        ),
                        key=lambda block: (block.type, block.numa_nodes),
                    )
                ),
            )
            for one in told
        ),
    )


def allocatable_resources(state: NodeState) -> AllocatableResources:
    """What containers can have for themselves: CPUs that are not reserved, memory that is not, healthy devices.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources;
        devicemanager/manager.go, GetAllocatableDevices.
    Departs: as `pod_resources`.
    """
    return replace(allocatable_of_managers(state.config), devices=tuple(_healthy(state.held.devices)))


def allocatable_of_managers(config: NodeConfig) -> AllocatableResources:
    """What of it stays as it is while the kubelet runs: CPUs and memory, without devices.

    Follows: v1.36, cpumanager/policy_static.go, GetAllocatableCPUs; memorymanager/policy_static.go,
        GetAllocatableMemory.
    """
    cpus, memory = CPUSet(), tuple[MemoryBlock, ...]()
    for provider in config.managers.providers:
        match provider:
            case CPUs(policy=policy):
                cpus = policy.allocatable
            case Memory(policy=StaticMemory() as static):
                memory = tuple(
                    MemoryBlock((numa,), resource, table.allocatable)
                    for numa, node in sorted(static.idle.items())
                    for resource, table in sorted(node.tables.items())
                    if table.allocatable
                )
            case _:
                pass
    return AllocatableResources(cpus=cpus, memory=memory)


def _held(devices: DeviceState, uid: str, container: str) -> Iterator[ContainerDevices]:
    """Each device on its own, once for each NUMA node that it is at.

    Follows: v1.36, cm/devicemanager/pod_devices.go, getContainerDevices; cm/container_manager.go,
        containerDevicesFromResourceDeviceInstances.
    """
    for resource, ids in sorted(devices.of_container(uid, container).items()):
        listed: Mapping[str, Device] = devices.lists.get(resource, UNLISTED).devices
        for one in sorted(ids):
            yield from _at_each(resource, one, listed[one].numa_nodes or () if one in listed else ())


def _healthy(devices: DeviceState) -> Iterator[ContainerDevices]:
    """A device whose plugin names a topology without NUMA nodes is told nowhere, as by the kubelet."""
    for resource, listed in sorted(devices.lists.items()):
        for one in sorted(listed.healthy):
            numa_nodes = listed.devices[one].numa_nodes
            if numa_nodes is None:
                yield ContainerDevices(resource, (one,))
            else:
                for numa in numa_nodes:
                    yield ContainerDevices(resource, (one,), (numa,))


def _at_each(resource: str, device: str, numa_nodes: Iterable[int]) -> Iterator[ContainerDevices]:
    places = sorted({*numa_nodes} - {NOWHERE})
    if not places:
        yield ContainerDevices(resource, (device,))
    for numa in places:
        yield ContainerDevices(resource, (device,), (numa,))
