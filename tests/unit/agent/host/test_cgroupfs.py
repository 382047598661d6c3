"""Writes to a cgroup hierarchy, on ordinary directories with the same layout."""

from pathlib import Path

import pytest

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, MemoryCeiling
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.values.quantity import Bytes

BECAUSE = MemoryCeiling(Bytes(0), AmountOrigin.LIMIT)


def file(name: str, value: str) -> CgroupFile:
    return CgroupFile(name, value, BECAUSE)


def a_tree_of_version_2(at: Path, **files: str) -> CgroupFS:
    """A cgroup /ours/a with these files, which the kernel would create."""
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


def test_a_file_with_an_equivalent_value_is_not_written(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="4096\n", cpuset_cpus="0,1-2\n")
    for name in ("memory.max", "cpuset.cpus"):
        (tmp_path / "ours" / "a" / name).chmod(0o444)
    times = [place.stat().st_mtime_ns for place in sorted((tmp_path / "ours" / "a").iterdir())]
    cgroups.ensure("/ours/a", (file("memory.max", "5000"), file("cpuset.cpus", "0-2")))
    assert [place.stat().st_mtime_ns for place in sorted((tmp_path / "ours" / "a").iterdir())] == times


def test_what_differs_is_written(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="max\n", cpu_weight="100\n")
    cgroups.ensure("/ours/a", (file("memory.max", "8192"), file("cpu.weight", "20")))
    assert cgroups.read_files("/ours/a", ("memory.max", "cpu.weight", "io.max")) == {
        "memory.max": "8192",
        "cpu.weight": "20",
    }
    assert cgroups.unsupported == set()


def test_operations_are_timed_by_the_kubelets_names(tmp_path: Path) -> None:
    cgroups, names = a_tree_of_version_1(tmp_path), list[str]()
    cgroups.on_operation = lambda name, duration_s: names.append(name) if duration_s >= 0 else None
    cgroups.ensure("/ours/a", ())
    (tmp_path / "cpuset/ours/a/cpuset.mems").write_text("0\n")
    for name in ("cpuset.cpus", "cpuset.mems"):
        (tmp_path / "cpuset/ours/a" / name).write_text("0\n")
    cgroups.ensure("/ours/a", ())
    cgroups.remove("/ours/b")
    assert names == ["create", "update", "destroy"]


def test_missing_controllers_and_files_are_reported(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, memory_max="max\n")
    wanted = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.zswap.max", "pids.max")
    cgroups.ensure("/ours/a", tuple(file(name, "1") for name in wanted))
    assert cgroups.unsupported == {"hugetlb", "memory.zswap.max", "pids"}


def test_a_failed_write_does_not_prevent_others(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path, cpu_weight="100\n")
    (tmp_path / "ours" / "a" / "memory.max").mkdir()
    with pytest.raises(HostError, match=r"write .4096. to memory\.max of cgroup /ours/a"):
        cgroups.ensure("/ours/a", (file("memory.max", "4096"), file("cpu.weight", "20")))
    assert cgroups.read_files("/ours/a", ("cpu.weight",)) == {"cpu.weight": "20"}


def test_cgroups_of_version_1_inherit_the_cpus_of_their_parents(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_1(tmp_path)
    for place in ("ours", "ours/a"):
        (tmp_path / "cpuset" / place).mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            (tmp_path / "cpuset" / place / name).write_text("\n")
    cgroups.ensure("/ours/a", ())
    assert cgroups.read_files("/ours/a", ("cpuset.cpus", "cpuset.mems")) == {
        "cpuset.cpus": "0-3",
        "cpuset.mems": "0",
    }
    assert (tmp_path / "cpu,cpuacct" / "ours" / "a").is_dir()
    assert cgroups.children("/ours") == ("/ours/a",)
    assert len(cgroups.procs_files("/ours/a")) == 3


@pytest.mark.parametrize("path", ["/", "/other", "/ourselves", "/ours/../other", "ours//a"])
def test_cgroups_outside_of_the_root_are_not_changed(tmp_path: Path, path: str) -> None:
    cgroups = a_tree_of_version_2(tmp_path)
    with pytest.raises(HostError, match="it is not below /ours"):
        cgroups.ensure(path, ())
    for act in (cgroups.kill, cgroups.remove):
        with pytest.raises(HostError, match="it is not below /ours"):
            act(path)


def test_a_missing_cgroup_has_no_files_and_can_be_removed(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path)
    assert cgroups.read_files("/ours/b", ("memory.max",)) is None
    assert cgroups.children("/ours/b") == ()
    assert cgroups.processes("/ours/b") == ()
    cgroups.kill("/ours/b")
    cgroups.remove("/ours/b")


def test_the_cgroup_of_a_command_that_left_a_process_is_removed_after_a_later_one(tmp_path: Path) -> None:
    cgroups = a_tree_of_version_2(tmp_path)
    container = tmp_path / "ours" / "a"
    for number in range(3):
        with cgroups.exec_cgroup("/ours/a", f"exec-{number}"):
            (container / f"exec-{number}" / "process").touch()
    (container / "exec-1" / "process").unlink()
    with cgroups.exec_cgroup("/ours/a", "exec-3"):
        pass
    assert sorted(path.name for path in container.glob("exec-*")) == ["exec-0", "exec-2"]
