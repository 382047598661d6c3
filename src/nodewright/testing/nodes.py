"""Short constructors of whole nodes, for tests and notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from nodewright.model.hardware import GIB
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.testing.machines import regular_machine

STATIC_CPUS: Mapping[str, Any] = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
"""CPU 0 is reserved for the system."""
STATIC_MEMORY: Mapping[str, Any] = {
    "memoryManagerPolicy": "Static",
    "systemReserved": {"memory": "1Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}
"""1 GiB of NUMA node 0 is reserved for the system."""


def a_profile(
    numa: int = 2,
    cpus: int = 4,
    *,
    devices: Mapping[str, str] | None = None,
    pods: Sequence[Pod] = (),
    allocations: Sequence[ContainerAllocation] | None = None,
    **kubelet: Any,
) -> NodeProfile:
    """A node whose NUMA nodes have these CPUs (one thread per core) and 4 GiB each, with this configuration.

    Devices are `id`, `id@numa` or `id@numa,numa` with blanks between. No memory is kept for evictions.

    >>> profile = a_profile(devices={"nvidia.com/gpu": "gpu-0@0 gpu-1@1"}, cpuManagerPolicy="static")
    >>> profile.spec.machine_info.num_cores, profile.spec.devices["nvidia.com/gpu"][1].numa_nodes
    (8, (1,))
    """
    return NodeProfile(
        spec=NodeProfileSpec(
            machine_info=regular_machine(numa, cpus, memory_bytes=4 * GIB),
            root_fs_capacity=100 * GIB,
            kubelet_configuration={"evictionHard": {}, **kubelet},
            devices={resource: profile_devices(text) for resource, text in (devices or {}).items()},
            pods=tuple(pods),
            allocations=None if allocations is None else tuple(allocations),
        )
    )


def profile_devices(text: str) -> tuple[Device, ...]:
    """Devices as `a_profile` has them.

    >>> profile_devices("a@0 b")[1].numa_nodes is None
    True
    """
    devices = []
    for word in text.split():
        name, _, places = word.partition("@")
        numa = tuple(int(place) for place in places.split(",")) if places else None
        devices.append(Device(id=name, numa_nodes=numa))
    return tuple(devices)
