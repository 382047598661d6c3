"""Mounts for volumes: memory file systems, and paths pinned so that nobody can swap them.

They need CAP_SYS_ADMIN, and are made in the agent's own mount namespace.
"""

import ctypes
import os
from pathlib import Path

from nodewright.world.errors import WorldError

_NOSUID_NODEV, _BIND, _DETACH, _NOFOLLOW = 0x2 | 0x4, 0x1000, 0x2, 0x8
_ESCAPED = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


class KernelMounts:
    """What mount(2) does."""

    def tmpfs(self, target: Path, size_bytes: int) -> None:
        """The directory is a file system in memory; not an error if it is one already.

        Errors: WorldError.
        """
        if str(target) not in mounted_below(target):
            _mount("tmpfs", str(target), "tmpfs", _NOSUID_NODEV, f"size={size_bytes},mode=0777")

    def pin(self, descriptor: int, target: Path) -> None:
        """The target shows what the descriptor stands for, whatever becomes of its name; likewise."""
        if str(target) not in mounted_below(target):
            _mount(f"/proc/self/fd/{descriptor}", str(target), None, _BIND, None)

    def unmount_below(self, directory: Path) -> None:
        """Nothing is mounted at the directory or below it any more."""
        for place in reversed(mounted_below(directory)):
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.umount2(os.fsencode(place), _DETACH | _NOFOLLOW) < 0:
                error = os.strerror(ctypes.get_errno())
                raise WorldError("unmount", place, error)


def mounted_below(directory: Path) -> list[str]:
    """What is mounted at a directory and below it, the outer before the inner."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise WorldError("read", "/proc/self/mountinfo", error.strerror or str(error)) from None
    found = [_unescaped(line.split(" ")[4]) for line in lines]
    root = str(directory)
    return sorted(one for one in found if one == root or one.startswith(f"{root}/"))


def _unescaped(path: str) -> str:
    for escape, character in _ESCAPED.items():
        path = path.replace(escape, character)
    return path


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    texts = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    data = None if options is None else options.encode()
    if libc.mount(*texts, ctypes.c_ulong(flags), data) < 0:
        raise WorldError("mount", target, os.strerror(ctypes.get_errno()))
