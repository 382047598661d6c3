"""Counts of processes, from a copy of /proc."""

from pathlib import Path

from nodewright.agent.host.counters import (
    InterfaceCounters,
    ProcessCounters,
    counters_of_processes,
    interface_counters,
)

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
