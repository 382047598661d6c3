"""Volumes of pods on this machine: made, shown, and removed without a trace."""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nodewright.core.environment import FileContent
from nodewright.world.beneath import make_beneath, open_beneath
from nodewright.world.errors import WorldError
from nodewright.world.mounts import mounted_below
from nodewright.world.volume_files import write_all

_KINDS = {
    "emptyDir": "empty-dir",
    "configMap": "configmap",
    "secret": "secret",
    "downwardAPI": "downward-api",
    "projected": "projected",
}
OF_OBJECTS = ("configMap", "secret", "downwardAPI", "projected")
_ALL_RIGHTS = 0o777


class VolumeError(Exception):
    """A volume cannot be as the pod wants it; the message is the kubelet's."""


class Mounts(Protocol):
    """Who may mount.

    Errors: WorldError.
    """

    def tmpfs(self, target: Path, size_bytes: int) -> None:
        """The directory is a file system in memory."""

    def pin(self, descriptor: int, target: Path) -> None:
        """The target shows what the descriptor stands for."""

    def unmount_below(self, directory: Path) -> None:
        """Nothing is mounted there any more."""


def volume_path(pod_directory: Path, volume: Mapping[str, Any]) -> Path:
    """Where a volume is on this machine.

    Errors: VolumeError for volumes of kinds that nobody here can make.
    """
    if volume.get("hostPath") is not None:
        return Path(volume["hostPath"].get("path") or "")
    for key, name in _KINDS.items():
        if volume.get(key) is not None:
            return pod_directory / "volumes" / f"kubernetes.io~{name}" / str(volume["name"])
    kinds = [key for key, told in volume.items() if key != "name" and told is not None]
    if not kinds:
        # A volume that says nothing is an empty directory.
        return pod_directory / "volumes" / "kubernetes.io~empty-dir" / str(volume["name"])
    raise VolumeError(f"volumes of kind {kinds[0]} cannot be had without a cluster")


class Volumes:
    """Makes volumes below ``root``, a directory a pod by its uid; ``mounts`` is None where nothing may be mounted."""

    def __init__(self, root: Path, mounts: Mounts | None) -> None:
        self._root, self._mounts = root, mounts

    def directory(self, uid: str) -> Path:
        """All that is kept for a pod."""
        return self._root / uid

    def empty(self, uid: str, volume: Mapping[str, Any], group: int | None, size_bytes: int) -> Path:
        """An empty directory, or what the pod's containers have put into it so far.

        Units:   size_bytes, at most, where it is in memory.
        Follows: v1.36, pkg/volume/emptydir/empty_dir.go, SetUpAt.
        Errors:  VolumeError, WorldError.
        """
        medium = (volume.get("emptyDir") or {}).get("medium") or ""
        if medium not in ("", "Memory"):
            raise VolumeError(f'unknown storage medium "{medium}"')
        place = volume_path(self.directory(uid), volume)
        is_new = not place.is_dir()
        _made(place)
        if medium == "Memory":
            self._mounting(f"emptyDir {volume['name']} in memory").tmpfs(place, size_bytes)
        if is_new or medium == "Memory":
            _owned(place, group)
        return place

    def of_files(
        self, uid: str, volume: Mapping[str, Any], files: Mapping[str, FileContent], group: int | None
    ) -> Path:
        """A directory with these files.

        Errors: WorldError.
        """
        place = volume_path(self.directory(uid), volume)
        _made(place, 0o755)
        try:
            write_all(place, files, group)
        except OSError as error:
            raise WorldError("write", str(place), error.strerror or str(error)) from None
        return place

    def of_host(self, volume: Mapping[str, Any]) -> Path:
        """A path of the machine, if it is what the pod says.

        Follows: v1.36, pkg/volume/hostpath/host_path.go, checkTypeInternal.
        Errors:  VolumeError, WorldError.
        """
        told = volume["hostPath"]
        place, kind = Path(told.get("path") or ""), told.get("type") or ""
        if kind and kind.removesuffix("OrCreate") not in _TYPES:
            raise VolumeError(f"{kind} is an invalid volume type")
        if kind.endswith("OrCreate") and not place.exists():
            _created(place, is_directory=kind.startswith("Directory"))
        kind = kind.removesuffix("OrCreate")
        if kind and not _is_of_type(place, kind):
            raise VolumeError(f"hostPath type check failed: {place} is not {_TYPES[kind]}")
        return place

    def below(self, uid: str, volume: Path, path: str, target: tuple[str, str, int]) -> Path:
        """What is at a path below a volume that containers may write to, safe from being swapped for a link.

        Where there is nothing a directory is made. ``target`` is the volume's name, the container's and the number of
        the mount. Nothing is mounted for paths in volumes that only we write to.

        Follows: v1.36, pkg/volume/util/subpath/subpath_linux.go, PrepareSafeSubpath and SafeMakeDir.
        Errors:  OSError where a link leads out of the volume; WorldError.
        """
        name, container, number = target
        try:
            descriptor = open_beneath(volume, path)
        except FileNotFoundError:
            make_beneath(volume, path)
            descriptor = open_beneath(volume, path)
        try:
            if volume.is_relative_to(self._root) and volume.parent.name != "kubernetes.io~empty-dir":
                return Path(f"/proc/self/fd/{descriptor}").readlink()
            place = self.directory(uid) / "volume-subpaths" / name / container / str(number)
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            _made(place if is_directory else place.parent, 0o750)
            if not is_directory:
                place.touch(0o640)
            self._mounting(f"subPath {path} of volume {name}").pin(descriptor, place)
        finally:
            os.close(descriptor)
        return place

    def remove(self, uid: str) -> None:
        """Nothing of the pod's volumes is left. What others mounted below keeps all where it is.

        Errors: WorldError.
        """
        place = self.directory(uid)
        if not place.is_dir():
            return
        if self._mounts is not None:
            self._mounts.unmount_below(place)
        left = mounted_below(place)
        if left:
            raise WorldError("remove", str(place), f"something is mounted at {left[0]}")
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise WorldError("remove", str(place), error.strerror or str(error)) from None

    def _mounting(self, what: str) -> Mounts:
        if self._mounts is None:
            raise VolumeError(f"{what} needs mounting, for which the agent has no rights")
        return self._mounts


def _made(place: Path, mode: int = _ALL_RIGHTS) -> None:
    """The directory is there, with these rights whatever the umask says."""
    try:
        if not place.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            place.chmod(mode)
    except OSError as error:
        raise WorldError("make", str(place), error.strerror or str(error)) from None


def _owned(place: Path, group: int | None) -> None:
    """The directory belongs to a group, and what is made in it will, too.

    Follows: v1.36, pkg/volume/volume_linux.go, ChangePermissions.
    """
    try:
        if group is not None:
            os.chown(place, -1, group)
        place.chmod(_ALL_RIGHTS | (stat.S_ISGID if group is not None else 0))
    except OSError as error:
        raise WorldError("change the owner of", str(place), error.strerror or str(error)) from None


_TYPES = {
    "Directory": "a directory",
    "File": "a file",
    "Socket": "a socket file",
    "CharDevice": "a character device",
    "BlockDevice": "a block device",
}
_IS = {
    "Directory": Path.is_dir,
    "File": Path.is_file,
    "Socket": Path.is_socket,
    "CharDevice": Path.is_char_device,
    "BlockDevice": Path.is_block_device,
}


def _is_of_type(place: Path, kind: str) -> bool:
    try:
        return _IS[kind](place)
    except OSError:
        return False


def _created(place: Path, *, is_directory: bool) -> None:
    try:
        if is_directory:
            place.mkdir(0o755, parents=True)
        else:
            place.touch(0o644)
    except OSError as error:
        raise WorldError("make", str(place), error.strerror or str(error)) from None
