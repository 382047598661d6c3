"""What the kernel tells of memory by itself: stalls (PSI), thresholds of a group (cgroup v1), its events (v2)."""

import asyncio
import contextlib
import os
import select
from pathlib import Path

from nodewright.world.cgroup_files import LIVE, is_unified
from nodewright.world.ports import THRESHOLD

STALL_US, WINDOW_US = 50_000, 1_000_000
"""Somebody waits for memory so long, of so long, until the kernel tells."""


class KernelAlarms:
    """Fulfils the port `Alarms`; ``missing`` says which alarms this machine does not have, and why.

    ``pods_group`` is the path of the group of all pods from the root of the tree. Nothing outside of it is written.
    """

    def __init__(self, pods_group: str, cgroups: Path = LIVE, proc: Path = Path("/proc")) -> None:
        self._is_v2 = is_unified(cgroups)
        self._group = (cgroups if self._is_v2 else cgroups / "memory") / pods_group.strip("/")
        self.missing: list[str] = []
        self._names: dict[int, str] = {}
        """Of the alarms, by the file that tells."""
        self._threshold: tuple[int, int, int] | None = None
        """The file that tells, the file that is watched, and from how many bytes on."""
        self._hears_group = False
        self._poll = select.epoll()
        self._rang: asyncio.Event | None = None
        self._stalls(proc / "pressure/memory", "stalls of the machine")

    def arm(self, threshold_bytes: int | None) -> None:
        """Ring when all pods use so much memory; None: do not. Version 2 has no such thresholds, but tells of limits."""
        if self._is_v2:
            self._hear_group()
            return
        if threshold_bytes == (self._threshold[2] if self._threshold else None):
            return
        self._disarm()
        if threshold_bytes is None or threshold_bytes <= 0:
            return
        name, place = THRESHOLD, self._group / "memory.usage_in_bytes"
        watched = self._opened(place, name, os.O_RDONLY)
        if watched is None:
            return
        told = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threshold = (told, watched, threshold_bytes)
        try:
            (self._group / "cgroup.event_control").write_text(f"{told} {watched} {threshold_bytes}")
        except OSError as error:
            self._lack(name, self._group / "cgroup.event_control", error)
            self._disarm()
        else:
            self._listen(told, name, select.EPOLLIN)

    async def ring(self) -> str:
        """Come back when something was told."""
        loop = asyncio.get_running_loop()
        if self._rang is None:
            self._rang = asyncio.Event()
            # A poll can be polled: the loop itself does not know of files that tell by priority.
            loop.add_reader(self._poll.fileno(), self._rang.set)
        while True:
            await self._rang.wait()
            self._rang.clear()
            told = [self._told(file) for file, _ in self._poll.poll(0)]
            if told:
                return told[0]

    def close(self) -> None:
        """Listen no more."""
        if self._rang is not None:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._rang = None
        self._disarm()
        for file in self._names:
            os.close(file)
        self._names.clear()
        self._poll.close()

    def _told(self, file: int) -> str:
        """Which alarm it was; it is ready to ring again, unless its group is gone."""
        name = self._names[file]
        if self._threshold is not None and file == self._threshold[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(file, 8)
            return name
        try:
            os.pread(file, 4096, 0)
        except OSError:
            self._poll.unregister(file)
            os.close(file)
            del self._names[file]
            self._hears_group = False
        return name

    def _hear_group(self) -> None:
        """Listen to the group of all pods, as soon as it is there."""
        if not self._hears_group and self._group.is_dir():
            self._hears_group = True
            self._stalls(self._group / "memory.pressure", "stalls of pods")
            self._events()

    def _stalls(self, place: Path, name: str) -> None:
        """Have the kernel tell of stalls.

        Follows: Linux, Documentation/accounting/psi.rst.
        """
        file = self._opened(place, name, os.O_RDWR)
        if file is None:
            return
        try:
            os.write(file, f"some {STALL_US} {WINDOW_US}\0".encode())
        except OSError as error:
            os.close(file)
            self._lack(name, place, error)
        else:
            self._listen(file, name, select.EPOLLPRI)

    def _events(self) -> None:
        name = "events of pods"
        file = self._opened(self._group / "memory.events", name, os.O_RDONLY)
        if file is not None:
            os.pread(file, 4096, 0)
            self._listen(file, name, select.EPOLLPRI)

    def _opened(self, place: Path, name: str, how: int) -> int | None:
        try:
            return os.open(place, how | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._lack(name, place, error)
            return None

    def _lack(self, name: str, place: Path, error: OSError) -> None:
        told = f"{name}: {place}: {error.strerror}"
        if told not in self.missing:
            self.missing.append(told)

    def _listen(self, file: int, name: str, what: int) -> None:
        self._names[file] = name
        self._poll.register(file, what)

    def _disarm(self) -> None:
        if self._threshold is not None:
            told, watched, _ = self._threshold
            if self._names.pop(told, None) is not None:
                self._poll.unregister(told)
            os.close(told)
            os.close(watched)
            self._threshold = None
