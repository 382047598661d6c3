"""Who has what of a node, in the terms of the kubelet's PodResources API v1, whoever says it."""

import msgspec

from nodewright.model.profile import MemoryBlock
from nodewright.values.idset import CPUSet


class ContainerDevices(msgspec.Struct, frozen=True):
    """Devices of a resource that are at the same NUMA nodes; None: they are at none.

    A kubelet tells each device on its own, and one of several NUMA nodes once for each of them.
    """

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] | None = None


class ContainerResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a container has for itself."""

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
        found: dict[str, frozenset[str]] = {}
        for one in self.devices:
            found[one.resource] = found.get(one.resource, frozenset()) | frozenset(one.ids)
        return found


class PodResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's containers have; init containers that are no sidecars are left out."""

    namespace: str
    name: str
    containers: tuple[ContainerResources, ...] = ()

    @property
    def full_name(self) -> str:
        """Namespace and name.

        >>> PodResources(namespace="default", name="web").full_name
        'default/web'
        """
        return f"{self.namespace}/{self.name}"


class AllocatableResources(msgspec.Struct, frozen=True, kw_only=True):
    """All that containers can have for themselves, in use or not."""

    devices: tuple[ContainerDevices, ...] = ()
    cpus: CPUSet = CPUSet()
    memory: tuple[MemoryBlock, ...] = ()
