"""Usage of a machine, read from files that stay open."""

from pathlib import Path

import pytest

from nodewright.agent.host.eviction_readings import HostStatsProvider, PolledFile
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems, signal_observations
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import StatsSummary

KIB, MIB = 1024, 1 << 20
MEMINFO = """MemTotal:       1000 kB
MemFree:         400 kB
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


@pytest.mark.parametrize(
    ("version", "left_kib"),
    [
        pytest.param(2, 1000 - (600 - 50), id="what is not free is used"),
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
