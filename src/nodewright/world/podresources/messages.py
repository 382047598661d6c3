"""The messages of PodResources v1 as values, and values as messages."""

from collections.abc import Iterable, Sequence

from nodewright.model.pod_resources import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.profile import MemoryBlock
from nodewright.values.idset import LARGEST_ID, CPUSet
from nodewright.world.podresources import api_pb2 as v1

SERVICE = "v1.PodResourcesLister"


class OddAnswerError(ValueError):
    """An answer that no kubelet gives; the message says what is wrong."""


def pod_message(found: PodResources) -> v1.PodResources:
    """A pod as it goes over the wire."""
    return v1.PodResources(
        name=found.name,
        namespace=found.namespace,
        containers=[
            v1.ContainerResources(
                name=one.name,
                devices=_device_messages(one.devices),
                cpu_ids=list(one.cpus),
                memory=_memory_messages(one.memory),
            )
            for one in found.containers
        ],
    )


def allocatable_message(found: AllocatableResources) -> v1.AllocatableResourcesResponse:
    """What there is to be had as it goes over the wire."""
    return v1.AllocatableResourcesResponse(
        devices=_device_messages(found.devices),
        cpu_ids=list(found.cpus),
        memory=_memory_messages(found.memory),
    )


def pod_of(message: v1.PodResources) -> PodResources:
    """A pod as somebody told of it.

    Errors: OddAnswerError.
    """
    if not message.name or not message.namespace:
        raise OddAnswerError(f"a pod without name or namespace: {message.namespace!r}/{message.name!r}")
    who = f"pod {message.namespace}/{message.name}, container"
    return PodResources(
        namespace=message.namespace,
        name=message.name,
        containers=tuple(
            ContainerResources(
                name=one.name,
                devices=_devices(one.devices, f"{who} {one.name}"),
                cpus=_cpus(one.cpu_ids, f"{who} {one.name}"),
                memory=_memory(one.memory, f"{who} {one.name}"),
            )
            for one in message.containers
        ),
    )


def allocatable_of(message: v1.AllocatableResourcesResponse) -> AllocatableResources:
    """What there is to be had as somebody told it.

    Errors: OddAnswerError.
    """
    return AllocatableResources(
        devices=_devices(message.devices, "allocatable"),
        cpus=_cpus(message.cpu_ids, "allocatable"),
        memory=_memory(message.memory, "allocatable"),
    )


def _device_messages(devices: Iterable[ContainerDevices]) -> list[v1.ContainerDevices]:
    return [
        v1.ContainerDevices(
            resource_name=one.resource,
            device_ids=list(one.ids),
            topology=None if one.numa_nodes is None else _topology(one.numa_nodes),
        )
        for one in devices
    ]


def _memory_messages(blocks: Iterable[MemoryBlock]) -> list[v1.ContainerMemory]:
    return [
        v1.ContainerMemory(memory_type=one.type, size=one.size, topology=_topology(one.numa_nodes))
        for one in blocks
    ]


def _topology(numa_nodes: Iterable[int]) -> v1.TopologyInfo:
    return v1.TopologyInfo(nodes=[v1.NUMANode(ID=numa) for numa in numa_nodes])


def _devices(messages: Iterable[v1.ContainerDevices], who: str) -> tuple[ContainerDevices, ...]:
    return tuple(
        ContainerDevices(
            one.resource_name,
            tuple(one.device_ids),
            _numa_nodes(one.topology, who) if one.HasField("topology") else None,
        )
        for one in messages
    )


def _memory(messages: Iterable[v1.ContainerMemory], who: str) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(_numa_nodes(one.topology, who), one.memory_type, one.size) for one in messages)


def _numa_nodes(topology: v1.TopologyInfo, who: str) -> tuple[int, ...]:
    return tuple(_checked([node.ID for node in topology.nodes], "NUMA node", who))


def _cpus(ids: Sequence[int], who: str) -> CPUSet:
    return CPUSet.from_ids(_checked(ids, "CPU", who))


def _checked(ids: Sequence[int], what: str, who: str) -> Sequence[int]:
    for one in ids:
        if not 0 <= one <= LARGEST_ID:
            raise OddAnswerError(f"{who}: there is no {what} {one}")
    return ids
