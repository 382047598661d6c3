"""CPU time, network traffic and stalls of this machine, as they are now."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodewright.model.usage import InterfaceUse, IOUse, NetworkUse, Stalls
from nodewright.values.instant import Instant
from nodewright.world.errors import WorldError
from nodewright.world.machine.usage import stalls_in

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_LOOPBACK = "lo"


class Ticks(NamedTuple):
    """What the CPUs have done since the machine was started.

    Units: ticks of all CPUs together.
    """

    busy: int
    all: int

    def share_since(self, before: "Ticks") -> float | None:
        """The share of the time since then in which they were busy; None: no time has passed.

        >>> Ticks(30, 120).share_since(Ticks(10, 20))
        0.2
        """
        passed = self.all - before.all
        return (self.busy - before.busy) / passed if passed > 0 else None


def ticks(proc: Path = Path("/proc")) -> Ticks:
    """What the CPUs have done up to now.

    Errors: WorldError.
    """
    place = proc / "stat"
    try:
        # Guests' time is within that of users; waiting for disks is idleness.
        user, nice, system, idle, waiting, irq, soft, stolen = map(
            int, place.read_text("ascii").split("\n", 1)[0].split()[1:9]
        )
    except OSError as error:
        raise WorldError("read", str(place), error.strerror or str(error)) from None
    except ValueError:
        raise WorldError("read", str(place), "its first line has not the times of all CPUs") from None
    busy = user + nice + system + irq + soft + stolen
    return Ticks(busy, busy + idle + waiting)


def cpu_time_ns(proc: Path = Path("/proc")) -> int:
    """The CPU time that this machine has used since it was started.

    Units:  nanoseconds.
    Errors: WorldError.
    """
    return ticks(proc).busy * _TICK_NS


def started_at(proc: Path = Path("/proc")) -> Instant | None:
    """When this machine was started; None: it does not say."""
    for line in _text(proc / "stat").splitlines():
        if line.startswith("btime "):
            return Instant(int(line.split()[1]) * 10**9)
    return None


def network(proc: Path = Path("/proc")) -> NetworkUse | None:
    """What went through the interfaces, the first of which leads out; None: there are none."""
    found = tuple(_interfaces(_text(proc / "net/dev")))
    if not found:
        return None
    out = _way_out(_text(proc / "net/route"))
    main = next((one for one in found if one.name == out), found[0])
    return NetworkUse(
        time=Instant(time.time_ns()),
        name=main.name,
        rx_bytes=main.rx_bytes,
        rx_errors=main.rx_errors,
        tx_bytes=main.tx_bytes,
        tx_errors=main.tx_errors,
        interfaces=found,
    )


def stalls(name: str, proc: Path = Path("/proc")) -> Stalls | None:
    """How much is waited for `cpu`, `memory` or `io`; None: the kernel does not measure it."""
    return stalls_in(_text(proc / "pressure" / name))


def io_stalls(proc: Path = Path("/proc")) -> IOUse | None:
    """The same for input and output."""
    found = stalls("io", proc)
    return None if found is None else IOUse(time=Instant(time.time_ns()), psi=found)


def _interfaces(text: str) -> Iterator[InterfaceUse]:
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if len(fields) >= 11 and name.strip() != _LOOPBACK:
            received, receive_errors, sent, send_errors = (int(fields[place]) for place in (0, 2, 8, 10))
            yield InterfaceUse(
                name=name.strip(),
                rx_bytes=received,
                rx_errors=receive_errors,
                tx_bytes=sent,
                tx_errors=send_errors,
            )


def _way_out(text: str) -> str:
    """The interface of the default route."""
    rows = (line.split() for line in text.splitlines()[1:])
    return next((row[0] for row in rows if len(row) > 1 and row[1] == "00000000"), "")


def _text(place: Path) -> str:
    try:
        return place.read_text("ascii")
    except (OSError, ValueError):
        return ""
