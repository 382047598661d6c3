"""Watches a directory with inotify: waits for changes, and knows which files are still being written."""

import asyncio
import ctypes
import os
import struct
from pathlib import Path

_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF, _IGNORED = 0x100, 0x200, 0x400, 0x800, 0x8000
_ALL = _MODIFY | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_EVENT = struct.Struct("iIII")
_POLL_PERIOD_S = 1.0
"""The period of polling where inotify is not available."""


class DirectoryWatch:
    """Waits for changes in a directory; without inotify, for one second."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.parent if directory.is_file() else directory
        self._changed = asyncio.Event()
        self._descriptor = -1
        self.being_written: set[str] = set()
        """The names of files that were written to and are not closed."""

    async def wait(self, timeout_s: float) -> None:
        """Waits for a change or the timeout."""
        if self._descriptor < 0:
            self._start()
        limit = timeout_s if self._descriptor >= 0 else min(timeout_s, _POLL_PERIOD_S)
        try:
            async with asyncio.timeout(limit):
                await self._changed.wait()
        except TimeoutError:
            # A program may keep its file open forever, so an open file does not count after a timeout.
            self.being_written.clear()
        self._changed.clear()

    def close(self) -> None:
        """Stops watching."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _start(self) -> None:
        """Starts an inotify watch; not an error if that fails."""
        self._descriptor = _inotify_descriptor(self._directory)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read_events)
            # For changes before the watch was added.
            self._changed.set()

    def _read_events(self) -> None:
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            data = b""
        at, is_gone = 0, not data
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            self._note(mask, name)
            is_gone = is_gone or bool(mask & (_DELETE_SELF | _MOVE_SELF | _IGNORED))
        if is_gone:
            self.close()
            self._changed.set()

    def _note(self, mask: int, name: str) -> None:
        if mask & _MODIFY:
            self.being_written.add(name)
            return
        if mask & (_CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE):
            self.being_written.discard(name)
        self._changed.set()


def _inotify_descriptor(directory: Path) -> int:
    """An inotify descriptor that watches the directory; -1 if there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    inotify_init1 = getattr(libc, "inotify_init1", None)
    descriptor = inotify_init1(_NONBLOCK | _CLOEXEC) if inotify_init1 is not None else -1
    if descriptor < 0:
        return -1
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _ALL) < 0:
        os.close(descriptor)
        return -1
    return int(descriptor)
