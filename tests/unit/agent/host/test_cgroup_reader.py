from pathlib import Path

import pytest

from nodewright.documents.files.cgroup_files import CgroupTree
from nodewright.model.errors import InputError


def a_tree(root: Path, *files: str) -> CgroupTree:
    """A hierarchy with these files, whose content is their own name and a newline."""
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.name}\n")
    return CgroupTree(root)


def test_version_2_is_one_hierarchy(tmp_path: Path) -> None:
    tree = a_tree(
        tmp_path, "cgroup.controllers", "kubepods/cpu.max", "kubepods/memory.max", "kubepods/pod1/x"
    )
    assert tree.version == 2
    assert tree.read_files("/kubepods", ["cpu.max", "memory.max", "pids.max"]) == {
        "cpu.max": "cpu.max",
        "memory.max": "memory.max",
    }
    assert tree.read_files("/kubepods/pod1", ["cpu.max"]) == {}
    assert tree.read_files("/kubepods/pod2", ["cpu.max"]) is None
    assert tree.child_names("/kubepods") == ["pod1"]
    assert tree.child_names("/nowhere") == []


def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path) -> None:
    tree = a_tree(
        tmp_path, "cpu,cpuacct/kubepods/cpu.shares", "memory/kubepods/pod1/memory.limit_in_bytes", "x"
    )
    assert tree.version == 1
    files = ["cpu.shares", "memory.limit_in_bytes", "pids.max"]
    assert tree.read_files("/kubepods", files) == {"cpu.shares": "cpu.shares"}
    assert tree.read_files("/kubepods/pod1", files) == {"memory.limit_in_bytes": "memory.limit_in_bytes"}
    assert tree.child_names("/kubepods") == ["pod1"]


def test_a_container_is_found_by_its_id(tmp_path: Path) -> None:
    tree = a_tree(tmp_path, "cgroup.controllers", "pod1/crio-1f.scope/cpu.max", "pod1/crio-conmon-2e/cpu.max")
    path, found = "/pod1/cri-containerd-1f.scope", {"cpu.max": "cpu.max"}
    assert tree.read_files(path, ["cpu.max"], "containerd://1f") == found
    assert tree.read_files(path, ["cpu.max"], "containerd://3d") is None
    assert tree.read_files(path, ["cpu.max"]) is None
    assert tree.read_files("/pod2/1f", ["cpu.max"], "containerd://1f") is None


def test_a_directory_that_is_not_a_cgroup_hierarchy_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a cgroup hierarchy"):
        CgroupTree(tmp_path)
