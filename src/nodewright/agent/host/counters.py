"""What the kernel counts of cgroups, processes, network interfaces and disks, beyond the usage of Summary.

Units: bytes; nanoseconds; counts.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nodewright.documents.files.cgroup_files import CgroupManager, flat_keyed_values
from nodewright.engine.core.cgroups.cpu_weight import Weight, weight_to_shares
from nodewright.model.values.cpu_time import CFS_PERIOD

_MEMORY_FILES = {
    1: (
        *("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt", "memory.stat"),
        *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.soft_limit_in_bytes"),
        *("memory.oom_control", "memory.kmem.usage_in_bytes"),
    ),
    2: (
        *("memory.current", "memory.peak", "memory.stat", "memory.max", "memory.swap.current"),
        *("memory.swap.max", "memory.min", "memory.events"),
    ),
}
_BYTES, _SERVICED = "blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"
_OTHER_FILES = {
    1: (
        *("cpuacct.usage", "cpuacct.stat", "cpu.stat", "cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
        *("pids.current", "pids.max", _BYTES, _SERVICED),
    ),
    2: ("cpu.stat", "cpu.weight", "cpu.max", "pids.current", "pids.max", "io.stat"),
}
_UNLIMITED = 1 << 62


class DeviceIO(msgspec.Struct, frozen=True, kw_only=True):
    """Reads and writes of a block device, named by its numbers."""

    device: str
    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0


class CPUCounters(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time of a cgroup, and its settings."""

    usage_ns: int = 0
    user_ns: int = 0
    system_ns: int = 0
    periods: int = 0
    throttled_periods: int = 0
    throttled_ns: int = 0
    shares: int = 0
    period_us: int = CFS_PERIOD
    quota_us: int = 0
    """0: no ceiling."""


class MemoryCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a cgroup, and its settings; limits of 0 are none."""

    usage_bytes: int = 0
    max_usage_bytes: int = 0
    working_set_bytes: int = 0
    cache_bytes: int = 0
    rss_bytes: int = 0
    mapped_bytes: int = 0
    swap_bytes: int = 0
    kernel_bytes: int = 0
    active_file_bytes: int = 0
    inactive_file_bytes: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    limit_hits: int = 0
    oom_kills: int = 0
    limit_bytes: int = 0
    swap_limit_bytes: int = 0
    reservation_bytes: int = 0


class CgroupCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel counts of a cgroup."""

    at_ns: int
    cpu: CPUCounters
    memory: MemoryCounters
    devices: tuple[DeviceIO, ...] = ()
    threads: int = 0
    max_threads: int = 0
    """0: no limit."""


def cgroup_counters(cgroups: CgroupManager, path: str) -> CgroupCounters | None:
    """The counters of a cgroup; None if it does not exist.

    Follows: v1.36, cadvisor/container/libcontainer/handler.go, newContainerStats; cadvisor/container/common/helpers.go,
        getSpecInternal; opencontainers/cgroups v0.0.6, fs and fs2.
    """
    files = cgroups.read_files(path, (*_MEMORY_FILES[cgroups.version], *_OTHER_FILES[cgroups.version]))
    if files is None:
        return None
    is_v2 = cgroups.version == 2
    max_threads = files.get("pids.max", "")
    return CgroupCounters(
        at_ns=time.time_ns(),
        cpu=_cpu_v2(files) if is_v2 else _cpu_v1(files),
        memory=_memory(files, cgroups.version),
        devices=_devices_v2(files) if is_v2 else _devices_v1(files),
        threads=_number(files, "pids.current"),
        max_threads=int(max_threads) if max_threads.isdecimal() else 0,
    )


def memory_counters(cgroups: CgroupManager, path: str) -> MemoryCounters | None:
    """What `cgroup_counters` has of the memory; None if the cgroup does not exist."""
    files = cgroups.read_files(path, _MEMORY_FILES[cgroups.version])
    if files is None:
        return None
    return _memory(files, cgroups.version)


_STAT_KEYS = {
    "cache_bytes": ("total_cache", "file"),
    "rss_bytes": ("total_rss", "anon"),
    "mapped_bytes": ("total_mapped_file", "file_mapped"),
    "active_file_bytes": ("total_active_file", "active_file"),
    "inactive_file_bytes": ("total_inactive_file", "inactive_file"),
    "page_faults": ("total_pgfault", "pgfault"),
    "major_page_faults": ("total_pgmajfault", "pgmajfault"),
}
"""The keys of `memory.stat` in version 1 and 2."""
_NUMBER_FILES = {
    "usage_bytes": ("memory.usage_in_bytes", "memory.current"),
    "max_usage_bytes": ("memory.max_usage_in_bytes", "memory.peak"),
}
_LIMIT_FILES = {
    "limit_bytes": ("memory.limit_in_bytes", "memory.max"),
    "swap_limit_bytes": ("memory.memsw.limit_in_bytes", "memory.swap.max"),
    "reservation_bytes": ("memory.soft_limit_in_bytes", "memory.min"),
}


def _memory(files: Mapping[str, str], version: int) -> MemoryCounters:
    stat = flat_keyed_values(files.get("memory.stat", ""))
    amounts = {field: stat.get(keys[version - 1], 0) for field, keys in _STAT_KEYS.items()}
    amounts |= {field: _number(files, names[version - 1]) for field, names in _NUMBER_FILES.items()}
    amounts |= {field: _limit(files, names[version - 1]) for field, names in _LIMIT_FILES.items()}
    events = flat_keyed_values(files.get("memory.oom_control" if version == 1 else "memory.events", ""))
    return MemoryCounters(
        **amounts,
        working_set_bytes=max(amounts["usage_bytes"] - amounts["inactive_file_bytes"], 0),
        swap_bytes=stat.get("total_swap", 0) if version == 1 else _number(files, "memory.swap.current"),
        kernel_bytes=_number(files, "memory.kmem.usage_in_bytes") if version == 1 else stat.get("kernel", 0),
        limit_hits=_number(files, "memory.failcnt") if version == 1 else events.get("max", 0),
        oom_kills=events.get("oom_kill", 0),
    )


# ---------------------------------------------------------------- version 1


def _cpu_v1(files: Mapping[str, str]) -> CPUCounters:
    modes, stat = (flat_keyed_values(files.get(name, "")) for name in ("cpuacct.stat", "cpu.stat"))
    tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
    return CPUCounters(
        usage_ns=_number(files, "cpuacct.usage"),
        user_ns=modes.get("user", 0) * tick_ns,
        system_ns=modes.get("system", 0) * tick_ns,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_ns=stat.get("throttled_time", 0),
        shares=_number(files, "cpu.shares"),
        period_us=_number(files, "cpu.cfs_period_us") or CFS_PERIOD,
        quota_us=_number(files, "cpu.cfs_quota_us"),
    )


def _devices_v1(files: Mapping[str, str]) -> tuple[DeviceIO, ...]:
    """Lines of `8:0 Read 4096`."""
    fields = {
        (_BYTES, "Read"): "read_bytes",
        (_BYTES, "Write"): "written_bytes",
        (_SERVICED, "Read"): "reads",
        (_SERVICED, "Write"): "writes",
    }
    devices: dict[str, dict[str, int]] = {}
    for name in (_BYTES, _SERVICED):
        for line in files.get(name, "").splitlines():
            words = line.split()
            if len(words) == 3 and (name, words[1]) in fields and words[2].isdecimal():
                devices.setdefault(words[0], {})[fields[name, words[1]]] = int(words[2])
    return _named_devices(devices)


# ---------------------------------------------------------------- version 2


def _cpu_v2(files: Mapping[str, str]) -> CPUCounters:
    stat = flat_keyed_values(files.get("cpu.stat", ""))
    quota, _, period = files.get("cpu.max", "").partition(" ")
    weight = _number(files, "cpu.weight")
    return CPUCounters(
        usage_ns=stat.get("usage_usec", 0) * 1000,
        user_ns=stat.get("user_usec", 0) * 1000,
        system_ns=stat.get("system_usec", 0) * 1000,
        periods=stat.get("nr_periods", 0),
        throttled_periods=stat.get("nr_throttled", 0),
        throttled_ns=stat.get("throttled_usec", 0) * 1000,
        shares=weight_to_shares(Weight(weight)) if weight else 0,
        period_us=int(period) if period.isdecimal() else CFS_PERIOD,
        quota_us=int(quota) if quota.isdecimal() else 0,
    )


def _devices_v2(files: Mapping[str, str]) -> tuple[DeviceIO, ...]:
    """Lines of `8:0 rbytes=4096 wbytes=0 rios=1 wios=0`."""
    fields = {"rbytes": "read_bytes", "wbytes": "written_bytes", "rios": "reads", "wios": "writes"}
    devices: dict[str, dict[str, int]] = {}
    for line in files.get("io.stat", "").splitlines():
        device, *pairs = line.split() or [""]
        for pair in pairs:
            key, _, number = pair.partition("=")
            if key in fields and number.isdecimal():
                devices.setdefault(device, {})[fields[key]] = int(number)
    return _named_devices(devices)


def _named_devices(devices: Mapping[str, Mapping[str, int]]) -> tuple[DeviceIO, ...]:
    return tuple(DeviceIO(device=name, **amounts) for name, amounts in sorted(devices.items()))


def _number(files: Mapping[str, str], name: str) -> int:
    text = files.get(name, "")
    return int(text) if text.isdecimal() else 0


def _limit(files: Mapping[str, str], name: str) -> int:
    """A limit; 0: none, as the kernel's maximum or `max`."""
    amount = _number(files, name)
    return amount if amount < _UNLIMITED else 0


# ---------------------------------------------------------------- processes and interfaces


_PROC = Path("/proc")
_LOOPBACK = "lo"


class ProcessCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a cgroup, and their files."""

    processes: int = 0
    file_descriptors: int = 0
    sockets: int = 0
    max_open_files: int = 0
    """The soft limit of the oldest process; 0: not known."""


class InterfaceCounters(msgspec.Struct, frozen=True):
    """The traffic of a network interface since its creation.

    Units: bytes; packets.
    """

    name: str
    received_bytes: int
    received_packets: int
    receive_errors: int
    received_dropped: int
    sent_bytes: int
    sent_packets: int
    send_errors: int
    sent_dropped: int


def counters_of_processes(pids: Sequence[int], proc: Path = _PROC) -> ProcessCounters:
    """The counts of these processes; those that end meanwhile do not count.

    Follows: v1.36, cadvisor/container/libcontainer/handler.go, processStatsFromProcs, processRootProcUlimits.
    """
    targets = [target for pid in pids for target in _open_files(proc / str(pid) / "fd")]
    return ProcessCounters(
        processes=len(pids),
        file_descriptors=len(targets),
        sockets=sum(target.startswith("socket:") for target in targets),
        max_open_files=_max_open_files(_text(proc / str(pids[0]) / "limits")) if pids else 0,
    )


def interface_counters(pid: int, proc: Path = _PROC) -> tuple[InterfaceCounters, ...]:
    """The traffic in the network namespace of a process, without its loopback interface; none: it has ended."""
    rows = (line.partition(":") for line in _text(proc / str(pid) / "net" / "dev").splitlines()[2:])
    counters = []
    for name, _, rest in rows:
        fields = [int(field) for field in rest.split()]
        if len(fields) >= 16 and name.strip() != _LOOPBACK:
            counters.append(InterfaceCounters(name.strip(), *fields[:4], *fields[8:12]))
    return tuple(counters)


def _open_files(directory: Path) -> Iterator[str]:
    try:
        paths = [*directory.iterdir()]
    except OSError:
        return
    for path in paths:
        try:
            yield str(path.readlink())
        except OSError:
            # Closed meanwhile.
            continue


def _max_open_files(limits: str) -> int:
    """The soft limit in a text with a line such as `Max open files            1024                 4096   files`."""
    for line in limits.splitlines():
        if line.startswith("Max open files"):
            words = line.removeprefix("Max open files").split()
            return int(words[0]) if words and words[0].isdecimal() else 0
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- disks


_SECTOR_FIELDS = 14


class DiskCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a block device, in the order of the kernel's /proc/diskstats.

    Units: requests; sectors of 512 bytes; milliseconds.
    """

    device: str
    """Its path, as `/dev/sda1`."""
    reads: int = 0
    merged_reads: int = 0
    read_sectors: int = 0
    read_ms: int = 0
    writes: int = 0
    merged_writes: int = 0
    written_sectors: int = 0
    write_ms: int = 0
    in_flight: int = 0
    busy_ms: int = 0
    weighted_ms: int = 0


def disk_counters(path: Path, proc: Path = Path("/proc")) -> DiskCounters | None:
    """The counters of the device that a file system is on; None: it is on none, or not known.

    Follows: v1.36, cadvisor/fs/fs.go, getDiskStatsMap.
    """
    try:
        device = path.stat().st_dev
        lines = (proc / "diskstats").read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    numbers = [str(os.major(device)), str(os.minor(device))]
    row = next((words for line in lines if (words := line.split())[:2] == numbers), None)
    if row is None or len(row) < _SECTOR_FIELDS:
        return None
    amounts = [int(word) for word in row[3:_SECTOR_FIELDS]]
    names = [field.name for field in msgspec.structs.fields(DiskCounters)][1:]
    return DiskCounters(device=f"/dev/{row[2]}", **dict(zip(names, amounts, strict=True)))
