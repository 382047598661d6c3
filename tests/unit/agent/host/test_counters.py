"""Counters of cgroups, processes, interfaces and disks."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodewright.agent.host.counters import (
    CgroupCounters,
    CPUCounters,
    DeviceIO,
    DiskCounters,
    InterfaceCounters,
    MemoryCounters,
    ProcessCounters,
    cgroup_counters,
    counters_of_processes,
    disk_counters,
    interface_counters,
)
from nodewright.agent.runtimes.simulated import FakeCgroups

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
V1 = {
    "cpuacct.usage": "5000000000",
    "cpuacct.stat": "user 200\nsystem 100",
    "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 7000",
    "cpu.shares": "512",
    "cpu.cfs_period_us": "100000",
    "cpu.cfs_quota_us": "50000",
    "memory.usage_in_bytes": "4096",
    "memory.max_usage_in_bytes": "8192",
    "memory.failcnt": "3",
    "memory.stat": "cache 1\ntotal_cache 100\ntotal_rss 200\ntotal_mapped_file 30\ntotal_swap 5\n"
    "total_active_file 60\ntotal_inactive_file 96\ntotal_pgfault 12\ntotal_pgmajfault 2",
    "memory.limit_in_bytes": "80000000",
    "memory.memsw.limit_in_bytes": "9223372036854771712",
    "memory.soft_limit_in_bytes": "9223372036854771712",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1",
    "memory.kmem.usage_in_bytes": "77",
    "pids.current": "6",
    "pids.max": "max",
    "blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 512\n8:0 Total 4608\nTotal 4608",
    "blkio.throttle.io_serviced_recursive": "8:0 Read 2\n8:0 Write 1\n8:16 Read 9\nTotal 12",
}
V2 = {
    "cpu.stat": "usage_usec 5000000\nuser_usec 2000000\nsystem_usec 1000000\nnr_periods 10\nnr_throttled 4\n"
    "throttled_usec 7",
    "cpu.weight": "20",
    "cpu.max": "50000 100000",
    "memory.current": "4096",
    "memory.peak": "8192",
    "memory.stat": "anon 200\nfile 100\nkernel 77\nfile_mapped 30\nactive_file 60\ninactive_file 96\npgfault 12\npgmajfault 2",
    "memory.max": "80000000",
    "memory.swap.current": "5",
    "memory.swap.max": "max",
    "memory.min": "0",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1",
    "pids.current": "6",
    "pids.max": "100",
    "io.stat": "8:0 rbytes=4096 wbytes=512 rios=2 wios=1 dbytes=0 dios=0\n8:16 rios=9",
}
MEMORY = MemoryCounters(
    usage_bytes=4096,
    max_usage_bytes=8192,
    working_set_bytes=4000,
    cache_bytes=100,
    rss_bytes=200,
    mapped_bytes=30,
    swap_bytes=5,
    kernel_bytes=77,
    active_file_bytes=60,
    inactive_file_bytes=96,
    page_faults=12,
    major_page_faults=2,
    limit_hits=3,
    oom_kills=1,
    limit_bytes=80_000_000,
)
DEVICES = (
    DeviceIO(device="8:0", read_bytes=4096, written_bytes=512, reads=2, writes=1),
    DeviceIO(device="8:16", reads=9),
)


def counters(version: int, files: Mapping[str, str]) -> CgroupCounters:
    cgroups = FakeCgroups(version)
    cgroups.groups["/a"] = dict(files)
    result = cgroup_counters(cgroups, "/a")
    assert result is not None
    return result


@pytest.mark.parametrize(("version", "files"), [(1, V1), (2, V2)])
def test_both_versions_count_the_same(version: int, files: Mapping[str, str]) -> None:
    result = counters(version, files)
    assert result.memory == MEMORY
    assert result.devices == DEVICES
    user_ns, system_ns = (200 * TICK_NS, 100 * TICK_NS) if version == 1 else (2 * 10**9, 10**9)
    assert result.cpu == CPUCounters(
        usage_ns=5 * 10**9,
        user_ns=user_ns,
        system_ns=system_ns,
        periods=10,
        throttled_periods=4,
        throttled_ns=7000,
        shares=512 if version == 1 else 500,
        period_us=100_000,
        quota_us=50_000,
    )
    assert (result.threads, result.max_threads) == (6, 0 if version == 1 else 100)


@pytest.mark.parametrize("version", [1, 2])
def test_what_the_kernel_does_not_have_is_0(version: int) -> None:
    result = counters(version, {"cpu.max": "max 100000"})
    assert result.cpu == CPUCounters()
    assert result.memory == MemoryCounters()
    assert (result.devices, result.threads) == ((), 0)


def test_a_cgroup_that_does_not_exist_has_no_counters() -> None:
    assert cgroup_counters(FakeCgroups(), "/none") is None


LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             95823                95823                processes
Max open files            1024                 524288               files
"""
NET = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0:    2048      20    3    4    0     0          0         0     1024      10    1    2    0     0       0          0
"""


def a_process(proc: Path, pid: int, *targets: str) -> None:
    files = proc / str(pid) / "fd"
    files.mkdir(parents=True)
    for number, target in enumerate(targets):
        (files / str(number)).symlink_to(target)


def test_open_files_and_sockets_of_all_processes_count(tmp_path: Path) -> None:
    a_process(tmp_path, 7, "/dev/null", "socket:[1]")
    a_process(tmp_path, 9, "pipe:[2]")
    (tmp_path / "7" / "limits").write_text(LIMITS)
    counters = counters_of_processes((7, 9), tmp_path)
    assert counters == ProcessCounters(processes=2, file_descriptors=3, sockets=1, max_open_files=1024)


def test_processes_that_have_ended_have_no_files(tmp_path: Path) -> None:
    assert counters_of_processes((7,), tmp_path) == ProcessCounters(processes=1)
    assert counters_of_processes((), tmp_path) == ProcessCounters()
    assert interface_counters(7, tmp_path) == ()


def test_an_unlimited_number_of_files_is_0(tmp_path: Path) -> None:
    a_process(tmp_path, 7)
    (tmp_path / "7" / "limits").write_text(
        "Max open files            unlimited            unlimited   files\n"
    )
    assert counters_of_processes((7,), tmp_path).max_open_files == 0


def test_the_loopback_interface_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "7" / "net").mkdir(parents=True)
    (tmp_path / "7" / "net" / "dev").write_text(NET)
    assert interface_counters(7, tmp_path) == (
        InterfaceCounters(
            name="eth0",
            received_bytes=2048,
            received_packets=20,
            receive_errors=3,
            received_dropped=4,
            sent_bytes=1024,
            sent_packets=10,
            send_errors=1,
            sent_dropped=2,
        ),
    )


def test_the_line_of_the_device_counts(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    numbers = f"{os.major(device)} {os.minor(device)}"
    (tmp_path / "diskstats").write_text(
        f"   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n   {numbers} sda1 1 2 3 4 5 6 7 8 9 10 11 0 0 0 0\n"
    )
    assert disk_counters(tmp_path, tmp_path) == DiskCounters(
        device="/dev/sda1",
        reads=1,
        merged_reads=2,
        read_sectors=3,
        read_ms=4,
        writes=5,
        merged_writes=6,
        written_sectors=7,
        write_ms=8,
        in_flight=9,
        busy_ms=10,
        weighted_ms=11,
    )


def test_a_file_system_without_a_device_has_no_counters(tmp_path: Path) -> None:
    (tmp_path / "diskstats").write_text("   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n")
    assert disk_counters(tmp_path, tmp_path) is None
    assert disk_counters(tmp_path / "none", tmp_path) is None
    assert disk_counters(tmp_path, tmp_path / "none") is None
