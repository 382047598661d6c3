"""What every tree of cgroups behind the port does alike: one check a promise, for the fake and real ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nodewright.core.cgroups.facts import MemoryCeiling, Origin
from nodewright.core.cgroups.files import File
from nodewright.values.units import Bytes
from nodewright.world.errors import WorldError
from nodewright.world.ports import Cgroups

_CEILING = MemoryCeiling(Bytes(1 << 20), Origin.LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupsBench:
    """A tree to try, below a root of our own."""

    cgroups: Cgroups
    root: str
    enter: Callable[[str], int]
    """A process, now in the group: its id."""

    @property
    def ceiling(self) -> File:
        """A limit of memory, as this version has it."""
        name = "memory.max" if self.cgroups.version == 2 else "memory.limit_in_bytes"
        return File(name, str(1 << 20), _CEILING)


Check: TypeAlias = Callable[[CgroupsBench], None]


def a_group_is_made_with_those_above_it(bench: CgroupsBench) -> None:
    """And says what was written."""
    path, file = f"{bench.root}/a/b", bench.ceiling
    bench.cgroups.ensure(f"{bench.root}/a", ())
    bench.cgroups.ensure(path, (file,))
    bench.cgroups.ensure(path, (file,))
    assert bench.cgroups.texts(path, (file.name, "nonesuch.file")) == {file.name: file.value}
    assert bench.cgroups.below(bench.root) == (f"{bench.root}/a",)
    assert bench.cgroups.below(f"{bench.root}/a") == (path,)


def a_group_is_changed(bench: CgroupsBench) -> None:
    """What is not named stays."""
    path, file = f"{bench.root}/a", bench.ceiling
    bench.cgroups.ensure(path, (file,))
    bench.cgroups.ensure(path, (File("pids.max", "7", _CEILING),))
    assert bench.cgroups.texts(path, (file.name, "pids.max")) == {file.name: file.value, "pids.max": "7"}
    bench.cgroups.ensure(path, (File(file.name, str(2 << 20), _CEILING),))
    assert bench.cgroups.texts(path, (file.name,)) == {file.name: str(2 << 20)}


def who_is_in_a_group_is_in_those_above_it(bench: CgroupsBench) -> None:
    """And ends with them."""
    a, b, other = (f"{bench.root}/{name}" for name in ("a", "a/b", "other"))
    for path in (a, b, other):
        bench.cgroups.ensure(path, ())
    inside, outside = bench.enter(b), bench.enter(other)
    assert bench.cgroups.processes(a) == bench.cgroups.processes(b) == (inside,)
    assert bench.cgroups.processes(bench.root) == tuple(sorted((inside, outside)))
    bench.cgroups.kill(a)
    assert bench.cgroups.processes(a) == ()
    assert bench.cgroups.processes(other) == (outside,)


def a_group_with_somebody_in_it_is_not_removed(bench: CgroupsBench) -> None:
    """One without is, with all below it."""
    a, b = f"{bench.root}/a", f"{bench.root}/a/b"
    for path in (a, b):
        bench.cgroups.ensure(path, ())
    bench.enter(b)
    try:
        bench.cgroups.remove(a)
    except WorldError:
        pass
    else:
        raise AssertionError("it was removed")
    bench.cgroups.kill(a)
    bench.cgroups.remove(a)
    assert bench.cgroups.texts(a, ()) is None
    assert bench.cgroups.texts(b, ()) is None


def what_is_not_there_is_empty_and_gone(bench: CgroupsBench) -> None:
    """Nothing has to be done."""
    path = f"{bench.root}/nonesuch"
    assert bench.cgroups.texts(path, ("memory.max",)) is None
    assert bench.cgroups.below(path) == ()
    assert bench.cgroups.processes(path) == ()
    bench.cgroups.kill(path)
    bench.cgroups.remove(path)


CHECKS: tuple[Check, ...] = (
    a_group_is_made_with_those_above_it,
    a_group_is_changed,
    who_is_in_a_group_is_in_those_above_it,
    a_group_with_somebody_in_it_is_not_removed,
    what_is_not_there_is_empty_and_gone,
)
