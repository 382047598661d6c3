"""Mounts for volumes: tmpfs, and bind mounts that pin a path against replacement.

Mounting needs CAP_SYS_ADMIN and happens in the agent's mount namespace.
"""

import ctypes
import os
from pathlib import Path

from nodewright.documents.files.openat2 import c_library
from nodewright.model.errors import HostError

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
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise HostError("read", "/proc/self/mountinfo", error.strerror or str(error)) from None
    mount_points = [_unescaped(line.split(" ")[4]) for line in lines]
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
