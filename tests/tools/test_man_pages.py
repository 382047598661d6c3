"""The manual pages are those of the commands, and man reads them without a complaint."""

import shutil
import subprocess

import pytest

from nodewright.cli.app import COMMANDS
from tools.man_pages import FOLDER, man_pages


def test_the_pages_are_what_the_commands_say() -> None:
    pages = dict(man_pages())
    assert {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()} == {
        path.name: text for path, text in pages.items()
    }, "python -m tools man"
    assert {f"nodewright-{command}.1" for command in COMMANDS} <= {path.name for path in pages}


def test_man_takes_every_page() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    for path in FOLDER.iterdir():
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-ww", "-z", "-rLL=100n", path],
            capture_output=True,
            text=True,
            check=False,
        )
        # A word that is longer than a line is no fault of the page; lintian passes over it as well.
        faults = [
            line
            for line in done.stderr.splitlines()
            if "break line" not in line and "adjust line" not in line
        ]
        assert (done.returncode, faults) == (0, []), path.name
