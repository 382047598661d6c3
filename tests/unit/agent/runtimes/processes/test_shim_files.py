"""What a container leaves for its shim to read is read only if it is a file, and never waited for."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodewright.agent.runtimes.processes.shim_files import termination_message

IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "nothing": lambda path: path.unlink(missing_ok=True),
}


@pytest.mark.parametrize("make", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_is_no_file_is_no_termination_message(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "log")
    assert termination_message(str(tmp_path / "log")) == ""


def test_a_termination_message_has_4096_bytes_at_most_whatever_they_are(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff" + b"x" * 5000)
    assert termination_message(str(tmp_path / "log")) == "\ufffd" + "x" * 4095


def test_only_the_standard_streams_are_inherited(tmp_path: Path) -> None:
    statement = (
        "from nodewright.agent.runtimes.processes.shim_files import close_inherited_descriptors as close; "
        "close(); import os; print([name for name in os.listdir('/proc/self/fd') if int(name) > 2][1:])"
    )
    (tmp_path / "secret").write_text("hunter2")
    secret = os.open(tmp_path / "secret", os.O_RDONLY)
    try:
        run = [sys.executable, "-c", statement]
        result = subprocess.run(run, pass_fds=[secret], capture_output=True, text=True, check=True)
    finally:
        os.close(secret)
    # The one that is left out is that of the list.
    assert result.stdout == "[]\n"
