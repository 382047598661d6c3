"""Who goes first when something runs short? Every pod with the keys that it is sorted by."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.core.eviction.claims import Amount, Claim
from nodewright.core.eviction.rules import Filesystems
from nodewright.model.pressure import RESOURCES
from nodewright.model.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS
from nodewright.model.thresholds import Signal
from nodewright.model.usage import FilesystemUse, PodUse, Usage
from nodewright.values.units import wrap_int64

Stats: TypeAlias = Mapping[str, PodUse]
"""What pods use, by uid."""


class Part(StrEnum):
    """What a pod may have on a disk."""

    ROOTFS = "rootfs"
    LOGS = "logs"
    VOLUMES = "volumes"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod with all that its rank depends on.

    Units: bytes, or pieces of inodes and processes.
    """

    claim: Claim
    place: int
    """In the list of active pods: the last key, so that there are no ties."""
    has_stats: bool
    usage: int = 0
    """What it uses of what runs short; 0 where nothing is known."""
    request: Amount | None = None
    """What the use is compared with; None: nothing is, as for processes."""
    exceeds: bool = False
    """Whether it uses more than its request."""
    over: Amount = 0
    """The last key but one: use less request; of inodes, less the ephemeral storage requested in bytes."""


def stats_by_uid(usage: Usage) -> dict[str, PodUse]:
    """What each pod uses; where a reading has a pod twice, the later entry counts."""
    return {one.pod_ref.uid: one for one in usage.pods}


def ranking(
    signal: Signal, filesystems: Filesystems, claims: Sequence[Claim], stats: Stats
) -> tuple[Candidate, ...]:
    """The pods in the order in which they are ended while the signal is too low, critical ones among them.

    Memory and disk: pods without stats, then those above their request, then the others; among them the lower
    priority; then the one that is further over. Processes: the lower priority, pods without stats, more processes.
    The class of service plays no part.

    Follows: v1.36, eviction/helpers.go, buildSignalToRankFunc, rankMemoryPressure, rankPIDPressure,
        rankDiskPressureFunc.
    Departs: pods that are equal in all of this go in the order of the list; the kubelet's list is in random
        order, and its sorting is not stable from 13 pods on. Counts of processes beyond 63 bits are compared
        as they are, where the kubelet's difference wraps around and gives no order at all.
    """
    resource = RESOURCES[signal]
    if resource == PIDS:
        found = [_by_processes(claim, place, stats.get(claim.uid)) for place, claim in enumerate(claims)]
        found.sort(key=_key_by_number)
    elif resource == MEMORY:
        found = [_by_memory(claim, place, stats.get(claim.uid)) for place, claim in enumerate(claims)]
        found.sort(key=_key)
    else:
        parts = parts_that_count(signal, filesystems)
        found = [
            _by_disk(claim, place, stats.get(claim.uid), resource, parts)
            for place, claim in enumerate(claims)
        ]
        found.sort(key=_key)
    return tuple(found)


def parts_that_count(signal: Signal, filesystems: Filesystems) -> frozenset[Part]:
    """What of a pod lies on the file system that the signal is about, as far as the kubelet goes by.

    Follows: v1.36, eviction/helpers.go, buildSignalToRankFunc.

    >>> sorted(parts_that_count(Signal.NODEFS_AVAILABLE, Filesystems(dedicated_image_fs=True)))
    [<Part.LOGS: 'logs'>, <Part.VOLUMES: 'volumes'>]
    """
    is_image_fs = signal in _OF_IMAGES
    if filesystems.are_split:
        # Of layers that are not written nobody knows whose they are.
        return frozenset() if is_image_fs else _ALL
    if filesystems.keep_images_and_layers_apart:
        on_nodefs = signal in (Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE)
        return _ON_NODEFS if on_nodefs else _ON_IMAGEFS
    return _ALL


_ALL = frozenset(Part)
_ON_NODEFS = frozenset((Part.LOGS, Part.VOLUMES))
_ON_IMAGEFS = frozenset((Part.ROOTFS,))
_OF_IMAGES = (Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE)


def _key(one: Candidate) -> tuple[bool, bool, int, Amount, int]:
    return one.has_stats, not one.exceeds, one.claim.priority, -one.over, one.place


def _key_by_number(one: Candidate) -> tuple[int, bool, int, int]:
    return one.claim.priority, one.has_stats, -one.usage, one.place


def _by_memory(claim: Claim, place: int, use: PodUse | None) -> Candidate:
    if use is None:
        return Candidate(claim=claim, place=place, has_stats=False)
    request = claim.requests.get(MEMORY, 0)
    usage = wrap_int64((use.memory.working_set_bytes or 0) if use.memory is not None else 0)
    return Candidate(
        claim=claim,
        place=place,
        has_stats=True,
        usage=usage,
        request=request,
        exceeds=usage > request,
        over=usage - request,
    )


def _by_processes(claim: Claim, place: int, use: PodUse | None) -> Candidate:
    processes = use.processes.process_count or 0 if use is not None and use.processes is not None else 0
    return Candidate(claim=claim, place=place, has_stats=use is not None, usage=processes, over=processes)


def _by_disk(
    claim: Claim, place: int, use: PodUse | None, resource: str, parts: frozenset[Part]
) -> Candidate:
    if use is None:
        return Candidate(claim=claim, place=place, has_stats=False)
    # Nobody can request inodes; the kubelet asks all the same.
    request = claim.requests.get(resource, 0)
    usage = disk_usage(claim, use, parts, inodes=resource == INODES)
    return Candidate(
        claim=claim,
        place=place,
        has_stats=True,
        usage=usage,
        request=request,
        exceeds=usage > request,
        over=usage - claim.requests.get(EPHEMERAL_STORAGE, 0),
    )


def disk_usage(claim: Claim, use: PodUse, parts: frozenset[Part], *, inodes: bool) -> int:
    """What the pod has on the disk, in bytes or inodes.

    Follows: v1.36, eviction/helpers.go, podDiskUsage.
    """
    held = disk_inodes if inodes else disk_bytes
    total = 0
    for container in use.containers:
        if Part.ROOTFS in parts:
            total += held(container.rootfs)
        if Part.LOGS in parts:
            total += held(container.logs)
    if Part.VOLUMES in parts and claim.local_volumes:
        # Of several entries of a name the first counts.
        volumes = {volume.name: volume for volume in reversed(use.volumes)}
        total += sum(held(volumes.get(name)) for name in claim.local_volumes)
    return total


def disk_bytes(fs: FilesystemUse | None) -> int:
    """The bytes used there; 0 where that was not observed."""
    return 0 if fs is None or fs.used_bytes is None else wrap_int64(fs.used_bytes)


def disk_inodes(fs: FilesystemUse | None) -> int:
    """The inodes used there; 0 where that was not observed."""
    return 0 if fs is None or fs.inodes_used is None else wrap_int64(fs.inodes_used)
