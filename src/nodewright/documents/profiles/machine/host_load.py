"""Reads CPU time, network traffic and pressure stalls of this machine."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodewright.documents.profiles.machine.machine_usage import parsed_pressure, usage_of_this_machine
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.stats_summary import InterfaceStats, IOStats, NetworkStats, PSIStats
from nodewright.model.values.instant import Instant

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
