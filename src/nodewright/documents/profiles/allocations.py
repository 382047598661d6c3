"""Validates and reads the allocations of a NodeProfile (`spec.allocations`)."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.engine.core.memory.memory_policy import huge_pages_name
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    MemoryBlock,
    NodeProfileSpec,
    PodAllocations,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.values.idset import CPUSet, IdSetError


def allocation_faults(spec: NodeProfileSpec) -> Iterator[Fault]:
    """Faults of the allocations: unknown pods or containers, unknown CPUs, memory or devices, double allocation."""
    if spec.allocations:
        yield from _AllocationCheck(spec).faults(spec.allocations)


def allocation_policy_faults(
    spec: NodeProfileSpec, kubelet: KubeletConfiguration, *, pod_level: bool
) -> Iterator[Fault]:
    """Allocations that are impossible under this configuration; `pod_level` is the gate PodLevelResourceManagers."""
    for index, allocation in enumerate(spec.allocations or ()):
        path = f"spec.allocations[{index}]"
        if allocation.cpus and kubelet.cpu_manager_policy == "none":
            rule = "cpuManagerPolicy is none: no container has exclusive CPUs"
            yield Fault(path=f"{path}.cpus", value=allocation.cpus, rule=rule)
        if allocation.memory and kubelet.memory_manager_policy == "None":
            rule = "memoryManagerPolicy is None: no container has allocated memory"
            yield Fault(path=f"{path}.memory", error="Forbidden", rule=rule)
        if not allocation.container and not pod_level:
            rule = "allocations of a whole pod need the gate PodLevelResourceManagers"
            yield Fault(path=f"{path}.container", error="Required value", rule=rule)


def pod_allocations(spec: NodeProfileSpec) -> PodAllocations:
    """The allocations of the pods, which `allocation_faults` has validated."""
    pods = _by_reference(spec.pods)
    cpus: dict[str, dict[str, CPUSet]] = {}
    memory: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
    devices: dict[str, dict[str, Mapping[str, frozenset[str]]]] = {}
    for allocation in spec.allocations or ():
        uid = with_uid(pods[allocation.pod]).uid
        if allocation.cpus:
            cpus.setdefault(uid, {})[allocation.container] = CPUSet.parse(allocation.cpus)
        if allocation.memory:
            memory.setdefault(uid, {})[allocation.container] = allocation.memory
        if allocation.devices:
            device_ids = {resource: frozenset(ids) for resource, ids in allocation.devices.items()}
            devices.setdefault(uid, {})[allocation.container] = device_ids
    return PodAllocations(cpus, memory, devices)


def _by_reference(pods: Sequence[Pod]) -> dict[str, Pod]:
    """The pods by namespace and name, and by uid; of several with one name the last that is not terminal."""
    terminal_pods = [pod for pod in pods if pod.is_terminal]
    active_pods = [pod for pod in pods if not pod.is_terminal]
    in_order = (*terminal_pods, *active_pods)
    return {pod.full_name: pod for pod in in_order} | {with_uid(pod).uid: pod for pod in in_order}


class _Holder(msgspec.Struct, frozen=True):
    """The container or pod that holds an allocation."""

    pod: Pod
    container: str
    has_pod_allocation: bool
    """Whether the pod as a whole has an allocation."""

    def __str__(self) -> str:
        return f"{self.pod.full_name}, container {self.container}" if self.container else self.pod.full_name

    def shares_with(self, other: "_Holder") -> bool:
        """Whether both may hold the same: init containers pass theirs on, and a pod shares with its containers."""
        return self.pod is other.pod and (self.has_pod_allocation or self.passes_on or other.passes_on)

    @property
    def passes_on(self) -> bool:
        """Whether the holder is an init container that terminates before other containers start."""
        inits = self.pod.spec.init_containers
        return any(init.name == self.container and not init.is_sidecar for init in inits)


class _AllocationCheck:
    """Checks allocations in order, and records the holder of each CPU and device."""

    def __init__(self, spec: NodeProfileSpec) -> None:
        self.spec = spec
        topology = spec.machine_info.topology
        self.pods = _by_reference(spec.pods)
        self.cpus = CPUSet.from_possible_ids(
            cpu for node in topology for core in node.cores for cpu in core.thread_ids
        )
        self.memory_types = {
            node.node_id: {MEMORY, *(huge_pages_name(pages) for pages in node.hugepages)} for node in topology
        }
        self.cpu_holders: list[tuple[_Holder, CPUSet]] = []
        self.held_cpus = CPUSet()
        self.device_holders: dict[tuple[str, str], list[_Holder]] = {}
        self.containers: set[tuple[str, str]] = set()

    def faults(self, allocations: Sequence[ContainerAllocation]) -> Iterator[Fault]:
        """All faults of the allocations, in their order."""
        pods_with_allocation = {
            self._uid(allocation.pod) for allocation in allocations if not allocation.container
        }
        for index, allocation in enumerate(allocations):
            path = f"spec.allocations[{index}]"
            cpus = CPUSet()
            try:
                cpus = CPUSet.parse(allocation.cpus or "")
            except IdSetError as error:
                yield Fault(path=f"{path}.cpus", value=allocation.cpus, rule=str(error))
            reference_fault = self._reference_fault(path, allocation)
            if reference_fault is not None:
                yield reference_fault
                continue
            holder = _Holder(
                self.pods[allocation.pod],
                allocation.container,
                has_pod_allocation=self._uid(allocation.pod) in pods_with_allocation,
            )
            yield from self._cpu_faults(f"{path}.cpus", holder, cpus)
            for position, block in enumerate(allocation.memory):
                yield from self._memory_faults(f"{path}.memory[{position}]", block)
            for resource, ids in allocation.devices.items():
                yield from self._device_faults(f"{path}.devices[{resource}]", holder, resource, ids)

    def _uid(self, reference: str) -> str:
        pod = self.pods.get(reference)
        return reference if pod is None else with_uid(pod).uid

    def _reference_fault(self, path: str, allocation: ContainerAllocation) -> Fault | None:
        """The fault of an unknown pod or container, or of a second allocation for the same one."""
        pod = self.pods.get(allocation.pod)
        if pod is None:
            rule = "neither the uid nor the namespace/name of a pod of spec.pods"
            return Fault(path=f"{path}.pod", value=allocation.pod, rule=rule)
        names = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
        if allocation.container and allocation.container not in names:
            rule = f"not a container of {pod.full_name}, which has {', '.join(names)}"
            return Fault(path=f"{path}.container", value=allocation.container, rule=rule)
        key = (self._uid(allocation.pod), allocation.container)
        if key in self.containers:
            rule = f"{pod.full_name} has an allocation for it already"
            return Fault(
                path=f"{path}.container", error="Duplicate value", value=allocation.container, rule=rule
            )
        self.containers.add(key)
        return None

    def _cpu_faults(self, path: str, holder: _Holder, cpus: CPUSet) -> Iterator[Fault]:
        if unknown := cpus - self.cpus:
            rule = f"the machine has no CPU {unknown}, its CPUs are {self.cpus or 'none'}"
            yield Fault(path=path, value=str(cpus), rule=rule)
        for other, held_cpus in self.cpu_holders if cpus & self.held_cpus else ():
            if (common := held_cpus & cpus) and not holder.shares_with(other):
                yield Fault(path=path, value=str(cpus), rule=f"CPU {common} is held by {other}")
        if cpus:
            self.cpu_holders.append((holder, cpus))
            self.held_cpus |= cpus

    def _memory_faults(self, path: str, block: MemoryBlock) -> Iterator[Fault]:
        if block.size < 0:
            yield Fault(path=f"{path}.size", value=block.size, rule="must be greater than or equal to 0")
        numa = list(block.numa_nodes)
        if not numa:
            yield Fault(path=f"{path}.numaNodes", error="Required value", rule="")
        elif len(set(numa)) < len(numa):
            yield Fault(path=f"{path}.numaNodes", value=numa, rule="names a NUMA node twice")
        elif unknown := [numa_node for numa_node in numa if numa_node not in self.memory_types]:
            rule = f"the machine has no NUMA node {unknown[0]}"
            yield Fault(path=f"{path}.numaNodes", value=numa, rule=rule)
        elif without := [node for node in numa if block.type not in self.memory_types[node]]:
            types = ", ".join(sorted(self.memory_types[without[0]]))
            rule = f"NUMA node {without[0]} has no such memory, it has {types}"
            yield Fault(path=f"{path}.type", value=block.type, rule=rule)

    def _device_faults(
        self, path: str, holder: _Holder, resource: str, ids: Sequence[str]
    ) -> Iterator[Fault]:
        known = {device.id for device in self.spec.devices.get(resource, ())}
        known.update(self.spec.gone_devices.get(resource, ()))
        for name in ids:
            if name not in known:
                yield Fault(path=path, value=name, rule=f"not a device of spec.devices[{resource}]")
            holders = self.device_holders.setdefault((resource, name), [])
            for other in holders:
                if not holder.shares_with(other) or holder is other:
                    yield Fault(path=path, value=name, rule=f"already held by {other}")
            holders.append(holder)
