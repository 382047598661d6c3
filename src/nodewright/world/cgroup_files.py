"""What the two versions of cgroups call the same things, which of them a tree is of, and what a group has in memory."""

from pathlib import Path
from typing import NamedTuple

from nodewright.world.ports import Cgroups

LIVE = Path("/sys/fs/cgroup")
UNIFIED = "cgroup.controllers"
"""The file that only a tree of version 2 has at its top."""
STAT, SWAP = "memory.stat", "memory.swap.current"


def is_unified(root: Path) -> bool:
    """Whether the tree below a directory is of version 2."""
    return (root / UNIFIED).is_file()


class MemoryNames(NamedTuple):
    """Files of a group's memory, and words in its statistics."""

    used: str
    limit: str
    inactive: str
    """Pages of files that nobody has used for a while."""
    own: str
    """What is no file's."""


def memory_names(version: int) -> MemoryNames:
    """What they are called.

    Follows: opencontainers/cgroups v0.0.6, fs/memory.go, fs2/memory.go.
    """
    return _NAMES[version]


_NAMES = {
    1: MemoryNames("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file", "total_rss"),
    2: MemoryNames("memory.current", "memory.max", "inactive_file", "anon"),
}


class GroupMemory(NamedTuple):
    """What a group has in memory; None: its files do not say.

    Units: bytes.
    """

    used_bytes: int
    working_set_bytes: int
    own_bytes: int | None
    swap_bytes: int | None


def group_memory(cgroups: Cgroups, path: str) -> GroupMemory | None:
    """What a group and all below it have in memory now; None: there is no such group, or nobody counts.

    Follows: v1.36, cadvisor/container/libcontainer/handler.go, setMemoryStats: the working set is what is used without
             inactive files.
    """
    names = memory_names(cgroups.version)
    said = cgroups.texts(path, (names.used, STAT, *((SWAP,) if cgroups.version == 2 else ()))) or {}
    used = said.get(names.used, "")
    if not used.isdecimal():
        return None
    stat = table(said.get(STAT, ""))
    swap = said.get(SWAP, "")
    return GroupMemory(
        used_bytes=int(used),
        working_set_bytes=max(int(used) - stat.get(names.inactive, 0), 0),
        own_bytes=stat.get(names.own),
        swap_bytes=int(swap) if swap.isdecimal() else stat.get("total_swap"),
    )


def table(text: str) -> dict[str, int]:
    """The numbers of a file that has a word and a number in each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
