"""What the group of a container uses, from its files in either version."""

import time

from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.ports import ContainerUsage

_FILES = (
    "cpu.stat",
    "cpuacct.usage",
    "memory.current",
    "memory.usage_in_bytes",
    "memory.stat",
    "memory.swap.current",
    "pids.current",
)


def group_usage(cgroups: CgroupFS, group: str) -> ContainerUsage:
    """What a group uses now; what its files do not tell is not known."""
    said = cgroups.texts(group, _FILES) or {}
    stat, cpu = _table(said.get("memory.stat", "")), _table(said.get("cpu.stat", ""))
    memory = _number(said.get("memory.current", said.get("memory.usage_in_bytes")))
    idle = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    cpu_ns = _number(said.get("cpuacct.usage"))
    if "usage_usec" in cpu:
        cpu_ns = cpu["usage_usec"] * 1000
    return ContainerUsage(
        at_ns=time.time_ns(),
        cpu_ns=cpu_ns,
        memory_bytes=memory,
        working_set_bytes=None if memory is None else max(0, memory - idle),
        rss_bytes=stat.get("total_rss", stat.get("anon")),
        swap_bytes=_number(said.get("memory.swap.current"))
        if cgroups.version == 2
        else stat.get("total_swap"),
        processes=_number(said.get("pids.current")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _table(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
