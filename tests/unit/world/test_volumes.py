"""Volumes: made as pods want them, shown without a way out, and removed."""

import os
import socket
from pathlib import Path

import pytest

from nodewright.core.environment import FileContent
from nodewright.world.beneath import open_beneath, read_beneath
from nodewright.world.errors import WorldError
from nodewright.world.mounts import KernelMounts, mounted_below
from nodewright.world.volume_files import write_all
from nodewright.world.volumes import VolumeError, Volumes, volume_path


class NotedMounts:
    """Mounts nothing and notes what was wanted."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tmpfs(self, target: Path, size_bytes: int) -> None:
        self.done.append(f"tmpfs {target.name} {size_bytes}")

    def pin(self, descriptor: int, target: Path) -> None:
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.done.append(f"pin {real.name} {'/'.join(target.parts[-4:])}")

    def unmount_below(self, directory: Path) -> None:
        self.done.append(f"unmount {directory.name}")


EMPTY = {"name": "work", "emptyDir": {}}
IN_MEMORY = {"name": "fast", "emptyDir": {"medium": "Memory"}}
CONF = {"name": "conf", "configMap": {"name": "c"}}


def files(**texts: str) -> dict[str, FileContent]:
    return {name.replace("__", "/"): FileContent(text.encode()) for name, text in texts.items()}


def seen(directory: Path) -> dict[str, str]:
    """What somebody who follows links finds."""
    tops = [one for one in directory.iterdir() if not one.name.startswith("..")]
    found = [one for top in tops for one in ([top] if top.is_file() else top.rglob("*")) if one.is_file()]
    return {str(one.relative_to(directory)): one.read_text() for one in found}


def test_files_are_replaced_all_at_once(tmp_path: Path) -> None:
    assert write_all(tmp_path, files(a="1", sub__b="2"))
    first = (tmp_path / "..data").readlink()
    assert seen(tmp_path) == {"a": "1", "sub/b": "2"}
    assert (tmp_path / "a").readlink() == Path("..data/a")
    held = (tmp_path / "a").open()
    assert write_all(tmp_path, files(a="one", c="3"))
    assert seen(tmp_path) == {"a": "one", "c": "3"}
    assert held.read() == "1"
    held.close()
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_dir() and not one.is_symlink()) != [
        first.name
    ]
    assert len(list(tmp_path.iterdir())) == 4


def test_files_that_are_so_already_are_not_written_again(tmp_path: Path) -> None:
    write_all(tmp_path, files(a="1"))
    (tmp_path / "a").unlink()
    (tmp_path / "..left-over").mkdir()
    assert not write_all(tmp_path, files(a="1"))
    assert seen(tmp_path) == {"a": "1"}
    assert not (tmp_path / "..left-over").exists()
    assert write_all(tmp_path, {"a": FileContent(b"1", 0o400)})
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o400


def test_a_group_may_read_what_is_for_it(tmp_path: Path) -> None:
    write_all(tmp_path, {"a": FileContent(b"1", 0o400)}, os.getgid())
    told = (tmp_path / "a").stat()
    assert (told.st_mode & 0o777, told.st_gid) == (0o440, os.getgid())


def test_links_lead_nowhere_out_of_a_directory(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for one in (inside, outside):
        one.mkdir()
        (one / "file").write_text(one.name)
    (inside / "good").symlink_to("file")
    (inside / "up").symlink_to("../out/file")
    (inside / "far").symlink_to(outside / "file")
    assert read_beneath(inside, "good", 10) == b"in"
    for name in ("up", "far", "../out/file", "/etc/hostname"):
        with pytest.raises(OSError, match=r"cross-device|\[Errno 18\]"):
            open_beneath(inside, name)


def test_an_empty_directory_is_for_all_and_stays(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path, None)
    place = volumes.empty("u", EMPTY, None, 0)
    assert place == tmp_path / "u/volumes/kubernetes.io~empty-dir/work"
    assert place.stat().st_mode & 0o7777 == 0o777
    (place / "a").write_text("1")
    assert volumes.empty("u", {"name": "work"}, None, 0) == place
    assert (place / "a").read_text() == "1"
    grouped = volumes.empty("v", EMPTY, os.getgid(), 0)
    assert grouped.stat().st_mode & 0o7777 == 0o2777


def test_memory_is_mounted_where_that_is_allowed(tmp_path: Path) -> None:
    mounts = NotedMounts()
    Volumes(tmp_path, mounts).empty("u", IN_MEMORY, None, 1024)
    assert mounts.done == ["tmpfs fast 1024"]
    with pytest.raises(VolumeError, match="needs mounting, for which the agent has no rights"):
        Volumes(tmp_path, None).empty("u", IN_MEMORY, None, 1024)
    with pytest.raises(VolumeError, match='unknown storage medium "HugePages"'):
        Volumes(tmp_path, mounts).empty("u", {"name": "x", "emptyDir": {"medium": "HugePages"}}, None, 0)


HOST_PATHS: tuple[tuple[str, str, str], ...] = (
    ("dir", "", ""),
    ("none", "", ""),
    ("dir", "Directory", ""),
    ("file", "File", ""),
    ("socket", "Socket", ""),
    ("none", "Directory", "hostPath type check failed: ROOT/none is not a directory"),
    ("file", "DirectoryOrCreate", "hostPath type check failed: ROOT/file is not a directory"),
    ("new/dir", "DirectoryOrCreate", ""),
    ("new.txt", "FileOrCreate", ""),
    ("dir", "FileOrCreate", "hostPath type check failed: ROOT/dir is not a file"),
    ("file", "Socket", "hostPath type check failed: ROOT/file is not a socket file"),
    ("file", "CharDevice", "hostPath type check failed: ROOT/file is not a character device"),
    ("file", "BlockDevice", "hostPath type check failed: ROOT/file is not a block device"),
    ("file", "Folder", "Folder is an invalid volume type"),
)


@pytest.mark.parametrize(("path", "kind", "expected"), HOST_PATHS)
def test_paths_of_the_host_are_what_they_should_be(
    tmp_path: Path, path: str, kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    said = ""
    try:
        found = Volumes(tmp_path / "pods", None).of_host(
            {"hostPath": {"path": f"{tmp_path}/{path}", "type": kind}}
        )
    except VolumeError as error:
        said = str(error)
    else:
        assert found == tmp_path / path
        assert found.exists() or not kind
    assert said == expected.replace("ROOT", str(tmp_path))


def test_a_path_below_a_volume_is_pinned(tmp_path: Path) -> None:
    mounts = NotedMounts()
    volumes = Volumes(tmp_path, mounts)
    place = volumes.empty("u", EMPTY, None, 0)
    (place / "file").touch()
    (place / "out").symlink_to("/etc")
    assert volumes.below("u", place, "a/b", ("work", "app", 0)).is_dir()
    assert (place / "a/b").stat().st_mode & 0o777 == 0o777
    assert volumes.below("u", place, "file", ("work", "app", 1)).is_file()
    for path in ("out", "out/passwd", "out/new"):
        with pytest.raises(OSError, match=r"\[Errno 18\]"):
            volumes.below("u", place, path, ("work", "app", 2))
    assert mounts.done == ["pin b volume-subpaths/work/app/0", "pin file volume-subpaths/work/app/1"]


def test_nobody_has_to_pin_what_only_we_write_to(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path, None)
    place = volumes.of_files("u", CONF, files(a="1"), None)
    assert volumes.below("u", place, "a", ("conf", "app", 0)).read_text() == "1"


def test_volumes_of_clusters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="volumes of kind nfs cannot be had without a cluster"):
        volume_path(tmp_path, {"name": "x", "nfs": {"server": "s"}})


def test_nothing_is_left_of_a_pod(tmp_path: Path) -> None:
    mounts = NotedMounts()
    volumes = Volumes(tmp_path, mounts)
    volumes.empty("u", EMPTY, None, 0)
    volumes.remove("u")
    volumes.remove("u")
    assert list(tmp_path.iterdir()) == []
    assert mounts.done == ["unmount u"]


def test_nothing_is_removed_below_which_something_is_mounted() -> None:
    assert "/proc" in mounted_below(Path("/proc"))
    with pytest.raises(WorldError, match="something is mounted at"):
        Volumes(Path("/"), None).remove("proc")


def test_who_may_not_mount_is_told(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"mount .*: (No such file or directory|Operation not permitted)"):
        KernelMounts().pin(9999, tmp_path / "none")
