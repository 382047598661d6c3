"""What the kernel counts of a block device since the machine's start."""

import os
from pathlib import Path

import msgspec

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
