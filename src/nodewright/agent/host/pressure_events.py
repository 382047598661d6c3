"""Memory notifications of the kernel: stalls (PSI), usage thresholds (cgroup v1) and memory events (cgroup v2)."""

import asyncio
import contextlib
import os
import select
from pathlib import Path

from nodewright.agent.host.ports import THRESHOLD_NOTIFICATION
from nodewright.documents.files.cgroup_files import CGROUP_ROOT, is_unified

STALL_US, WINDOW_US = 50_000, 1_000_000
"""PSI trigger: stall time within a window after which the kernel notifies."""


class KernelPressureNotifier:
    """Fulfils the port `PressureNotifier`; ``unavailable`` lists the notifications that this machine lacks, and why.

    ``pods_group`` is the path of the cgroup of all pods from the root of the hierarchy. Nothing else is written.
    """

    def __init__(self, pods_group: str, cgroups: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> None:
        self._is_v2 = is_unified(cgroups)
        self._group = (cgroups if self._is_v2 else cgroups / "memory") / pods_group.strip("/")
        self.unavailable: list[str] = []
        self._names: dict[int, str] = {}
        """Names of the notifications, by file descriptor."""
        self._threshold: tuple[int, int, int] | None = None
        """The eventfd, the descriptor of the usage file, and the threshold in bytes."""
        self._watches_group = False
        self._poll = select.epoll()
        self._is_ready: asyncio.Event | None = None
        self._watch_stalls(proc / "pressure/memory", "stalls of the machine")

    def set_threshold(self, threshold_bytes: int | None) -> None:
        """Requests a notification when all pods use this much memory; None: no notification.

        cgroup v2 has no such thresholds, but notifies at limits.
        """
        if self._is_v2:
            self._watch_group()
            return
        if threshold_bytes == (self._threshold[2] if self._threshold else None):
            return
        self._remove_threshold()
        if threshold_bytes is None or threshold_bytes <= 0:
            return
        name, usage_file = THRESHOLD_NOTIFICATION, self._group / "memory.usage_in_bytes"
        usage_fd = self._open(usage_file, name, os.O_RDONLY)
        if usage_fd is None:
            return
        event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._threshold = (event_fd, usage_fd, threshold_bytes)
        try:
            (self._group / "cgroup.event_control").write_text(f"{event_fd} {usage_fd} {threshold_bytes}")
        except OSError as error:
            self._note_unavailable(name, self._group / "cgroup.event_control", error)
            self._remove_threshold()
        else:
            self._register(event_fd, name, select.EPOLLIN)

    async def wait(self) -> str:
        """Waits for a notification; returns its name."""
        loop = asyncio.get_running_loop()
        if self._is_ready is None:
            self._is_ready = asyncio.Event()
            # The event loop cannot poll for EPOLLPRI, but it can poll the epoll descriptor.
            loop.add_reader(self._poll.fileno(), self._is_ready.set)
        while True:
            await self._is_ready.wait()
            self._is_ready.clear()
            names = [self._acknowledge(file) for file, _ in self._poll.poll(0)]
            if names:
                return names[0]

    def close(self) -> None:
        """Stops listening."""
        if self._is_ready is not None:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._is_ready = None
        self._remove_threshold()
        for file in self._names:
            os.close(file)
        self._names.clear()
        self._poll.close()

    def _acknowledge(self, file: int) -> str:
        """The name of the notification; re-arms it, or unregisters it if its cgroup was removed."""
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
            self._watches_group = False
        return name

    def _watch_group(self) -> None:
        """Registers the notifications of the cgroup of all pods, once the cgroup exists."""
        if not self._watches_group and self._group.is_dir():
            self._watches_group = True
            self._watch_stalls(self._group / "memory.pressure", "stalls of pods")
            self._watch_events()

    def _watch_stalls(self, path: Path, name: str) -> None:
        """Registers a PSI trigger.

        Follows: Linux, Documentation/accounting/psi.rst.
        """
        file = self._open(path, name, os.O_RDWR)
        if file is None:
            return
        try:
            os.write(file, f"some {STALL_US} {WINDOW_US}\0".encode())
        except OSError as error:
            os.close(file)
            self._note_unavailable(name, path, error)
        else:
            self._register(file, name, select.EPOLLPRI)

    def _watch_events(self) -> None:
        name = "events of pods"
        file = self._open(self._group / "memory.events", name, os.O_RDONLY)
        if file is not None:
            os.pread(file, 4096, 0)
            self._register(file, name, select.EPOLLPRI)

    def _open(self, path: Path, name: str, flags: int) -> int | None:
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._note_unavailable(name, path, error)
            return None

    def _note_unavailable(self, name: str, path: Path, error: OSError) -> None:
        text = f"{name}: {path}: {error.strerror}"
        if text not in self.unavailable:
            self.unavailable.append(text)

    def _register(self, file: int, name: str, events: int) -> None:
        self._names[file] = name
        self._poll.register(file, events)

    def _remove_threshold(self) -> None:
        if self._threshold is not None:
            event_fd, usage_fd, _ = self._threshold
            if self._names.pop(event_fd, None) is not None:
                self._poll.unregister(event_fd)
            os.close(event_fd)
            os.close(usage_fd)
            self._threshold = None
