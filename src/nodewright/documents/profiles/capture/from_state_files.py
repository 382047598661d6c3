"""Converts a kubelet's state files to the pods, allocations and devices of a NodeProfile."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.capture.node_pods import (
    STATIC_POD_UID,
    NodePods,
    admitted_pods,
    placeholder_pod,
)
from nodewright.documents.profiles.capture.warnings import (
    CaptureWarning,
    ContainersStale,
    DeviceCheckpointCorrupt,
    DeviceEntriesUnreadable,
    PodsRemoved,
    PodsUndescribed,
)
from nodewright.documents.profiles.kubelet_root import KubeletRoot, PresentStateFile
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    unreadable_entries,
)
from nodewright.documents.profiles.state_files.pod_resource_state import PodResourceInfo
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import Block, MemoryState
from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    Device,
    MemoryBlock,
    NodePart,
    UnknownNodePart,
)
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements
from nodewright.model.kubernetes.pod_resources_api import ContainerDevices
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.reasons.kubelet_start import StateFileReason
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity, QuantityFormat

T = TypeVar("T")

POD_LEVEL = ""
"""The container name of allocations to a pod as a whole."""
UNKNOWN_NUMA = -1


class CapturedAllocations(msgspec.Struct, frozen=True, kw_only=True):
    """The pods in a kubelet's state, and their allocations."""

    pods: tuple[Pod, ...]
    allocations: tuple[ContainerAllocation, ...]
    devices: Mapping[str, tuple[Device, ...]]
    not_judged: tuple[UnknownNodePart, ...] = ()
    warnings: tuple[CaptureWarning, ...] = ()


class BrokenStateError(Exception):
    """State files with which the kubelet does not start."""

    def __init__(self, reasons: Sequence[StateFileReason]) -> None:
        super().__init__(reasons)
        self.reasons = tuple(reasons)


def allocations_from_state_files(
    root: KubeletRoot, pods: NodePods, allocatable: Sequence[ContainerDevices] = ()
) -> CapturedAllocations:
    """The allocations in the state files, of the given pods and of placeholders for pods that were not given.

    A placeholder has the resources in `allocated_pods_state` or, without them, the minimum for its allocations.
    Allocations of terminated and of removed pods are left out, because the kubelet releases them when the next pod is
    added; a pod is removed if the given pods are complete and do not have its uid. The uids of static pods may be
    unknown, so these have placeholders in any case. ``allocatable`` are the devices that the kubelet's PodResources
    reports, with their NUMA nodes, which the checkpoint has only of devices that pods hold.

    Follows: v1.36, cpumanager/cpu_manager.go, removeStaleState; memorymanager/memory_manager.go,
        removeStaleState; devicemanager/manager.go, UpdateAllocatedDevices.
    Errors:  BrokenStateError with all files with which the kubelet would not start.
    """
    files = _StateFileContents.of(root)
    table = files.allocation_table()
    admitted = admitted_pods(pods, files.allocated, table.holders()) if root.allocated else pods
    given_pods = {pod.uid: pod for pod in admitted.pods}
    unknown_uids = sorted({*table.holders(), *files.allocated} - {*given_pods} - pods.ended)
    undescribed = [uid for uid in unknown_uids if not pods.is_complete or STATIC_POD_UID.fullmatch(uid)]
    removed = tuple(uid for uid in unknown_uids if uid not in undescribed)
    placeholders = {uid: _placeholder(uid, files, table) for uid in undescribed}
    all_pods = {**given_pods, **placeholders}
    allocations, stale = table.allocations_of(all_pods)
    warnings = [*admitted.warnings, *files.warnings]
    if undescribed:
        warnings.append(PodsUndescribed(names=tuple(undescribed)))
    if removed:
        warnings.append(PodsRemoved(names=removed))
    if stale:
        warnings.append(ContainersStale(names=stale))
    devices, unplaced = _devices(files.devices, allocatable)
    unknown = [*files.unknown]
    if unplaced:
        because = "the checkpoint has the NUMA nodes only of devices that pods hold"
        unknown.append(UnknownNodePart(part=NodePart.DEVICES, names=unplaced, because=because))
    if placeholders:
        names = tuple(pod.full_name for pod in placeholders.values())
        unknown.append(
            UnknownNodePart(part=NodePart.PODS, names=names, because="no pod with these uids was given")
        )
    return CapturedAllocations(
        pods=tuple(all_pods.values()),
        allocations=allocations,
        devices=devices,
        not_judged=_merged_by_part(unknown),
        warnings=tuple(warnings),
    )


def _merged_by_part(entries: Iterable[UnknownNodePart]) -> tuple[UnknownNodePart, ...]:
    """The entries, merged to one for each part."""
    entry_of_part: dict[str, UnknownNodePart] = {}
    for entry in entries:
        earlier = entry_of_part.get(entry.part)
        if earlier is None:
            entry_of_part[entry.part] = entry
        else:
            because = f"{earlier.because}; {entry.because}"
            entry_of_part[entry.part] = UnknownNodePart(
                part=entry.part, names=tuple(sorted({*earlier.names, *entry.names})), because=because
            )
    return tuple(entry_of_part.values())


class _StateFileContents(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state files, with what is unknown and warnings."""

    cpu: CPUState
    memory: MemoryState
    devices: DeviceCheckpoint
    allocated: dict[str, PodResourceInfo]
    unknown: tuple[UnknownNodePart, ...]
    warnings: tuple[CaptureWarning, ...]

    @classmethod
    def of(cls, root: KubeletRoot) -> "_StateFileContents":
        fatal = [
            file.verdict.because[0]
            for file in (root.cpu, root.memory, root.allocated, root.actuated)
            if file and isinstance(file.verdict, Refused)
        ]
        if fatal:
            raise BrokenStateError(fatal)  # type: ignore[arg-type] # refused files give reasons of files only
        unknown, warnings, devices = _device_file(root.devices)
        no_resources: dict[str, PodResourceInfo] = {}
        return cls(
            cpu=_value(root.cpu, CPUState()),
            memory=_value(root.memory, MemoryState()),
            devices=devices,
            allocated=_value(root.allocated, no_resources),
            unknown=unknown,
            warnings=warnings,
        )

    def allocation_table(self) -> "_AllocationTable":
        """The allocations of all pods and containers."""
        table = _AllocationTable()
        for uid, containers in self.cpu.assignments.items():
            for name, cpus in containers.items():
                table.add(uid, name, cpus=str(cpus))
        for uid, cpus in self.cpu.pods.items():
            table.add(uid, POD_LEVEL, cpus=str(cpus))
        for uid, blocks_of_container in self.memory.assignments.items():
            for name, blocks in blocks_of_container.items():
                table.add(uid, name, memory=tuple(map(_block, blocks)))
        for uid, blocks in self.memory.pods.items():
            table.add(uid, POD_LEVEL, memory=tuple(map(_block, blocks)))
        for entry in self.devices.entries or ():
            device_ids = tuple(sorted({id_ for ids in entry.devices.values() for id_ in ids}))
            table.add(entry.pod, entry.container, devices={entry.resource: device_ids})
        return table


def _value(file: PresentStateFile[T] | None, default: T) -> T:
    return default if file is None or isinstance(file.verdict, Refused) else file.verdict.value


def _device_file(
    present: PresentStateFile[DeviceCheckpoint] | None,
) -> tuple[tuple[UnknownNodePart, ...], tuple[CaptureWarning, ...], DeviceCheckpoint]:
    """The device checkpoint without entries that the kubelet cannot decode, and what is unknown because of them."""
    if present is None:
        return (), (), DeviceCheckpoint()
    if isinstance(present.verdict, Refused):
        (reason,) = present.verdict.because
        unknown = UnknownNodePart(part=NodePart.DEVICES, because="the device manager's checkpoint is corrupt")
        return (unknown,), (DeviceCheckpointCorrupt(reason=reason),), DeviceCheckpoint()  # type: ignore[arg-type] # as above
    file = present.verdict.value
    unreadable = unreadable_entries(file)
    if not unreadable:
        return (), (), file
    names = tuple(f"{entry.pod}, container {entry.container}, {entry.resource}" for entry in unreadable)
    resources = tuple(sorted({entry.resource for entry in unreadable}))
    because = "responses of plugins in the checkpoint cannot be decoded"
    readable = tuple(entry for entry in file.entries or () if entry not in unreadable)
    return (
        (UnknownNodePart(part=NodePart.DEVICES, names=resources, because=because),),
        (DeviceEntriesUnreadable(names=names),),
        replace(file, entries=readable),
    )


def _block(block: Block) -> MemoryBlock:
    return MemoryBlock(numa_nodes=block.numa, type=block.resource, size=block.size)


@dataclass(slots=True)
class _AllocationTable:
    """Allocations by the pod's uid and the container's name."""

    entries: dict[tuple[str, str], ContainerAllocation] = field(default_factory=dict)

    def add(self, uid: str, container: str, **held: Any) -> None:
        """Adds CPUs or memory, or devices to those that the container has."""
        allocation = self.entries.get((uid, container), ContainerAllocation(pod=uid, container=container))
        if "devices" in held:
            held["devices"] = {**allocation.devices, **held["devices"]}
        self.entries[uid, container] = replace(allocation, **held)

    def holders(self) -> set[str]:
        """The uids of all pods with allocations."""
        return {uid for uid, _ in self.entries}

    def containers(self, uid: str) -> dict[str, ContainerAllocation]:
        """The allocations of a pod's containers, by name."""
        return {name: allocation for (pod, name), allocation in self.entries.items() if pod == uid}

    def allocations_of(
        self, pods: Mapping[str, Pod]
    ) -> tuple[tuple[ContainerAllocation, ...], tuple[str, ...]]:
        """The allocations of these pods by full name, and the allocated containers that the pods do not have."""
        allocations, stale = [], []
        for (uid, name), allocation in sorted(self.entries.items()):
            if uid not in pods:
                continue
            pod = pods[uid]
            names = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
            if name and name not in names:
                stale.append(f"{pod.full_name}, container {name}")
            else:
                allocations.append(replace(allocation, pod=pod.full_name))
        return tuple(allocations), tuple(stale)


def _placeholder(uid: str, files: _StateFileContents, table: _AllocationTable) -> Pod:
    """A placeholder for a pod that was not given."""
    allocations = {name: allocation for name, allocation in table.containers(uid).items() if name}
    init_containers = _init_containers(allocations)
    allocated = files.allocated.get(uid)
    if allocated is None:
        minimum = {name: minimum_resources(allocation) for name, allocation in allocations.items()}
        containers = minimum or {"container": ResourceRequirements()}
        return placeholder_pod(uid, PodResourceInfo(containers), init_containers)
    missing = {name: ResourceRequirements() for name in allocations if name not in allocated.containers}
    resources = PodResourceInfo({**allocated.containers, **missing}, allocated.pod)
    return placeholder_pod(uid, resources, init_containers)


def _init_containers(allocations: Mapping[str, ContainerAllocation]) -> frozenset[str]:
    """The containers that must be init containers, because they share CPUs or devices with another container.

    The files do not record which of the two is the init container; the one with fewer CPUs and devices is assumed,
    which does not change the sums.
    """
    items_of_container = {name: _cpus_and_devices(allocation) for name, allocation in allocations.items()}
    main_items: set[tuple[str, str]] = set()
    init_containers = set()
    for name in sorted(allocations, key=lambda name: (-len(items_of_container[name]), name)):
        if items_of_container[name] & main_items:
            init_containers.add(name)
        else:
            main_items |= items_of_container[name]
    return frozenset(init_containers)


def _cpus_and_devices(allocation: ContainerAllocation) -> set[tuple[str, str]]:
    cpus = {(CPU, str(cpu)) for cpu in CPUSet.parse(allocation.cpus or "")}
    return cpus | {(resource, name) for resource, ids in allocation.devices.items() for name in ids}


def minimum_resources(allocation: ContainerAllocation) -> ResourceRequirements:
    """The smallest resources for which a container gets this allocation: only Guaranteed pods get CPUs and memory."""
    amounts: dict[str, int] = {}
    if allocation.cpus:
        amounts[CPU] = len(CPUSet.parse(allocation.cpus))
    for block in allocation.memory:
        amounts[block.type] = amounts.get(block.type, 0) + block.size
    for resource, ids in allocation.devices.items():
        amounts[resource] = len(ids)
    exact = {name: Quantity.of(amount, QuantityFormat.DECIMAL_SI) for name, amount in amounts.items()}
    return ResourceRequirements(requests=exact, limits=exact)


def _devices(
    file: DeviceCheckpoint, allocatable: Sequence[ContainerDevices]
) -> tuple[dict[str, tuple[Device, ...]], tuple[str, ...]]:
    """The devices by resource, and the resources with devices whose NUMA nodes are unknown.

    Held devices that no plugin lists as healthy are unhealthy.
    """
    numa_nodes: dict[str, dict[str, set[int]]] = {}
    for entry in file.entries or ():
        nodes_of_device = numa_nodes.setdefault(entry.resource, {})
        for numa, ids in entry.devices.items():
            for id_ in ids:
                nodes_of_device.setdefault(id_, set()).add(numa)
    placed: dict[tuple[str, str], set[int]] = {}
    for listed in allocatable:
        for id_ in listed.ids:
            placed.setdefault((listed.resource, id_), set()).update(listed.numa_nodes or ())
    devices: dict[str, tuple[Device, ...]] = {}
    unplaced = []
    for resource in sorted({*numa_nodes, *file.registered}):
        held, healthy = numa_nodes.get(resource, {}), {*file.registered.get(resource, ())}
        devices[resource] = tuple(
            Device(
                id=name,
                numa_nodes=tuple(sorted(placed.get((resource, name), held.get(name, set())) - {UNKNOWN_NUMA}))
                or None,
                healthy=name in healthy,
            )
            for name in sorted({*held, *healthy})
        )
        if any(name not in held and (resource, name) not in placed for name in healthy):
            unplaced.append(resource)
    return devices, tuple(unplaced)
