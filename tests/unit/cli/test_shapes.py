"""`--shape` wherever a command takes `--node`, and a shape as a NodeProfile to edit."""

from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import COMMANDS, app, run
from nodewright.documents.output.terminal import USAGE, YES

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a:1}]}\n"


def options_of(command: object) -> set[str]:
    return {name for parameter in getattr(command, "params", ()) for name in parameter.opts}


def test_each_command_with_a_node_takes_a_shape() -> None:
    context = app.make_context("nodewright", ["help"], resilient_parsing=True)
    commands = [app.get_command(context, name) for name in COMMANDS]
    commands += [each for command in commands for each in getattr(command, "commands", {}).values()]
    missing = {
        command.name
        for command in commands
        if command and "--node" in options_of(command) and not options_of(command) & {"--shape", "--nodes"}
    }
    assert missing == {"lint", "agent"}  # these take a shape as --node


@pytest.mark.parametrize(
    "command",
    [
        ["node", "show"],
        ["node", "export"],
        ["rehearse"],
        ["upgrade"],
        ["requests", "POD"],
        ["evict", "-f", "POD", "--available", "50Mi"],
    ],
)
def test_a_shape_is_the_node(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    words = [word.replace("POD", str(tmp_path / "pod.yaml")) for word in command]
    run([*words, "--shape", "1x2x4x2"])
    assert "No such option" not in capsys.readouterr().err


def test_a_captured_shape_is_a_profile_that_every_command_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "capture", "--shape", "1x2x8x2", "--memory", "64Gi"]) == YES
    text = capsys.readouterr().out
    machine = yaml.safe_load(text)["spec"]["machineInfo"]
    assert (machine["num_cores"], machine["memory_capacity"]) == (32, 64 << 30)
    assert "notJudged" not in yaml.safe_load(text)["spec"]
    (tmp_path / "node.yaml").write_text(text)
    assert run(["node", "show", "--node", str(tmp_path / "node.yaml")]) == YES


def test_lint_takes_a_shape_as_its_node(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    assert run(["lint", "-f", str(tmp_path / "pod.yaml"), "--node", "1x2x4x2"]) == YES


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--memory", "4Gi"], "--memory requires --shape"),
        (["--shape", "1x1x2x1", "--node", "uma-4c"], "--shape and --node exclude each other"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "show", *words]) == USAGE
    assert rule in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["node", "show", "--cpus", "4"], "Error: No such option '--cpus'.\n"),
        (["rehearse", "--hel"], "Did you mean --help?"),
        (["admit", "--config", "x"], "Did you mean --kubeconfig, --kubelet-config?"),
        (["admit", "--shapes", "x"], "Did you mean --shape?"),
    ],
)
def test_an_unknown_option_names_one_that_may_be_meant(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == USAGE
    assert hint in capsys.readouterr().err
