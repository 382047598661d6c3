"""Reads cgroups of version 1 and 2, from a live hierarchy or a copy of its files; never writes."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nodewright.documents.files.cgroup_files import CgroupManager, ContainerUsage
from nodewright.documents.files.regular_files import read_regular_file
from nodewright.model.errors import Fault, InputError

CGROUP_ROOT = Path("/sys/fs/cgroup")
CONTROLLERS_FILE = "cgroup.controllers"
"""The file that only a hierarchy of version 2 has at its root."""
STAT, SWAP = "memory.stat", "memory.swap.current"


def is_unified(root: Path) -> bool:
    """Whether the hierarchy at a directory is of version 2."""
    return (root / CONTROLLERS_FILE).is_file()


class MemoryFileNames(NamedTuple):
    """Names of the memory files, and of keys in memory.stat."""

    usage: str
    limit: str
    inactive_file: str
    """The key of inactive file pages."""
    rss: str
    """The key of anonymous memory."""


def memory_file_names(version: int) -> MemoryFileNames:
    """The names in that version.

    Follows: opencontainers/cgroups v0.0.6, fs/memory.go, fs2/memory.go.
    """
    return _MEMORY_FILE_NAMES[version]


_MEMORY_FILE_NAMES = {
    1: MemoryFileNames("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file", "total_rss"),
    2: MemoryFileNames("memory.current", "memory.max", "inactive_file", "anon"),
}


class CgroupMemory(NamedTuple):
    """The memory usage of a cgroup; None: not known.

    Units: bytes.
    """

    usage_bytes: int
    working_set_bytes: int
    rss_bytes: int | None
    swap_bytes: int | None


def cgroup_memory(cgroups: CgroupManager, path: str) -> CgroupMemory | None:
    """The memory usage of a cgroup with its descendants; None if it does not exist or is not accounted.

    Follows: v1.36, cadvisor/container/libcontainer/handler.go, setMemoryStats: the working set is the usage without
             inactive files.
    """
    names = memory_file_names(cgroups.version)
    contents = cgroups.read_files(path, (names.usage, STAT, *((SWAP,) if cgroups.version == 2 else ()))) or {}
    usage = contents.get(names.usage, "")
    if not usage.isdecimal():
        return None
    stat = flat_keyed_values(contents.get(STAT, ""))
    swap = contents.get(SWAP, "")
    return CgroupMemory(
        usage_bytes=int(usage),
        working_set_bytes=max(int(usage) - stat.get(names.inactive_file, 0), 0),
        rss_bytes=stat.get(names.rss),
        swap_bytes=int(swap) if swap.isdecimal() else stat.get("total_swap"),
    )


def flat_keyed_values(text: str) -> dict[str, int]:
    """The values of a flat keyed file, with a key and a number in each line."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


_CONTROLLERS = ("cpu", "memory")
"""Every hierarchy of version 1 has a directory of at least one of these."""


class CgroupTree:
    """The cgroup hierarchy at a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = _version(root)

    def read_files(self, path: str, files: Iterable[str], container_id: str = "") -> Mapping[str, str] | None:
        """The content of those files of a cgroup that exist; None if the cgroup does not exist.

        A container's cgroup is found by the container's id, regardless of the runtime's naming.
        """
        directories = self._directory_of_controller(path, container_id)
        contents: dict[str, str] = {}
        exists = False
        for name in files:
            directory = directories.get(name.partition(".")[0])
            if directory is not None:
                exists = True
                text = _text(directory / name)
                if text is not None:
                    contents[name] = text
        return contents if exists else None

    def child_names(self, path: str) -> Sequence[str]:
        """The names of the child cgroups, sorted; empty if the cgroup does not exist."""
        roots = self._controllers().values()
        names = {
            child.name
            for root in roots
            if (directory := root / path.lstrip("/")).is_dir()
            for child in directory.iterdir()
            if child.is_dir()
        }
        return sorted(names)

    def _directory_of_controller(self, path: str, container_id: str) -> dict[str, Path]:
        """The cgroup's directory of each controller that has one."""
        directories = {}
        for controller, root in self._controllers().items():
            directory = root / path.lstrip("/")
            if container_id and not directory.is_dir():
                directory = _container_directory(directory.parent, container_id) or directory
            if directory.is_dir():
                directories[controller] = directory
        return directories

    def _controllers(self) -> dict[str, Path]:
        """The root of each controller's hierarchy; a single one in version 2."""
        names = ("cpu", "cpuset", "memory", "hugetlb", "pids")
        if self.version == 2:
            return dict.fromkeys(names, self.root)
        mounts = [path for path in sorted(self.root.iterdir()) if path.is_dir()]
        return {name: mount for name in names for mount in reversed(mounts) if name in mount.name.split(",")}


def _version(root: Path) -> int:
    if is_unified(root):
        return 2
    if any((root / name).is_dir() for name in _CONTROLLERS):
        return 1
    rule = (
        f"not a cgroup hierarchy: it has neither {CONTROLLERS_FILE} (version 2) nor cpu or memory (version 1)"
    )
    raise InputError([Fault(source="--diff", value=str(root), rule=rule)])


def _container_directory(parent: Path, container_id: str) -> Path | None:
    bare_id = container_id.rpartition("://")[2]
    if not bare_id or not parent.is_dir():
        return None
    return next(
        (child for child in sorted(parent.iterdir()) if bare_id in child.name and child.is_dir()), None
    )


def _text(path: Path) -> str | None:
    """The content of a file; None if it cannot be read."""
    try:
        return read_regular_file(path, _MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


_MAX_FILE_BYTES = 4 << 20
"""Beyond every file that the kernel prints of a cgroup; a copy can hold anything."""
_USAGE_FILES = ("cpu.stat", "cpuacct.usage", "pids.current")


def cgroup_usage(cgroups: CgroupManager, path: str) -> ContainerUsage:
    """The current usage of a cgroup; None for values that its files do not have."""
    contents, memory = cgroups.read_files(path, _USAGE_FILES) or {}, cgroup_memory(cgroups, path)
    cpu_ns = _number(contents.get("cpuacct.usage"))
    used_us = flat_keyed_values(contents.get("cpu.stat", "")).get("usage_usec")
    return ContainerUsage(
        at_ns=time.time_ns(),
        cpu_ns=cpu_ns if used_us is None else used_us * 1000,
        memory_bytes=memory.usage_bytes if memory is not None else None,
        working_set_bytes=memory.working_set_bytes if memory is not None else None,
        rss_bytes=memory.rss_bytes if memory is not None else None,
        swap_bytes=memory.swap_bytes if memory is not None else None,
        processes=_number(contents.get("pids.current")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
