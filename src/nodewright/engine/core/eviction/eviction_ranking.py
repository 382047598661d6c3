"""Ranks pods for eviction: every pod with the keys by which it is sorted.

`ActivePod` holds what eviction needs of a pod: its requests, limits, priority and local volumes.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.requests.effective_resources import (
    NEWEST_REQUEST_RULES,
    RequestRules,
    pod_limits,
    reclaimable_requests,
)
from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS
from nodewright.model.kubernetes.stats_summary import FsStats, PodStats, StatsSummary
from nodewright.model.values.quantity import Quantity, wrap_int64

Amount: TypeAlias = int | Fraction
"""An exact amount; a fraction only for a request of a part of a byte, as in `memory: 400m`."""

_LOCAL_SOURCES = ("hostPath", "gitRepo", "configMap")


class StorageLimit(NamedTuple):
    """A limit as written in the spec, and its exact amount."""

    quantity: Quantity
    amount: Amount

    @classmethod
    def of(cls, quantity: Quantity) -> "StorageLimit":
        """The limit for a quantity."""
        return cls(quantity, exact_amount(quantity))


class ActivePod(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a pod that eviction needs.

    Units: bytes, inodes in pieces.
    """

    pod: Pod
    uid: str
    priority: int = 0
    is_critical: bool = False
    """Whether it is never evicted: static, a mirror, or of critical priority."""
    requests: Mapping[str, Amount] = {}
    """Of memory, ephemeral-storage and inodes; 0 where nothing is requested."""
    local_volumes: tuple[str, ...] = ()
    """The volumes that count as the pod's ephemeral storage."""
    empty_dir_limits: tuple[tuple[str, StorageLimit], ...] = ()
    """Volumes with a `sizeLimit` above zero, in order."""
    storage_limit: StorageLimit | None = None
    """The sum of the containers' limits; None: no container has one."""
    container_storage_limits: Mapping[str, StorageLimit] = {}

    @classmethod
    def of(cls, pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> "ActivePod":
        """The facts about this pod, its requests by these rules.

        Errors: QuantityError if a `sizeLimit` is not a quantity.
        """
        sidecars = [each for each in pod.spec.init_containers if each.is_sidecar]
        limits = {
            container.name: StorageLimit.of(limit)
            for container in (*pod.spec.containers, *(sidecars if rules.sidecar_storage_limits else ()))
            if (limit := container.resources.limits.get(EPHEMERAL_STORAGE)) is not None and limit.value() != 0
        }
        total = pod_limits(pod).get(EPHEMERAL_STORAGE)
        return cls(
            pod=pod,
            uid=pod.uid,
            priority=pod.spec.priority or 0,
            is_critical=is_critical(pod),
            requests=_requests(pod, rules),
            local_volumes=tuple(
                str(volume.get("name", "")) for volume in pod.spec.volumes if _is_local(volume)
            ),
            empty_dir_limits=tuple(_empty_dir_limits(pod)),
            storage_limit=None if total is None else StorageLimit.of(total),
            container_storage_limits=limits,
        )


def _requests(pod: Pod, rules: RequestRules) -> dict[str, Amount]:
    """The requests that ranking compares with."""
    requested = reclaimable_requests(pod, rules)
    return {
        name: exact_amount(requested[name]) if name in requested else 0
        for name in (MEMORY, EPHEMERAL_STORAGE, INODES)
    }


def exact_amount(quantity: Quantity) -> Amount:
    """The amount as an integer, or as a fraction if it is not whole."""
    exact = quantity.as_fraction()
    return exact.numerator if exact.denominator == 1 else exact


def _is_local(volume: Mapping[str, Any]) -> bool:
    """Whether the volume's content is on a disk of the node and is deleted with the pod.

    Follows: v1.36, eviction/helpers.go, localVolumeNames; pkg/volume/util/util.go, IsLocalEphemeralVolume.
    """
    if any(volume.get(source) is not None for source in _LOCAL_SOURCES):
        return True
    empty_dir = volume.get("emptyDir")
    return empty_dir is not None and not empty_dir.get("medium")


def _empty_dir_limits(pod: Pod) -> list[tuple[str, StorageLimit]]:
    limits = []
    for volume in pod.spec.volumes:
        written = (volume.get("emptyDir") or {}).get("sizeLimit")
        if written is None:
            continue
        limit = Quantity.parse(str(written).strip())
        if limit.sign() > 0:
            limits.append((str(volume.get("name", "")), StorageLimit.of(limit)))
    return limits


StatsByUID: TypeAlias = Mapping[str, PodStats]
"""The stats of pods by uid."""


class FsStatsType(StrEnum):
    """The kinds of data that a pod has on a disk."""

    ROOTFS = "rootfs"
    LOGS = "logs"
    VOLUMES = "volumes"


class EvictionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with all keys that its rank depends on.

    Units: bytes, or pieces of inodes and processes.
    """

    active_pod: ActivePod
    list_index: int
    """Index in the list of active pods: the last key, so that there are no ties."""
    has_stats: bool
    usage: int = 0
    """Its usage of the starved resource; 0 without stats."""
    request: Amount | None = None
    """What the usage is compared with; None: nothing, as for processes."""
    exceeds_request: bool = False
    """Whether it uses more than its request."""
    excess: Amount = 0
    """The last key but one: usage less request; for inodes, less the ephemeral storage requested in bytes."""


def stats_by_uid(usage: StatsSummary) -> dict[str, PodStats]:
    """The stats of each pod by uid; if a summary has a pod twice, the later entry counts."""
    return {pod.pod_ref.uid: pod for pod in usage.pods}


def ranked_pods(
    signal: Signal, filesystems: NodeFilesystems, active_pods: Sequence[ActivePod], stats: StatsByUID
) -> tuple[EvictionCandidate, ...]:
    """The pods in the order of eviction for this signal, including critical ones.

    Memory and disk: pods without stats, then those above their request, then the others; among these by lower
    priority, then by larger excess. Processes: by lower priority, then pods without stats, then more processes.
    The QoS class is not a key.

    Follows: v1.36, eviction/helpers.go, buildSignalToRankFunc, rankMemoryPressure, rankPIDPressure,
        rankDiskPressureFunc.
    Departs: pods that are equal in all keys keep the order of the list; the kubelet's list is in random
        order, and its sorting is not stable from 13 pods on. Counts of processes beyond 63 bits are compared
        as they are; the kubelet's difference wraps around and yields no order.
    """
    resource = SIGNAL_RESOURCES[signal]
    indexed = tuple(enumerate(active_pods))
    if resource == PIDS:
        by_processes = [
            _by_processes(active_pod, index, stats.get(active_pod.uid)) for index, active_pod in indexed
        ]
        return tuple(sorted(by_processes, key=_pid_key))
    parts = None if resource == MEMORY else fs_stats_to_measure(signal, filesystems)
    candidates = [
        _by_usage(active_pod, index, stats.get(active_pod.uid), resource, parts)
        for index, active_pod in indexed
    ]
    return tuple(sorted(candidates, key=_key))


def fs_stats_to_measure(signal: Signal, filesystems: NodeFilesystems) -> frozenset[FsStatsType]:
    """The data of a pod that the kubelet counts on the signal's file system.

    Follows: v1.36, eviction/helpers.go, buildSignalToRankFunc.

    >>> sorted(fs_stats_to_measure(Signal.NODEFS_AVAILABLE, NodeFilesystems(dedicated_image_fs=True)))
    [<FsStatsType.LOGS: 'logs'>, <FsStatsType.VOLUMES: 'volumes'>]
    """
    is_image_fs = signal in _OF_IMAGES
    if filesystems.is_image_fs_split:
        # Read-only layers cannot be attributed to a pod.
        return frozenset() if is_image_fs else _ALL
    if filesystems.images_and_layers_share_fs:
        on_nodefs = signal in (Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE)
        return _ON_NODEFS if on_nodefs else _ON_IMAGEFS
    return _ALL


_ALL = frozenset(FsStatsType)
_ON_NODEFS = frozenset((FsStatsType.LOGS, FsStatsType.VOLUMES))
_ON_IMAGEFS = frozenset((FsStatsType.ROOTFS,))
_OF_IMAGES = (Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE)


def _key(candidate: EvictionCandidate) -> tuple[bool, bool, int, Amount, int]:
    return (
        candidate.has_stats,
        not candidate.exceeds_request,
        candidate.active_pod.priority,
        -candidate.excess,
        candidate.list_index,
    )


def _pid_key(candidate: EvictionCandidate) -> tuple[int, bool, int, int]:
    return candidate.active_pod.priority, candidate.has_stats, -candidate.usage, candidate.list_index


def _by_processes(active_pod: ActivePod, index: int, pod_stats: PodStats | None) -> EvictionCandidate:
    processes = (
        pod_stats.processes.process_count or 0
        if pod_stats is not None and pod_stats.processes is not None
        else 0
    )
    return EvictionCandidate(
        active_pod=active_pod,
        list_index=index,
        has_stats=pod_stats is not None,
        usage=processes,
        excess=processes,
    )


def _by_usage(
    active_pod: ActivePod,
    index: int,
    pod_stats: PodStats | None,
    resource: str,
    parts: frozenset[FsStatsType] | None,
) -> EvictionCandidate:
    """The candidate by its usage of memory, or of the disk with these kinds of data."""
    if pod_stats is None:
        return EvictionCandidate(active_pod=active_pod, list_index=index, has_stats=False)
    # Inodes cannot be requested; the kubelet looks them up nevertheless.
    request = active_pod.requests.get(resource, 0)
    if parts is None:
        usage = wrap_int64((pod_stats.memory.working_set_bytes or 0) if pod_stats.memory is not None else 0)
        excess = usage - request
    else:
        usage = disk_usage(active_pod, pod_stats, parts, inodes=resource == INODES)
        excess = usage - active_pod.requests.get(EPHEMERAL_STORAGE, 0)
    return EvictionCandidate(
        active_pod=active_pod,
        list_index=index,
        has_stats=True,
        usage=usage,
        request=request,
        exceeds_request=usage > request,
        excess=excess,
    )


def disk_usage(
    active_pod: ActivePod, pod_stats: PodStats, parts: frozenset[FsStatsType], *, inodes: bool
) -> int:
    """The pod's usage of the disk, in bytes or inodes.

    Follows: v1.36, eviction/helpers.go, podDiskUsage.
    """
    measure = disk_inodes if inodes else disk_bytes
    total = 0
    for container in pod_stats.containers:
        if FsStatsType.ROOTFS in parts:
            total += measure(container.rootfs)
        if FsStatsType.LOGS in parts:
            total += measure(container.logs)
    if FsStatsType.VOLUMES in parts and active_pod.local_volumes:
        # Of several entries with the same name the first counts.
        volumes = {volume.name: volume for volume in reversed(pod_stats.volumes)}
        total += sum(measure(volumes.get(name)) for name in active_pod.local_volumes)
    return total


def disk_bytes(fs: FsStats | None) -> int:
    """The bytes used; 0 if not observed."""
    return 0 if fs is None or fs.used_bytes is None else wrap_int64(fs.used_bytes)


def disk_inodes(fs: FsStats | None) -> int:
    """The inodes used; 0 if not observed."""
    return 0 if fs is None or fs.inodes_used is None else wrap_int64(fs.inodes_used)
