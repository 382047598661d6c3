"""The machine's cgroups below a root of our own: made, written, read, emptied and removed; version 1 and 2."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from nodewright.core.cgroups.compare import agrees
from nodewright.core.cgroups.files import File
from nodewright.world.cgroup_files import LIVE, UNIFIED, is_unified
from nodewright.world.errors import WorldError
from nodewright.world.processes.killing import kill_all, members

_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "freezer")
"""What groups of version 1 are made in, where the machine has it."""
_UNIFIED_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb", "io")
_INHERITED = ("cpuset.mems", "cpuset.cpus")
"""Files of version 1 that are empty at first, and without which nobody can enter."""
_OPTIONAL = ".rsvd."
"""Files that older kernels have none of, and that only say once more what others say."""
_KILL_LIMIT_S = 5.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class SideGroup(msgspec.Struct, frozen=True):
    """A group for one command in a container: it counts as the container's and can be ended alone."""

    doors: tuple[str, ...]
    directories: tuple[str, ...]
    """Its own; none where the machine has no way to tell it from the container's."""

    def kill(self) -> None:
        """Nobody of it is left."""
        kill_all(self.directories, _KILL_LIMIT_S)


class CgroupFS:
    """The tree of cgroups of a machine, below ``root``.

    Above that nothing is written, but that controllers are handed down (`cgroup.subtree_control` of version 2).
    ``lacks`` names controllers and files that were asked for and that the machine does not have.
    """

    def __init__(self, root: str, mounted_at: Path = LIVE) -> None:
        self.root = "/" + root.strip("/")
        self._at = mounted_at
        self.version = 2 if is_unified(mounted_at) else 1
        # A thread that moves itself waits for nobody; whole processes wait for all processors, in each hierarchy.
        self._door = "cgroup.procs" if self.version == 2 else "tasks"
        self._trees = self._found_trees()
        self._roots = tuple(dict.fromkeys(each.resolve() for each in self._trees.values()))
        self.lacks: set[str] = set()

    def ensure(self, path: str, files: tuple[File, ...]) -> None:
        """The group is there with these files written; what they say already is not written again.

        Errors: WorldError, once all the others have been written.
        """
        self._make(path)
        wanted = [
            (place, file)
            for file in files
            if (place := self._file(path, file.name)) is not None and not _says(place, file)
        ]
        # The kernel refuses some values while other files are as they were, such as a limit of memory above that of
        # memory and swap, or a short period with a long quota: those are tried again after the rest.
        while wanted:
            refused = [(one, error) for one in wanted if (error := _write(*one)) is not None]
            if len(refused) == len(wanted):
                (place, file), said = refused[0]
                raise WorldError(f"write {file.value!r} to {place.name} of cgroup", path, said)
            wanted = [one for one, _ in refused]

    def texts(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """What files of a group say; None: there is no such group."""
        if not any(directory.is_dir() for directory in self._directories(path)):
            return None
        found = {}
        for name in names:
            place = self._place(path, name)
            text = _text(place) if place is not None else None
            if text is not None:
                found[name] = text
        return found

    def below(self, path: str) -> tuple[str, ...]:
        """The paths of the groups right below it."""
        names = {name for directory in self._directories(path) for name in _names_below(directory)}
        return tuple(f"{path.rstrip('/')}/{name}" for name in sorted(names))

    def processes(self, path: str) -> tuple[int, ...]:
        """The ids of the processes in it and below."""
        return tuple(sorted(members(map(str, self._directories(path)))))

    def doors(self, path: str) -> tuple[str, ...]:
        """The files that a process of one thread writes 0 to in order to enter the group, in each hierarchy."""
        return tuple(f"{directory}/{self._door}" for directory in self._directories(path))

    def kill(self, path: str) -> None:
        """Nobody is left in it and below, those included that were forked meanwhile.

        Errors: WorldError when they do not die.
        """
        self._checked(path)
        left = kill_all(map(str, self._directories(path)), _KILL_LIMIT_S)
        if left:
            raise WorldError("kill the processes of", path, f"{left} are still there")

    def remove(self, path: str) -> None:
        """It and all below it are gone; not an error if it was not there.

        Errors: WorldError if processes are left.
        """
        self._checked(path)
        for directory in (*self._directories(path), *self._made_by_runtimes(path)):
            for place in _deepest_first(directory):
                with contextlib.suppress(FileNotFoundError):
                    self._remove(place, path)

    @contextlib.contextmanager
    def side_group(self, path: str, name: str) -> Iterator[SideGroup]:
        """A group inside that of a container. Whoever is left in it at the end stays the container's.

        In version 2 it has no controllers, so that what holds for the container holds for it; in version 1 it is one
        of the freezer alone.
        """
        self._checked(path)
        freezer = self._trees.get("" if self.version == 2 else "freezer")
        if freezer is None:
            yield SideGroup(self.doors(path), ())
            return
        outside = freezer / path.strip("/")
        inside = outside / name
        try:
            inside.mkdir(exist_ok=True)
        except OSError as error:
            raise WorldError("make cgroup", f"{path}/{name}", error.strerror or str(error)) from None
        places = [inside if directory == outside else directory for directory in self._directories(path)]
        try:
            yield SideGroup(tuple(f"{place}/{self._door}" for place in places), (str(inside),))
        finally:
            with contextlib.suppress(OSError):
                inside.rmdir()

    # ------------------------------------------------------------ places

    def _found_trees(self) -> dict[str, Path]:
        """The root of each controller's hierarchy; one for all in version 2."""
        if self.version == 2:
            return {"": self._at}
        found: dict[str, Path] = {}
        for mount in sorted(self._at.iterdir()) if self._at.is_dir() else ():
            for name in mount.name.split(","):
                if name in _CONTROLLERS and mount.is_dir():
                    found[name] = mount
        return found

    def _directories(self, path: str) -> tuple[Path, ...]:
        inside = path.strip("/")
        return tuple(tree / inside for tree in self._roots)

    def _made_by_runtimes(self, path: str) -> tuple[Path, ...]:
        """The same group in the hierarchies of version 1 that we have no use for, and container runtimes have."""
        if self.version == 2:
            return ()
        ours = {each.resolve() for each in self._trees.values()}
        others = {mount.resolve() for mount in self._at.iterdir() if mount.is_dir()} - ours
        return tuple(tree / path.strip("/") for tree in sorted(others))

    def _place(self, path: str, name: str) -> Path | None:
        tree = self._trees.get("" if self.version == 2 else name.partition(".")[0])
        return tree / path.strip("/") / name if tree is not None else None

    def _file(self, path: str, name: str) -> Path | None:
        """Where the file of a group is; None: the machine has no such file, which is remembered."""
        place = self._place(path, name)
        if place is not None and place.exists():
            return place
        if _OPTIONAL not in name:
            controller = name.partition(".")[0]
            self.lacks.add(controller if self._lacks(path, controller) else name)
        return None

    def _lacks(self, path: str, controller: str) -> bool:
        """Whether the machine has nothing of the controller."""
        if self.version == 1:
            return controller not in self._trees
        directory = self._at / path.strip("/")
        return controller not in (_text(directory / UNIFIED) or "").split()

    def _checked(self, path: str) -> None:
        """Whatever goes wrong elsewhere, nothing is made, killed or removed that is not ours."""
        parts = path.strip("/").split("/")
        is_ours = path == self.root or path.startswith(f"{self.root.rstrip('/')}/")
        if not is_ours or not all(parts) or ".." in parts:
            raise WorldError("touch cgroup", path, f"it is not below {self.root}")

    # ------------------------------------------------------------ making and removing

    def _make(self, path: str) -> None:
        self._checked(path)
        for tree in self._roots:
            here = tree / path.strip("/")
            # One that is there is as it should be, unless we died before it had its CPUs.
            is_there = here.is_dir() and (
                _text(here / _INHERITED[-1]) or self.version == 2 or not _has_cpus(here)
            )
            if not is_there:
                try:
                    self._made(tree, path)
                except OSError as error:
                    raise WorldError("make cgroup", path, error.strerror or str(error)) from None

    def _made(self, tree: Path, path: str) -> None:
        here = tree
        for part in path.strip("/").split("/"):
            parent, here = here, here / part
            if self.version == 2:
                _delegate(parent)
            # To be told by mkdir that it is there would take ten times as long.
            if not here.is_dir():
                here.mkdir(exist_ok=True)
            if self.version == 1 and _has_cpus(here):
                _inherit(parent, here)

    def _remove(self, place: Path, path: str) -> None:
        try:
            place.rmdir()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise WorldError("remove cgroup", path, error.strerror or str(error)) from None


def _delegate(parent: Path) -> None:
    """Children of this group are to have all controllers that it has."""
    gives = set((_text(parent / "cgroup.subtree_control") or "").split())
    has = set((_text(parent / UNIFIED) or "").split())
    for name in _UNIFIED_CONTROLLERS:
        if name in has and name not in gives:
            # A controller that cannot be handed down is missed when one of its files is to be written.
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{name}")


def _inherit(parent: Path, child: Path) -> None:
    """A group of version 1 begins with its parent's CPUs and memory."""
    for name in _INHERITED:
        file = child / name
        if not _text(file):
            file.write_text(_text(parent / name) or "")


def _has_cpus(directory: Path) -> bool:
    """Whether the hierarchy of a group is that of the cpuset controller."""
    return (directory / _INHERITED[0]).exists()


def _says(place: Path, file: File) -> bool:
    text = _text(place)
    return text is not None and agrees(file, text, _PAGE_BYTES)


def _write(place: Path, file: File) -> str | None:
    """Why it could not be written; None: it was."""
    try:
        place.write_text(file.value)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _text(place: Path) -> str | None:
    try:
        return place.read_text("utf-8").strip()
    except OSError:
        return None


def _names_below(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _deepest_first(directory: Path) -> Iterator[Path]:
    for name in _names_below(directory):
        yield from _deepest_first(directory / name)
    yield directory
