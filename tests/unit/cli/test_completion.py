"""What shells are told about the command line, asked as they ask."""

import contextlib
import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodewright.cli.about import SHELLS
from nodewright.cli.app import COMMANDS, run
from nodewright.cli.complete import AND_DIRECTORIES, AND_FILES, TABLE, WORDS_ONLY, completions
from nodewright.documents.output.terminal import USAGE, YES
from tools.reference import completion_table as text

TABLE_NOW = json.loads(Path(TABLE).read_text("utf-8"))
PROGRAMS = Path(sys.executable).parent


def test_the_table_is_up_to_date() -> None:
    assert Path(TABLE).read_text("utf-8") == text(), "write it with `python -m tools regenerate`"


@pytest.mark.parametrize(
    ("line", "words", "directive"),
    [
        ("", " ".join(COMMANDS), WORDS_ONLY),
        ("adm", "admit", WORDS_ONLY),
        ("node c", "capture catalogue", WORDS_ONLY),
        ("node show --node lap", "laptop-i7-1370p", AND_FILES),
        ("node show --node=lap", "laptop-i7-1370p", AND_FILES),
        ("node show --node = lap", "laptop-i7-1370p", AND_FILES),  # as bash takes it apart
        ("admit --node examples/no", "", AND_FILES),
        ("node catalogue gb", "gb200", WORDS_ONLY),
        ("admit -o ", "json yaml wide name github", WORDS_ONLY),
        ("admit -o = ", "", AND_FILES),
        ("admit -ojson --max", "--max-document-size", WORDS_ONLY),
        ("admit --topology-policy ", "pod-wish", WORDS_ONLY),
        ("admit -f pods.yaml --f", "--filename", WORDS_ONLY),  # again
        ("admit --node vm-4 --nod", "", WORDS_ONLY),  # once
        ("admit --strict --no", "--node", WORDS_ONLY),
        ("admit --strict=", "", WORDS_ONLY),
        ("admit --nothing x --kubelet-c", "--kubelet-config", WORDS_ONLY),
        ("admit --namespace ", "", WORDS_ONLY),
        ("node capture --sysfs ", "", AND_DIRECTORIES),
        ("cgroups --diff ", "live", AND_DIRECTORIES),
        ("replay ", "", AND_FILES),
        ("replay journal.yaml ", "", WORDS_ONLY),
        ("verify a.jsonl b.jsonl ", "", AND_FILES),
        ("replay -- --no", "", AND_FILES),
        ("completion -", "-h --help", WORDS_ONLY),
        ("replay - --strict -o y", "yaml", WORDS_ONLY),
        ("completion ", "bash zsh fish", WORDS_ONLY),
    ],
)
def test_candidates_follow_the_words_before(line: str, words: str, directive: int) -> None:
    result = completions(TABLE_NOW, line.split(" "))
    assert (list(result.words), result.directive) == (words.split(), directive)


def test_candidates_have_descriptions() -> None:
    assert completions(TABLE_NOW, ["repl"]).words == {"replay": "Replay a scenario of node events."}
    assert completions(TABLE_NOW, ["replay", "--jour"]).words == {
        "--journal": "Record all events and actions as a Scenario, which `nodewright replay` runs again"
    }


def test_neither_click_nor_the_engine_is_loaded_for_it() -> None:
    code = (
        "import sys; sys.argv = ['nodewright', '__complete', 'admit', '--node', 'lap']\n"
        "from nodewright.cli import main; main()\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in {'nodewright', 'click', 'msgspec'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    laptop, directive, loaded = ran.stdout.splitlines()
    assert laptop.startswith("laptop-i7-1370p\thybrid laptop")
    assert (directive, loaded) == (":0", "nodewright nodewright.cli nodewright.cli.complete")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_the_program(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == YES
    assert "nodewright __complete " in capsys.readouterr().out


def test_other_shells_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "powershell"]) == USAGE
    assert "'bash', 'zsh', 'fish'" in capsys.readouterr().err


START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(nodewright completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(nodewright completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "nodewright completion fish | source"),
}


@contextlib.contextmanager
def terminal(command: list[str]) -> Iterator[int]:
    """A program on a terminal of its own, in the project's folder."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "TERM": "dumb"}
    with subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as shell:
        os.close(theirs)
        try:
            yield ours
        finally:
            shell.kill()
            os.close(ours)


def terminal_output(screen: int, wanted: str) -> str:
    """What a terminal shows until the text comes, or until it is clear that it does not."""
    shown, end = "", time.monotonic() + 20
    while wanted not in shown and time.monotonic() < end:
        if select.select([screen], [], [], 0.1)[0]:
            shown += os.read(screen, 65536).decode(errors="replace").replace("\a", "")
    return shown


@pytest.mark.parametrize(
    "shell",
    ["bash", pytest.param("zsh", marks=pytest.mark.slow), pytest.param("fish", marks=pytest.mark.slow)],
)
def test_a_real_shell_completes(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    command, setup = START[shell]
    with terminal(command) as screen:
        os.write(screen, f"{setup}; echo re''ady\r".encode())
        assert "ready" in terminal_output(screen, "ready")
        for typed, completed in (
            ("nodewright repl\t", "nodewright replay "),
            ("nodewright node show --node lap\t", "laptop-i7-1370p"),
            ("nodewright admit --cpu-picker=who\t", "--cpu-picker=whole-caches"),
            ("nodewright admit --node=lap\t", "laptop-i7-1370p"),
            ("nodewright admit -f examples/pol\t", "examples/policies/"),
        ):
            os.write(screen, typed.encode())
            shown = terminal_output(screen, completed)
            os.write(screen, b"\x15")
            assert completed in shown


@pytest.mark.slow
def test_kubectl_asks_the_plugin() -> None:
    ran = subprocess.run(
        [str(PROGRAMS / "kubectl_complete-nodewright"), "node", "ca"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line.split("\t")[0] for line in ran.stdout.splitlines()] == ["capture", "catalogue", ":4"]
