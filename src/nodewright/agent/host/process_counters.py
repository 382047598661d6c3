"""Counts of the processes of a container: open files, sockets, limits, and the traffic of its network namespace."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_LOOPBACK = "lo"


class ProcessCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a cgroup, and their files."""

    processes: int = 0
    file_descriptors: int = 0
    sockets: int = 0
    max_open_files: int = 0
    """The soft limit of the oldest process; 0: not known."""


class InterfaceCounters(msgspec.Struct, frozen=True, kw_only=True):
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
            counters.append(
                InterfaceCounters(
                    name=name.strip(),
                    received_bytes=fields[0],
                    received_packets=fields[1],
                    receive_errors=fields[2],
                    received_dropped=fields[3],
                    sent_bytes=fields[8],
                    sent_packets=fields[9],
                    send_errors=fields[10],
                    sent_dropped=fields[11],
                )
            )
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
