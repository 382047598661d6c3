"""Watches a directory with inotify: waits for changes, and knows which files are still being written."""

import asyncio
import os
import struct
from contextlib import suppress
from pathlib import Path

from nodewright.documents.files.openat2 import c_library

_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF, _IGNORED = 0x100, 0x200, 0x400, 0x800, 0x8000
_ALL = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("iIII")
_MAX_WATCHES = 256
_POLL_PERIOD_S = 1.0
"""The period of polling where inotify is not available."""


class DirectoryWatch:
    """Waits for changes in a directory, and in `depth` levels of subdirectories; without inotify, for `poll_period_s`."""

    def __init__(
        self,
        directory: Path,
        depth: int = 0,
        *,
        poll_period_s: float = _POLL_PERIOD_S,
        keeps_removed: bool = False,
    ) -> None:
        self._directory = directory.parent if directory.is_file() else directory
        self._depth, self._poll_period_s = depth, poll_period_s
        self._changed = asyncio.Event()
        self._descriptor = -1
        self._watches: list[int] = []
        """The inotify watches: the directory's first, then those of its subdirectories."""
        self.being_written: set[str] = set()
        """The names of files that were written to and are not closed."""
        self._removed: set[str] | None = set() if keeps_removed else None

    async def wait(self, timeout_s: float) -> None:
        """Waits for a change or the timeout."""
        if self._descriptor < 0:
            self._start()
        if self._descriptor >= 0:
            self._watch_subdirectories(self._directory, self._depth)
        limit = timeout_s if self._descriptor >= 0 else min(timeout_s, self._poll_period_s)
        try:
            async with asyncio.timeout(limit):
                await self._changed.wait()
        except TimeoutError:
            # A program may keep its file open forever, so an open file does not count after a timeout.
            self.being_written.clear()
        self._changed.clear()

    def take_removed(self) -> set[str]:
        """The names of the directory's files that were removed or renamed since the last call; they may be back."""
        removed = self._removed or set()
        self._removed = set()
        return removed

    @property
    def is_watching(self) -> bool:
        """Whether changes are noticed when they happen; False before the first wait."""
        return self._descriptor >= 0

    def close(self) -> None:
        """Stops watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
            self._watches.clear()

    def _start(self) -> None:
        """Starts an inotify watch; not an error if that fails."""
        self._descriptor = _inotify_descriptor()
        if self._descriptor >= 0 and not self._watch(self._directory):
            os.close(self._descriptor)
            self._descriptor = -1
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read_events)

    def _watch(self, directory: Path) -> bool:
        """Watches one more directory; whether it is watched now."""
        watch = c_library().inotify_add_watch(self._descriptor, os.fsencode(directory), _ALL)
        if watch >= 0 and watch not in self._watches:
            self._watches.append(watch)
            # For changes before the watch was added.
            self._changed.set()
        return bool(watch >= 0)

    def _watch_subdirectories(self, directory: Path, depth: int) -> None:
        if depth == 0 or len(self._watches) > _MAX_WATCHES:
            return
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and self._watch(Path(entry.path)):
                    self._watch_subdirectories(Path(entry.path), depth - 1)

    def _read_events(self) -> None:
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        at, is_gone = 0, not data
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            self._note(mask, name)
            if mask & (_DELETE_SELF | _MOVE_SELF | _IGNORED):
                is_gone = is_gone or watch == self._watches[0]
                self._watches[1:] = [other for other in self._watches[1:] if other != watch]
        if is_gone:
            self.close()
            self._changed.set()

    def _note(self, mask: int, name: str) -> None:
        if mask & _MODIFY:
            self.being_written.add(name)
            return
        if mask & (_CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE):
            self.being_written.discard(name)
        if mask & (_MOVED_FROM | _DELETE) and self._removed is not None:
            self._removed.add(name)
        self._changed.set()


def _inotify_descriptor() -> int:
    """A new inotify descriptor; -1 where there is none."""
    inotify_init1 = getattr(c_library(), "inotify_init1", None)
    return int(inotify_init1(_NONBLOCK | _CLOEXEC)) if inotify_init1 is not None else -1
