"""How busy this machine is, for those who only want to look."""

import os
from pathlib import Path
from typing import NamedTuple

from nodewright.world.errors import WorldError
from nodewright.world.machine.usage import usage_here

_STAT = Path("/proc/stat")


class HostUsage(NamedTuple):
    """What the machine has used up to a moment.

    Units: ticks of all CPUs together since the machine was started; bytes.
    """

    busy_ticks: int
    all_ticks: int
    working_set_bytes: int | None
    """None: the machine does not tell."""


def host_usage(stat: Path = _STAT) -> HostUsage:
    """What this machine has used up to now.

    Errors: WorldError, InputError.
    """
    try:
        line = stat.read_text("ascii").splitlines()[0]
        # Guests' time is within that of users; waiting for disks is idleness.
        user, nice, system, idle, waiting, irq, soft, stolen = map(int, line.split()[1:9])
    except OSError as error:
        raise WorldError("read", os.fspath(stat), error.strerror or str(error)) from None
    except (ValueError, IndexError):
        raise WorldError("read", os.fspath(stat), "its first line has not the times of all CPUs") from None
    busy = user + nice + system + irq + soft + stolen
    memory = usage_here().node.memory
    used = memory.working_set_bytes if memory is not None else None
    return HostUsage(busy, busy + idle + waiting, None if used is None else int(used))
