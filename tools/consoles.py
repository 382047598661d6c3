"""Commands in documents: what stands after `$ nodewright` in a ```console block, run here and compared.

Only nodewright is run, in this process and from the root of the project; `$ echo $?` gives its last exit code.
`$ kubectl nodewright ...` asks the cluster of `tests/support/shop_cluster.py`.
Other commands are for readers: their output is taken as it stands. `...` in an output stands for anything.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.shop_cluster import fake_shop_cluster

from nodewright.cli.app import run
from tools.source import ROOT

COLUMNS = 100
"""The width of the terminal that documents show."""

PROGRAM, PLUGIN = "nodewright", ["kubectl", "nodewright"]
LAST_CODE = "echo $?"

_BLOCK = re.compile(r"^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, where its text begins (counted in characters and lines), and the text."""

    language: str
    start: int
    line: int
    body: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A command in a document: the line of the file it stands in, the command, the output shown below it."""

    line: int
    command: str
    output: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command printed, messages among the data as a terminal shows them, and its exit code."""

    output: str
    code: int


def blocks(text: str, *languages: str) -> Iterator[Block]:
    """The fenced blocks of these languages."""
    for match in _BLOCK.finditer(text):
        if match["language"] in languages:
            start = match.start("body")
            yield Block(match["language"], start, text.count("\n", 0, start) + 1, match["body"])


def console_commands(block: Block) -> list[Shown]:
    """The commands of a console block; a backslash at the end of a line continues it."""
    showns: list[Shown] = []
    lines = iter(enumerate(block.body.splitlines(keepends=True), block.line))
    for number, line in lines:
        if not line.startswith("$ "):
            assert showns, f"line {number}: a console block begins with a command"
            showns[-1] = Shown(showns[-1].line, showns[-1].command, showns[-1].output + line)
            continue
        command = line[2:]
        while command.endswith("\\\n"):
            command += next(lines)[1]
        showns.append(Shown(number, command.rstrip("\n"), ""))
    return showns


def is_run(command: str) -> bool:
    """Whether the command is one that is run here."""
    return command == LAST_CODE or words(command)[:1] == [PROGRAM] or words(command)[:2] == PLUGIN


def words(command: str) -> list[str]:
    r"""The command as a shell would split it.

    >>> words("nodewright admit \\\n  -f 'my pods.yaml'")
    ['nodewright', 'admit', '-f', 'my pods.yaml']
    """
    return shlex.split(command.replace("\\\n", " "), comments=True)


def execute(command: str, *, columns: int = COLUMNS) -> Ran:
    """What `nodewright ...` prints from the root of the project on a terminal that wide, without colours."""
    program, *arguments = words(command)
    is_plugin = [program, *arguments[:1]] == PLUGIN
    assert program == PROGRAM or is_plugin, command
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
        contextlib.chdir(ROOT),
        _environment(COLUMNS=str(columns), LINES="50", NO_COLOR="1"),
    ):
        if is_plugin:
            with _cluster():
                code = run(arguments[1:], prog_name=" ".join(PLUGIN))
        else:
            code = run(arguments)
    return Ran(printed.getvalue(), code)


def outputs(block: Block) -> Iterator[tuple[Shown, str]]:
    """Each command that is run here with what it prints now."""
    last = Ran("", 0)
    for each in console_commands(block):
        if each.command == LAST_CODE:
            yield each, f"{last.code}\n"
        elif is_run(each.command):
            last = execute(each.command)
            yield each, last.output


def is_as_shown(expected: str, printed: str) -> bool:
    """Whether the output is the one in the document, where `...` stands for anything."""
    return doctest.OutputChecker().check_output(_trimmed(expected), _trimmed(printed), doctest.ELLIPSIS)


def refreshed(text: str) -> str:
    """The document with the outputs of now; one with `...` stays if it still holds."""
    made = text
    for block in reversed(list(blocks(text, "console"))):
        fresh = {each.line: printed for each, printed in outputs(block)}
        body = ""
        for each in console_commands(block):
            printed = fresh.get(each.line, each.output)
            kept = each.output if is_as_shown(each.output, printed) else _trimmed(printed)
            body += f"$ {each.command}\n{kept}"
        made = made[: block.start] + body + made[block.start + len(block.body) :]
    return made


def _trimmed(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip("\n").splitlines())


@contextlib.contextmanager
def _cluster() -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory() as directory,
        fake_shop_cluster(Path(directory)) as (_, kubeconfig),
        _environment(KUBECONFIG=str(kubeconfig)),
    ):
        yield


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def documents() -> list[Path]:
    """The pages that people read and that are not made from anything."""
    made = ROOT / "docs" / "reference"
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if made not in page.parents]
    return [ROOT / "README.md", *pages]


def refresh_guide(names: list[str]) -> None:
    """Refresh the files, or all documents."""
    for page in map(Path, names) if names else documents():
        before = page.read_text("utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(f"refreshed {page}")
