"""What systemd is told, and what it is asked, where it is there at all."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

from nodewright.world.ports import Clock

_RUNS = Path("/run/systemd/system")
_ASKED_WITHIN_S = 5.0


def notify(state: str) -> bool:
    """Whether systemd was told, e.g. `READY=1`; False: nobody wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.sendto(state.encode(), address)
        return True
    return False


async def tell_alive(clock: Clock) -> None:
    """Tell systemd again and again that we are there, if it wants to know (`WatchdogSec=`), until cancelled.

    Whoever hangs, in an operation that never ends, does not come to this: systemd starts another agent.
    """
    period_s = _watched_every_s()
    while period_s is not None:
        notify("WATCHDOG=1")
        await clock.sleep(period_s)


def _watched_every_s() -> float | None:
    """Twice as often as systemd wants to hear of us, as sd_watchdog_enabled(3) has it; None: it does not."""
    limit_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(limit_us) / 2_000_000


def machine_stops() -> bool:
    """Whether the machine is going down, as far as systemd says; False also where there is no systemd."""
    if not _RUNS.is_dir():
        return False
    try:
        found = subprocess.run(
            ["systemctl", "is-system-running"],  # noqa: S607 - wherever it is
            capture_output=True,
            timeout=_ASKED_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.stdout.strip() == b"stopping"
