"""Each command's help ends with two examples that run, and fits on a screen; `--help-all` shows every option."""

import contextlib
import shlex

import click
import pytest

from nodewright.cli.app import COMMANDS, app, load_command, run
from nodewright.cli.help_parts import ALL, EXAMPLES_OF_HELP, FURTHER, help_examples
from nodewright.documents.output.terminal import NO, UNSCHEDULABLE, USAGE, YES
from tools.consoles import execute
from tools.reference import commands

PATHS = [context.command_path for context, _ in commands() if context.parent is not None]
SERVING = {"export", "extender", "hollow", "agent", "kubelet", "dashboard", "completion"}
OF_AGENT = {"run", "get", "describe", "logs", "top", "delete"}
WRITING = ("fleet generate", "node capture", "examples examples", "verify", "--pods pods.json")
LINES = 60


def examples() -> list[str]:
    return sorted({line for path in PATHS for _, line in help_examples(path)})


@pytest.mark.parametrize("path", PATHS)
def test_the_help_ends_with_two_examples_and_fits_on_a_screen(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = path.split()[1:]
    assert run([*words, "--help"]) == YES
    lines = capsys.readouterr().out.rstrip("\n").splitlines()
    assert lines[-2 * EXAMPLES_OF_HELP - 1] == "  Examples:"
    assert [line.strip() for line in lines[-2 * EXAMPLES_OF_HELP :]] == [
        text for example in help_examples(path)[:EXAMPLES_OF_HELP] for text in example
    ]
    assert len(lines) < LINES


@pytest.mark.parametrize("line", examples())
def test_every_example_is_a_command_line(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [word for word in shlex.split(line.partition("<(")[2].rstrip(")") or line) if word != "|"]
    if ">" in words:
        words = words[: words.index(">")]
    context = click.Context(app, info_name="nodewright", obj=(), help_option_names=["-h", "--help"])
    command, words = load_command(words[1]), words[2:]
    if isinstance(command, click.Group):
        name, subcommand, words = command.resolve_command(context, words)
        assert name is not None
        assert subcommand is not None
        command = subcommand
    for option in command.params:
        if option.name == "kubelet_root":
            # The example names the kubelet's own directory, which this machine need not have.
            monkeypatch.setattr(option.type, "exists", False)
    if command.name != "completion":
        words = [
            word.replace("pods.json", "examples/worker-3/pods.json") if word == "pods.json" else word
            for word in words
        ]
        with contextlib.suppress(click.exceptions.Exit):  # it has answered
            command.make_context(command.name, words, parent=context)


@pytest.mark.parametrize(
    "line", [line for line in examples() if line.startswith("nodewright ") and line.split()[1] not in SERVING | OF_AGENT and not any(name in line for name in WRITING)]
)  # fmt: skip
def test_examples_about_files_are_answered(line: str) -> None:
    assert execute(line).code in (YES, NO, UNSCHEDULABLE)


def test_help_all_shows_what_help_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", "--help"]) == YES
    assert "--as-group" not in capsys.readouterr().out
    assert run(["admit", ALL]) == YES
    text = capsys.readouterr().out
    assert "--as-group" in text
    assert "-f may be left out" in text


def test_every_further_option_is_one() -> None:
    names = {name for path in PATHS for option in leaf(path).params for name in option.opts}
    assert names >= FURTHER


def leaf(path: str) -> click.Command:
    command = load_command(path.split()[1])
    for name in path.split()[2:]:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def test_every_command_has_its_examples() -> None:
    assert [name for name in COMMANDS if len(help_examples(f"nodewright {name}")) < EXAMPLES_OF_HELP] == []


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--nod", "Did you mean '--node'?"),
        ("--zzz", "`nodewright rehearse --help-all` lists the options."),
        ("--shap", "`nodewright rehearse --help-all` lists the options."),
    ],
)
def test_an_unknown_option_names_one_that_may_be_meant(
    option: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rehearse", option, "x"]) == USAGE
    text = capsys.readouterr().err
    assert f"No such option '{option}'" in text
    assert "Did you mean '--help" not in text
    assert hint in text or "Did you mean" in text
