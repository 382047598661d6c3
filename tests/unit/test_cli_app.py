import pytest

from nodewright.cli.app import COMMANDS, SUMMARIES, run
from nodewright.output.exit_codes import USAGE, YES


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == YES
    listed = [
        line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line
    ]
    assert listed == [*COMMANDS] == [*SUMMARIES]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == YES
    assert capsys.readouterr().out.startswith("nodewright ")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["frobnicate"]) == USAGE
    assert "No such command 'frobnicate'" in capsys.readouterr().err
