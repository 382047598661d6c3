"""Writes files atomically, and keeps a directory of files that one process at a time uses."""

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from nodewright.documents.files.regular_files import open_regular_file
from nodewright.model.errors import HostError
from nodewright.model.values.path_component import PathComponent, PathComponentError

# Commands that need no Linux write files on systems without these flags.
_NOFOLLOW, _CLOEXEC, _BINARY = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
_LONGEST_PREFIX = 150
"""Characters of a name that its temporary file repeats: file systems bound the bytes of a name to 255."""


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600, synced: bool = True) -> None:
    """Replaces the content of a file; after an interruption the file has its old content.

    With ``synced``, the new content survives a power failure; without, it takes a hundredth of the time.

    Errors: HostError.
    """
    with write_errors(path), replaced_file(path, mode=mode, synced=synced) as file:
        file.write(content)


@contextlib.contextmanager
def replaced_file(path: Path, *, mode: int = 0o600, synced: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of the named one when the context ends; after an error the old file stays.

    Errors: HostError where it cannot be opened or put in place; errors inside the context pass.
    """
    # An unpredictable name of a new file: no link of another user is followed.
    from secrets import token_hex  # noqa: PLC0415 - start-up time

    temporary = path.with_name(f".{path.name[:_LONGEST_PREFIX]}.{token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC | _BINARY
    with write_errors(path):
        descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            with write_errors(path):
                file.flush()
                if synced:
                    os.fsync(file.fileno())
        with write_errors(path):
            temporary.replace(path)
            if synced and _CLOEXEC:  # elsewhere directories cannot be opened
                sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Names the file in what goes wrong while it is written: OSErrors become HostErrors."""
    try:
        yield
    except OSError as error:
        raise HostError("write", str(path), error.strerror or str(error)) from None


def write_output(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Writes the file that an option names; the rest as of `output_file`."""
    with write_errors(path), output_file(path, mode=mode) as file:
        file.write(content)


@contextlib.contextmanager
def output_file(path: Path, *, mode: int = 0o666, keeps_mode: bool = True) -> Iterator[BinaryIO]:
    """The file that an option names, open for writing, through links.

    Pipes and devices are written to; everything else is replaced when the context ends without an error.
    With ``keeps_mode``, a file that exists keeps its mode.

    Units:  mode before the umask.
    Errors: HostError where it cannot be opened or put in place; errors inside the context pass.
    """
    status = _status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        with write_errors(path):
            special_file = path.open("wb")
        with special_file:
            yield special_file
        return
    if status is None:
        umask = os.umask(0o077)
        os.umask(umask)
        mode &= ~umask
    elif keeps_mode:
        mode = stat.S_IMODE(status.st_mode)
    with replaced_file(Path(os.path.realpath(path)), mode=mode, synced=False) as file:
        yield file


def _status(path: Path) -> os.stat_result | None:
    """What the path leads to; None: nothing yet."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HostError("write", str(path), getattr(error, "strerror", None) or str(error)) from None


def sync(path: Path) -> None:
    """Flushes a file or a directory to the disk.

    Errors: OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_FLOCK_LIMIT_S = 1.0


def try_flock(descriptor: int) -> bool:
    """Locks the file until its descriptor is closed; False: another process holds the lock.

    A child that an agent was starting when it was killed keeps the agent's descriptors until it executes its program.

    Errors: OSError.
    """
    import fcntl  # noqa: PLC0415 - absent where no agent runs

    deadline_s = time.monotonic() + _FLOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.01)
        else:
            return True


T = TypeVar("T")
_LOCK = "lock"


class FileStore(Protocol):
    """A directory of files that one process at a time uses; names are paths in it."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The paths of the files in a folder, sorted; empty if the folder does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Replaces the content of a file atomically."""

    def write_at(self, name: str, at: int, content: bytes) -> None:
        """Writes from that offset on, and truncates the file after it."""

    def rename(self, name: str, to: str) -> None:
        """Renames a file; not an error if it does not exist."""

    def remove(self, name: str) -> None:
        """Removes a file; not an error if it does not exist."""

    def sync(self, name: str = "") -> None:
        """Flushes changes of a file to the disk; without a name, those of all files."""


class LocalFileStore:
    """Fulfils the port `FileStore` with a directory of this machine.

    Errors: HostError, naming the file and the system's error.
    """

    def __init__(self, path: Path) -> None:
        """Locks the directory until the process ends or `close`."""
        self._path = path
        self._dirty: set[str] = set()
        _with_host_error("make", path, lambda: path.mkdir(parents=True, exist_ok=True, mode=0o700))
        self._lock = _lock(path / _LOCK)
        # Left by a process that was killed while it wrote.
        for leftover in (*path.glob(".*.tmp"), *path.glob("*/.*.tmp")):
            _with_host_error("remove", leftover, leftover.unlink)

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self._path

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        path = self._path_of(name)
        return _with_host_error("read", path, lambda: _content(path) if path.exists() else None)

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The paths of the files in a folder, sorted."""
        directory = self._path / folder
        if not directory.is_dir():
            return ()
        files = _with_host_error(
            "list", directory, lambda: sorted(file for file in directory.iterdir() if file.is_file())
        )
        return tuple(str(file.relative_to(self._path)) for file in files if file.name != _LOCK)

    def write(self, name: str, content: bytes) -> None:
        """Replaces the content of a file atomically."""
        path = self._path_of(name)
        _with_host_error("write", path, lambda: path.parent.mkdir(mode=0o700, exist_ok=True))
        write_atomically(path, content, synced=False)
        self._dirty.add(name)

    def write_at(self, name: str, at: int, content: bytes) -> None:
        """Writes from that offset on, and truncates the file after it."""
        path = self._path_of(name)

        def overwrite() -> None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                rest, offset = content, at
                while rest:
                    count = os.pwrite(descriptor, rest, offset)
                    rest, offset = rest[count:], offset + count
                os.ftruncate(descriptor, offset)
            finally:
                os.close(descriptor)

        _with_host_error("write", path, overwrite)
        self._dirty.add(name)

    def rename(self, name: str, to: str) -> None:
        """Renames a file; not an error if it does not exist."""
        path = self._path_of(name)
        if path.exists():
            _with_host_error("rename", path, lambda: path.replace(self._path_of(to)))
            self._dirty.discard(name)
            self._dirty.add(to)

    def remove(self, name: str) -> None:
        """Removes a file; not an error if it does not exist."""
        path = self._path_of(name)
        _with_host_error("remove", path, lambda: path.unlink(missing_ok=True))
        self._dirty.add(name)

    def sync(self, name: str = "") -> None:
        """Flushes changes of a file to the disk; without a name, those of all files."""
        names = {name} if name else set(self._dirty)
        files = {self._path / file_name for file_name in names}
        folders = {file.parent for file in files}
        for path in (*sorted(files), *sorted(folders)):
            if path.is_file() or path.is_dir():
                _with_host_error("sync", path, lambda path=path: sync(path))  # type: ignore[misc] # its default is the place
        self._dirty -= names

    def _path_of(self, name: str) -> Path:
        """The path of a file of the store; a name that leads out of it is an error, not a path."""
        try:
            return self._path.joinpath(*map(PathComponent, name.split("/")))
        except PathComponentError as error:
            raise HostError("use", str(self._path), str(error)) from None

    def close(self) -> None:
        """Releases the directory."""
        os.close(self._lock)


def _content(path: Path) -> bytes:
    with open_regular_file(path) as file:
        return file.read()


def _lock(path: Path) -> int:
    """Locks the file; the lock is held until the returned descriptor is closed or the process ends."""
    descriptor = _with_host_error(
        "open", path, lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    )
    if not _with_host_error("lock", path, lambda: try_flock(descriptor)):
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        error = f"process {holder or 'unknown'} uses it: two agents cannot share a directory"
        raise HostError("lock", str(path.parent), error) from None
    # It is only shown to other agents; a full disk does not keep this one from starting.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _with_host_error(operation: str, path: Path, action: Callable[[], T]) -> T:
    try:
        return action()
    except OSError as error:
        raise HostError(operation, str(path), error.strerror or str(error)) from None


@cache
def boot_id() -> str:
    """The kernel's boot id, which differs after each start of the machine."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return _with_host_error("read", path, lambda: path.read_text("ascii").strip())
