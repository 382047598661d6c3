"""What the group of a container uses, from its files in either version."""

import time

from nodewright.world.cgroup_files import group_memory, table
from nodewright.world.ports import Cgroups, ContainerUsage

_FILES = ("cpu.stat", "cpuacct.usage", "pids.current")


def group_usage(cgroups: Cgroups, group: str) -> ContainerUsage:
    """What a group uses now; what its files do not tell is not known."""
    said, memory = cgroups.texts(group, _FILES) or {}, group_memory(cgroups, group)
    cpu_ns = _number(said.get("cpuacct.usage"))
    used_us = table(said.get("cpu.stat", "")).get("usage_usec")
    return ContainerUsage(
        at_ns=time.time_ns(),
        cpu_ns=cpu_ns if used_us is None else used_us * 1000,
        memory_bytes=memory.used_bytes if memory is not None else None,
        working_set_bytes=memory.working_set_bytes if memory is not None else None,
        rss_bytes=memory.own_bytes if memory is not None else None,
        swap_bytes=memory.swap_bytes if memory is not None else None,
        processes=_number(said.get("pids.current")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
