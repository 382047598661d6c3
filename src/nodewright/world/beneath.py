"""Paths below a directory that somebody else writes to, opened so that no link leads out of it."""

import ctypes
import errno
import os
from pathlib import Path

_OPENAT2 = 437
_NO_MAGIC_LINKS, _BENEATH = 0x02, 0x08
_O_PATH = 0o10000000


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(directory: Path, path: str, flags: int = _O_PATH) -> int:
    """A descriptor of what is at the path below the directory, through links that stay below it.

    Follows: Linux, openat2(2), RESOLVE_BENEATH.
    Errors:  OSError, `EXDEV` where a link leads out.
    """
    root = os.open(directory, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _open(root, path or ".", flags | os.O_CLOEXEC)
    finally:
        os.close(root)


def make_beneath(directory: Path, path: str) -> None:
    """The directories of the path are there, with the rights of the one that they are below.

    Errors: OSError, `EXDEV` where a link leads out.
    """
    mode = directory.stat().st_mode & 0o7777
    names = [name for name in path.split("/") if name]
    for depth in range(1, len(names) + 1):
        so_far = "/".join(names[:depth])
        try:
            os.close(open_beneath(directory, so_far))
        except FileNotFoundError:
            parent = open_beneath(directory, "/".join(names[: depth - 1]), _O_PATH | os.O_DIRECTORY)
            try:
                os.mkdir(names[depth - 1], dir_fd=parent)
            finally:
                os.close(parent)
            made = open_beneath(directory, so_far, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.fchmod(made, mode)
            finally:
                os.close(made)


def read_beneath(directory: Path, path: str, most_bytes: int) -> bytes:
    """The start of a regular file below the directory.

    Errors: OSError.
    """
    descriptor = open_beneath(directory, path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most_bytes)


def _open(root: int, path: str, flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    how = _How(flags, 0, _BENEATH | _NO_MAGIC_LINKS)
    while True:
        found = libc.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return int(found)
        error = ctypes.get_errno()
        # Somebody moved something while the kernel looked: it wants to be asked again.
        if error != errno.EAGAIN:
            raise OSError(error, os.strerror(error), path)
