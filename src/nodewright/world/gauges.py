"""What of this machine is left, read as fast as it goes: files of /proc and of the group of all pods are kept open."""

import contextlib
import os
import time
from pathlib import Path

from nodewright.core.eviction import Filesystems
from nodewright.model.usage import (
    ContainerUse,
    FilesystemUse,
    MemoryUse,
    NodeUse,
    ProcessLimit,
    RuntimeUse,
    SwapUse,
)
from nodewright.values.instant import Instant
from nodewright.world.cgroup_files import LIVE, STAT, is_unified, memory_names
from nodewright.world.errors import WorldError

KIB = 1024
UNLIMITED = 1 << 62
_SIZE = 1 << 16


class Kept:
    """A file that is read again and again: it stays open, and is opened anew once it is another one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._file: int | None = None

    def read(self) -> bytes | None:
        """What it says now; None: it is not there."""
        if self._file is not None:
            try:
                return os.pread(self._file, _SIZE, 0)
            except OSError:
                # The group was removed; there may be a new one of its name.
                self.close()
        try:
            self._file = os.open(self.place, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._file, _SIZE, 0)
        except OSError:
            self.close()
            return None

    def number(self) -> int | None:
        """The number in it; None: there is none."""
        text = self.read()
        return int(text) if text is not None and text.strip().isdigit() else None

    def close(self) -> None:
        """Hold it open no longer."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class MachineGauges:
    """Fulfils the port `Gauges` for the machine that we run on.

    ``pods_group`` is the path of the group of all pods from the root of the tree, ``nodefs`` a place on the disk of
    the pods' volumes and logs, ``imagefs`` one on that of images; None: there are none.

    Follows: v1.36, pkg/kubelet/stats/helper.go, cadvisorInfoToMemoryStats; opencontainers/cgroups v0.0.6,
        fs/memory.go, fs2/memory.go, rootStatsFromMeminfo.
    Departs: inactive files of the machine are those of /proc/meminfo, which are up to date, where the root group's
        statistics may be two seconds old.
    """

    def __init__(
        self,
        pods_group: str,
        *,
        nodefs: Path,
        imagefs: Path | None = None,
        cgroups: Path = LIVE,
        proc: Path = Path("/proc"),
    ) -> None:
        self._is_v2 = is_unified(cgroups)
        names = memory_names(2 if self._is_v2 else 1)
        memory = cgroups if self._is_v2 else cgroups / "memory"
        pods = memory / pods_group.strip("/")
        self._meminfo, self._loadavg = Kept(proc / "meminfo"), Kept(proc / "loadavg")
        self._root = None if self._is_v2 else Kept(memory / names.used)
        self._pods_used = Kept(pods / names.used)
        self._pods_limit = Kept(pods / names.limit)
        self._pods_stat = Kept(pods / STAT)
        self._inactive = f"\n{names.inactive} ".encode()
        self._max_processes = _least(proc / "sys/kernel/pid_max", proc / "sys/kernel/threads-max")
        self._nodefs, self._imagefs = nodefs, imagefs

    def now(self) -> NodeUse:
        """Memory of the machine and of all pods, swap, processes.

        Errors: WorldError where /proc does not say.
        """
        at = Instant(time.monotonic_ns())
        text = self._meminfo.read()
        if text is None:
            raise WorldError("read", str(self._meminfo.place), "it cannot be read")
        return NodeUse(
            system_containers=self._pods(at),
            memory=self._memory(text, at),
            rlimit=self._processes(at),
            swap=_swap(text, at),
        )

    def disks(self) -> tuple[NodeUse, Filesystems]:
        """The file systems of the pods, and of the images where there are any.

        Errors: WorldError.
        """
        fs, device = _filesystem(self._nodefs)
        if self._imagefs is None:
            return NodeUse(fs=fs), Filesystems()
        image_fs, image_device = _filesystem(self._imagefs)
        apart = Filesystems(dedicated_image_fs=device != image_device)
        return NodeUse(fs=fs, runtime=RuntimeUse(image_fs=image_fs, container_fs=image_fs)), apart

    def close(self) -> None:
        """Hold no file open."""
        for each in (
            self._meminfo,
            self._loadavg,
            self._root,
            self._pods_used,
            self._pods_limit,
            self._pods_stat,
        ):
            if each is not None:
                each.close()

    def _memory(self, meminfo: bytes, at: Instant) -> MemoryUse:
        total = _amount(meminfo, b"MemTotal:")
        used = self._root.number() if self._root is not None else None
        if used is None:
            used = total - _amount(meminfo, b"\nMemFree:")
        working_set = max(used - _amount(meminfo, b"\nInactive(file):"), 0)
        return MemoryUse(
            time=at,
            available_bytes=max(total - working_set, 0),
            usage_bytes=used,
            working_set_bytes=working_set,
        )

    def _pods(self, at: Instant) -> tuple[ContainerUse, ...]:
        used = self._pods_used.number()
        if used is None:
            return ()
        inactive = _after(b"\n" + (self._pods_stat.read() or b""), self._inactive)
        working_set = max(used - inactive, 0)
        limit = self._pods_limit.number()
        left = None if limit is None or limit >= UNLIMITED else max(limit - working_set, 0)
        memory = MemoryUse(time=at, available_bytes=left, usage_bytes=used, working_set_bytes=working_set)
        return (ContainerUse(name="pods", memory=memory),)

    def _processes(self, at: Instant) -> ProcessLimit | None:
        """Processes and threads.

        Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
        """
        fields = (self._loadavg.read() or b"").split()
        if self._max_processes is None or len(fields) < 4 or b"/" not in fields[3]:
            return None
        return ProcessLimit(time=at, max_pid=self._max_processes, running=int(fields[3].partition(b"/")[2]))


def _swap(meminfo: bytes, at: Instant) -> SwapUse | None:
    total = _amount(meminfo, b"\nSwapTotal:")
    if not total:
        return None
    free = _amount(meminfo, b"\nSwapFree:")
    return SwapUse(time=at, swap_available_bytes=free, swap_usage_bytes=total - free)


def _amount(meminfo: bytes, name: bytes) -> int:
    """What /proc/meminfo says after a name; 0 where it says nothing.

    Units: bytes.
    """
    return _after(meminfo, name) * KIB


def _after(text: bytes, name: bytes) -> int:
    start = text.find(name)
    if start < 0:
        return 0
    start += len(name)
    return int(text[start : start + 40].split(maxsplit=1)[0])


def _filesystem(place: Path) -> tuple[FilesystemUse, int]:
    """The file system that a place is on, or would be, and its device."""
    existing = next(one for one in (place, *place.parents) if one.exists())
    at = Instant(time.monotonic_ns())
    try:
        room, device = os.statvfs(existing), existing.stat().st_dev
    except OSError as error:
        raise WorldError("look at the file system of", str(existing), error.strerror or str(error)) from None
    use = FilesystemUse(
        time=at,
        available_bytes=room.f_bavail * room.f_frsize,
        capacity_bytes=room.f_blocks * room.f_frsize,
        used_bytes=(room.f_blocks - room.f_bfree) * room.f_frsize,
        inodes=room.f_files,
        inodes_free=room.f_ffree,
        inodes_used=room.f_files - room.f_ffree,
    )
    return use, device


def _least(*places: Path) -> int | None:
    found = []
    for place in places:
        with contextlib.suppress(OSError, ValueError):
            found.append(int(place.read_text("ascii")))
    return min(found, default=None)
