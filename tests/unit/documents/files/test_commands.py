"""Commands of others end in time with all that they have started, and what they print is bounded."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from nodewright.documents.files import commands
from nodewright.documents.files.commands import CommandLimits, CommandResult, run_command, run_command_beside
from nodewright.model.errors import HostError

PLACE = ("run", "it")


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_both_outputs_and_the_exit_code_are_read() -> None:
    code = "import sys; print('a' * 200_000); print('b', file=sys.stderr); sys.exit(3)"
    assert run_command(python(code), CommandLimits(60.0), PLACE) == CommandResult(
        3, b"a" * 200_000 + b"\n", b"b\n"
    )


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_without_end_is_an_error(stream: str) -> None:
    code = f"import sys\nwhile True: sys.{stream}.write('x' * 10_000)"
    with pytest.raises(HostError, match="run it: it prints more than 50000 bytes, which is the limit"):
        run_command(python(code), CommandLimits(60.0, 50_000), PLACE)


CHILD = """
import os, pathlib, sys, time
if os.fork() == 0:
    pathlib.Path({path!r}).write_text(str(os.getpid()))
    time.sleep(600)
{parent}
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "parent", ["time.sleep(600)", "sys.exit(0)", "os.close(1); os.close(2); time.sleep(600)"]
)
def test_the_deadline_is_that_of_all_processes(parent: str, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    code = CHILD.format(path=str(path), parent=parent)
    with pytest.raises(HostError, match="run it: no answer within 1 s"):
        run_command(python(code), CommandLimits(1.0), PLACE)
    if path.exists():  # Else it was ended before it ran.
        pid = int(path.read_text("utf-8"))
        while is_running(pid):  # It is killed already; its end may take a moment.
            time.sleep(0.01)


def test_an_interactive_command_has_a_deadline_after_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    code = CHILD.format(path=str(path), parent="time.sleep(0.5); sys.exit(0)")
    try:
        with pytest.raises(HostError, match=r"no answer within 0\.2 s"):
            run_command(python(code), CommandLimits(0.2, is_interactive=True), PLACE)
    finally:
        os.kill(int(path.read_text("utf-8")), 9)


def test_a_call_that_is_cancelled_ends_the_command() -> None:
    async def scenario() -> None:
        limits = CommandLimits(600.0)
        task = asyncio.ensure_future(
            run_command_beside(python("import time; time.sleep(600)"), limits, PLACE)
        )
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())  # waits for the thread


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        run_command(["/none"], CommandLimits(1.0), PLACE)


def test_all_commands_are_run_within_limits() -> None:
    source = Path(commands.__file__).parents[2]
    users = [
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if any(
            text in file.read_text("utf-8") for text in ("import subprocess", "create_subprocess", "os.popen")
        )
    ]
    assert users == ["documents/files/commands.py"]
