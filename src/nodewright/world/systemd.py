"""What systemd is told, and what it is asked, where it is there at all."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

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
