"""Protocols of files and cgroups, which a real machine and tests fulfil."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The resource usage of a container at a moment. None: not known.

    Units: nanoseconds since 1970; nanoseconds of CPU time; bytes; counts.
    """

    at_ns: int
    cpu_ns: int | None = None
    memory_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    swap_bytes: int | None = None
    processes: int | None = None
    rootfs_bytes: int | None = None
    rootfs_inodes: int | None = None
    logs_bytes: int | None = None


class CgroupManager(Protocol):
    """The cgroups below the agent's root; paths are from the root of the hierarchy, in the driver's naming."""

    version: int
    unsupported: set[str]
    """Controllers and files that should have been written but do not exist on the machine."""

    def ensure(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        """Creates the cgroup if needed, and writes the files whose value differs."""

    def read_files(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """The content of files of a cgroup; None if the cgroup does not exist."""

    def children(self, path: str) -> tuple[str, ...]:
        """The paths of the child cgroups."""

    def processes(self, path: str) -> tuple[int, ...]:
        """The ids of the processes in the cgroup and its descendants."""

    def has_processes(self, path: str) -> bool:
        """Whether a process is in the cgroup or a descendant."""

    def kill(self, path: str) -> None:
        """Sends SIGKILL to every process in the cgroup and its descendants, including new children."""

    def remove(self, path: str) -> None:
        """Removes the cgroup and its descendants; not an error if it does not exist, but one if processes remain."""


class FileStore(Protocol):
    """A directory of files that one process at a time uses; names are paths in it."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The paths of the files in a folder, sorted; empty if the folder does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Replaces the content of a file atomically."""

    def write_at(self, name: str, at: int, content: bytes) -> None:
        """Writes from that offset on, and truncates the file after it."""

    def rename(self, name: str, to: str) -> None:
        """Renames a file; not an error if it does not exist."""

    def remove(self, name: str) -> None:
        """Removes a file; not an error if it does not exist."""

    def sync(self, name: str = "") -> None:
        """Flushes changes of a file to the disk; without a name, those of all files."""
