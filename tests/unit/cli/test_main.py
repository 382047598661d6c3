import errno
import gc
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from nodewright.cli import COMPLETE, app, main
from nodewright.documents.output.terminal import INTERRUPTED

PROGRAMS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def own_garbage_collection() -> Iterator[None]:
    """Keeps what `main` sets for a whole process from the tests that follow.

    What it has set aside stays so: otherwise all that pytest has collected would be searched for garbage until the end.
    """
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


def output(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["nodewright", "kubectl-nodewright"])
def test_both_programs_are_installed_and_call_themselves_as_they_are_called(program: str) -> None:
    ran = output(str(PROGRAMS / program), "frobnicate")
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"Usage: {program.replace('-', ' ')} ")


@pytest.mark.slow
def test_the_module_runs_as_the_program() -> None:
    assert output(sys.executable, "-m", "nodewright", "--version").stdout.startswith("nodewright ")


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{PROGRAMS / 'nodewright'} verify --help | head -n 1"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.stdout, ran.stderr) == ("Usage: nodewright verify [OPTIONS] [FILE]...\n", "")


def test_a_closed_standard_output_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    with pytest.raises(SystemExit, match=r"^error: standard output is closed$"):
        main()


def test_a_closed_standard_input_is_empty_and_messages_to_a_closed_one_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def reading(*_: object, **__: object) -> int:
        sys.stderr.write("warning")
        read.append(sys.stdin.read())
        return 0

    for name in ("stdin", "stderr"):
        monkeypatch.setattr(sys, name, None)
        monkeypatch.setattr(sys, f"__{name}__", None)
    monkeypatch.setattr(app, "run", reading)
    with pytest.raises(SystemExit) as left:
        main()
    sys.stdin.close()
    assert (left.value.code, read) == (0, [""])


def test_a_reader_that_is_gone_ends_a_command_where_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClosedPipe(StringIO):
        def flush(self) -> None:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", ClosedPipe())
    with pytest.raises(BrokenPipeError):
        app.run(["version"])


def test_an_interrupt_before_the_command_runs_is_one_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == INTERRUPTED


def test_an_interrupted_completion_prints_nothing() -> None:
    raising = "def main():\n    raise KeyboardInterrupt\n"
    words = f"import sys, types; stub = types.ModuleType('stub'); exec({raising!r}, stub.__dict__); "
    words += f"sys.modules['nodewright.cli.complete'] = stub; sys.argv[1:] = [{COMPLETE!r}, 'adm']; "
    words += "from nodewright.cli import main; main()"
    ended = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")
