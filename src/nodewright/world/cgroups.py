"""A live tree of cgroups, or a copy of its files: read, never written."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nodewright.world.cgroup_files import UNIFIED, is_unified
from nodewright.world.errors import Fault, InputError

_CONTROLLERS = ("cpu", "memory")
"""What version 1 has directories of; one of these there is in every tree."""


class CgroupTree:
    """The tree below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = _version(root)

    def texts(self, path: str, files: Iterable[str], container_id: str = "") -> Mapping[str, str] | None:
        """What these files of a group say, those that are not there left out; None: there is no such group.

        A group of a container is found by the container's id, whatever its runtime calls it.
        """
        directory = self._directory(path, container_id)
        found: dict[str, str] = {}
        exists = False
        for name in files:
            file = directory.get(name.partition(".")[0])
            if file is not None:
                exists = True
                text = _text(file / name)
                if text is not None:
                    found[name] = text
        return found if exists else None

    def names_below(self, path: str) -> Sequence[str]:
        """The names of the groups right below this one, in order; none where there is no such group."""
        roots = self._controllers().values()
        names = {
            below.name
            for root in roots
            if (directory := root / path.lstrip("/")).is_dir()
            for below in directory.iterdir()
            if below.is_dir()
        }
        return sorted(names)

    def _directory(self, path: str, container_id: str) -> dict[str, Path]:
        """The directory of the group for each controller that has one."""
        found = {}
        for controller, root in self._controllers().items():
            directory = root / path.lstrip("/")
            if container_id and not directory.is_dir():
                directory = _of_container(directory.parent, container_id) or directory
            if directory.is_dir():
                found[controller] = directory
        return found

    def _controllers(self) -> dict[str, Path]:
        """The root of the hierarchy of each controller: one for all in version 2."""
        names = ("cpu", "cpuset", "memory", "hugetlb", "pids")
        if self.version == 2:
            return dict.fromkeys(names, self.root)
        mounted = [each for each in sorted(self.root.iterdir()) if each.is_dir()]
        return {name: mount for name in names for mount in reversed(mounted) if name in mount.name.split(",")}


def _version(root: Path) -> int:
    if is_unified(root):
        return 2
    if any((root / name).is_dir() for name in _CONTROLLERS):
        return 1
    rule = f"is no tree of cgroups: it has neither {UNIFIED} (version 2) nor cpu or memory (version 1)"
    raise InputError([Fault(source="--diff", value=str(root), rule=rule)])


def _of_container(parent: Path, container_id: str) -> Path | None:
    bare = container_id.rpartition("://")[2]
    if not bare or not parent.is_dir():
        return None
    return next((below for below in sorted(parent.iterdir()) if bare in below.name and below.is_dir()), None)


def _text(path: Path) -> str | None:
    """What a file says; None where it is not there, or the kernel does not let it be read."""
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return None
