"""Sets up the volumes of pods, and keeps the files of objects in them as the objects are."""

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nodewright.agent.host.volumes import (
    OBJECT_VOLUME_TYPES,
    VolumeError,
    Volumes,
    volume_path,
    volume_plugin,
)
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.rules.value_sources import NodeVolume, ReferenceSources, UnresolvedReference
from nodewright.agent.rules.volume_payload import volume_payload
from nodewright.agent.state.observations import MOUNT_ERROR
from nodewright.documents.files.openat2 import path_beneath
from nodewright.engine.core.requests.effective_resources import pod_limits
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.values.quantity import ZERO, Quantity

_DIRECTORY_MODE, _FILE_MODE = stat.S_ISGID | 0o770, 0o660
_CLAIMS = ("persistentVolumeClaim", "ephemeral")


class VolumeSetup:
    """The volumes of pods on this machine; ``sources`` gives what a pod's references resolve to."""

    def __init__(self, volumes: Volumes, sources: Callable[[Pod], ReferenceSources]) -> None:
        self.volumes, self._sources = volumes, sources
        self.on_operation: Callable[[str, str, float, bool], None] = _ignore
        """Gets the plugin, the name and the duration of each operation, and whether it failed."""

    def set_up(self, pod: Pod, volume: Mapping[str, Any]) -> tuple[Path, bool]:
        """The path of a volume, set up if it does not exist, and whether it can only be read.

        Errors: ContainerConfigError; HostError.
        """
        try:
            if any(volume.get(kind) is not None for kind in _CLAIMS):
                return self._set_up_claim(pod, volume)
            if volume.get("hostPath") is not None:
                return self.volumes.host_path(volume), False
            if is_object_volume(volume):
                return self._set_up_objects(pod, volume), True
            # A volume of an unknown kind fails here, before its size is read.
            volume_path(self.volumes.pod_directory(pod.uid), volume)
            size = tmpfs_size_bytes(pod, volume, self._sources(pod).allocatable)
            return self.volumes.set_up_empty_dir(pod.uid, volume, _fs_group(pod), size), False
        except VolumeError as error:
            name = volume.get("name") or ""
            message = f'MountVolume.SetUp failed for volume "{name}" : {error}'
            raise ContainerConfigError(message, MOUNT_ERROR) from None

    async def prepare(self, pod: Pod, volume: Mapping[str, Any]) -> None:
        """Sets up a volume; the files of a local volume get the pod's group, once.

        Follows: v1.36, pkg/volume/local/local.go, SetUpAt.
        Errors:  ContainerConfigError; HostError.
        """
        with self._timed("volume_mount", pod, [volume]):
            self.set_up(pod, volume)
            await self._set_group_of_local_volume(pod, volume)

    def remove(self, pod: Pod) -> None:
        """Removes all volumes of a pod.

        Errors: HostError.
        """
        with self._timed("volume_unmount", pod, mounted_volumes(pod)):
            self.volumes.remove(pod.uid)

    def plugin(self, pod: Pod, volume: Mapping[str, Any]) -> str:
        """The plugin of a volume, with the kubelet's name; empty: none."""
        if not any(volume.get(kind) is not None for kind in _CLAIMS):
            return volume_plugin(volume)
        claimed = self._sources(pod).volumes.get(str(volume.get("name") or ""))
        if not isinstance(claimed, NodeVolume):
            return ""
        return f"kubernetes.io/{'local-volume' if claimed.has_group else 'host-path'}"

    @contextmanager
    def _timed(self, operation: str, pod: Pod, volumes: Iterable[Mapping[str, Any]]) -> Iterator[None]:
        """Times an operation for each of these volumes, which it is done for together."""
        started_s, has_failed = time.monotonic(), True
        try:
            yield
            has_failed = False
        finally:
            duration_s = time.monotonic() - started_s
            for volume in volumes:
                self.on_operation(self.plugin(pod, volume), operation, duration_s, has_failed)

    async def _set_group_of_local_volume(self, pod: Pod, volume: Mapping[str, Any]) -> None:
        name, group = str(volume.get("name") or ""), _fs_group(pod)
        claimed = self._sources(pod).volumes.get(name)
        if (
            group is None
            or not isinstance(claimed, NodeVolume)
            or claimed.is_read_only
            or not claimed.has_group
        ):
            return
        # The kubelet's mount point: that it exists shows that the group is set.
        marker = path_beneath(
            self.volumes.pod_directory(pod.uid), "volumes", "kubernetes.io~local-volume", name
        )
        if marker.exists():
            return
        context = pod.spec.security_context
        is_careful = context is not None and context.fs_group_change_policy == "OnRootMismatch"
        if not (is_careful and _has_group(Path(claimed.path), group)):
            # A volume may have very many files.
            await asyncio.to_thread(set_group_of_files, Path(claimed.path), group)
        self.volumes.make_directory(marker, 0o750)

    def _set_up_claim(self, pod: Pod, volume: Mapping[str, Any]) -> tuple[Path, bool]:
        """The directory that a claim is bound to, and whether it can only be read.

        Errors: VolumeError, HostError.
        """
        name = str(volume.get("name") or "")
        claimed = self._sources(pod).volumes.get(name)
        if claimed is None:
            kind = next(kind for kind in _CLAIMS if volume.get(kind) is not None)
            raise VolumeError(f"{kind} needs an API server, and there is none")
        if isinstance(claimed, UnresolvedReference):
            raise VolumeError(claimed.message)
        source = {"path": claimed.path, "type": claimed.path_type}
        return self.volumes.host_path({"name": name, "hostPath": source}), claimed.is_read_only

    def _set_up_objects(self, pod: Pod, volume: Mapping[str, Any]) -> Path:
        files = volume_payload(volume, pod, self._sources(pod))
        if isinstance(files, UnresolvedReference):
            raise VolumeError(files.message)
        return self.volumes.set_up_files(pod.uid, volume, files, _fs_group(pod))

    async def refresh(self, pods: Iterable[Pod]) -> None:
        """Updates the files in volumes that come from objects.

        Errors: HostError, the first, after all others have been refreshed.
        """
        errors: list[HostError] = []
        for pod in pods:
            for volume in pod.spec.volumes:
                if not is_object_volume(volume):
                    continue
                try:
                    if volume_path(self.volumes.pod_directory(pod.uid), volume).is_dir():
                        self._set_up_objects(pod, volume)
                except VolumeError:
                    # A missing object leaves the volume as it is.
                    continue
                except HostError as error:
                    errors.append(error)
        if errors:
            raise errors[0]


def _ignore(_plugin: str, _operation: str, _duration_s: float, _has_failed: bool) -> None:  # noqa: FBT001 - a callback
    """What happens to operations that nobody counts."""


def volumes_by_name(pod: Pod) -> dict[str, dict[str, Any]]:
    """The volumes of a pod; of several with one name the last."""
    return {str(volume.get("name") or ""): volume for volume in pod.spec.volumes}


def mounted_volumes(pod: Pod) -> list[Mapping[str, Any]]:
    """The volumes that containers of the pod mount; others are not set up."""
    mounted = {
        str(entry.get("name") or "") for each in pod.spec.all_containers for entry in each.volume_mounts
    }
    return [volume for name, volume in volumes_by_name(pod).items() if name in mounted]


def set_group_of_files(root: Path, group: int) -> None:
    """Makes all files below a directory readable and writable for a group, and new files the group's.

    Follows: v1.36, pkg/volume/volume_linux.go, changeFilePermission; errors of single files are ignored as there.
    """
    for _, _, files, directory in os.fwalk(root, follow_symlinks=False):
        with suppress(OSError):
            _set_group(directory, group)
        for name in files:
            with suppress(OSError):
                os.chown(name, -1, group, dir_fd=directory, follow_symlinks=False)
                # A link could lead out of the volume.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(name, flags, dir_fd=directory)
                try:
                    _set_group(descriptor, group)
                finally:
                    os.close(descriptor)


def _set_group(descriptor: int, group: int) -> None:
    os.fchown(descriptor, -1, group)
    mode = os.fstat(descriptor).st_mode
    added = _DIRECTORY_MODE if stat.S_ISDIR(mode) else _FILE_MODE
    os.fchmod(descriptor, stat.S_IMODE(mode) | added)


def _has_group(root: Path, group: int) -> bool:
    status = root.stat()
    return status.st_gid == group and status.st_mode & _DIRECTORY_MODE == _DIRECTORY_MODE


def is_object_volume(volume: Mapping[str, Any]) -> bool:
    """Whether a volume shows objects: its files are read-only."""
    return any(volume.get(kind) is not None for kind in OBJECT_VOLUME_TYPES)


def tmpfs_size_bytes(pod: Pod, volume: Mapping[str, Any], allocatable: ResourceList) -> int:
    """The size of an emptyDir in memory: the smaller of the pod's memory limit and the volume's sizeLimit.

    Follows: v1.36, pkg/volume/emptydir/empty_dir.go, calculateEmptyDirMemorySize.
    """
    size = allocatable.get("memory", ZERO).value()
    own = str((volume.get("emptyDir") or {}).get("sizeLimit") or "0")
    for limit in (_memory_limit(pod), Quantity.parse(own).value()):
        if limit > 0 and (limit <= size or not size):
            size = limit
    return size


def _memory_limit(pod: Pod) -> int:
    """The pod's memory limit in bytes; 0: none."""
    pod_limit = pod.spec.resources.limits.get("memory") if pod.spec.resources is not None else None
    if pod_limit is not None:
        return pod_limit.value()
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    limits = [container.resources.limits.get("memory", ZERO).value() for container in containers]
    if not all(limits):
        return 0
    return pod_limits(pod).get("memory", ZERO).value()


def _fs_group(pod: Pod) -> int | None:
    return pod.spec.security_context.fs_group if pod.spec.security_context is not None else None
