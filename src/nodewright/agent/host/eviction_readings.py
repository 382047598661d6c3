"""Readings for eviction: memory, swap, processes and file systems of this machine, and the kernel's notification of pressure.

Reads are quick: the polled files stay open.
"""

import asyncio
import contextlib
import os
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import THRESHOLD_NOTIFICATION
from nodewright.documents.files.cgroup_files import CGROUP_ROOT, STAT, is_unified, memory_file_names
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    RlimitStats,
    RuntimeStats,
    SwapStats,
    VolumeStats,
)
from nodewright.model.values.instant import Instant

KIB = 1024
UNLIMITED = 1 << 62
_READ_SIZE = 1 << 16


class PolledFile:
    """A file that is read repeatedly: stays open, and is opened again after it was replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def read(self) -> bytes | None:
        """The current content; None if the file does not exist."""
        if self._file is not None:
            try:
                return os.pread(self._file, _READ_SIZE, 0)
            except OSError:
                # The cgroup was removed; a new one may have its name.
                self.close()
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._file, _READ_SIZE, 0)
        except OSError:
            self.close()
            return None

    def number(self) -> int | None:
        """The number in the file; None if there is none."""
        text = self.read()
        return int(text) if text is not None and text.strip().isdigit() else None

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


_IN_USE = (b"\nAnonPages:", b"\nCached:", b"\nBuffers:", b"\nSwapCached:")
"""The fields of /proc/meminfo that are `anon` and `file` of the root cgroup: huge pages are in none of them."""


class HostStatsProvider:
    """Fulfils the port `NodeStatsProvider` for this machine.

    ``pods_group`` is the path of the cgroup of all pods from the root of the hierarchy, ``nodefs`` a path on the file
    system of the pods' volumes and logs, ``imagefs`` one on that of images; None: there are no images. ``huge_page_bytes``
    are left out of what is available.

    Follows: v1.36, pkg/kubelet/stats/helper.go, cadvisorInfoToMemoryStats; opencontainers/cgroups v0.0.6,
        fs/memory.go, fs2/memory.go, rootStatsFromMeminfo.
    Departs: reads the machine's pages from /proc/meminfo, which is current, where the root cgroup's statistics may be
        two seconds old.
    """

    def __init__(
        self,
        pods_group: str,
        *,
        nodefs: Path,
        imagefs: Path | None = None,
        cgroups: Path = CGROUP_ROOT,
        proc: Path = Path("/proc"),
        huge_page_bytes: int = 0,
    ) -> None:
        self._is_v2 = is_unified(cgroups)
        names = memory_file_names(2 if self._is_v2 else 1)
        memory = cgroups if self._is_v2 else cgroups / "memory"
        pods = memory / pods_group.strip("/")
        self._meminfo, self._loadavg = PolledFile(proc / "meminfo"), PolledFile(proc / "loadavg")
        self._root = None if self._is_v2 else PolledFile(memory / names.usage)
        self._pods_used = PolledFile(pods / names.usage)
        self._pods_limit = PolledFile(pods / names.limit)
        self._pods_stat = PolledFile(pods / STAT)
        self._inactive = f"\n{names.inactive_file} ".encode()
        self._max_processes = _minimum(proc / "sys/kernel/pid_max", proc / "sys/kernel/threads-max")
        self._nodefs, self._imagefs = nodefs, imagefs
        self._huge_page_bytes = huge_page_bytes

    def node_stats(self) -> NodeStats:
        """Memory of the machine and of all pods, swap and processes.

        Errors: HostError if /proc/meminfo cannot be read.
        """
        at = Instant(time.monotonic_ns())
        text = self._meminfo.read()
        if text is None:
            raise HostError("read", str(self._meminfo.path), "it cannot be read")
        return NodeStats(
            system_containers=self._pods(at),
            memory=self._memory(text, at),
            rlimit=self._processes(at),
            swap=_swap(text, at),
        )

    def filesystem_stats(self) -> tuple[NodeStats, NodeFilesystems]:
        """The file systems of pods and images.

        Errors: HostError.
        """
        fs, device = _filesystem(self._nodefs)
        if self._imagefs is None:
            return NodeStats(fs=fs), NodeFilesystems()
        image_fs, image_device = _filesystem(self._imagefs)
        layout = NodeFilesystems(dedicated_image_fs=device != image_device)
        return NodeStats(fs=fs, runtime=RuntimeStats(image_fs=image_fs, container_fs=image_fs)), layout

    def close(self) -> None:
        """Closes all files."""
        for file in vars(self).values():
            if isinstance(file, PolledFile):
                file.close()

    def _memory(self, meminfo: bytes, at: Instant) -> MemoryStats:
        total = max(_meminfo_bytes(meminfo, b"MemTotal:") - self._huge_page_bytes, 0)
        used = self._root.number() if self._root is not None else None
        if used is None:
            used = sum(_meminfo_bytes(meminfo, name) for name in _IN_USE)
        working_set = max(used - _meminfo_bytes(meminfo, b"\nInactive(file):"), 0)
        return MemoryStats(
            time=at,
            available_bytes=max(total - working_set, 0),
            usage_bytes=used,
            working_set_bytes=working_set,
        )

    def _pods(self, at: Instant) -> tuple[ContainerStats, ...]:
        used = self._pods_used.number()
        if used is None:
            return ()
        inactive = _number_after(b"\n" + (self._pods_stat.read() or b""), self._inactive)
        working_set = max(used - inactive, 0)
        limit = self._pods_limit.number()
        available = None if limit is None or limit >= UNLIMITED else max(limit - working_set, 0)
        memory = MemoryStats(
            time=at, available_bytes=available, usage_bytes=used, working_set_bytes=working_set
        )
        return (ContainerStats(name="pods", memory=memory),)

    def _processes(self, at: Instant) -> RlimitStats | None:
        """The number of processes and threads, and its limit.

        Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
        """
        fields = (self._loadavg.read() or b"").split()
        if self._max_processes is None or len(fields) < 4 or b"/" not in fields[3]:
            return None
        return RlimitStats(time=at, max_pid=self._max_processes, running=int(fields[3].partition(b"/")[2]))


def _swap(meminfo: bytes, at: Instant) -> SwapStats | None:
    total = _meminfo_bytes(meminfo, b"\nSwapTotal:")
    if not total:
        return None
    free = _meminfo_bytes(meminfo, b"\nSwapFree:")
    return SwapStats(time=at, swap_available_bytes=free, swap_usage_bytes=total - free)


def _meminfo_bytes(meminfo: bytes, name: bytes) -> int:
    """The value of a field of /proc/meminfo; 0 if it is missing.

    Units: bytes.
    """
    return _number_after(meminfo, name) * KIB


def _number_after(text: bytes, name: bytes) -> int:
    start = text.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(text[start : start + 40].split(maxsplit=1)[0])


def _filesystem(path: Path) -> tuple[FsStats, int]:
    """Usage and device of the file system of a path, which need not exist yet."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    at = Instant(time.monotonic_ns())
    with host_errors("read the file system of", existing):
        statvfs, device = os.statvfs(existing), existing.stat().st_dev
    stats = FsStats(
        time=at,
        available_bytes=statvfs.f_bavail * statvfs.f_frsize,
        capacity_bytes=statvfs.f_blocks * statvfs.f_frsize,
        used_bytes=(statvfs.f_blocks - statvfs.f_bfree) * statvfs.f_frsize,
        inodes=statvfs.f_files,
        inodes_free=statvfs.f_ffree,
        inodes_used=statvfs.f_files - statvfs.f_ffree,
    )
    return stats, device


def _minimum(*paths: Path) -> int | None:
    numbers = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(path.read_text("ascii")))
    return min(numbers, default=None)


# ---------------------------------------------------------------- notification of pressure


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


# ---------------------------------------------------------------- local ephemeral storage of pods


BLOCK_BYTES = 512


class PodDirectories(msgspec.Struct, frozen=True, kw_only=True):
    """The directories of a pod's files; missing directories count as empty."""

    volumes: Mapping[str, Path] = {}
    """Local volumes, by name."""
    logs: Mapping[str, Path] = {}
    """Container logs, by container name."""


class DiskStorageStats:
    """Fulfils the port `EphemeralStorageStats`; ``directories`` is the function that locates a pod's files."""

    def __init__(self, directories: Callable[[Pod], PodDirectories]) -> None:
        self._directories = directories

    def pod_usage(self, pod: Pod) -> PodStats:
        """The usage of the pod's local volumes, and of its containers' logs.

        Follows: v1.36, pkg/kubelet/stats/helper.go, calcEphemeralStorage.
        """
        directories = self._directories(pod)
        at = Instant(time.monotonic_ns())
        volumes = {name: directory_usage(path) for name, path in directories.volumes.items()}
        logs = {name: directory_usage(path) for name, path in directories.logs.items()}
        usages = (*volumes.values(), *logs.values())
        total = (sum(used_bytes for used_bytes, _ in usages), sum(inodes for _, inodes in usages))
        return PodStats(
            pod_ref=PodReference(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.uid),
            volumes=tuple(
                VolumeStats(time=at, name=name, used_bytes=used_bytes, inodes_used=inodes)
                for name, (used_bytes, inodes) in volumes.items()
            ),
            containers=tuple(
                ContainerStats(name=name, logs=_fs_stats(usage, at)) for name, usage in logs.items()
            ),
            ephemeral_storage=_fs_stats(total, at),
        )


def directory_usage(path: Path) -> tuple[int, int]:
    """Bytes and inodes that a directory uses; hard links count once, other file systems do not count.

    Files that are removed during the measurement are not counted.

    Follows: v1.36, cadvisor, fs/fs.go, GetDirUsage.
    """
    try:
        root = os.lstat(path)
    except OSError:
        return 0, 0
    used, inodes, pending = root.st_blocks, {root.st_ino}, [str(path)]
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if status.st_dev != root.st_dev or status.st_ino in inodes:
                    continue
                inodes.add(status.st_ino)
                used += status.st_blocks
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return used * BLOCK_BYTES, len(inodes)


def _fs_stats(usage: tuple[int, int], at: Instant) -> FsStats:
    return FsStats(time=at, used_bytes=usage[0], inodes_used=usage[1])
