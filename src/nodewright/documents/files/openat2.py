"""Paths below a directory: of single names, and opened without following links out of it."""

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nodewright.model.errors import HostError
from nodewright.model.values.path_component import PathComponent, PathComponentError

_OPENAT2 = 437
_NO_MAGIC_LINKS, _BENEATH = 0x02, 0x08
_O_PATH = 0o10000000


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def path_beneath(directory: Path, *names: str) -> Path:
    """The path below the directory that consists of these names.

    Errors: HostError for a name that is not the name of a single file.
    """
    try:
        return directory.joinpath(*map(PathComponent, names))
    except PathComponentError as error:
        raise HostError("use a path below", str(directory), str(error)) from None


def open_beneath(directory: Path, path: str, flags: int = _O_PATH, mode: int = 0) -> int:
    """A descriptor of the path below the directory; follows only links that stay below it.

    Follows: Linux, openat2(2), RESOLVE_BENEATH.
    Errors:  OSError, `EXDEV` if a link points out.
    """
    root = os.open(directory, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _open(root, path or ".", flags | os.O_CLOEXEC, mode)
    finally:
        os.close(root)


def mkdir_beneath(directory: Path, path: str, mode: int | None = None) -> None:
    """Creates the directories of the path that do not exist.

    Each gets this mode regardless of the umask, by default that of the directory that they are below.

    Errors: OSError, `EXDEV` if a link points out.
    """
    if mode is None:
        mode = directory.stat().st_mode & 0o7777
    names = [name for name in path.split("/") if name]
    for depth in range(1, len(names) + 1):
        ancestor = "/".join(names[:depth])
        try:
            os.close(open_beneath(directory, ancestor))
        except FileNotFoundError:
            parent = open_beneath(directory, "/".join(names[: depth - 1]), _O_PATH | os.O_DIRECTORY)
            try:
                os.mkdir(names[depth - 1], dir_fd=parent)
            finally:
                os.close(parent)
            descriptor = open_beneath(directory, ancestor, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def directory_beneath(directory: Path, path: str) -> Iterator[Path]:
    """The directory at the path, as a name that stays with it whatever happens to the path meanwhile.

    Errors: OSError, `EXDEV` if a link points out.
    """
    descriptor = open_beneath(directory, path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def read_beneath(directory: Path, path: str, max_bytes: int) -> bytes:
    """The start of a regular file below the directory.

    Errors: OSError, also for files of other kinds.
    """
    descriptor = open_beneath(directory, path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        return file.read(max_bytes)


def write_beneath(
    directory: Path, path: str, content: bytes, mode: int, owner: tuple[int | None, int | None] = (None, None)
) -> None:
    """Writes a new file below the directory, with its directories; ``owner``: user and group, where not the agent's.

    Errors: OSError, `EXDEV` if a link points out, `EEXIST` if something exists at the path.
    """
    mkdir_beneath(directory, path.rpartition("/")[0], 0o755)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = open_beneath(directory, path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if owner != (None, None):
            os.fchown(descriptor, *(-1 if id_ is None else id_ for id_ in owner))
        # After chown, which clears mode bits.
        os.fchmod(descriptor, mode)


@cache
def c_library() -> ctypes.CDLL:
    """The C library; its errors are read with `ctypes.get_errno`."""
    return ctypes.CDLL(None, use_errno=True)


def _open(root: int, path: str, flags: int, mode: int) -> int:
    if "\0" in path:
        # C would end the path there.
        raise OSError(errno.EINVAL, "the path contains a NUL character", path)
    how = _How(flags, mode, _BENEATH | _NO_MAGIC_LINKS)
    while True:
        descriptor = c_library().syscall(
            _OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
        )
        if descriptor >= 0:
            return int(descriptor)
        error = ctypes.get_errno()
        # A concurrent rename: the kernel expects another attempt.
        if error != errno.EAGAIN:
            raise OSError(error, os.strerror(error), path)
