"""What somebody writes or measures of a node, as the reading that the eviction manager takes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.rules import Filesystems
from nodewright.core.eviction.signals import PODS_CGROUP
from nodewright.model.objects import Pod
from nodewright.model.thresholds import Signal
from nodewright.model.usage import (
    ContainerUse,
    FilesystemUse,
    MemoryUse,
    NodeUse,
    PodReference,
    PodUse,
    ProcessLimit,
    ProcessUse,
    RuntimeUse,
    Usage,
    VolumeUse,
)
from nodewright.model.usage_table import UsageRow, UsageTable
from nodewright.values.quantity import Quantity


class Capacities(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything there is; 0: not known.

    Units: bytes, or pieces of inodes and processes.
    """

    memory: int = 0
    pods_memory: int = 0
    """What all pods may have together."""
    nodefs: int = 0
    nodefs_inodes: int = 0
    imagefs: int = 0
    imagefs_inodes: int = 0
    processes: int = 0
    written: Mapping[Signal, int] = {}
    """What somebody says instead."""

    def of(self, signal: Signal) -> int:
        """How much there is of what the signal watches."""
        if signal in self.written:
            return self.written[signal]
        return {
            Signal.MEMORY_AVAILABLE: self.memory,
            Signal.ALLOCATABLE_MEMORY_AVAILABLE: self.pods_memory,
            Signal.NODEFS_AVAILABLE: self.nodefs,
            Signal.NODEFS_INODES_FREE: self.nodefs_inodes,
            Signal.IMAGEFS_AVAILABLE: self.imagefs or self.nodefs,
            Signal.IMAGEFS_INODES_FREE: self.imagefs_inodes or self.nodefs_inodes,
            Signal.CONTAINERFS_AVAILABLE: self.imagefs or self.nodefs,
            Signal.CONTAINERFS_INODES_FREE: self.imagefs_inodes or self.nodefs_inodes,
            Signal.PID_AVAILABLE: self.processes,
        }[signal]


def with_available(usage: Usage, available: Mapping[Signal, int], capacities: Capacities) -> Usage:
    """The reading with so much left of these; capacities stay as they were read, or else as the node's are.

    Units: bytes, or pieces of inodes and processes.
    """
    node = usage.node
    for signal, left in available.items():
        # There is never less in all than is left.
        node = _NODE_PARTS[signal](node, left, max(capacities.of(signal), left))
    return replace(usage, node=node)


def table_reading(table: UsageTable, capacities: Capacities, claims: Sequence[Claim]) -> Usage:
    """The reading that a table describes; what it does not say of the node was not observed."""
    rows: dict[str, list[UsageRow]] = {}
    for row in table.pods:
        rows.setdefault(row.pod, []).append(row)
    known = {key: claim for claim in claims for key in (claim.pod.full_name, claim.uid)}
    pods = tuple(_pod_use(key, its, known.get(key)) for key, its in rows.items())
    left = {Signal(name): amount.value() for name, amount in table.available.items()}
    written = {Signal(name): amount.value() for name, amount in table.capacity.items()}
    return with_available(Usage(pods=pods), left, replace(capacities, written=written))


def filesystems_of(usage: Usage) -> Filesystems:
    """Which file systems are kept apart, as far as sizes tell: a reading does not say which disk is which.

    Follows: v1.36, pkg/kubelet/stats/provider.go, HasDedicatedImageFs, HasDedicatedContainerFs.
    Departs: file systems of one size are taken for the same, where the kubelet compares devices.
    """
    runtime, fs = usage.node.runtime or RuntimeUse(), usage.node.fs
    layers_apart = _differ(runtime.image_fs, runtime.container_fs)
    return Filesystems(
        dedicated_image_fs=layers_apart or _differ(fs, runtime.image_fs), dedicated_container_fs=layers_apart
    )


def _differ(one: FilesystemUse | None, other: FilesystemUse | None) -> bool:
    if one is None or other is None:
        return False
    return (one.capacity_bytes, one.inodes) != (other.capacity_bytes, other.inodes)


class Attributed(NamedTuple):
    """A reading with its pods under the uids that the node has them by."""

    usage: Usage
    renamed: tuple[PodReference, ...] = ()
    """Pods that were found by namespace and name, as they stood in the reading."""
    strangers: tuple[PodReference, ...] = ()
    """Pods of the reading that the node does not have; the kubelet passes over them."""


def attributed(usage: Usage, pods: Iterable[Pod]) -> Attributed:
    """The reading with what stands under another uid given to the pod of that namespace and name.

    Departs: the kubelet goes by the uid alone; a description of a node often lacks uids, or has those of mirrors.
    """
    seen = {one.pod_ref.uid for one in usage.pods}
    by_name: dict[str, str] = {}
    uids: set[str] = set()
    for pod in pods:
        uids.add(pod.uid)
        if pod.uid not in seen:
            by_name[pod.full_name] = pod.uid
            # The uid that the kubelet has of a static pod stands in its mirror.
            by_name[pod.metadata.annotations.get(_STATIC_UID, "")] = pod.uid
    renamed, strangers, uses = [], [], []
    for use in usage.pods:
        reference = use.pod_ref
        uid = by_name.get(f"{reference.namespace or 'default'}/{reference.name}") or by_name.get(
            reference.uid or "/"
        )
        if reference.uid in uids:
            uses.append(use)
        elif uid is not None:
            renamed.append(reference)
            uses.append(replace(use, pod_ref=replace(reference, uid=uid)))
        else:
            strangers.append(reference)
            uses.append(use)
    return Attributed(replace(usage, pods=tuple(uses)), tuple(renamed), tuple(strangers))


_STATIC_UID = "kubernetes.io/config.hash"

# ---------------------------------------------------------------- rows


def _pod_use(key: str, rows: Sequence[UsageRow], claim: Claim | None) -> PodUse:
    containers: dict[str, ContainerUse] = {}
    volumes, processes, storage = [], 0, 0
    local = claim.local_volumes if claim else ()
    for row in rows:
        if row.volume:
            used = _count(row.used)
            volumes.append(VolumeUse(name=row.volume, used_bytes=used, inodes_used=_count(row.inodes)))
            storage += (used or 0) if row.volume in local else 0
            continue
        name = row.container or _first_container(claim)
        containers[name] = ContainerUse(
            name=name,
            memory=MemoryUse(working_set_bytes=_count(row.memory) or 0),
            rootfs=FilesystemUse(used_bytes=_count(row.rootfs) or 0, inodes_used=_count(row.inodes) or 0),
            logs=FilesystemUse(used_bytes=_count(row.logs) or 0, inodes_used=0),
        )
        processes += _count(row.processes) or 0
        storage += (_count(row.rootfs) or 0) + (_count(row.logs) or 0)
    memory = sum((one.memory.working_set_bytes or 0) for one in containers.values() if one.memory)
    pod = claim.pod if claim else None
    namespace, _, name = (pod.full_name if pod else key).rpartition("/")
    return PodUse(
        pod_ref=PodReference(name=name, namespace=namespace or "default", uid=pod.uid if pod else key),
        containers=tuple(containers.values()),
        memory=MemoryUse(working_set_bytes=memory),
        volumes=tuple(volumes),
        ephemeral_storage=FilesystemUse(used_bytes=storage),
        processes=ProcessUse(process_count=processes),
    )


def _first_container(claim: Claim | None) -> str:
    containers = claim.pod.spec.containers if claim else ()
    return containers[0].name if containers else ""


def _count(amount: Quantity | None) -> int | None:
    return None if amount is None else amount.value()


# ---------------------------------------------------------------- signals


def _with_node_memory(node: NodeUse, left: int, capacity: int) -> NodeUse:
    return replace(node, memory=_memory(node.memory, left, capacity))


def _with_pods_memory(node: NodeUse, left: int, capacity: int) -> NodeUse:
    others = tuple(one for one in node.system_containers if one.name != PODS_CGROUP)
    pods = next((one for one in node.system_containers if one.name == PODS_CGROUP), ContainerUse(PODS_CGROUP))
    pods = replace(pods, memory=_memory(pods.memory, left, capacity))
    return replace(node, system_containers=(*others, pods))


def _memory(memory: MemoryUse | None, left: int, capacity: int) -> MemoryUse:
    memory = memory or MemoryUse()
    if memory.available_bytes is not None and memory.working_set_bytes is not None:
        capacity = memory.available_bytes + memory.working_set_bytes
    return replace(memory, available_bytes=left, working_set_bytes=max(capacity - left, 0))


def _with_processes(node: NodeUse, left: int, capacity: int) -> NodeUse:
    limit = node.rlimit or ProcessLimit()
    most = capacity if limit.max_pid is None else limit.max_pid
    return replace(node, rlimit=replace(limit, max_pid=most, running=most - left))


def _with_nodefs(node: NodeUse, left: int, capacity: int) -> NodeUse:
    return replace(node, fs=_bytes(node.fs, left, capacity))


def _with_nodefs_inodes(node: NodeUse, left: int, capacity: int) -> NodeUse:
    return replace(node, fs=_inodes(node.fs, left, capacity))


def _with_imagefs(node: NodeUse, left: int, capacity: int) -> NodeUse:
    runtime = node.runtime or RuntimeUse()
    return replace(node, runtime=replace(runtime, image_fs=_bytes(runtime.image_fs, left, capacity)))


def _with_imagefs_inodes(node: NodeUse, left: int, capacity: int) -> NodeUse:
    runtime = node.runtime or RuntimeUse()
    return replace(node, runtime=replace(runtime, image_fs=_inodes(runtime.image_fs, left, capacity)))


def _with_containerfs(node: NodeUse, left: int, capacity: int) -> NodeUse:
    runtime = node.runtime or RuntimeUse()
    return replace(node, runtime=replace(runtime, container_fs=_bytes(runtime.container_fs, left, capacity)))


def _with_containerfs_inodes(node: NodeUse, left: int, capacity: int) -> NodeUse:
    runtime = node.runtime or RuntimeUse()
    return replace(node, runtime=replace(runtime, container_fs=_inodes(runtime.container_fs, left, capacity)))


def _bytes(fs: FilesystemUse | None, left: int, capacity: int) -> FilesystemUse:
    fs = fs or FilesystemUse()
    known = capacity if fs.capacity_bytes is None else fs.capacity_bytes
    return replace(fs, available_bytes=left, capacity_bytes=known)


def _inodes(fs: FilesystemUse | None, left: int, capacity: int) -> FilesystemUse:
    fs = fs or FilesystemUse()
    known = capacity if fs.inodes is None else fs.inodes
    return replace(fs, inodes_free=left, inodes=known)


_NODE_PARTS = {
    Signal.MEMORY_AVAILABLE: _with_node_memory,
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: _with_pods_memory,
    Signal.NODEFS_AVAILABLE: _with_nodefs,
    Signal.NODEFS_INODES_FREE: _with_nodefs_inodes,
    Signal.IMAGEFS_AVAILABLE: _with_imagefs,
    Signal.IMAGEFS_INODES_FREE: _with_imagefs_inodes,
    Signal.CONTAINERFS_AVAILABLE: _with_containerfs,
    Signal.CONTAINERFS_INODES_FREE: _with_containerfs_inodes,
    Signal.PID_AVAILABLE: _with_processes,
}
