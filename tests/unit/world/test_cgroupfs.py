"""What is written to a tree of cgroups, and what is left alone; on directories that look like one."""

from pathlib import Path

import pytest

from nodewright.core.cgroups.facts import MemoryCeiling, Origin
from nodewright.core.cgroups.files import File
from nodewright.values.units import Bytes
from nodewright.world.cgroupfs import CgroupFS
from nodewright.world.errors import WorldError

BECAUSE = MemoryCeiling(Bytes(0), Origin.LIMIT)


def file(name: str, value: str) -> File:
    return File(name, value, BECAUSE)


def a_tree_of_version_2(at: Path, **files: str) -> CgroupFS:
    """A group /ours/a with these files, which the kernel would make."""
    (at / "ours" / "a").mkdir(parents=True)
    for place in (at, at / "ours", at / "ours" / "a"):
        (place / "cgroup.controllers").write_text("cpu memory\n")
        (place / "cgroup.subtree_control").write_text("\n")
        (place / "cgroup.procs").write_text("")
    for name, text in files.items():
        (at / "ours" / "a" / name.replace("_", ".")).write_text(text)
    return CgroupFS("/ours", at)


def a_tree_of_version_1(at: Path) -> CgroupFS:
    for controller in ("cpu,cpuacct", "cpuset", "memory"):
        (at / controller).mkdir()
    for name, text in (("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")):
        (at / "cpuset" / name).write_text(text)
    return CgroupFS("/ours", at)


def test_what_a_file_says_already_in_other_words_is_not_written(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="4096\n", cpuset_cpus="0,1-2\n")
    for name in ("memory.max", "cpuset.cpus"):
        (tmp_path / "ours" / "a" / name).chmod(0o444)
    times = [place.stat().st_mtime_ns for place in sorted((tmp_path / "ours" / "a").iterdir())]
    cgroups.ensure("/ours/a", (file("memory.max", "5000"), file("cpuset.cpus", "0-2")))
    assert [place.stat().st_mtime_ns for place in sorted((tmp_path / "ours" / "a").iterdir())] == times


def test_what_differs_is_written(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="max\n", cpu_weight="100\n")
    cgroups.ensure("/ours/a", (file("memory.max", "8192"), file("cpu.weight", "20")))
    assert cgroups.texts("/ours/a", ("memory.max", "cpu.weight", "io.max")) == {
        "memory.max": "8192",
        "cpu.weight": "20",
    }
    assert cgroups.lacks == set()


def test_controllers_and_files_that_there_are_none_of_are_told(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="max\n")
    wanted = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.zswap.max", "pids.max")
    cgroups.ensure("/ours/a", tuple(file(name, "1") for name in wanted))
    assert cgroups.lacks == {"hugetlb", "memory.zswap.max", "pids"}


def test_a_file_that_cannot_be_written_does_not_keep_others_from_it(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, cpu_weight="100\n")
    (tmp_path / "ours" / "a" / "memory.max").mkdir()
    with pytest.raises(WorldError, match=r"write .4096. to memory\.max of cgroup /ours/a"):
        cgroups.ensure("/ours/a", (file("memory.max", "4096"), file("cpu.weight", "20")))
    assert cgroups.texts("/ours/a", ("cpu.weight",)) == {"cpu.weight": "20"}


def test_groups_of_version_1_begin_with_the_cpus_of_those_above(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_1(tmp_path)
    for place in ("ours", "ours/a"):
        (tmp_path / "cpuset" / place).mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            (tmp_path / "cpuset" / place / name).write_text("\n")
    cgroups.ensure("/ours/a", ())
    assert cgroups.texts("/ours/a", ("cpuset.cpus", "cpuset.mems")) == {
        "cpuset.cpus": "0-3",
        "cpuset.mems": "0",
    }
    assert (tmp_path / "cpu,cpuacct" / "ours" / "a").is_dir()
    assert cgroups.below("/ours") == ("/ours/a",)
    assert len(cgroups.doors("/ours/a")) == 3


@pytest.mark.parametrize("path", ["/", "/other", "/ourselves", "/ours/../other", "ours//a"])
def test_what_is_not_ours_is_not_touched(tmp_path: Path, path: str) -> None:
    cgroups = a_tree_of_version_2(tmp_path)
    with pytest.raises(WorldError, match="it is not below /ours"):
        cgroups.ensure(path, ())
    for act in (cgroups.kill, cgroups.remove):
        with pytest.raises(WorldError, match="it is not below /ours"):
            act(path)


def test_what_is_not_there_has_no_texts_and_is_gone_already(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path)
    assert cgroups.texts("/ours/b", ("memory.max",)) is None
    assert cgroups.below("/ours/b") == ()
    assert cgroups.processes("/ours/b") == ()
    cgroups.kill("/ours/b")
    cgroups.remove("/ours/b")
