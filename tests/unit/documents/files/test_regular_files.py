"""Files of others are read if they are regular and not too large."""

import io
import os
import sys
import threading
from pathlib import Path

import pytest

from nodewright.documents.files import regular_files
from nodewright.documents.files.regular_files import FileRefusedError, open_named_file, read_regular_file


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


class _WritingStderr(io.StringIO):
    """Standard error; its first line lets the other side write to the pipe."""

    def __init__(self, pipe: Path) -> None:
        super().__init__()
        self.pipe = pipe

    def write(self, text: str) -> int:
        threading.Thread(target=self.pipe.write_bytes, args=(b"kind: Pod",)).start()
        return super().write(text)


def test_a_named_pipe_is_waited_for_and_after_a_while_a_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pods.json"
    os.mkfifo(pipe)
    stderr = _WritingStderr(pipe)
    monkeypatch.setattr(regular_files, "PIPE_NOTICE_MS", 1)
    monkeypatch.setattr(sys, "stderr", stderr)
    with open_named_file(str(pipe)) as file:
        assert file.read() == b"kind: Pod"
    assert stderr.getvalue() == f"{pipe}: a named pipe; waiting for its content\n"


def test_a_pipe_that_is_closed_without_content_is_empty() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    with open_named_file(f"/dev/fd/{reading}") as file:
        assert file.read() == b""
    os.close(reading)


def test_a_pipe_is_read_to_its_end_however_late_the_parts_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pods.json"
    os.mkfifo(pipe)
    content = os.urandom(300_000)  # beyond what a pipe holds
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    with open_named_file(str(pipe)) as file:
        assert file.read() == content
    writer.join()
