"""A directory that one process at a time uses: files that are there whole or not at all."""

import fcntl
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from nodewright.world.atomic import sync, write_atomically
from nodewright.world.errors import WorldError

T = TypeVar("T")
_LOCK = "lock"


class Directory:
    """A `Disk` that is a directory of this machine.

    Errors: WorldError, naming the file and what the system said.
    """

    def __init__(self, path: Path) -> None:
        """Have the directory for ourselves until the process ends or `close`."""
        self._path = path
        self._dirty: set[str] = set()
        _obeyed("make", path, lambda: path.mkdir(parents=True, exist_ok=True, mode=0o700))
        self._lock = _locked(path / _LOCK)
        # Whoever was cut off while writing has left these.
        for stray in (*path.glob(".*.tmp"), *path.glob("*/.*.tmp")):
            _obeyed("remove", stray, stray.unlink)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    def read(self, name: str) -> bytes | None:
        """What a file holds."""
        place = self._path / name
        return _obeyed("read", place, lambda: place.read_bytes() if place.exists() else None)

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The files right in a folder."""
        within = self._path / folder
        if not within.is_dir():
            return ()
        found = _obeyed("list", within, lambda: sorted(one for one in within.iterdir() if one.is_file()))
        return tuple(str(one.relative_to(self._path)) for one in found if one.name != _LOCK)

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the old one, and put it in its place."""
        place = self._path / name
        _obeyed("write", place, lambda: place.parent.mkdir(mode=0o700, exist_ok=True))
        write_atomically(place, content, synced=False)
        self._dirty.add(name)

    def put(self, name: str, at: int, content: bytes) -> None:
        """Overwrite the end of a file."""
        place = self._path / name

        def act() -> None:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                left, where = content, at
                while left:
                    count = os.pwrite(descriptor, left, where)
                    left, where = left[count:], where + count
                os.ftruncate(descriptor, where)
            finally:
                os.close(descriptor)

        _obeyed("write", place, act)
        self._dirty.add(name)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name."""
        place = self._path / name
        if place.exists():
            _obeyed("rename", place, lambda: place.replace(self._path / to))
            self._dirty.discard(name)
            self._dirty.add(to)

    def remove(self, name: str) -> None:
        """Take a file away."""
        place = self._path / name
        _obeyed("remove", place, lambda: place.unlink(missing_ok=True))
        self._dirty.add(name)

    def sync(self, name: str = "") -> None:
        """Have the disk write down what was done."""
        names = {name} if name else set(self._dirty)
        files = {self._path / one for one in names}
        folders = {one.parent for one in files}
        for place in (*sorted(files), *sorted(folders)):
            if place.exists():
                _obeyed("sync", place, lambda place=place: sync(place))  # type: ignore[misc] # its default is the place
        self._dirty -= names

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)


def _locked(place: Path) -> int:
    """The lock, open; it is let go of when it is closed, at the latest when we end."""
    descriptor = _obeyed("open", place, lambda: os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        error = f"process {holder or 'unknown'} has it: two agents cannot share a directory"
        raise WorldError("lock", str(place.parent), error) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _obeyed(operation: str, place: Path, act: Callable[[], T]) -> T:
    try:
        return act()
    except OSError as error:
        raise WorldError(operation, str(place), error.strerror or str(error)) from None


@cache
def boot_id() -> str:
    """Another text after each start of the machine."""
    place = Path("/proc/sys/kernel/random/boot_id")
    return _obeyed("read", place, lambda: place.read_text("ascii").strip())
