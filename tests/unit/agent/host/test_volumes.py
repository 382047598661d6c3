"""Volumes: set up as specified, confined to their directory, and removed."""

import os
import socket
from pathlib import Path

import pytest

from nodewright.agent.host.volumes import (
    KernelMounter,
    VolumeError,
    Volumes,
    mount_points_below,
    volume_path,
    write_volume_files,
)
from nodewright.agent.rules.volume_payload import FileContent
from nodewright.documents.files.openat2 import open_beneath, read_beneath
from nodewright.model.errors import HostError


class NotedMounts:
    """Mounts nothing and records the calls."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def mount_tmpfs(self, target: Path, size_bytes: int) -> None:
        self.done.append(f"tmpfs {target.name} {size_bytes}")

    def bind_mount(self, descriptor: int, target: Path) -> None:
        real = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.done.append(f"pin {real.name} {'/'.join(target.parts[-4:])}")

    def unmount_below(self, directory: Path) -> None:
        self.done.append(f"unmount {directory.name}")


EMPTY = {"name": "work", "emptyDir": {}}
IN_MEMORY = {"name": "fast", "emptyDir": {"medium": "Memory"}}
CONF = {"name": "conf", "configMap": {"name": "c"}}


def files(**texts: str) -> dict[str, FileContent]:
    return {name.replace("__", "/"): FileContent(text.encode()) for name, text in texts.items()}


def volume_contents(directory: Path) -> dict[str, str]:
    """The visible files of a volume, through its links."""
    tops = [path for path in directory.iterdir() if not path.name.startswith("..")]
    paths = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_text() for path in paths}


def test_files_are_replaced_atomically(tmp_path: Path) -> None:
    assert write_volume_files(tmp_path, files(a="1", sub__b="2"))
    first = (tmp_path / "..data").readlink()
    assert volume_contents(tmp_path) == {"a": "1", "sub/b": "2"}
    assert (tmp_path / "a").readlink() == Path("..data/a")
    held = (tmp_path / "a").open()
    assert write_volume_files(tmp_path, files(a="one", c="3"))
    assert volume_contents(tmp_path) == {"a": "one", "c": "3"}
    assert held.read() == "1"
    held.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()) != [
        first.name
    ]
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("path", ["a/../../b", "a" * 300])
def test_an_attempt_that_fails_leaves_nothing_and_the_version_before_stays(tmp_path: Path, path: str) -> None:
    write_volume_files(tmp_path, files(a="1"))
    before = sorted(entry.name for entry in tmp_path.iterdir())
    for _ in range(3):
        with pytest.raises((OSError, ValueError)):
            write_volume_files(tmp_path, {**files(b="2"), path: files(x="")["x"]})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before
    assert volume_contents(tmp_path) == {"a": "1"}


def test_unchanged_files_are_not_written(tmp_path: Path) -> None:
    write_volume_files(tmp_path, files(a="1"))
    (tmp_path / "a").unlink()
    (tmp_path / "..left-over").mkdir()
    assert not write_volume_files(tmp_path, files(a="1"))
    assert volume_contents(tmp_path) == {"a": "1"}
    assert not (tmp_path / "..left-over").exists()
    assert write_volume_files(tmp_path, {"a": FileContent(b"1", 0o400)})
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o400


def test_a_file_can_be_a_users_and_is_not_written_again(tmp_path: Path) -> None:
    users = {"a": FileContent(b"1", 0o600, os.getuid())}
    assert write_volume_files(tmp_path, users)
    assert (tmp_path / "a").stat().st_uid == os.getuid()
    assert not write_volume_files(tmp_path, users)
    if os.geteuid() == 0:
        assert write_volume_files(tmp_path, {"a": FileContent(b"1", 0o600, 1234)})
        assert (tmp_path / "a").stat().st_uid == 1234


def test_files_of_a_volume_are_readable_for_its_group(tmp_path: Path) -> None:
    write_volume_files(tmp_path, {"a": FileContent(b"1", 0o400)}, os.getgid())
    stat_result = (tmp_path / "a").stat()
    assert (stat_result.st_mode & 0o777, stat_result.st_gid) == (0o440, os.getgid())


def test_links_lead_nowhere_out_of_a_directory(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for path in (inside, outside):
        path.mkdir()
        (path / "file").write_text(path.name)
    (inside / "good").symlink_to("file")
    (inside / "up").symlink_to("../out/file")
    (inside / "far").symlink_to(outside / "file")
    assert read_beneath(inside, "good", 10) == b"in"
    for name in ("up", "far", "../out/file", "/etc/hostname"):
        with pytest.raises(OSError, match=r"cross-device|\[Errno 18\]"):
            open_beneath(inside, name)


def test_an_empty_dir_is_writable_for_all_and_keeps_its_content(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path, None)
    place = volumes.set_up_empty_dir("u", EMPTY, None, 0)
    assert place == tmp_path / "u/volumes/kubernetes.io~empty-dir/work"
    assert place.stat().st_mode & 0o7777 == 0o777
    (place / "a").write_text("1")
    assert volumes.set_up_empty_dir("u", {"name": "work"}, None, 0) == place
    assert (place / "a").read_text() == "1"
    grouped = volumes.set_up_empty_dir("v", EMPTY, os.getgid(), 0)
    assert grouped.stat().st_mode & 0o7777 == 0o2777


def test_a_tmpfs_is_mounted_if_mounting_is_permitted(tmp_path: Path) -> None:
    mounts = NotedMounts()
    Volumes(tmp_path, mounts).set_up_empty_dir("u", IN_MEMORY, None, 1024)
    assert mounts.done == ["tmpfs fast 1024"]
    with pytest.raises(VolumeError, match="needs a mount, which the agent is not permitted to make"):
        Volumes(tmp_path, None).set_up_empty_dir("u", IN_MEMORY, None, 1024)
    with pytest.raises(VolumeError, match='unknown storage medium "HugePages"'):
        Volumes(tmp_path, mounts).set_up_empty_dir(
            "u", {"name": "x", "emptyDir": {"medium": "HugePages"}}, None, 0
        )


def test_a_tmpfs_keeps_the_sticky_bit_that_the_kernel_gives_it(tmp_path: Path) -> None:
    class StickyMounts(NotedMounts):
        def mount_tmpfs(self, target: Path, size_bytes: int) -> None:
            super().mount_tmpfs(target, size_bytes)
            target.chmod(0o1777)

    volumes = Volumes(tmp_path, StickyMounts())
    grouped = volumes.set_up_empty_dir("u", IN_MEMORY, os.getgid(), 1024)
    assert grouped.stat().st_mode & 0o7777 == 0o3777
    volumes.prepare_subpath("u", grouped, "below", ("fast", "main", 0))
    assert (grouped / "below").stat().st_mode & 0o7777 == 0o3777
    assert volumes.set_up_empty_dir("v", IN_MEMORY, None, 1024).stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize(
    ("volume", "number"),
    [
        ({"secret": {"secretName": "s"}}, 1),
        ({"projected": {"sources": []}}, 1),
        ({"downwardAPI": {"items": []}}, 1),
        ({"configMap": {"name": "c"}}, 0),
    ],
)
def test_secret_files_are_in_memory_if_mounting_is_permitted(
    tmp_path: Path, volume: dict[str, object], number: int
) -> None:
    mounts = NotedMounts()
    for _ in range(2):
        Volumes(tmp_path, mounts).set_up_files("u", {"name": "v", **volume}, files(a="1"), None)
    assert mounts.done == [f"tmpfs v {256 << 20}"] * number
    Volumes(tmp_path, None).set_up_files("w", {"name": "v", **volume}, files(a="1"), None)


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
def test_host_paths_are_checked_against_their_type(
    tmp_path: Path, path: str, kind: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as result:
        result.bind("socket")
    text = ""
    try:
        host_path = Volumes(tmp_path / "pods", None).host_path(
            {"hostPath": {"path": f"{tmp_path}/{path}", "type": kind}}
        )
    except VolumeError as error:
        text = str(error)
    else:
        assert host_path == tmp_path / path
        assert host_path.exists() or not kind
    assert text == expected.replace("ROOT", str(tmp_path))


def test_a_path_below_a_volume_is_pinned(tmp_path: Path) -> None:
    mounts = NotedMounts()
    volumes = Volumes(tmp_path, mounts)
    place = volumes.set_up_empty_dir("u", EMPTY, None, 0)
    (place / "file").touch()
    (place / "out").symlink_to("/etc")
    assert volumes.prepare_subpath("u", place, "a/b", ("work", "app", 0)).is_dir()
    assert (place / "a/b").stat().st_mode & 0o777 == 0o777
    assert volumes.prepare_subpath("u", place, "file", ("work", "app", 1)).is_file()
    for path in ("out", "out/passwd", "out/new"):
        with pytest.raises(OSError, match=r"\[Errno 18\]"):
            volumes.prepare_subpath("u", place, path, ("work", "app", 2))
    assert mounts.done == ["pin b volume-subpaths/work/app/0", "pin file volume-subpaths/work/app/1"]


def test_volumes_that_only_the_agent_writes_to_need_no_bind_mount(tmp_path: Path) -> None:
    volumes = Volumes(tmp_path, None)
    place = volumes.set_up_files("u", CONF, files(a="1"), None)
    assert volumes.prepare_subpath("u", place, "a", ("conf", "app", 0)).read_text() == "1"


def test_volumes_of_clusters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="volumes of type nfs are not supported"):
        volume_path(tmp_path, {"name": "x", "nfs": {"server": "s"}})


def test_all_volumes_of_a_pod_are_removed(tmp_path: Path) -> None:
    mounts = NotedMounts()
    volumes = Volumes(tmp_path, mounts)
    volumes.set_up_empty_dir("u", EMPTY, None, 0)
    volumes.remove("u")
    volumes.remove("u")
    assert list(tmp_path.iterdir()) == []
    assert mounts.done == ["unmount u"]


def test_a_directory_with_foreign_mounts_is_not_removed() -> None:
    assert "/proc" in mount_points_below(Path("/proc"))
    with pytest.raises(HostError, match="something is mounted at"):
        Volumes(Path("/"), None).remove("proc")


def test_mounting_without_permission_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"mount .*: (No such file or directory|Operation not permitted)"):
        KernelMounter().bind_mount(9999, tmp_path / "none")


HOSTILE = ("/srv/victim", "../../../victim", "..", ".", "", "a\0b", "x" * 256)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_reach_nothing_outside(tmp_path: Path, name: str) -> None:
    """Even where validation above slipped."""
    root, victim = tmp_path / "root" / "volumes", tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("kept")
    volumes = Volumes(root, NotedMounts())
    target = str(victim) if name == "/srv/victim" else name
    for volume in ({"name": target, "emptyDir": {}}, {"name": target}):
        with pytest.raises(VolumeError, match="is not the name of a file"):
            volumes.set_up_empty_dir("u", volume, None, 0)
    with pytest.raises(VolumeError, match="is not the name of a file"):
        volumes.set_up_files("u", {"name": target, "configMap": {}}, files(job="x"), None)
    with pytest.raises(HostError):
        volumes.set_up_empty_dir(target, EMPTY, None, 0)
    place = volumes.set_up_empty_dir("u", EMPTY, None, 0)
    for pair in ((target, "app", 0), ("work", target, 0)):
        with pytest.raises(HostError):
            volumes.prepare_subpath("u", place, "a", pair)
    volumes.remove(target)
    assert (victim / "precious").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "victim"]
    assert [path.name for path in root.iterdir()] == ["u"]


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "a\0b", "."])
def test_hostile_paths_of_files_stay_in_their_volume(tmp_path: Path, path: str) -> None:
    with pytest.raises(HostError):
        Volumes(tmp_path / "root", None).set_up_files("u", CONF, {path: FileContent(b"x")}, None)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_volume_that_was_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    volumes, victim = Volumes(tmp_path / "root", None), tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("kept")
    place = volumes.set_up_files("u", CONF, files(a="1"), None)
    place.rename(place.with_name("old"))
    place.symlink_to(victim)
    with pytest.raises(HostError, match="Invalid cross-device link"):
        volumes.set_up_files("u", CONF, files(a="2"), None)
    assert [path.name for path in victim.iterdir()] == ["precious"]


def test_a_data_link_that_leads_elsewhere_is_replaced(tmp_path: Path) -> None:
    write_volume_files(tmp_path, files(a="1"))
    (tmp_path / "..data").unlink()
    (tmp_path / "..data").symlink_to("/etc")
    assert write_volume_files(tmp_path, files(a="1"))
    assert volume_contents(tmp_path) == {"a": "1"}


def test_a_host_path_with_a_nul_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="NUL"):
        Volumes(tmp_path, None).host_path({"hostPath": {"path": "/srv/a\0b", "type": "DirectoryOrCreate"}})


@pytest.mark.parametrize("group", [2**32, -(2**40), 2**63])
def test_a_group_that_linux_does_not_have_is_a_host_error(tmp_path: Path, group: int) -> None:
    with pytest.raises(HostError):
        Volumes(tmp_path, None).set_up_empty_dir("u", EMPTY, group, 0)
    with pytest.raises(HostError):
        Volumes(tmp_path, None).set_up_files("u", CONF, files(a="1"), group)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="is not a regular file"):
        read_beneath(tmp_path, "fifo", 10)
