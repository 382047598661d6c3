"""Readings for eviction: memory, file systems, the disk usage of pods, and the kernel's notification."""

import asyncio
import mmap
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.agent.host.eviction_readings import (
    DiskStorageStats,
    HostStatsProvider,
    KernelPressureNotifier,
    PodDirectories,
    PolledFile,
    directory_usage,
)
from nodewright.agent.host.ports import THRESHOLD_NOTIFICATION
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems, signal_observations
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.testing.objects import a_pod

KIB, MIB = 1024, 1 << 20
MEMINFO = """MemTotal:       1000 kB
MemFree:         250 kB
Buffers:          20 kB
Cached:          180 kB
SwapCached:        0 kB
AnonPages:       300 kB
Inactive:         90 kB
Inactive(file):   50 kB
SwapTotal:        {swap} kB
SwapFree:         70 kB
"""


def a_machine(at: Path, *, version: int, swap: int = 0) -> HostStatsProvider:
    """A machine whose cgroup of all pods is `ours`, with a limit of 3 MiB of which 2 are used."""
    (at / "proc/sys/kernel").mkdir(parents=True)
    (at / "proc/meminfo").write_text(MEMINFO.format(swap=swap))
    (at / "proc/loadavg").write_text("0.1 0.2 0.3 2/345 6789\n")
    (at / "proc/sys/kernel/pid_max").write_text("32768\n")
    (at / "proc/sys/kernel/threads-max").write_text("1000\n")
    root = at / "cgroup" if version == 2 else at / "cgroup/memory"
    pods = root / "ours"
    pods.mkdir(parents=True)
    if version == 2:
        (root / "cgroup.controllers").write_text("memory\n")
        files = {"memory.current": 2 * MIB, "memory.max": 3 * MIB, "memory.stat": f"inactive_file {MIB}"}
    else:
        (root / "memory.usage_in_bytes").write_text(f"{500 * KIB}\n")
        stat = f"inactive_file 5\ntotal_inactive_file {MIB}"
        files = {"memory.usage_in_bytes": 2 * MIB, "memory.limit_in_bytes": 3 * MIB, "memory.stat": stat}
    for name, said in files.items():
        (pods / name).write_text(f"{said}\n")
    return HostStatsProvider("/ours", nodefs=at, cgroups=at / "cgroup", proc=at / "proc")


def test_huge_pages_are_neither_available_nor_part_of_the_capacity(tmp_path: Path) -> None:
    a_machine(tmp_path, version=2)
    for pages_kib, available_kib in ((100, 1000 - 450 - 100), (550, 0), (600, 0), (1100, 0)):
        gauges = HostStatsProvider(
            "/ours",
            nodefs=tmp_path,
            cgroups=tmp_path / "cgroup",
            proc=tmp_path / "proc",
            huge_page_bytes=pages_kib * KIB,
        )
        result = signal_observations(StatsSummary(node=gauges.node_stats()))
        assert result[Signal.MEMORY_AVAILABLE].available.value() == available_kib * KIB
        assert result[Signal.MEMORY_AVAILABLE].capacity.value() == (available_kib + 450) * KIB
        assert result[Signal.ALLOCATABLE_MEMORY_AVAILABLE].available.value() == 2 * MIB


@pytest.mark.parametrize(
    ("version", "left_kib"),
    [
        pytest.param(2, 1000 - (500 - 50), id="anonymous and file pages are used"),
        pytest.param(1, 1000 - (500 - 50), id="what the root group says is used"),
    ],
)
def test_available_memory_is_the_unused_memory_and_inactive_files(
    tmp_path: Path, version: int, left_kib: int
) -> None:
    gauges = a_machine(tmp_path, version=version)
    result = signal_observations(StatsSummary(node=gauges.node_stats()))
    assert result[Signal.MEMORY_AVAILABLE].available.value() == left_kib * KIB
    assert result[Signal.MEMORY_AVAILABLE].capacity.value() == 1000 * KIB
    assert result[Signal.ALLOCATABLE_MEMORY_AVAILABLE].available.value() == 2 * MIB
    assert result[Signal.ALLOCATABLE_MEMORY_AVAILABLE].capacity.value() == 3 * MIB
    assert result[Signal.PID_AVAILABLE].available.value() == 1000 - 345
    gauges.close()


def test_without_a_limit_nothing_is_known_of_what_pods_have_left(tmp_path: Path) -> None:
    gauges = a_machine(tmp_path, version=2)
    (tmp_path / "cgroup/ours/memory.max").write_text("max\n")
    assert Signal.ALLOCATABLE_MEMORY_AVAILABLE not in signal_observations(
        StatsSummary(node=gauges.node_stats())
    )
    gauges.close()


def test_swap_is_reported_if_the_machine_has_any(tmp_path: Path) -> None:
    gauges = a_machine(tmp_path, version=2, swap=100)
    swap = gauges.node_stats().swap
    assert swap is not None
    assert (swap.swap_available_bytes, swap.swap_usage_bytes) == (70 * KIB, 30 * KIB)
    gauges.close()


def test_a_machine_without_pressure_files_reports_them_as_unavailable(tmp_path: Path) -> None:
    gauges = HostStatsProvider("/ours", nodefs=tmp_path, cgroups=tmp_path, proc=tmp_path)
    with pytest.raises(HostError, match="meminfo"):
        gauges.node_stats()


def test_images_on_the_same_disk_have_no_dedicated_file_system(tmp_path: Path) -> None:
    gauges = HostStatsProvider("/ours", nodefs=tmp_path / "not/there", imagefs=tmp_path)
    node, filesystems = gauges.filesystem_stats()
    assert filesystems == NodeFilesystems()
    assert node.fs is not None
    assert node.runtime is not None
    assert node.runtime.image_fs is not None
    assert node.runtime.image_fs.capacity_bytes == node.fs.capacity_bytes


def test_images_on_another_disk_have_a_dedicated_file_system(tmp_path: Path) -> None:
    gauges = HostStatsProvider("/ours", nodefs=tmp_path, imagefs=Path("/proc"))
    assert gauges.filesystem_stats()[1] == NodeFilesystems(dedicated_image_fs=True)


def test_a_polled_file_may_appear_and_disappear(tmp_path: Path) -> None:
    kept = PolledFile(tmp_path / "said")
    assert kept.read() is None
    kept.path.write_text("5\n")
    assert kept.number() == 5
    kept.path.write_text("max\n")
    assert kept.number() is None
    kept.close()


def test_a_directory_uses_as_much_as_du_reports(tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "deep/er/file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/")
    process = subprocess.run(
        ["du", "-s", "--block-size=1", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert directory_usage(tmp_path) == (int(process.stdout.split()[0]), 5)


def test_a_missing_directory_uses_nothing(tmp_path: Path) -> None:
    assert directory_usage(tmp_path / "gone") == (0, 0)


def test_a_pod_holds_its_volumes_and_logs(tmp_path: Path) -> None:
    for name in ("cache", "logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 50_000)
    places = PodDirectories(
        volumes={"cache": tmp_path / "cache"},
        logs={"main": tmp_path / "logs", "idle": tmp_path / "none"},
    )
    use = DiskStorageStats(lambda _: places).pod_usage(a_pod())
    each = directory_usage(tmp_path / "cache")[0]
    assert each > 50_000
    assert use.ephemeral_storage is not None
    assert use.ephemeral_storage.used_bytes == 2 * each
    assert [(volume.name, volume.used_bytes) for volume in use.volumes] == [("cache", each)]
    main, idle = use.containers
    assert main.logs is not None
    assert (main.logs.used_bytes, main.rootfs) == (each, None)
    assert (idle.name, idle.rootfs) == ("idle", None)


FILES = Path("/proc/self/fd")
V1 = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory cgroup for the test (cgroup v1)."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a cgroup")
    if not (V1 / "cgroup.event_control").exists():
        pytest.skip(f"needs cgroup v1's memory controller at {V1}")
    place = V1 / f"nodewright-alarms-{os.getpid()}"
    place.mkdir()
    yield place
    for _ in range(100):
        try:
            place.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
    place.rmdir()


def grows_in(group: Path, amount: int) -> None:
    """Runs a process in the cgroup that allocates this much memory and exits."""
    child = os.fork()
    if child == 0:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        memory = mmap.mmap(-1, amount)
        for page in range(0, amount, mmap.PAGESIZE):
            memory[page] = 1
        os._exit(0)


@pytest.mark.live
def test_a_cgroup_that_reaches_its_threshold_notifies(group: Path) -> None:
    async def wait_for_notification() -> str:
        alarms = KernelPressureNotifier(f"/{group.name}")
        try:
            alarms.set_threshold(64 * MIB)
            ringing = asyncio.ensure_future(alarms.wait())
            await asyncio.sleep(0.05)
            assert not ringing.done()
            grows_in(group, 128 * MIB)
            return await asyncio.wait_for(ringing, 60)
        finally:
            alarms.close()

    files = len(list(FILES.iterdir()))
    assert asyncio.run(wait_for_notification()) == THRESHOLD_NOTIFICATION
    assert len(list(FILES.iterdir())) == files
    os.wait()


def test_a_machine_without_notifications_never_notifies(tmp_path: Path) -> None:
    async def listens(alarms: KernelPressureNotifier) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alarms.wait(), 0.01)
        alarms.close()

    alarms = KernelPressureNotifier("/ours", tmp_path, tmp_path)
    alarms.set_threshold(MIB)
    alarms.set_threshold(None)
    assert [text.partition(":")[0] for text in alarms.unavailable] == [
        "stalls of the machine",
        THRESHOLD_NOTIFICATION,
    ]
    asyncio.run(listens(alarms))


def test_version_2_is_watched_once_the_cgroup_exists(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    alarms = KernelPressureNotifier("/ours", tmp_path, tmp_path)
    alarms.set_threshold(MIB)
    assert len(alarms.unavailable) == 1
    (tmp_path / "ours").mkdir()
    alarms.set_threshold(MIB)
    alarms.set_threshold(MIB)
    names = [text.partition(":")[0] for text in alarms.unavailable]
    assert names == ["stalls of the machine", "stalls of pods", "events of pods"]
    alarms.close()
