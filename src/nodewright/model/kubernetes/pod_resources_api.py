"""The devices, CPUs and memory that containers hold, in the terms of the kubelet's PodResources API v1."""

import msgspec

from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.values.idset import CPUSet


class ContainerDevices(msgspec.Struct, frozen=True):
    """Devices of a resource with the same NUMA nodes; None: they have no topology.

    A kubelet reports each device separately, and a device of several NUMA nodes once for each of them.
    """

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] | None = None


class ContainerResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a container holds exclusively."""

    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpus: CPUSet = CPUSet()
    """Empty: it runs in the shared pool."""
    memory: tuple[MemoryBlock, ...] = ()

    @property
    def device_ids(self) -> dict[str, frozenset[str]]:
        """Its devices by resource.

        >>> ContainerResources(name="main", devices=(ContainerDevices("gpu", ("a",), (0,)),)).device_ids
        {'gpu': frozenset({'a'})}
        """
        ids_by_resource: dict[str, frozenset[str]] = {}
        for device in self.devices:
            ids_by_resource[device.resource] = ids_by_resource.get(device.resource, frozenset()) | frozenset(
                device.ids
            )
        return ids_by_resource


class PodResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's containers hold, without init containers that are not sidecars."""

    namespace: str
    name: str
    containers: tuple[ContainerResources, ...] = ()
    cpus: CPUSet = CPUSet()
    """Of the pod level, those of its containers included."""
    memory: tuple[MemoryBlock, ...] = ()
    """Of the pod level."""

    @property
    def full_name(self) -> str:
        """Namespace and name.

        >>> PodResources(namespace="default", name="web").full_name
        'default/web'
        """
        return f"{self.namespace}/{self.name}"


class AllocatableResources(msgspec.Struct, frozen=True, kw_only=True):
    """All that containers can hold exclusively, in use or not."""

    devices: tuple[ContainerDevices, ...] = ()
    cpus: CPUSet = CPUSet()
    memory: tuple[MemoryBlock, ...] = ()
