"""Reads files that other programs may have written: nothing but regular files, and bounded in size.

A copied directory can hold a FIFO that nobody writes to, a link to a device that never ends, or a file of any size.
"""

import errno
import io
import os
import select
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

from nodewright.model.printable import printable

if TYPE_CHECKING:
    from pathlib import Path


# A FIFO is not waited for, and a terminal does not become ours; other systems than Linux have not all of these.
_NEVER_WAITING = 0
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
    _NEVER_WAITING |= getattr(os, _name, 0)

MAX_FILE_BYTES = 256 << 20
"""Limit for files without an option: beyond every file of a kubelet and every report of a tool."""
_CHUNK_BYTES = 64 << 10
"""The kernel rejects large reads of /proc/sys."""
_BLOCK_BYTES = 1 << 20


def error_text(error: Exception) -> str:
    """The system's text of an error that a read raises, without its number."""
    return getattr(error, "strerror", None) or str(error)


class ByteSource(Protocol):
    """An open file."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; none at the end."""


class FileRefusedError(OSError):
    """A file that is not read, because it is not a regular file or is too large; `strerror` states the rule."""

    def __init__(self, number: int, rule: str, path: str) -> None:
        super().__init__(number, rule, path)


def read_regular_file(path: "str | Path", max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The content of a regular file, which has at most so many bytes.

    Errors: OSError as `open`, also for paths that cannot exist; FileRefusedError.
    """
    with os.fdopen(open_regular(str(path)), "rb", buffering=0) as file:
        return read_bounded(file, max_bytes, str(path), size=os.fstat(file.fileno()).st_size)


def open_regular_file(path: "str | Path") -> BinaryIO:
    """A regular file, open for reading; anything else is refused and never waited for.

    Errors: OSError; FileRefusedError, also of directories and sockets.
    """
    try:
        return os.fdopen(open_regular(str(path)), "rb")
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENXIO, errno.ELOOP):
            raise _not_regular(path) from None
        raise


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of a regular file, as an opener for `open`.

    Errors: OSError as `open`, also for paths that cannot exist; FileRefusedError.
    """
    try:
        descriptor = os.open(path, flags | _NEVER_WAITING)
    except ValueError as error:
        raise FileRefusedError(errno.EINVAL, f"no file can have this name ({error})", path) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise _not_regular(path)


PIPE_NOTICE_MS = 5000
"""After so long without data, users are told which pipe is waited for."""


class Waiting:
    """Where it is reported that a file is waited for; commands print it."""

    def __init__(self) -> None:
        self.report: Callable[[str], None] = lambda _line: None


waiting = Waiting()


def open_named_file(path: str) -> BinaryIO:
    """A file that a user names, open for reading: of any kind, also a pipe such as a shell's `<(command)`.

    A pipe is waited for; one line states which, when nothing has been written for some seconds.
    Errors: OSError and ValueError as `open`.
    """
    if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116 - pathlib takes long to import
        return open(path, "rb")  # noqa: PTH123 - as above
    descriptor = os.open(path, os.O_RDONLY | _NEVER_WAITING)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(PIPE_NOTICE_MS):
            waiting.report(f"{printable(path)}: a named pipe; waiting for its content")
            poll.poll()
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _not_regular(path: "str | Path") -> FileRefusedError:
    return FileRefusedError(errno.EINVAL, "is not a regular file", str(path))


def is_there(path: "str | Path") -> bool:
    """Whether there is a file or directory of this name; False for names that none can have."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises for names that are too long


def is_directory(path: "str | Path") -> bool:
    """Whether there is a directory of this name; False for names that none can have."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def read_bounded(file: ByteSource, max_bytes: int, path: str, *, size: int = 0, start: bytes = b"") -> bytes:
    """The rest of an open file, which has at most so many bytes; ``size`` is what is known of it.

    ``start``: what has been read of it, which counts.

    Errors: OSError; FileRefusedError.
    """
    if size > max_bytes:
        raise _too_large(max_bytes, path)
    # Files of /proc and /sys have the size 0.
    chunk_bytes = max(_CHUNK_BYTES, size + 1) if size > _CHUNK_BYTES else _CHUNK_BYTES
    content = io.BytesIO()  # grows in place, where joining chunks takes their memory twice
    content.write(start)
    while chunk := file.read(chunk_bytes):
        content.write(chunk)
        if content.tell() > max_bytes:
            raise _too_large(max_bytes, path)
    return content.getvalue()


def _too_large(max_bytes: int, path: str) -> FileRefusedError:
    return FileRefusedError(errno.EFBIG, f"has more than {max_bytes} bytes, which is the limit", path)


class FileStamp(NamedTuple):
    """What distinguishes a file from another one of its name, and from itself after a change."""

    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """The stamp of a file with this status."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


def read_stamped_file(path: "Path", max_bytes: int) -> tuple[FileStamp, bytes]:
    """The content of a regular file, and its stamp.

    Errors: OSError, also for a file that is larger, or that has no data at present, as some in /proc;
        FileRefusedError.
    """
    with open_regular_file(path) as file:
        stamp = FileStamp.of(os.fstat(file.fileno()))
        blocks, size = list[bytes](), 0
        if stamp.size <= max_bytes:
            while size <= max_bytes and (block := os.read(file.fileno(), _BLOCK_BYTES)):
                blocks.append(block)
                size += len(block)
        if max(size, stamp.size) > max_bytes:
            shown = f"{stamp.size} bytes" if stamp.size else f"more than {max_bytes} bytes"
            raise OSError(errno.EFBIG, f"{shown}, at most {max_bytes}", str(path))
        return stamp, b"".join(blocks)
