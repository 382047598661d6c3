"""Reads the current usage of a machine as its kubelet reports it: from /proc, file systems and cgroups."""

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nodewright.documents.files.cgroup_files import memory_file_names
from nodewright.documents.profiles.machine.host_facts import (
    IMAGE_ROOTS,
    KUBELET_ROOT,
    MachineSources,
    cgroup_version,
    process_limit,
    this_machine,
)
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    InterfaceStats,
    IOStats,
    MemoryStats,
    NetworkStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    PSIData,
    PSIStats,
    RlimitStats,
    RuntimeStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant

KIB = 1024
_MOUNT = "fs/cgroup"
_ROOTS = ("kubepods.slice", "kubepods")
_POD = re.compile(r"(?:.*-)?pod([0-9a-zA-Z][0-9a-zA-Z_.-]*?)(?:\.slice)?")
_CLASS = re.compile(r"(?:kubepods-)?(?:burstable|besteffort)(?:\.slice)?")
_MEMINFO = re.compile(r"^([A-Za-z()_]+):[ \t]*([0-9]+) kB$", re.MULTILINE)
_PRESSURE = re.compile(
    r"^(some|full) avg10=([0-9.]+) avg60=([0-9.]+) avg300=([0-9.]+) total=([0-9]+)$", re.MULTILINE
)


def usage_of_this_machine() -> StatsSummary:
    """The usage of this machine, with pods by uid. Needs no privileges.

    Errors: InputError with values in /proc or cgroups that are not numbers; HostError if a file cannot be read.
    """
    if sys.platform != "linux":
        raise InputError([Fault(rule="this machine is not Linux: specify --usage or --available")])
    sources = this_machine()
    usage = read_usage(sources, nodefs=_filesystem(KUBELET_ROOT), imagefs=_image_filesystem())
    sources.finish()
    return usage


def read_usage(
    sources: MachineSources, *, nodefs: FsStats | None = None, imagefs: FsStats | None = None
) -> StatsSummary:
    """The usage in the files; `sources` collects the faults.

    Follows: v1.36, pkg/kubelet/stats/helper.go, cadvisorInfoToMemoryStats; cadvisor/container/libcontainer/handler.go,
        setMemoryStats: the working set is the usage without inactive files; on cgroup v2 the usage of the machine is
        all memory that is not free.
    """
    cgroups = _PodCgroups(sources)
    runtime = None if imagefs is None else RuntimeStats(image_fs=imagefs, container_fs=imagefs)
    node = NodeStats(
        system_containers=cgroups.pods_cgroup(),
        memory=_node_memory(sources, cgroups),
        fs=nodefs,
        runtime=runtime,
        rlimit=_processes(sources),
        swap=_swap(sources),
        io=IOStats(psi=parsed_pressure(sources.proc.text("pressure/io"))),
    )
    return StatsSummary(node=node, pods=tuple(cgroups.pods()))


# ---------------------------------------------------------------- the machine


def _node_memory(sources: MachineSources, cgroups: "_PodCgroups") -> MemoryStats | None:
    amounts = _meminfo(sources)
    if not {"MemTotal", "MemFree"} <= amounts.keys():
        place = sources.proc.full_path("meminfo")
        sources.add_fault(place, None, "must have lines such as `MemTotal: 1024 kB` and `MemFree: 512 kB`")
        return None
    total = amounts["MemTotal"]
    used = cgroups.root_usage()
    used = total - amounts["MemFree"] if used is None else used
    inactive = cgroups.inactive("")
    inactive = amounts.get("Inactive(file)", 0) if inactive is None else inactive
    working_set = max(used - inactive, 0)
    return MemoryStats(
        available_bytes=max(total - working_set, 0),
        usage_bytes=used,
        working_set_bytes=working_set,
        psi=parsed_pressure(sources.proc.text("pressure/memory")),
    )


def _meminfo(sources: MachineSources) -> dict[str, int]:
    text = sources.proc.text("meminfo") or ""
    place = sources.proc.full_path("meminfo")
    return {name: sources.number(place, amount) * KIB for name, amount in _MEMINFO.findall(text)}


def _swap(sources: MachineSources) -> SwapStats | None:
    amounts = _meminfo(sources)
    if not amounts.get("SwapTotal"):
        return None
    free = amounts.get("SwapFree", 0)
    return SwapStats(swap_available_bytes=free, swap_usage_bytes=max(amounts["SwapTotal"] - free, 0))


def _processes(sources: MachineSources) -> RlimitStats | None:
    """The number of processes and threads, and the limit.

    Follows: v1.36, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
    """
    limit = process_limit(sources)
    fields = (sources.proc.text("loadavg") or "").split()
    place = sources.proc.full_path("loadavg")
    if not limit or len(fields) < 5 or fields[3].count("/") != 1:
        if limit:
            sources.add_fault(place, " ".join(fields), "must be such as `0.1 0.2 0.3 2/345 6789`")
        return None
    return RlimitStats(max_pid=limit, running=sources.number(place, fields[3].split("/")[1]))


def parsed_pressure(text: str | None) -> PSIStats | None:
    """The values in a pressure file of the kernel; None if it has none."""
    shares = {
        kind: PSIData(avg10=float(ten), avg60=float(sixty), avg300=float(three_hundred), total=int(total))
        for kind, ten, sixty, three_hundred, total in _PRESSURE.findall(text or "")
    }
    if not shares:
        return None
    return PSIStats(some=shares.get("some", PSIData()), full=shares.get("full", PSIData()))


def _filesystem(place: Path) -> FsStats:
    """The usage of the file system of a directory, which need not exist yet."""
    existing = next(parent for parent in (place, *place.parents) if parent.exists())
    statvfs = os.statvfs(existing)
    return FsStats(
        available_bytes=statvfs.f_bavail * statvfs.f_frsize,
        capacity_bytes=statvfs.f_blocks * statvfs.f_frsize,
        used_bytes=(statvfs.f_blocks - statvfs.f_bfree) * statvfs.f_frsize,
        inodes=statvfs.f_files,
        inodes_free=statvfs.f_ffree,
        inodes_used=statvfs.f_files - statvfs.f_ffree,
    )


def _image_filesystem(places: Sequence[Path] = IMAGE_ROOTS) -> FsStats:
    return _filesystem(next((place for place in places if place.exists()), KUBELET_ROOT))


# ---------------------------------------------------------------- cgroups


class _PodCgroups:
    """The cgroups of pods in the hierarchy of either version, as paths from the mount point."""

    def __init__(self, sources: MachineSources) -> None:
        self._sources = sources
        version = cgroup_version(sources)
        self._is_v2, self._file_names = version == 2, memory_file_names(version)
        self._memory = _MOUNT if self._is_v2 else f"{_MOUNT}/memory"
        names = sources.sys.names(self._memory)
        self._root = next((name for name in _ROOTS if name in names), None)

    def pods_cgroup(self) -> tuple[ContainerStats, ...]:
        """The cgroup of all pods, as a summary lists it; empty if it does not exist."""
        if self._root is None:
            return ()
        limit = self._number(self._root, self._file_names.limit)
        memory = self._memory_stats(self._root)
        if limit is not None and memory is not None and limit < 1 << 62:
            available = max(limit - (memory.working_set_bytes or 0), 0)
            memory = MemoryStats(
                available_bytes=available,
                usage_bytes=memory.usage_bytes,
                working_set_bytes=memory.working_set_bytes,
            )
        return (ContainerStats(name="pods", memory=memory),)

    def pods(self) -> Iterator[PodStats]:
        """The usage of each pod, in the order of the cgroups' names."""
        if self._root is None:
            return
        parents = [self._root]
        parents += [
            f"{self._root}/{name}" for name in self._child_names(self._root) if _CLASS.fullmatch(name)
        ]
        for parent in parents:
            for name in self._child_names(parent):
                match = _POD.fullmatch(name)
                if match is not None:
                    yield self._pod(f"{parent}/{name}", match[1].replace("_", "-"))

    def root_usage(self) -> int | None:
        """The memory usage of the whole machine; None if only /proc/meminfo has it."""
        return None if self._is_v2 else self._number("", self._file_names.usage)

    def inactive(self, group: str) -> int | None:
        """The inactive file pages of the cgroup.

        Units: bytes.
        """
        path = f"{self._memory}/{group}/memory.stat" if group else f"{self._memory}/memory.stat"
        for line in (self._sources.sys.text(path) or "").splitlines():
            key, _, amount = line.partition(" ")
            if key == self._file_names.inactive_file:
                return self._sources.number(self._sources.sys.full_path(path), amount)
        return None

    def _pod(self, group: str, uid: str) -> PodStats:
        swap = self._number(group, "memory.swap.current") if self._is_v2 else None
        return PodStats(
            pod_ref=PodReference(uid=uid),
            memory=self._memory_stats(group),
            processes=ProcessStats(process_count=self._processes_in(group)),
            swap=None if swap is None else SwapStats(swap_usage_bytes=swap),
        )

    def _memory_stats(self, group: str) -> MemoryStats | None:
        used = self._number(group, self._file_names.usage)
        if used is None:
            return None
        stalls = self._sources.sys.text(f"{self._memory}/{group}/memory.pressure") if self._is_v2 else None
        return MemoryStats(
            usage_bytes=used,
            working_set_bytes=max(used - (self.inactive(group) or 0), 0),
            psi=parsed_pressure(stalls),
        )

    def _processes_in(self, group: str) -> int:
        """The number of processes in the cgroup and its descendants."""
        text = self._sources.sys.text(f"{self._memory}/{group}/cgroup.procs") or ""
        of_children = (self._processes_in(f"{group}/{name}") for name in self._child_names(group))
        return len(text.split()) + sum(of_children)

    def _child_names(self, group: str) -> tuple[str, ...]:
        """The names of the child cgroups."""
        names = self._sources.sys.names(f"{self._memory}/{group}")
        return tuple(name for name in names if self._sources.sys.names(f"{self._memory}/{group}/{name}"))

    def _number(self, group: str, name: str) -> int | None:
        path = f"{self._memory}/{group}/{name}" if group else f"{self._memory}/{name}"
        text = self._sources.sys.text(path)
        if text is None or text == "max":
            return None
        return self._sources.number(self._sources.sys.full_path(path), text)


_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_LOOPBACK = "lo"


class CPUTicks(NamedTuple):
    """CPU time since boot.

    Units: ticks of all CPUs together.
    """

    busy: int
    total: int

    def busy_share_since(self, earlier: "CPUTicks") -> float | None:
        """The share of busy time since an earlier reading; None if no time has passed.

        >>> CPUTicks(30, 120).busy_share_since(CPUTicks(10, 20))
        0.2
        """
        elapsed = self.total - earlier.total
        return (self.busy - earlier.busy) / elapsed if elapsed > 0 else None


def cpu_ticks(proc: Path = Path("/proc")) -> CPUTicks:
    """The CPU time up to now.

    Errors: HostError.
    """
    place = proc / "stat"
    try:
        # User time includes guests; waiting for disks counts as idle.
        user, nice, system, idle, waiting, irq, soft, stolen = map(
            int, place.read_text("ascii").split("\n", 1)[0].split()[1:9]
        )
    except OSError as error:
        raise HostError("read", str(place), error.strerror or str(error)) from None
    except ValueError:
        raise HostError("read", str(place), "its first line does not have the times of all CPUs") from None
    busy = user + nice + system + irq + soft + stolen
    return CPUTicks(busy, busy + idle + waiting)


def cpu_time_ns(proc: Path = Path("/proc")) -> int:
    """The CPU time that this machine has used since boot.

    Units:  nanoseconds.
    Errors: HostError.
    """
    return cpu_ticks(proc).busy * _TICK_NS


def boot_time(proc: Path = Path("/proc")) -> Instant | None:
    """The boot time of this machine; None if it is not known."""
    for line in _text(proc / "stat").splitlines():
        if line.startswith("btime "):
            return Instant(int(line.split()[1]) * 10**9)
    return None


def network_use(proc: Path = Path("/proc")) -> NetworkStats | None:
    """Traffic of the network interfaces, with that of the default route first; None if there are none."""
    interfaces = tuple(_interfaces(_text(proc / "net/dev")))
    if not interfaces:
        return None
    default_interface = _default_interface(_text(proc / "net/route"))
    main = next((interface for interface in interfaces if interface.name == default_interface), interfaces[0])
    return NetworkStats(
        time=Instant(time.time_ns()),
        name=main.name,
        rx_bytes=main.rx_bytes,
        rx_errors=main.rx_errors,
        tx_bytes=main.tx_bytes,
        tx_errors=main.tx_errors,
        interfaces=interfaces,
    )


def pressure_stalls(name: str, proc: Path = Path("/proc")) -> PSIStats | None:
    """The pressure of `cpu`, `memory` or `io`; None if the kernel does not measure it."""
    return parsed_pressure(_text(proc / "pressure" / name))


def io_pressure_stalls(proc: Path = Path("/proc")) -> IOStats | None:
    """The pressure of `io` with its time; None if the kernel does not measure it."""
    psi = pressure_stalls("io", proc)
    return None if psi is None else IOStats(time=Instant(time.time_ns()), psi=psi)


def _interfaces(text: str) -> Iterator[InterfaceStats]:
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) >= 11 and name.strip() != _LOOPBACK:
            received, receive_errors, sent, send_errors = (int(fields[place]) for place in (0, 2, 8, 10))
            yield InterfaceStats(
                name=name.strip(),
                rx_bytes=received,
                rx_errors=receive_errors,
                tx_bytes=sent,
                tx_errors=send_errors,
            )


def _default_interface(text: str) -> str:
    """The interface of the default route."""
    rows = (line.split() for line in text.splitlines()[1:])
    return next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")


def _text(place: Path) -> str:
    try:
        return place.read_text("ascii")
    except (OSError, ValueError):
        return ""


class HostUsage(NamedTuple):
    """CPU time and memory use at a moment.

    Units: ticks of all CPUs together since boot; bytes.
    """

    busy_ticks: int
    total_ticks: int
    working_set_bytes: int | None
    """None: not known."""


def host_usage() -> HostUsage:
    """The CPU time and memory use of this machine now.

    Errors: HostError, InputError.
    """
    ticks = cpu_ticks()
    memory = usage_of_this_machine().node.memory
    working_set = memory.working_set_bytes if memory is not None else None
    return HostUsage(ticks.busy, ticks.total, None if working_set is None else int(working_set))
