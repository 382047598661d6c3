"""Files that are written are replaced as a whole, and no link that somebody placed is followed."""

import os
import stat
from pathlib import Path

import pytest

from nodewright.documents.files.file_store import output_file, write_atomically, write_output
from nodewright.model.errors import HostError


def test_temporary_files_have_names_that_cannot_be_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, int]] = []
    real = os.open

    def recorded(path: str | Path, flags: int, mode: int = 0o777) -> int:
        opened.append((str(path), flags))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", recorded)
    for _ in range(2):
        write_atomically(tmp_path / "a", b"x")
    temporaries = {path: flags for path, flags in opened if path.endswith(".tmp")}
    assert len(temporaries) == 2
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW for flags in temporaries.values())


def test_an_output_keeps_its_mode_and_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["link", "real"]


def test_a_new_output_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    write_output(tmp_path / "a", b"")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_output(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("name", ["no/such", "a\0b", "x" * 300, "."])
def test_an_output_that_cannot_be_written_is_a_host_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostError):
        write_output(tmp_path / name, b"x")


def test_a_file_with_the_longest_name_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_output(path, b"1")
    write_output(path, b"2")
    assert path.read_bytes() == b"2"


def write_and_fail(path: Path, error: type[BaseException]) -> None:
    with output_file(path) as file:
        file.write(b"new" * 100_000)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_an_output_that_is_interrupted_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(error):
        write_and_fail(path, error)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("page.html", "old")]


def test_a_file_that_secrets_may_be_in_gets_its_mode_also_in_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "journal.json"
    path.touch(0o644)
    with output_file(path, mode=0o600, keeps_mode=False) as file:
        file.write(b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_pipe_is_written_to_while_the_context_is_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with output_file(tmp_path / "pipe") as file:
        file.write(b"x")
        file.flush()
        assert os.read(reader, 10) == b"x"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
