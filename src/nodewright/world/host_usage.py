"""How busy this machine is, for those who only want to look."""

from typing import NamedTuple

from nodewright.world.machine.loads import ticks
from nodewright.world.machine.usage import usage_here


class HostUsage(NamedTuple):
    """What the machine has used up to a moment.

    Units: ticks of all CPUs together since the machine was started; bytes.
    """

    busy_ticks: int
    all_ticks: int
    working_set_bytes: int | None
    """None: the machine does not tell."""


def host_usage() -> HostUsage:
    """What this machine has used up to now.

    Errors: WorldError, InputError.
    """
    passed = ticks()
    memory = usage_here().node.memory
    used = memory.working_set_bytes if memory is not None else None
    return HostUsage(passed.busy, passed.all, None if used is None else int(used))
