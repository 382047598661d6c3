"""Files of others are read if they are regular and not too large."""

import os
from pathlib import Path

import pytest

from nodewright.documents.files.regular_files import FileRefusedError, read_regular_file


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    content = os.urandom(200_000)
    (tmp_path / "a").write_bytes(content)
    assert read_regular_file(tmp_path / "a") == content
    assert read_regular_file(str(tmp_path / "a"), len(content)) == content


def test_a_file_of_proc_is_read_though_its_size_is_zero() -> None:
    assert b"processor" in read_regular_file("/proc/cpuinfo")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_devices_are_not_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(FileRefusedError, match="is not a regular file"):
        read_regular_file(tmp_path / "link")


def test_a_fifo_that_nobody_writes_to_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileRefusedError, match="is not a regular file"):
        read_regular_file(tmp_path / "fifo")


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileRefusedError, match="has more than 10 bytes, which is the limit"):
        read_regular_file(tmp_path / "sparse", 10)


def test_a_file_that_says_that_it_is_empty_is_bounded_as_well() -> None:
    with pytest.raises(FileRefusedError, match="has more than 10 bytes"):
        read_regular_file("/proc/cpuinfo", 10)


@pytest.mark.parametrize("name", ["a\0b", "x" * 10_000, "", "missing"])
def test_names_that_no_file_can_have_are_system_errors(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r".") as error:
        read_regular_file(f"{tmp_path}/{name}")
    assert error.value.strerror
