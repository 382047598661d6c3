"""What stands in a directory of files: only regular files are read, and a lock is held by one process."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodewright.documents.files.file_store import LocalFileStore, try_flock
from nodewright.documents.files.regular_files import NotRegularFileError, read_regular_file
from nodewright.model.errors import HostError


def _socket(path: Path) -> None:
    # The path of a socket has a limit, so its name is relative.
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


OTHERS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": _socket,
    "loop": _loop,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "state")
    with pytest.raises(NotRegularFileError):
        read_regular_file(tmp_path / "state")


def test_a_file_is_read_as_a_whole_or_up_to_a_number_of_bytes(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"x" * 100_000)
    assert read_regular_file(tmp_path / "state") == b"x" * 100_000
    assert read_regular_file(tmp_path / "state", 7) == b"x" * 7
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "none")


def test_a_state_file_that_is_a_fifo_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path / "root")
    os.mkfifo(tmp_path / "root" / "cpu_manager_state")
    with pytest.raises(HostError, match="is not a regular file"):
        store.read("cpu_manager_state")
    store.close()


@pytest.mark.slow
def test_a_lock_that_is_released_meanwhile_is_taken_and_one_that_is_held_is_not(tmp_path: Path) -> None:
    held = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert try_flock(held)
    wanted = os.open(tmp_path / "lock", os.O_RDWR)
    assert not try_flock(wanted)
    # A process that inherits the descriptor holds the lock until it ends.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"], pass_fds=[held])
    os.close(held)
    assert try_flock(wanted)
    child.wait()
    os.close(wanted)
