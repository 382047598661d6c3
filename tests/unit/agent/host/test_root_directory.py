"""The root directory cannot be replaced by another user, and what is in it is open to nobody who has no business there."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from nodewright.documents.files.root_directory import admit_users, prepare_root_directory
from nodewright.model.errors import HostError

NOBODY, OTHER = 65534, 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners and users")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [0o700, 0o755, None])
def test_a_root_directory_is_passed_through_and_not_listed_whatever_it_was(
    tmp_path: Path, before: int | None
) -> None:
    root = tmp_path / "a" / "root"
    if before is not None:
        root.mkdir(parents=True)
        root.chmod(before)
        (root / "volumes" / "uid").mkdir(parents=True)
        (root / "volumes" / "uid").chmod(0o755)
    prepare_root_directory(root)
    assert {path.name: oct(mode(path)) for path in (root, *root.iterdir())} == {
        "root": "0o711",
        "volumes": "0o711",
        "containers": "0o711",
        "logs": "0o750",
    }
    assert [mode(path) for path in (root / "volumes").iterdir()] == [0o750] * (before is not None)


def refusal(root: Path) -> str:
    with pytest.raises(HostError) as refused:
        prepare_root_directory(root)
    return refused.value.error


def test_a_directory_that_every_user_can_rename_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert refusal(shared / "root") == f"every user can replace what is in {shared}"
    assert refusal(shared) == "every user can write to it"
    # In a sticky directory, only its owner can rename a file.
    shared.chmod(0o1777)
    prepare_root_directory(shared / "root")


@as_root
def test_a_directory_behind_the_link_or_in_the_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    sticky, home = tmp_path / "sticky", tmp_path / "home"
    for directory in (sticky, home, tmp_path / "target"):
        directory.mkdir()
    sticky.chmod(0o1777)
    (sticky / "link").symlink_to(tmp_path / "target")
    prepare_root_directory(sticky / "link")
    os.lchown(sticky / "link", NOBODY, NOBODY)
    assert refusal(sticky / "link") == f"{sticky}/link belongs to user {NOBODY}"
    assert refusal(sticky / "link" / "below") == f"{sticky}/link belongs to user {NOBODY}"
    os.chown(home, NOBODY, NOBODY)
    assert refusal(home / "root") == f"{home} belongs to user {NOBODY}"
    assert refusal(sticky / ".." / "home" / "root") == f"{home} belongs to user {NOBODY}"


@as_root
def test_a_directory_that_a_group_can_write_to_is_refused_unless_it_is_the_group_of_root(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    prepare_root_directory(shared / "root")
    os.chown(shared, 0, NOBODY)
    assert refusal(shared / "root") == f"group {NOBODY} can replace what is in {shared}"


def test_links_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    assert refusal(tmp_path / "link" / "root") == "too many links"


def _can_read(path: Path, user: int) -> bool:
    command = ["cat", str(path)]
    return (
        subprocess.run(
            command, user=user, group=user, extra_groups=[], capture_output=True, check=False
        ).returncode
        == 0
    )


@as_root
def test_only_admitted_users_reach_the_files_of_a_pod() -> None:
    # Not below the directory of pytest, which others cannot reach.
    with_others = Path(tempfile.mkdtemp())
    try:
        (with_others / "file").write_text("hunter2")
        (with_others / "file").chmod(0o644)
        for users in ({OTHER}, {OTHER, 0, 777}):
            admit_users(with_others, users)
            assert (_can_read(with_others / "file", OTHER), _can_read(with_others / "file", NOBODY)) == (
                True,
                False,
            )
            assert mode(with_others) & 0o007 == 0
        admit_users(with_others, {0})
        assert not _can_read(with_others / "file", OTHER)
    finally:
        (with_others / "file").unlink()
        with_others.rmdir()
