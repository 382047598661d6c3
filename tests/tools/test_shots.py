import pytest

from nodewright.cli.app import COMMANDS
from tools.shots import SHOTS, WIDTHS, path, strangers, taken


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "name",
    [name if name.startswith("help-") else pytest.param(name, marks=pytest.mark.slow) for name in SHOTS],
)
def test_a_stored_shot_is_what_the_command_prints_now(name: str, columns: int) -> None:
    stored = path(name, columns)
    assert stored.is_file(), "take it with `python -m tools regenerate`"
    assert stored.read_text("utf-8") == taken(name, columns), (
        "read the difference after `python -m tools regenerate`"
    )


def test_no_shot_is_left_over() -> None:
    assert not list(strangers()), "`python -m tools regenerate` removes them"


def test_every_command_has_a_shot() -> None:
    shown = {command.split()[1] for command in SHOTS.values()}
    assert set(COMMANDS) <= shown
