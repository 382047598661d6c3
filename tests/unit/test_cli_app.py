import pytest

from nodewright.cli.app import COMMANDS, USAGE, YES, run


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    if not COMMANDS:
        pytest.fail("no commands")
    assert run(["--version"]) == YES
    assert capsys.readouterr().out.startswith("nodewright ")


def test_an_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["frobnicate"]) == USAGE
    assert "No such command 'frobnicate'" in capsys.readouterr().err
