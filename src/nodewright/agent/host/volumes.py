"""Sets up and removes the volumes of pods on this machine, and mounts tmpfs and pinned paths for them.

The files of a volume are replaced atomically: a reader sees either all old files or all new ones. Mounting needs
CAP_SYS_ADMIN and happens in the agent's mount namespace.
"""

import ctypes
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.rules.volume_payload import FileContent
from nodewright.documents.files.openat2 import (
    c_library,
    directory_beneath,
    mkdir_beneath,
    open_beneath,
    path_beneath,
    write_beneath,
)
from nodewright.documents.files.root_directory import CLOSED, PASS_THROUGH, admit_users
from nodewright.model.errors import HostError
from nodewright.model.values.path_component import path_component_fault

_DATA_LINK, _NEW_DATA_LINK = "..data", "..data_tmp"


def write_volume_files(directory: Path, files: Mapping[str, FileContent], group: int | None = None) -> bool:
    """Writes exactly these files into the directory; returns whether anything had changed.

    A link `..data` points to a directory with one version of the files, and the visible names point through it.

    Follows: v1.36, pkg/volume/util/atomic_writer.go, Write.
    Errors:  OSError.
    """
    files = {path: _with_group_access(content, group) for path, content in files.items()}
    old_version = _current_version(directory)
    must_write = old_version is None or not _has_content(old_version, files)
    if must_write:
        new_version = Path(tempfile.mkdtemp(prefix="..", dir=directory))
        try:
            new_version.chmod(0o755)
            for path, content in files.items():
                write_beneath(new_version, path, content.data, content.mode, (content.owner, group))
            _replace_link(directory / _DATA_LINK, new_version.name)
        except BaseException:
            # It is tried again, with another directory.
            shutil.rmtree(new_version, ignore_errors=True)
            raise
    top_names = {path.partition("/")[0] for path in files}
    for name in sorted(top_names):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{_DATA_LINK}/{name}")
    for entry in list(directory.iterdir()):
        if not entry.name.startswith("..") and entry.name not in top_names:
            entry.unlink()
    current = _current_version(directory)
    for entry in list(directory.glob("..*")):
        if entry.is_dir() and not entry.is_symlink() and entry != current:
            shutil.rmtree(entry)
    return must_write


def _with_group_access(content: FileContent, group: int | None) -> FileContent:
    """The file, readable for the group if the volume has one."""
    if group is None:
        return content
    return content._replace(mode=content.mode | (content.mode & 0o400) >> 3)


def _current_version(directory: Path) -> Path | None:
    """The directory of the current version; None if there is none, or if the link was changed to lead elsewhere."""
    try:
        version = (directory / _DATA_LINK).readlink()
    except FileNotFoundError:
        return None
    is_own = len(version.parts) == 1 and version.name and not (directory / version).is_symlink()
    return directory / version if is_own else None


def _has_content(version: Path, files: Mapping[str, FileContent]) -> bool:
    """Whether a version has exactly these files; an owner that is not given may be any."""
    paths = {str(path.relative_to(version)): path for path in version.rglob("*") if path.is_file()}
    return paths.keys() == files.keys() and all(_is_same(paths[path], files[path]) for path in files)


def _is_same(path: Path, content: FileContent) -> bool:
    status = path.stat()
    has_owner = content.owner in (None, status.st_uid)
    return has_owner and status.st_mode & 0o7777 == content.mode and path.read_bytes() == content.data


def _replace_link(link: Path, target: str) -> None:
    """Points the link to the target atomically."""
    new_link = link.with_name(_NEW_DATA_LINK)
    new_link.unlink(missing_ok=True)
    new_link.symlink_to(target)
    new_link.replace(link)


_PLUGIN_NAMES = {
    "emptyDir": "empty-dir",
    "configMap": "configmap",
    "secret": "secret",
    "downwardAPI": "downward-api",
    "projected": "projected",
}
OBJECT_VOLUME_TYPES = ("configMap", "secret", "downwardAPI", "projected")
MEMORY_VOLUME_TYPES = ("secret", "downwardAPI", "projected")
"""Volumes whose files are never on a disk, where mounting is permitted.

Follows: v1.36, pkg/volume/{secret,downwardapi,projected}, wrappedVolumeSpec.
"""
_MEMORY_VOLUME_BYTES = 256 << 20
_DIRECTORY_MODE = 0o777


class VolumeError(Exception):
    """A volume cannot be set up as specified; the message is the kubelet's."""


class Mounter(Protocol):
    """Mounts file systems.

    Errors: HostError.
    """

    def mount_tmpfs(self, target: Path, size_bytes: int) -> None:
        """Mounts a tmpfs at the directory."""

    def bind_mount(self, descriptor: int, target: Path) -> None:
        """Mounts the descriptor's file at the target."""

    def unmount_below(self, directory: Path) -> None:
        """Unmounts everything at the directory and below it."""


def volume_path(pod_directory: Path, volume: Mapping[str, Any]) -> Path:
    """The path of a volume on this machine.

    Errors: VolumeError for unsupported volume types, and for names that are no names of directories.
    """
    if volume.get("hostPath") is not None:
        return Path(volume["hostPath"].get("path") or "")
    types = [key for key, source in volume.items() if key != "name" and source is not None]
    # A volume without a source is an emptyDir.
    plugin = next((name for key, name in _PLUGIN_NAMES.items() if key in types), "" if types else "empty-dir")
    if not plugin:
        raise VolumeError(f"volumes of type {types[0]} are not supported")
    try:
        return path_beneath(
            pod_directory, "volumes", f"kubernetes.io~{plugin}", str(volume.get("name") or "")
        )
    except HostError as error:
        raise VolumeError(error.error) from None


def volume_plugin(volume: Mapping[str, Any]) -> str:
    """The plugin of a volume, with the kubelet's name; empty: none of ours.

    >>> volume_plugin({"name": "a", "configMap": {}}), volume_plugin({"name": "b"}), volume_plugin({"name": "c", "nfs": {}})
    ('kubernetes.io/configmap', 'kubernetes.io/empty-dir', '')
    """
    types = [key for key, source in volume.items() if key != "name" and source is not None] or ["emptyDir"]
    names = {**_PLUGIN_NAMES, "hostPath": "host-path"}
    return next((f"kubernetes.io/{names[key]}" for key in types if key in names), "")


class Volumes:
    """Sets up volumes below ``root``, in one directory a pod; ``mounter`` is None if mounting is not permitted."""

    def __init__(self, root: Path, mounter: Mounter | None) -> None:
        self._root, self._mounter = root, mounter

    def pod_directory(self, uid: str) -> Path:
        """The directory of a pod's volumes.

        Errors: HostError for a uid that is no name of a directory.
        """
        return path_beneath(self._root, uid)

    def admit_users(self, uid: str, users: Iterable[int]) -> None:
        """Creates the pod's directory if needed; only root and these users can reach what is in it.

        Errors: HostError.
        """
        path = self.pod_directory(uid)
        self.make_directory(path, CLOSED)
        with host_errors("give containers of other users access to", path):
            admit_users(path, users)

    def set_up_empty_dir(
        self, uid: str, volume: Mapping[str, Any], group: int | None, size_bytes: int
    ) -> Path:
        """Creates an emptyDir, or keeps the existing one with its content; returns its path.

        Units:   size_bytes, the maximum size with medium Memory.
        Follows: v1.36, pkg/volume/emptydir/empty_dir.go, SetUpAt.
        Errors:  VolumeError, HostError.
        """
        medium = (volume.get("emptyDir") or {}).get("medium") or ""
        if medium not in ("", "Memory"):
            raise VolumeError(f'unknown storage medium "{medium}"')
        path = volume_path(self.pod_directory(uid), volume)
        is_new = not path.is_dir()
        self.make_directory(path, _DIRECTORY_MODE)
        if medium == "Memory":
            self._required_mounter(f"emptyDir {path.name} in memory").mount_tmpfs(path, size_bytes)
        if is_new or medium == "Memory":
            _set_group(path, group)
        return path

    def set_up_files(
        self, uid: str, volume: Mapping[str, Any], files: Mapping[str, FileContent], group: int | None
    ) -> Path:
        """Sets up a directory with these files, secret ones in memory; returns its path.

        Errors: HostError.
        """
        path = volume_path(self.pod_directory(uid), volume)
        self.make_directory(path, 0o755)
        is_secret = any(volume.get(kind) is not None for kind in MEMORY_VOLUME_TYPES)
        if is_secret and self._mounter is not None and not (path / _DATA_LINK).is_symlink():
            self._mounter.mount_tmpfs(path, _MEMORY_VOLUME_BYTES)
        try:
            with directory_beneath(self._root, str(path.relative_to(self._root))) as directory:
                write_volume_files(directory, files, group)
        except (OSError, ValueError, OverflowError) as error:
            raise HostError("write", str(path), _error_text(error)) from None
        return path

    def host_path(self, volume: Mapping[str, Any]) -> Path:
        """The path of a hostPath volume, checked against its type and created if the type requires it.

        Follows: v1.36, pkg/volume/hostpath/host_path.go, checkTypeInternal.
        Errors:  VolumeError, HostError.
        """
        source = volume["hostPath"]
        path, path_type = Path(source.get("path") or ""), source.get("type") or ""
        if "\0" in str(path):
            raise VolumeError("the path contains a NUL character")
        if path_type and path_type.removesuffix("OrCreate") not in _PATH_TYPES:
            raise VolumeError(f"{path_type} is an invalid volume type")
        if path_type.endswith("OrCreate") and not path.exists():
            _create(path, is_directory=path_type.startswith("Directory"))
        path_type = path_type.removesuffix("OrCreate")
        if path_type and not _is_of_type(path, path_type):
            raise VolumeError(f"hostPath type check failed: {path} is not {_PATH_TYPES[path_type][1]}")
        return path

    def prepare_subpath(self, uid: str, volume: Path, path: str, target: tuple[str, str, int]) -> Path:
        """The path to mount for a subPath, safe against containers that replace it by a link.

        Creates a directory if nothing exists at the path. ``target`` is the volume's name, the container's name and
        the index of the mount. Volumes that only the agent writes to need no bind mount.

        Follows: v1.36, pkg/volume/util/subpath/subpath_linux.go, PrepareSafeSubpath and SafeMakeDir.
        Errors:  OSError if a link points out of the volume; HostError.
        """
        name, container, index = target
        try:
            descriptor = open_beneath(volume, path)
        except FileNotFoundError:
            mkdir_beneath(volume, path)
            descriptor = open_beneath(volume, path)
        try:
            if volume.is_relative_to(self._root) and volume.parent.name != "kubernetes.io~empty-dir":
                return Path(f"/proc/self/fd/{descriptor}").readlink()
            bind_target = path_beneath(
                self.pod_directory(uid), "volume-subpaths", name, container, str(index)
            )
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.make_directory(bind_target if is_directory else bind_target.parent, 0o750)
            if not is_directory:
                bind_target.touch(0o640)
            self._required_mounter(f"subPath {path} of volume {name}").bind_mount(descriptor, bind_target)
        finally:
            os.close(descriptor)
        return bind_target

    def remove(self, uid: str) -> None:
        """Removes the pod's volumes; keeps everything if foreign mounts exist below them.

        Errors: HostError.
        """
        if path_component_fault(uid):
            # Nothing was ever created under this name.
            return
        directory = self.pod_directory(uid)
        if not directory.is_dir():
            return
        if self._mounter is not None:
            self._mounter.unmount_below(directory)
        mount_points = mount_points_below(directory)
        if mount_points:
            raise HostError("remove", str(directory), f"something is mounted at {mount_points[0]}")
        with host_errors("remove", directory):
            shutil.rmtree(directory)

    def make_directory(self, path: Path, mode: int) -> None:
        """Creates a directory below the root if needed, with this mode regardless of the umask.

        Errors: HostError.
        """
        relative = path.relative_to(self._root)
        try:
            self._root.mkdir(PASS_THROUGH, parents=True, exist_ok=True)
            mkdir_beneath(self._root, relative.parts[0], CLOSED)
            mkdir_beneath(self._root, str(relative.parent), 0o755)
            mkdir_beneath(self._root, str(relative), mode)
        except (OSError, ValueError) as error:
            raise HostError("make", str(path), _error_text(error)) from None

    def _required_mounter(self, what: str) -> Mounter:
        if self._mounter is None:
            raise VolumeError(f"{what} needs a mount, which the agent is not permitted to make")
        return self._mounter


def _error_text(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _set_group(path: Path, group: int | None) -> None:
    """Sets the group of the directory, and of files that will be created in it; a sticky directory stays sticky.

    Follows: v1.36, pkg/volume/volume_linux.go, changeFilePermission.
    """
    try:
        if group is not None:
            os.chown(path, -1, group)
        sticky = path.stat().st_mode & stat.S_ISVTX
        path.chmod(_DIRECTORY_MODE | sticky | (stat.S_ISGID if group is not None else 0))
    except (OSError, OverflowError) as error:
        raise HostError("change the owner of", str(path), _error_text(error)) from None


_PATH_TYPES = {
    "Directory": (Path.is_dir, "a directory"),
    "File": (Path.is_file, "a file"),
    "Socket": (Path.is_socket, "a socket file"),
    "CharDevice": (Path.is_char_device, "a character device"),
    "BlockDevice": (Path.is_block_device, "a block device"),
}


def _is_of_type(path: Path, path_type: str) -> bool:
    try:
        return _PATH_TYPES[path_type][0](path)
    except OSError:
        return False


def _create(path: Path, *, is_directory: bool) -> None:
    with host_errors("make", path):
        if is_directory:
            path.mkdir(0o755, parents=True)
        else:
            path.touch(0o644)


# ---------------------------------------------------------------- mounts


_NOSUID_NODEV, _BIND, _DETACH, _NOFOLLOW = 0x2 | 0x4, 0x1000, 0x2, 0x8
_ESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class KernelMounter:
    """Fulfils the protocol `Mounter` with mount(2)."""

    def mount_tmpfs(self, target: Path, size_bytes: int) -> None:
        """Mounts a tmpfs at the directory, sticky and open to all; not an error if something is mounted there already.

        Errors: HostError.
        """
        if str(target) not in mount_points_below(target):
            _mount("tmpfs", str(target), "tmpfs", _NOSUID_NODEV, f"size={size_bytes}")

    def bind_mount(self, descriptor: int, target: Path) -> None:
        """Mounts the descriptor's file at the target, independent of its name; likewise."""
        if str(target) not in mount_points_below(target):
            _mount(f"/proc/self/fd/{descriptor}", str(target), None, _BIND, None)

    def unmount_below(self, directory: Path) -> None:
        """Unmounts everything at the directory and below it."""
        for mount_point in reversed(mount_points_below(directory)):
            if c_library().umount2(os.fsencode(mount_point), _DETACH | _NOFOLLOW) < 0:
                error = os.strerror(ctypes.get_errno())
                raise HostError("unmount", mount_point, error)


def mount_points_below(directory: Path) -> list[str]:
    """The mount points at a directory and below it, outer before inner."""
    with host_errors("read", "/proc/self/mountinfo"):
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").split("\n")
    mount_points = [_unescaped(line.split(" ")[4]) for line in lines if line]
    root = str(directory)
    return sorted(path for path in mount_points if path == root or path.startswith(f"{root}/"))


def _unescaped(path: str) -> str:
    for escape, character in _ESCAPED.items():
        path = path.replace(escape, character)
    return path


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    if c_library().mount(*arguments, ctypes.c_ulong(flags), data) < 0:
        raise HostError("mount", target, os.strerror(ctypes.get_errno()))
