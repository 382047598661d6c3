"""Counters of the device that a file system is on."""

import os
from pathlib import Path

from nodewright.agent.host.counters import DiskCounters, disk_counters


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
