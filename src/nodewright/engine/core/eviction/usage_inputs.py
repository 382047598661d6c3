"""Builds the stats summary for the eviction manager from tables, overrides and captured summaries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import PODS_CGROUP, NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import UsageRow, UsageTable
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    RlimitStats,
    RuntimeStats,
    StatsSummary,
    VolumeStats,
)
from nodewright.model.values.quantity import Quantity


class SignalCapacities(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of each resource; 0: unknown.

    Units: bytes, or pieces of inodes and processes.
    """

    memory: int = 0
    pods_memory: int = 0
    """The memory limit of all pods together."""
    nodefs: int = 0
    nodefs_inodes: int = 0
    imagefs: int = 0
    imagefs_inodes: int = 0
    processes: int = 0
    overrides: Mapping[Signal, int] = {}
    """Capacities from the input that take precedence."""

    def of(self, signal: Signal) -> int:
        """The capacity of the signal's resource."""
        if signal in self.overrides:
            return self.overrides[signal]
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


def usage_with_available(
    usage: StatsSummary, available: Mapping[Signal, int], capacities: SignalCapacities
) -> StatsSummary:
    """The stats summary with these available amounts; capacities are the summary's, or else the node's.

    Units: bytes, or pieces of inodes and processes.
    """
    node = usage.node
    for signal, left in available.items():
        node = _NODE_PARTS[signal](node, left, capacities.of(signal))
    return replace(usage, node=node)


def usage_from_table(
    table: UsageTable, capacities: SignalCapacities, active_pods: Sequence[ActivePod]
) -> StatsSummary:
    """The stats summary that a table describes; node values that it lacks count as not observed.

    ``capacities`` include those of the table.
    """
    rows: dict[str, list[UsageRow]] = {}
    for row in table.pods:
        rows.setdefault(row.pod, []).append(row)
    known = {
        key: active_pod for active_pod in active_pods for key in (active_pod.pod.full_name, active_pod.uid)
    }
    pods = tuple(_pod_stats(key, its, known.get(key)) for key, its in rows.items())
    left = {Signal(name): amount.value() for name, amount in table.available.items()}
    return usage_with_available(StatsSummary(pods=pods), left, capacities)


def inferred_filesystems(usage: StatsSummary) -> NodeFilesystems:
    """The separate file systems, inferred from sizes: a summary does not identify disks.

    Follows: v1.36, pkg/kubelet/stats/provider.go, HasDedicatedImageFs, HasDedicatedContainerFs.
    Departs: file systems of equal size count as the same; the kubelet compares devices.
    """
    runtime, fs = usage.node.runtime or RuntimeStats(), usage.node.fs
    layers_apart = _differ(runtime.image_fs, runtime.container_fs)
    return NodeFilesystems(
        dedicated_image_fs=layers_apart or _differ(fs, runtime.image_fs), dedicated_container_fs=layers_apart
    )


def _differ(first: FsStats | None, second: FsStats | None) -> bool:
    if first is None or second is None:
        return False
    return (first.capacity_bytes, first.inodes) != (second.capacity_bytes, second.inodes)


class MatchedUsage(NamedTuple):
    """A stats summary whose pods have the node's uids."""

    usage: StatsSummary
    matched_by_name: tuple[PodReference, ...] = ()
    """Pods matched by namespace and name, with their references in the original summary."""
    unknown_pods: tuple[PodReference, ...] = ()
    """Pods of the summary that the node does not have; the kubelet ignores them."""


def matched_usage(usage: StatsSummary, pods: Iterable[Pod]) -> MatchedUsage:
    """The stats summary with other uids replaced by those of the pods with the same namespace and name.

    Departs: the kubelet matches by uid only; a description of a node often lacks uids, or has those of mirrors.
    """
    summary_uids = {pod_stats.pod_ref.uid for pod_stats in usage.pods}
    by_name: dict[str, str] = {}
    uids: set[str] = set()
    for pod in pods:
        uids.add(pod.uid)
        if pod.uid not in summary_uids:
            by_name[pod.full_name] = pod.uid
            # The kubelet's uid of a static pod is in an annotation of its mirror.
            by_name[pod.metadata.annotations.get(_STATIC_UID, "")] = pod.uid
    matched, unknown, all_stats = [], [], []
    for pod_stats in usage.pods:
        reference = pod_stats.pod_ref
        uid = by_name.get(f"{reference.namespace or 'default'}/{reference.name}") or by_name.get(
            reference.uid or "/"
        )
        if reference.uid in uids:
            all_stats.append(pod_stats)
        elif uid is not None:
            matched.append(reference)
            all_stats.append(replace(pod_stats, pod_ref=replace(reference, uid=uid)))
        else:
            unknown.append(reference)
            all_stats.append(pod_stats)
    return MatchedUsage(replace(usage, pods=tuple(all_stats)), tuple(matched), tuple(unknown))


_STATIC_UID = "kubernetes.io/config.hash"

# ---------------------------------------------------------------- rows


def _pod_stats(key: str, rows: Sequence[UsageRow], active_pod: ActivePod | None) -> PodStats:
    containers: dict[str, ContainerStats] = {}
    volumes, processes, storage = [], 0, 0
    local = active_pod.local_volumes if active_pod else ()
    for row in rows:
        if row.volume:
            used = _count(row.used)
            volumes.append(VolumeStats(name=row.volume, used_bytes=used, inodes_used=_count(row.inodes)))
            storage += (used or 0) if row.volume in local else 0
            continue
        name = row.container or _first_container(active_pod)
        containers[name] = ContainerStats(
            name=name,
            memory=MemoryStats(working_set_bytes=_count(row.memory) or 0),
            rootfs=FsStats(used_bytes=_count(row.rootfs) or 0, inodes_used=_count(row.inodes) or 0),
            logs=FsStats(used_bytes=_count(row.logs) or 0, inodes_used=0),
        )
        processes += _count(row.processes) or 0
        storage += (_count(row.rootfs) or 0) + (_count(row.logs) or 0)
    memory = sum(
        (container.memory.working_set_bytes or 0) for container in containers.values() if container.memory
    )
    pod = active_pod.pod if active_pod else None
    namespace, _, name = (pod.full_name if pod else key).rpartition("/")
    return PodStats(
        pod_ref=PodReference(name=name, namespace=namespace or "default", uid=pod.uid if pod else key),
        containers=tuple(containers.values()),
        memory=MemoryStats(working_set_bytes=memory),
        volumes=tuple(volumes),
        ephemeral_storage=FsStats(used_bytes=storage),
        processes=ProcessStats(process_count=processes),
    )


def _first_container(active_pod: ActivePod | None) -> str:
    containers = active_pod.pod.spec.containers if active_pod else ()
    return containers[0].name if containers else ""


def _count(amount: Quantity | None) -> int | None:
    return None if amount is None else amount.value()


# ---------------------------------------------------------------- signals


def _with_pods_memory(node: NodeStats, left: int, capacity: int) -> NodeStats:
    others = tuple(container for container in node.system_containers if container.name != PODS_CGROUP)
    pods = next(
        (container for container in node.system_containers if container.name == PODS_CGROUP),
        ContainerStats(PODS_CGROUP),
    )
    pods = replace(pods, memory=_memory_left(pods.memory, left, capacity))
    return replace(node, system_containers=(*others, pods))


def _memory_left(memory: MemoryStats | None, left: int, capacity: int) -> MemoryStats:
    memory = memory or MemoryStats()
    if memory.available_bytes is not None and memory.working_set_bytes is not None:
        capacity = memory.available_bytes + memory.working_set_bytes
    return replace(memory, available_bytes=left, working_set_bytes=max(capacity - left, 0))


def _with_processes(node: NodeStats, left: int, capacity: int) -> NodeStats:
    limit = node.rlimit or RlimitStats()
    most = capacity if limit.max_pid is None else limit.max_pid
    return replace(node, rlimit=replace(limit, max_pid=most, running=most - left))


def _with_runtime_fs(
    field: str,
    fs_left: Callable[[FsStats | None, int, int], FsStats],
    node: NodeStats,
    left: int,
    capacity: int,
) -> NodeStats:
    runtime = node.runtime or RuntimeStats()
    fs = fs_left(getattr(runtime, field), left, capacity)
    return replace(node, runtime=replace(runtime, **{field: fs}))


def _bytes_left(fs: FsStats | None, left: int, capacity: int) -> FsStats:
    fs = fs or FsStats()
    known = capacity if fs.capacity_bytes is None else fs.capacity_bytes
    return replace(fs, available_bytes=left, capacity_bytes=known)


def _inodes_left(fs: FsStats | None, left: int, capacity: int) -> FsStats:
    fs = fs or FsStats()
    known = capacity if fs.inodes is None else fs.inodes
    return replace(fs, inodes_free=left, inodes=known)


_NODE_PARTS: Mapping[Signal, Callable[[NodeStats, int, int], NodeStats]] = {
    Signal.MEMORY_AVAILABLE: lambda node, left, capacity: replace(
        node, memory=_memory_left(node.memory, left, capacity)
    ),
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: _with_pods_memory,
    Signal.NODEFS_AVAILABLE: lambda node, left, capacity: replace(
        node, fs=_bytes_left(node.fs, left, capacity)
    ),
    Signal.NODEFS_INODES_FREE: lambda node, left, capacity: replace(
        node, fs=_inodes_left(node.fs, left, capacity)
    ),
    Signal.IMAGEFS_AVAILABLE: partial(_with_runtime_fs, "image_fs", _bytes_left),
    Signal.IMAGEFS_INODES_FREE: partial(_with_runtime_fs, "image_fs", _inodes_left),
    Signal.CONTAINERFS_AVAILABLE: partial(_with_runtime_fs, "container_fs", _bytes_left),
    Signal.CONTAINERFS_INODES_FREE: partial(_with_runtime_fs, "container_fs", _inodes_left),
    Signal.PID_AVAILABLE: _with_processes,
}
