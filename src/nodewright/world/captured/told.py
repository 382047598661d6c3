"""What a PodResources socket says that pods hold, as the allocations and devices of a NodeProfile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from nodewright.core.arrival import identified
from nodewright.model.machine import MachineInfo, NUMANode
from nodewright.model.objects import Pod
from nodewright.model.pod_resources import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.profile import ContainerAllocation, Device, NotKnown, Part
from nodewright.model.resource_names import MEMORY
from nodewright.values.idset import CPUSet
from nodewright.values.quantity import Format, Quantity
from nodewright.world.captured.holdings import Holdings, at_least
from nodewright.world.captured.pods import NodePods, stand_in
from nodewright.world.captured.remarks import PodsNotAdmitted, PodsUnexplained, Remark
from nodewright.world.state.resources import PodResources as Given

HARD_EVICTION_BYTES = 100 << 20
"""The kubelet's threshold of memory where none is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldResources:
    """The answers of a PodResources socket."""

    pods: tuple[PodResources, ...]
    allocatable: AllocatableResources


def told_holdings(told: ToldResources, pods: NodePods | None) -> Holdings:
    """What is held, by the pods given and by those that only the socket knows; stand-ins are there for them.

    Pods that the socket does not tell of have not been let in, or have ended: they are left out.
    """
    given = {pod.full_name: pod for pod in (pods.pods if pods else ())}
    there = {one.full_name: given.get(one.full_name) or _stranger(one) for one in told.pods}
    strangers = tuple(name for name in there if name not in given)
    late = tuple(name for name in given if name not in there)
    remarks: list[Remark] = [*pods.remarks] if pods else []
    if late:
        remarks.append(PodsNotAdmitted(names=late))
    unknown: tuple[NotKnown, ...] = ()
    if strangers:
        remarks.append(PodsUnexplained(uids=strangers))
        because = "the socket tells what these pods hold, and nobody what they are"
        unknown = (NotKnown(part=Part.PODS, names=strangers, because=because),)
    return Holdings(
        pods=tuple(there.values()),
        allocations=tuple(
            ContainerAllocation(
                pod=pod.full_name,
                container=one.name,
                cpus=str(one.cpus) or None,
                memory=one.memory,
                devices={resource: tuple(sorted(ids)) for resource, ids in one.device_ids.items()},
            )
            for pod in told.pods
            for one in pod.containers
            if one.cpus or one.memory or one.devices
        ),
        devices=_devices(told),
        not_known=unknown,
        remarks=tuple(remarks),
    )


def told_policies(told: ToldResources, machine: MachineInfo, reserved: Mapping[str, str]) -> dict[str, Any]:
    """What a kubelet's answers let one think of its configuration: it tells of what static policies give alone.

    ``reserved`` is what else is known to be reserved (`systemReserved`).

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources.
    """
    found: dict[str, Any] = {}
    if told.allocatable.cpus:
        kept = machine_cpus(machine) - told.allocatable.cpus
        found = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(kept)}
    blocks = {block.numa_nodes: block.size for block in told.allocatable.memory if block.type == MEMORY}
    sizes = {
        numa.node_id: numa.memory - _huge_bytes(numa) - blocks[(numa.node_id,)]
        for numa in machine.topology
        if (numa.node_id,) in blocks
    }
    # What is reserved of the nodes comes to what is reserved of the machine, or the kubelet does not start.
    rest = sum(sizes.values()) - HARD_EVICTION_BYTES
    if sizes and rest >= 0:
        found["memoryManagerPolicy"] = "Static"
        found["systemReserved"] = {**reserved, MEMORY: str(Quantity.of(rest, Format.BINARY_SI))}
        found["reservedMemory"] = [
            {"numaNode": numa, "limits": {MEMORY: str(Quantity.of(size, Format.BINARY_SI))}}
            for numa, size in sorted(sizes.items())
            if size > 0
        ]
    return found


def machine_cpus(machine: MachineInfo) -> CPUSet:
    """All CPUs of a machine."""
    cores = (core for numa in machine.topology for core in numa.cores)
    return CPUSet.from_ids(cpu for core in cores for cpu in core.thread_ids)


def _huge_bytes(numa: NUMANode) -> int:
    return sum(pages.page_size * 1024 * pages.num_pages for pages in numa.hugepages)


def _stranger(told: PodResources) -> Pod:
    """A stand-in for a pod of which only the name is known, and what it holds."""
    least = {one.name: at_least(_as_allocation(told, one)) for one in told.containers}
    found = stand_in("", Given(least))
    metadata = replace(found.metadata, name=told.name, namespace=told.namespace)
    return identified(replace(found, metadata=metadata))


def _as_allocation(pod: PodResources, one: ContainerResources) -> ContainerAllocation:
    devices = {resource: tuple(ids) for resource, ids in one.device_ids.items()}
    return ContainerAllocation(pod.full_name, one.name, str(one.cpus) or None, one.memory, devices)


def _devices(told: ToldResources) -> dict[str, tuple[Device, ...]]:
    """The devices by resource; those that are held and not told to be allocatable are unhealthy."""
    healthy = _places(told.allocatable.devices)
    held = _places(each for pod in told.pods for one in pod.containers for each in one.devices)
    found: dict[str, list[Device]] = {}
    for resource, name in sorted({*healthy, *held}):
        numa = healthy.get((resource, name)) or held.get((resource, name)) or frozenset()
        found.setdefault(resource, []).append(
            Device(id=name, numa_nodes=tuple(sorted(numa)) or None, healthy=(resource, name) in healthy)
        )
    return {resource: tuple(devices) for resource, devices in found.items()}


def _places(devices: Iterable[ContainerDevices]) -> Mapping[tuple[str, str], frozenset[int]]:
    found: dict[tuple[str, str], frozenset[int]] = {}
    for one in devices:
        for name in one.ids:
            key = one.resource, name
            found[key] = found.get(key, frozenset()) | frozenset(one.numa_nodes or ())
    return found
