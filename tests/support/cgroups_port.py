"""What every tree of cgroups behind the port does alike: one check a promise, for the fake and real ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, MemoryCeiling
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.values.quantity import Bytes

_CEILING = MemoryCeiling(Bytes(1 << 20), AmountOrigin.LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupsBench:
    """A tree to try, below a root of our own."""

    cgroups: CgroupManager
    root: str
    enter: Callable[[str], int]
    """A process, now in the group: its id."""

    @property
    def memory_limit(self) -> CgroupFile:
        """A limit of memory, as this version has it."""
        name = "memory.max" if self.cgroups.version == 2 else "memory.limit_in_bytes"
        return CgroupFile(name, str(1 << 20), _CEILING)


CgroupsCheck: TypeAlias = Callable[[CgroupsBench], None]


def a_group_is_created_with_its_ancestors(bench: CgroupsBench) -> None:
    """And says what was written."""
    path, file = f"{bench.root}/a/b", bench.memory_limit
    bench.cgroups.ensure(f"{bench.root}/a", ())
    bench.cgroups.ensure(path, (file,))
    bench.cgroups.ensure(path, (file,))
    assert bench.cgroups.read_files(path, (file.name, "nonesuch.file")) == {file.name: file.value}
    assert bench.cgroups.children(bench.root) == (f"{bench.root}/a",)
    assert bench.cgroups.children(f"{bench.root}/a") == (path,)


def a_group_is_changed(bench: CgroupsBench) -> None:
    """What is not named stays."""
    path, file = f"{bench.root}/a", bench.memory_limit
    bench.cgroups.ensure(path, (file,))
    bench.cgroups.ensure(path, (CgroupFile("pids.max", "7", _CEILING),))
    assert bench.cgroups.read_files(path, (file.name, "pids.max")) == {file.name: file.value, "pids.max": "7"}
    bench.cgroups.ensure(path, (CgroupFile(file.name, str(2 << 20), _CEILING),))
    assert bench.cgroups.read_files(path, (file.name,)) == {file.name: str(2 << 20)}


def a_process_in_a_group_is_in_its_ancestors(bench: CgroupsBench) -> None:
    """And ends with them."""
    a, b, other = (f"{bench.root}/{name}" for name in ("a", "a/b", "other"))
    for path in (a, b, other):
        bench.cgroups.ensure(path, ())
    inside, outside = bench.enter(b), bench.enter(other)
    assert bench.cgroups.processes(a) == bench.cgroups.processes(b) == (inside,)
    assert bench.cgroups.processes(bench.root) == tuple(sorted((inside, outside)))
    assert bench.cgroups.has_processes(a)
    bench.cgroups.kill(a)
    assert bench.cgroups.processes(a) == ()
    assert not bench.cgroups.has_processes(a)
    assert bench.cgroups.processes(other) == (outside,)


def a_populated_group_is_not_removed(bench: CgroupsBench) -> None:
    """One without is, with all below it."""
    a, b = f"{bench.root}/a", f"{bench.root}/a/b"
    for path in (a, b):
        bench.cgroups.ensure(path, ())
    bench.enter(b)
    try:
        bench.cgroups.remove(a)
    except HostError:
        pass
    else:
        raise AssertionError("it was removed")
    bench.cgroups.kill(a)
    bench.cgroups.remove(a)
    assert bench.cgroups.read_files(a, ()) is None
    assert bench.cgroups.read_files(b, ()) is None


def a_missing_group_is_empty_and_removed(bench: CgroupsBench) -> None:
    """Nothing has to be done."""
    path = f"{bench.root}/nonesuch"
    assert bench.cgroups.read_files(path, ("memory.max",)) is None
    assert bench.cgroups.children(path) == ()
    assert bench.cgroups.processes(path) == ()
    assert not bench.cgroups.has_processes(path)
    bench.cgroups.kill(path)
    bench.cgroups.remove(path)


CGROUPS_CHECKS: tuple[CgroupsCheck, ...] = (
    a_group_is_created_with_its_ancestors,
    a_group_is_changed,
    a_process_in_a_group_is_in_its_ancestors,
    a_populated_group_is_not_removed,
    a_missing_group_is_empty_and_removed,
)
