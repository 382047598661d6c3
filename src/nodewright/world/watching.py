"""A directory watched: when something in it changed, and which files somebody is still writing."""

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
_WITHOUT_S = 1.0
"""How often to look where nobody tells of changes."""


class DirectoryWatch:
    """Tells when to look at a directory again; where the kernel does not say, once a second."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.parent if directory.is_file() else directory
        self._changed = asyncio.Event()
        self._descriptor = -1
        self.being_written: set[str] = set()
        """The names of files that were written to and not closed since."""

    async def wait(self, at_most_s: float) -> None:
        """Come back when something changed, or when so much time has passed."""
        if self._descriptor < 0:
            self._begin()
        limit = at_most_s if self._descriptor >= 0 else min(at_most_s, _WITHOUT_S)
        try:
            async with asyncio.timeout(limit):
                await self._changed.wait()
        except TimeoutError:
            # What was never closed may never be: a program may keep its file open for ever.
            self.being_written.clear()
        self._changed.clear()

    def close(self) -> None:
        """Watch no longer."""
        if self._descriptor >= 0:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self) -> None:
        """Ask the kernel to tell of changes; not an error if it does not."""
        self._descriptor = _watched(self._directory)
        if self._descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._descriptor, self._told)
            # What changed before the kernel was asked.
            self._changed.set()

    def _told(self) -> None:
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


def _watched(directory: Path) -> int:
    """A descriptor that tells of changes in a directory; -1: there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    begin = getattr(libc, "inotify_init1", None)
    descriptor = begin(_NONBLOCK | _CLOEXEC) if begin is not None else -1
    if descriptor < 0:
        return -1
    if libc.inotify_add_watch(descriptor, os.fsencode(directory), _ALL) < 0:
        os.close(descriptor)
        return -1
    return int(descriptor)
