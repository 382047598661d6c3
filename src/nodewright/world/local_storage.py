"""What pods hold on the disks of this machine: their files are counted, as `du` does."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from nodewright.model.objects import Pod
from nodewright.model.usage import ContainerUse, FilesystemUse, PodReference, PodUse, VolumeUse
from nodewright.values.instant import Instant

BLOCK_BYTES = 512


class PodPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod's files are; what is not there counts as empty."""

    volumes: Mapping[str, Path] = {}
    """Of its local volumes, by name."""
    logs: Mapping[str, Path] = {}
    """Of its containers, by name."""
    layers: Mapping[str, Path] = {}
    """Writable layers of its containers, by name."""


class DiskStorage:
    """Fulfils the port `LocalStorage`; ``places`` says where the files of a pod are."""

    def __init__(self, places: Callable[[Pod], PodPlaces]) -> None:
        self._places = places

    def of(self, pod: Pod) -> PodUse:
        """The pod's local volumes, and the logs and writable layers of its containers.

        Follows: v1.36, pkg/kubelet/stats/helper.go, calcEphemeralStorage.
        """
        places = self._places(pod)
        at = Instant(time.monotonic_ns())
        volumes = {name: tree_use(place) for name, place in places.volumes.items()}
        logs = {name: tree_use(place) for name, place in places.logs.items()}
        layers = {name: tree_use(place) for name, place in places.layers.items()}
        every = (*volumes.values(), *logs.values(), *layers.values())
        names = dict.fromkeys((*logs, *layers))
        return PodUse(
            pod_ref=PodReference(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.uid),
            volumes=tuple(
                VolumeUse(time=at, name=name, used_bytes=one[0], inodes_used=one[1])
                for name, one in volumes.items()
            ),
            containers=tuple(
                ContainerUse(name=name, logs=_use(logs.get(name), at), rootfs=_use(layers.get(name), at))
                for name in names
            ),
            ephemeral_storage=_use((sum(one[0] for one in every), sum(one[1] for one in every)), at),
        )


def tree_use(place: Path) -> tuple[int, int]:
    """The bytes on the disk and the files at a place and below it; links count once, other disks do not.

    What vanishes meanwhile is not counted.

    Follows: v1.36, cadvisor, fs/fs.go, GetDirUsage.
    """
    try:
        root = os.lstat(place)
    except OSError:
        return 0, 0
    used, seen, waiting = root.st_blocks, {root.st_ino}, [str(place)]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if found.st_dev != root.st_dev or found.st_ino in seen:
                    continue
                seen.add(found.st_ino)
                used += found.st_blocks
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return used * BLOCK_BYTES, len(seen)


def _use(found: tuple[int, int] | None, at: Instant) -> FilesystemUse | None:
    return None if found is None else FilesystemUse(time=at, used_bytes=found[0], inodes_used=found[1])
