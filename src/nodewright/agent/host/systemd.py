"""Notifies systemd, and asks it for the system state; does nothing without systemd."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

from nodewright.cluster.tasks.timing import Clock

_SYSTEMD_DIRECTORY = Path("/run/systemd/system")
_SYSTEMCTL_TIMEOUT_S = 5.0


def notify(state: str) -> bool:
    """Sends a notification such as `READY=1` to systemd; False if systemd expects none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify_socket:
        notify_socket.sendto(state.encode(), address)
        return True
    return False


async def notify_watchdog(clock: Clock) -> None:
    """Notifies systemd's watchdog periodically, if it is enabled (`WatchdogSec=`), until cancelled.

    An agent that hangs in an operation sends no notifications, so that systemd restarts it.
    """
    period_s = _watchdog_period_s()
    while period_s is not None:
        notify("WATCHDOG=1")
        await clock.sleep(period_s)


def _watchdog_period_s() -> float | None:
    """Half of systemd's watchdog timeout, as sd_watchdog_enabled(3) recommends; None if it is not enabled."""
    limit_us, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(limit_us) / 2_000_000


def is_shutting_down() -> bool:
    """Whether systemd reports that the machine is shutting down; False without systemd."""
    if not _SYSTEMD_DIRECTORY.is_dir():
        return False
    try:
        result = subprocess.run(
            ["systemctl", "is-system-running"],  # noqa: S607 - found in PATH
            capture_output=True,
            timeout=_SYSTEMCTL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.stdout.strip() == b"stopping"
