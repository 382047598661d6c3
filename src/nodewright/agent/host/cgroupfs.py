"""Creates, writes, reads, kills and removes the machine's cgroups below the agent's root; version 1 and 2."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.process_kill import cgroup_pids, file_text, kill_all, pids_by_group, thaw_all
from nodewright.documents.files.cgroup_files import CGROUP_ROOT, CONTROLLERS_FILE, is_unified
from nodewright.documents.files.file_store import try_flock
from nodewright.engine.core.cgroups.cgroup_comparison import value_matches
from nodewright.engine.core.cgroups.cgroup_plan import CPU_IDLE, CPU_WEIGHTS, CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.values.path_component import path_component_fault

_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer")
"""The hierarchies of version 1 in which cgroups are created, as far as the machine has them."""
_UNIFIED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb", "io")
_INHERITED = ("cpuset.mems", "cpuset.cpus")
"""Files of version 1 that are empty in a new cgroup, and must be set before a process can join."""
_OPTIONAL = ".rsvd."
"""Marks files that older kernels do not have, and that repeat the values of other files."""
_KILL_LIMIT_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ExecCgroup(msgspec.Struct, frozen=True):
    """A cgroup for one command in a container: charged to the container, but killable on its own."""

    procs_files: tuple[str, ...]
    directories: tuple[str, ...]
    """Its own directories; empty if the machine cannot separate it from the container's cgroup."""

    def kill(self) -> None:
        """Kills all processes of the command."""
        kill_all(self.directories, _KILL_LIMIT_S)


class CgroupFS:
    """Fulfils the port `CgroupManager` below ``root``.

    Above the root it only enables controllers for child cgroups (`cgroup.subtree_control` of version 2).
    """

    def __init__(self, root: str, mounted_at: Path = CGROUP_ROOT) -> None:
        self.root = "/" + root.strip("/")
        self._mount_point = mounted_at
        self.version = 2 if is_unified(mounted_at) else 1
        # A thread moves without waiting; moving a whole process waits for all processors, in each hierarchy.
        self._procs_file = "cgroup.procs" if self.version == 2 else "tasks"
        self._hierarchies = self._discovered_hierarchies()
        self._roots = tuple(dict.fromkeys(hierarchy.resolve() for hierarchy in self._hierarchies.values()))
        self.unsupported: set[str] = set()
        self.on_operation: Callable[[str, float], None] = lambda _name, _duration_s: None
        """Gets the kubelet's name and the duration of each operation: `create`, `update`, `destroy`."""
        self._exec_directories: list[Path] = []
        """The directories of commands that have ended, in which processes were left."""

    def lock(self) -> None:
        """Holds the root until the process ends: it belongs to one agent, which ends processes that it does not know.

        Errors: HostError where another agent holds it.
        """
        self._create(self.root)
        (directory, *_) = self._directories(self.root)
        with host_errors("lock cgroup", self.root):
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            is_ours = try_flock(self._lock)
        if not is_ours:
            error_text = "another agent uses it: give one of them another --cgroup-root"
            raise HostError("use cgroup", self.root, error_text)
        # What an agent was killing when it was killed itself.
        thaw_all(map(str, self._directories(self.root)))

    def ensure(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        """Creates the cgroup if needed, and writes the files whose value differs.

        Errors: HostError, after all other files are written.
        """
        started_s, name = time.monotonic(), "update"
        try:
            if self._create(path):
                name = "create"
            self._write_files(path, files)
        finally:
            self.on_operation(name, time.monotonic() - started_s)

    def _write_files(self, path: str, files: tuple[CgroupFile, ...]) -> None:
        pending = [
            (file_path, file)
            for file in self._without_idle_weight(path, files)
            if (file_path := self._existing_file(path, file.name)) is not None
            and not _has_value(file_path, file)
        ]
        if any(file.name in CPU_WEIGHTS for _, file in pending):
            self._end_idle(path)
        # The kernel rejects some values until other files are written, such as a memory limit above the limit of
        # memory and swap, or a short period with a long quota: those are tried again after the rest.
        while pending:
            rejected = [(write, error) for write in pending if (error := _write(*write)) is not None]
            if len(rejected) == len(pending):
                (file_path, file), error_text = rejected[0]
                raise HostError(f"write {file.value!r} to {file_path.name} of cgroup", path, error_text)
            pending = [write for write, _ in rejected]

    def _without_idle_weight(self, path: str, files: tuple[CgroupFile, ...]) -> tuple[CgroupFile, ...]:
        """The files that can be written: a cgroup that is idle has no weight."""
        idle_path = self._file_path(path, CPU_IDLE)
        is_idle = any(file.name == CPU_IDLE for file in files)
        if not is_idle or idle_path is None or not idle_path.exists():
            return files
        return tuple(file for file in files if file.name not in CPU_WEIGHTS)

    def _end_idle(self, path: str) -> None:
        """Lets a cgroup have a weight again that an agent has made idle."""
        idle_path = self._file_path(path, CPU_IDLE)
        if idle_path is not None and _text(idle_path) == "1":
            with contextlib.suppress(OSError):
                idle_path.write_text("0")

    def read_files(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """The content of files of a cgroup; None if the cgroup does not exist."""
        if not any(directory.is_dir() for directory in self._directories(path)):
            return None
        contents = {}
        for name in names:
            # Runtimes also use hierarchies of version 1 that the agent writes nothing to.
            file_path = self._file_path(path, name) or (
                self._mount_point / name.partition(".")[0] / path.strip("/") / name
            )
            text = _text(file_path)
            if text is not None:
                contents[name] = text
        return contents

    def children(self, path: str) -> tuple[str, ...]:
        """The paths of the child cgroups."""
        names = {name for directory in self._directories(path) for name in _child_names(directory)}
        return tuple(f"{path.rstrip('/')}/{name}" for name in sorted(names))

    def processes(self, path: str) -> tuple[int, ...]:
        """The ids of the processes in the cgroup and its descendants."""
        return tuple(sorted(cgroup_pids(map(str, self._directories(path)))))

    def has_processes(self, path: str) -> bool:
        """Whether a process is in the cgroup or a descendant; reads no more than the first of them takes."""
        return next(pids_by_group(map(str, self._directories(path))), None) is not None

    def procs_files(self, path: str) -> tuple[str, ...]:
        """The files, one a hierarchy, to which a single-threaded process writes 0 to join the cgroup."""
        return tuple(f"{directory}/{self._procs_file}" for directory in self._directories(path))

    def kill(self, path: str) -> None:
        """Kills every process in the cgroup and its descendants, including new children.

        Errors: HostError if processes remain.
        """
        self._require_own_path(path)
        remaining = kill_all(map(str, self._directories(path)), _KILL_LIMIT_S)
        if remaining:
            raise HostError("kill the processes of", path, f"{remaining} processes remain")

    def remove(self, path: str) -> None:
        """Removes the cgroup and its descendants; not an error if it does not exist.

        Errors: HostError if processes remain.
        """
        self._require_own_path(path)
        started_s = time.monotonic()
        try:
            for directory in (*self._directories(path), *self._runtime_directories(path)):
                for cgroup_directory in _deepest_first(directory):
                    with contextlib.suppress(FileNotFoundError):
                        self._remove(cgroup_directory, path)
        finally:
            self.on_operation("destroy", time.monotonic() - started_s)

    @contextlib.contextmanager
    def exec_cgroup(self, path: str, name: str) -> Iterator[ExecCgroup]:
        """A cgroup inside that of a container, removed afterwards if no process is left in it.

        In version 2 it has no controllers, so that the container's limits apply to it; in version 1 it exists only in
        the freezer hierarchy.
        """
        self._require_own_path(path)
        freezer = self._hierarchies.get("" if self.version == 2 else "freezer")
        if freezer is None:
            yield ExecCgroup(self.procs_files(path), ())
            return
        container_directory = freezer / path.strip("/")
        exec_directory = container_directory / name
        with host_errors("make cgroup", f"{path}/{name}"):
            exec_directory.mkdir(exist_ok=True)
        directories = [
            exec_directory if directory == container_directory else directory
            for directory in self._directories(path)
        ]
        procs_files = tuple(f"{directory}/{self._procs_file}" for directory in directories)
        try:
            yield ExecCgroup(procs_files, (str(exec_directory),))
        finally:
            # A command may leave processes behind: its directory is removed after one of the next commands.
            self._exec_directories = [
                left for left in (*self._exec_directories, exec_directory) if not _is_removed(left)
            ]

    # ------------------------------------------------------------ paths

    def _discovered_hierarchies(self) -> dict[str, Path]:
        """The root of each controller's hierarchy; a single one in version 2."""
        if self.version == 2:
            return {"": self._mount_point}
        hierarchies: dict[str, Path] = {}
        for mount in sorted(self._mount_point.iterdir()) if self._mount_point.is_dir() else ():
            for name in mount.name.split(","):
                if name in _CONTROLLERS and mount.is_dir():
                    hierarchies[name] = mount
        return hierarchies

    def _directories(self, path: str) -> tuple[Path, ...]:
        return tuple(root / path.strip("/") for root in self._roots)

    def _runtime_directories(self, path: str) -> tuple[Path, ...]:
        """The same cgroup in those hierarchies of version 1 that only container runtimes use."""
        if self.version == 2:
            return ()
        own = {hierarchy.resolve() for hierarchy in self._hierarchies.values()}
        others = {mount.resolve() for mount in self._mount_point.iterdir() if mount.is_dir()} - own
        return tuple(root / path.strip("/") for root in sorted(others))

    def _file_path(self, path: str, name: str) -> Path | None:
        hierarchy = self._hierarchies.get("" if self.version == 2 else name.partition(".")[0])
        return hierarchy / path.strip("/") / name if hierarchy is not None else None

    def _existing_file(self, path: str, name: str) -> Path | None:
        """The path of a cgroup's file; None if the machine does not have it, which `unsupported` records."""
        file_path = self._file_path(path, name)
        if file_path is not None and file_path.exists():
            return file_path
        if _OPTIONAL not in name and name != CPU_IDLE:
            controller = name.partition(".")[0]
            self.unsupported.add(name if self._has_controller(path, controller) else controller)
        return None

    def _has_controller(self, path: str, controller: str) -> bool:
        if self.version == 1:
            return controller in self._hierarchies
        directory = self._mount_point / path.strip("/")
        return controller in (_text(directory / CONTROLLERS_FILE) or "").split()

    def _require_own_path(self, path: str) -> None:
        """Checks that the path is below the root, so that an error elsewhere never touches a foreign cgroup.

        Errors: HostError.
        """
        parts = path.strip("/").split("/")
        is_ours = path == self.root or path.startswith(f"{self.root.rstrip('/')}/")
        if not is_ours or any(map(path_component_fault, parts)):
            raise HostError("change cgroup", path, f"it is not below {self.root}")

    # ------------------------------------------------------------ creating and removing

    def _create(self, path: str) -> bool:
        """Creates what is missing of a cgroup; whether anything was."""
        self._require_own_path(path)
        has_created = False
        for root in self._roots:
            directory = root / path.strip("/")
            # An existing cgroup is complete, unless the agent was killed before it had set the CPUs.
            is_complete = directory.is_dir() and (
                _text(directory / _INHERITED[-1]) or self.version == 2 or not _has_cpus(directory)
            )
            if not is_complete:
                has_created = True
                with host_errors("make cgroup", path):
                    self._create_path(root, path)
        return has_created

    def _create_path(self, root: Path, path: str) -> None:
        directory = root
        for part in path.strip("/").split("/"):
            parent, directory = directory, directory / part
            if self.version == 2:
                _enable_controllers(parent)
            # A mkdir that fails because the directory exists takes ten times as long as this check.
            if not directory.is_dir():
                directory.mkdir(exist_ok=True)
            if self.version == 1 and _has_cpus(directory):
                _inherit_cpuset(parent, directory)

    def _remove(self, directory: Path, path: str) -> None:
        try:
            directory.rmdir()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise HostError("remove cgroup", path, error.strerror or str(error)) from None


def _enable_controllers(parent: Path) -> None:
    """Enables all controllers of this cgroup for its children."""
    enabled = set((_text(parent / "cgroup.subtree_control") or "").split())
    available = set((_text(parent / CONTROLLERS_FILE) or "").split())
    for name in _UNIFIED_CONTROLLERS:
        if name in available and name not in enabled:
            # A controller that cannot be enabled is reported when one of its files should be written.
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{name}")


def _inherit_cpuset(parent: Path, child: Path) -> None:
    """Sets the CPUs and NUMA nodes of a new cgroup of version 1 to those of its parent."""
    for name in _INHERITED:
        file = child / name
        if not _text(file):
            file.write_text(_text(parent / name) or "")


def _has_cpus(directory: Path) -> bool:
    """Whether the directory is in the cpuset hierarchy."""
    return (directory / _INHERITED[0]).exists()


def _has_value(path: Path, file: CgroupFile) -> bool:
    text = _text(path)
    return text is not None and value_matches(file, text, _PAGE_BYTES)


def _write(path: Path, file: CgroupFile) -> str | None:
    """Writes the file; returns the error, or None."""
    try:
        path.write_text(file.value)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _text(path: Path) -> str | None:
    text = file_text(str(path))
    return None if text is None else text.strip()


def _is_removed(directory: Path) -> bool:
    """Whether a directory is gone, which is removed if nothing is in it."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def _child_names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _deepest_first(directory: Path) -> Iterator[Path]:
    for name in _child_names(directory):
        yield from _deepest_first(directory / name)
    yield directory
