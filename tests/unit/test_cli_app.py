import json
import re
import tomllib
from collections.abc import Iterator

import click
import pytest

from nodewright.cli.app import COMMANDS, load_command, run
from nodewright.documents.output.terminal import USAGE, YES
from nodewright.model.releases.release_table import RELEASE_TABLES
from tools.source import ROOT


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, set[str], set[str]]]:
    """Each command that answers, with its options and the formats of `-o`."""
    if isinstance(command, click.Group):
        for below, subcommand in command.commands.items():
            yield from leaves(below, subcommand)
        return
    options = {option for parameter in command.params for option in parameter.opts}
    choices = [
        parameter.type
        for parameter in command.params
        if "-o" in parameter.opts and parameter.name == "output"
    ]
    yield (
        name,
        options,
        {str(word) for kind in choices if isinstance(kind, click.Choice) for word in kind.choices},
    )


def disagreements(name: str, has: dict[str, bool], reason: str) -> list[str]:
    """Where the commands of a row lack something without the row's saying so, or have what it says they lack."""
    if list(has) == [name]:
        return [] if has[name] != bool(reason) else [name]
    return [each for each, is_there in has.items() if is_there == (f"`{each}`" in reason)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_as_json_or_its_row_says_why_not(name: str) -> None:
    has = {leaf: "json" in formats for leaf, _, formats in leaves(name, load_command(name))}
    assert disagreements(name, has, COMMANDS[name].without_json) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_objects_of_a_cluster_or_its_row_says_why_not(name: str) -> None:
    has = {leaf: {"--context", "--as"} <= options for leaf, options, _ in leaves(name, load_command(name))}
    assert disagreements(name, has, COMMANDS[name].without_cluster) == []


@pytest.mark.parametrize("name", [name for name, row in COMMANDS.items() if row.guide is not None])
def test_a_command_has_a_page_of_the_guide_that_shows_it(name: str) -> None:
    page = ROOT / "docs" / "guide" / f"{COMMANDS[name].guide or name}.md"
    assert re.search(rf"(nodewright |`){name}\b", page.read_text("utf-8"))


def test_the_extras_of_commands_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {extra for row in COMMANDS.values() for extra in row.extra.split(",") if extra}
    assert named <= set(project["optional-dependencies"])


def test_a_row_that_names_what_the_command_has_is_found_out() -> None:
    assert disagreements("fleet", {"run": True, "generate": False}, "`run` has none") == ["run", "generate"]
    assert disagreements("admit", {"admit": False}, "") == ["admit"]
    assert disagreements("admit", {"admit": True}, "it has none") == ["admit"]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == YES
    sections = capsys.readouterr().out.partition("Pods and nodes:")[2].splitlines()
    listed = [line.split()[0] for line in sections if line.startswith("  ")]
    assert listed == [*COMMANDS]


@pytest.mark.parametrize(
    ("word", "meant"), [("admitt", "admit"), ("explian", "explain"), ("fleets", "fleet")]
)
def test_a_misspelt_command_is_answered_with_the_one_that_is_meant(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word]) == USAGE
    assert f"No such command '{word}'. Did you mean {meant}?" in capsys.readouterr().err


def test_version_names_the_releases(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version"]) == YES
    assert ", ".join(RELEASE_TABLES) in capsys.readouterr().out
    assert run(["version", "-o", "json"]) == YES
    assert json.loads(capsys.readouterr().out)["kubernetesReleases"] == list(RELEASE_TABLES)


@pytest.mark.parametrize("words", [["admit"], ["fleet", "run"], []])
def test_help_prints_what_the_option_prints(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == YES
    wanted = capsys.readouterr().out
    assert run(["help", *words]) == YES
    assert capsys.readouterr().out == wanted


def test_help_of_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "admitt"]) == USAGE
    assert "Did you mean admit?" in capsys.readouterr().err
    assert run(["help", "admit", "more"]) == USAGE


LINT = ["lint", "-f", "examples/lint/shop.yaml"]


@pytest.mark.parametrize("arguments", [[*LINT, "--color", "always"], ["--color", "always", *LINT]])
def test_colours_are_for_tables(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == YES
    assert "16:9: \x1b[33mwarning\x1b[0m: " in capsys.readouterr().out
    for output in ("json", "yaml", "sarif", "junit", "github"):
        assert run([*arguments, "-o", output]) == YES
        assert "\x1b" not in capsys.readouterr().out


def test_there_are_no_colours_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (LINT, [*LINT, "--color", "never"], [*LINT, "--color", "auto"]):
        assert run(arguments) == YES
        assert "\x1b" not in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == YES
    assert capsys.readouterr().out.startswith("nodewright ")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["frobnicate"]) == USAGE
    assert "No such command 'frobnicate'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "hint"), [("exec", "kubectl exec"), ("cp", "kubectl cp"), ("apply", "nodewright run -f")]
)
def test_a_command_of_kubectl_alone_is_answered_with_what_to_use(
    word: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word, "x"]) == USAGE
    assert hint in capsys.readouterr().err


def test_manifests_need_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--node", "examples/nodes/worker.yaml", "-o", "name"]
    code = run(["admit", "-f", "examples/admission/pods.yaml", *options])
    wanted = capsys.readouterr().out
    assert run(["admit", "examples/admission/pods.yaml", *options]) == code
    assert capsys.readouterr().out == wanted
    assert run(["admit", *options]) == USAGE
    assert "Missing option '-f' / '--filename'" in capsys.readouterr().err
