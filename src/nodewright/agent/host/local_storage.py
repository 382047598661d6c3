"""Measures the disk usage of pods on this machine, as `du` does."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    PodReference,
    PodStats,
    VolumeStats,
)
from nodewright.model.values.instant import Instant

BLOCK_BYTES = 512


class PodDirectories(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of a pod's files; missing directories count as empty."""

    volumes: Mapping[str, Path] = {}
    """Local volumes, by name."""
    logs: Mapping[str, Path] = {}
    """Container logs, by container name."""
    writable_layers: Mapping[str, Path] = {}
    """Writable layers, by container name."""


class DiskStorageStats:
    """Fulfils the port `EphemeralStorageStats`; ``directories`` is the function that locates a pod's files."""

    def __init__(self, directories: Callable[[Pod], PodDirectories]) -> None:
        self._directories = directories

    def pod_usage(self, pod: Pod) -> PodStats:
        """The usage of the pod's local volumes, and of its containers' logs and writable layers.

        Follows: v1.36, pkg/kubelet/stats/helper.go, calcEphemeralStorage.
        """
        directories = self._directories(pod)
        at = Instant(time.monotonic_ns())
        volumes = {name: directory_usage(path) for name, path in directories.volumes.items()}
        logs = {name: directory_usage(path) for name, path in directories.logs.items()}
        layers = {name: directory_usage(path) for name, path in directories.writable_layers.items()}
        usages = (*volumes.values(), *logs.values(), *layers.values())
        total = (sum(used_bytes for used_bytes, _ in usages), sum(inodes for _, inodes in usages))
        return PodStats(
            pod_ref=PodReference(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.uid),
            volumes=tuple(
                VolumeStats(time=at, name=name, used_bytes=used_bytes, inodes_used=inodes)
                for name, (used_bytes, inodes) in volumes.items()
            ),
            containers=tuple(
                ContainerStats(
                    name=name, logs=_fs_stats(logs.get(name), at), rootfs=_fs_stats(layers.get(name), at)
                )
                for name in dict.fromkeys((*logs, *layers))
            ),
            ephemeral_storage=_fs_stats(total, at),
        )


def directory_usage(path: Path) -> tuple[int, int]:
    """Bytes and inodes that a directory uses; hard links count once, other file systems do not count.

    Files that are removed during the measurement are not counted.

    Follows: v1.36, cadvisor, fs/fs.go, GetDirUsage.
    """
    try:
        root = os.lstat(path)
    except OSError:
        return 0, 0
    used, inodes, pending = root.st_blocks, {root.st_ino}, [str(path)]
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_dev != root.st_dev or status.st_ino in inodes:
                    continue
                inodes.add(status.st_ino)
                used += status.st_blocks
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return used * BLOCK_BYTES, len(inodes)


def _fs_stats(usage: tuple[int, int] | None, at: Instant) -> FsStats | None:
    return None if usage is None else FsStats(time=at, used_bytes=usage[0], inodes_used=usage[1])
