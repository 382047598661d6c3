"""Converts the responses of a PodResources socket to the allocations and devices of a NodeProfile."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.capture.from_state_files import CapturedAllocations, minimum_resources
from nodewright.documents.profiles.capture.node_pods import NodePods, placeholder_pod
from nodewright.documents.profiles.capture.warnings import CaptureWarning, PodsNotAdmitted, PodsUndescribed
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.core.cpu.cpu_state import PodCPURequests
from nodewright.engine.core.cpu.policy_options import DEFAULT_CPU_GATES
from nodewright.model.hardware import MachineInfo, NUMANode
from nodewright.model.kubernetes.node_profile import ContainerAllocation, Device, NodePart, UnknownNodePart
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_resources_api import (
    AllocatableResources,
    ContainerDevices,
    ContainerResources,
    PodResources,
)
from nodewright.model.kubernetes.resource_names import MEMORY, is_extended
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity, QuantityFormat

DEFAULT_EVICTION_HARD_BYTES = 100 << 20
"""The kubelet's default for the hard eviction threshold of memory."""


class PodResourcesSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The responses of a PodResources socket."""

    pods: tuple[PodResources, ...]
    allocatable: AllocatableResources


def allocations_from_pod_resources(
    snapshot: PodResourcesSnapshot, pods: NodePods | None
) -> CapturedAllocations:
    """The allocations of the given pods, and of placeholders for pods that only the socket reports.

    Given pods that the socket does not report are not admitted or have terminated; they are left out.
    """
    given_pods = {pod.full_name: pod for pod in (pods.pods if pods else ())}
    pod_of_name = {pod.full_name: given_pods.get(pod.full_name) or _placeholder(pod) for pod in snapshot.pods}
    undescribed = tuple(name for name in pod_of_name if name not in given_pods)
    not_admitted = tuple(name for name in given_pods if name not in pod_of_name)
    warnings: list[CaptureWarning] = [*pods.warnings] if pods else []
    if not_admitted:
        warnings.append(PodsNotAdmitted(names=not_admitted))
    unknown = _held_by_ended_init_containers(snapshot, tuple(pod_of_name.values()))
    if undescribed:
        warnings.append(PodsUndescribed(names=undescribed))
        because = "the socket reports the resources of these pods, but not their specs"
        unknown.append(UnknownNodePart(part=NodePart.PODS, names=undescribed, because=because))
    return CapturedAllocations(
        pods=tuple(pod_of_name.values()),
        allocations=tuple(
            ContainerAllocation(
                pod=pod.full_name,
                container=container.name,
                cpus=str(container.cpus) or None,
                memory=container.memory,
                devices={resource: tuple(sorted(ids)) for resource, ids in container.device_ids.items()},
            )
            for pod in snapshot.pods
            for container in pod.containers
            if container.cpus or container.memory or container.devices
        ),
        devices=_devices(snapshot),
        not_judged=tuple(unknown),
        warnings=tuple(warnings),
    )


def _held_by_ended_init_containers(
    snapshot: PodResourcesSnapshot, pods: Iterable[Pod]
) -> list[UnknownNodePart]:
    """The parts of which ended init containers may hold something: the socket does not report these containers.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, List; pkg/kubelet/cm/cpumanager/policy_static.go,
        Allocate: CPUs of an init container stay allocated with its pod, whether other containers reuse them or not.
    """
    reported = {(pod.full_name, container.name) for pod in snapshot.pods for container in pod.containers}
    holds_cpus, devices = False, set[str]()
    for pod in pods:
        requests = PodCPURequests.of(pod, DEFAULT_CPU_GATES)
        for container in pod.spec.init_containers:
            if container.is_sidecar or (pod.full_name, container.name) in reported:
                continue
            holds_cpus |= bool(snapshot.allocatable.cpus) and requests.container_cpus(container) > 0
            devices |= {
                name
                for name, amount in container.resources.limits.items()
                if is_extended(name) and amount.value() > _reused_devices(pod, name)
            }
    because = "init containers that have ended hold some, and the socket does not report them"
    unknown = [UnknownNodePart(part=NodePart.CPUS, because=because)] if holds_cpus else []
    if devices:
        part = UnknownNodePart(part=NodePart.DEVICES, names=tuple(sorted(devices)), because=because)
        unknown.append(part)
    return unknown


def _reused_devices(pod: Pod, resource: str) -> int:
    """The devices of the containers that reuse those of init containers."""
    limits = [container.resources.limits for container in pod.spec.containers]
    return sum(amounts[resource].value() for amounts in limits if resource in amounts)


def inferred_policies(
    snapshot: PodResourcesSnapshot, machine: MachineInfo, reserved: Mapping[str, str]
) -> dict[str, Any]:
    """The configuration that the kubelet's responses imply: they list CPUs and memory only under static policies.

    ``reserved`` is the known part of `systemReserved`.

    Follows: v1.36, pkg/kubelet/apis/podresources/server_v1.go, GetAllocatableResources.
    """
    policies: dict[str, Any] = {}
    if snapshot.allocatable.cpus:
        reserved_cpus = machine_cpus(machine) - snapshot.allocatable.cpus
        policies = {"cpuManagerPolicy": "static", "reservedSystemCPUs": str(reserved_cpus)}
    blocks = {block.numa_nodes: block.size for block in snapshot.allocatable.memory if block.type == MEMORY}
    reserved_of_numa = {
        numa.node_id: numa.memory - _huge_bytes(numa) - blocks[(numa.node_id,)]
        for numa in machine.topology
        if (numa.node_id,) in blocks
    }
    # The kubelet starts only if the reservations of the NUMA nodes add up to that of the machine.
    system_reserved = sum(reserved_of_numa.values()) - DEFAULT_EVICTION_HARD_BYTES
    if reserved_of_numa and system_reserved >= 0:
        policies["memoryManagerPolicy"] = "Static"
        policies["systemReserved"] = {
            **reserved,
            MEMORY: str(Quantity.of(system_reserved, QuantityFormat.BINARY_SI)),
        }
        policies["reservedMemory"] = [
            {"numaNode": numa, "limits": {MEMORY: str(Quantity.of(size, QuantityFormat.BINARY_SI))}}
            for numa, size in sorted(reserved_of_numa.items())
            if size > 0
        ]
    return policies


def machine_cpus(machine: MachineInfo) -> CPUSet:
    """All CPUs of a machine."""
    cores = (core for numa in machine.topology for core in numa.cores)
    return CPUSet.from_ids(cpu for core in cores for cpu in core.thread_ids)


def _huge_bytes(numa: NUMANode) -> int:
    return sum(pages.page_size * 1024 * pages.num_pages for pages in numa.hugepages)


def _placeholder(reported: PodResources) -> Pod:
    """A placeholder for a pod of which only the name and the allocations are known."""
    resources = {
        container.name: minimum_resources(_as_allocation(reported, container))
        for container in reported.containers
    }
    pod = placeholder_pod("", PodResourceInfo(resources))
    metadata = replace(pod.metadata, name=reported.name, namespace=reported.namespace)
    return with_uid(replace(pod, metadata=metadata))


def _as_allocation(pod: PodResources, container: ContainerResources) -> ContainerAllocation:
    devices = {resource: tuple(ids) for resource, ids in container.device_ids.items()}
    return ContainerAllocation(
        pod.full_name, container.name, str(container.cpus) or None, container.memory, devices
    )


def _devices(snapshot: PodResourcesSnapshot) -> dict[str, tuple[Device, ...]]:
    """The devices by resource; held devices that are not allocatable are unhealthy."""
    healthy = _numa_nodes(snapshot.allocatable.devices)
    held = _numa_nodes(
        devices for pod in snapshot.pods for container in pod.containers for devices in container.devices
    )
    devices_of_resource: dict[str, list[Device]] = {}
    for resource, device_id in sorted({*healthy, *held}):
        key = (resource, device_id)
        numa_nodes = healthy.get(key) or held.get(key) or frozenset()
        devices_of_resource.setdefault(resource, []).append(
            Device(id=device_id, numa_nodes=tuple(sorted(numa_nodes)) or None, healthy=key in healthy)
        )
    return {resource: tuple(devices) for resource, devices in devices_of_resource.items()}


def _numa_nodes(devices: Iterable[ContainerDevices]) -> Mapping[tuple[str, str], frozenset[int]]:
    """The NUMA nodes of each device, by resource and device id."""
    numa_nodes: dict[tuple[str, str], frozenset[int]] = {}
    for device in devices:
        for device_id in device.ids:
            key = device.resource, device_id
            numa_nodes[key] = numa_nodes.get(key, frozenset()) | frozenset(device.numa_nodes or ())
    return numa_nodes
