"""ARCHITECTURE.md shows the house as it is."""

import re
import tomllib

from tools.source import PACKAGE, ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
NAMED = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", TEXT))
FOLDERS = {"tests", "docs", "benchmarks", "tools", "examples", "changes"}


def floors() -> list[set[str]]:
    """The floors of the contract that is checked, lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [set(re.findall(r"\w+", layer)) for layer in reversed(layers)]


def test_what_it_names_exists() -> None:
    roots = {name: ROOT if name.split("/")[0] in FOLDERS else PACKAGE for name in NAMED}
    assert len(NAMED) > 20
    assert not [name for name, root in roots.items() if not (root / name).exists()]


def test_it_names_every_floor_at_its_height() -> None:
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+(?:/|\.py)`(?:, )?)+) \|", TEXT, re.MULTILINE)
    shown: dict[int, set[str]] = {}
    for height, packages in rows:
        shown.setdefault(int(height), set()).update(re.findall(r"`(\w+)", packages))
    assert shown == dict(enumerate(floors()))


def test_floors_say_their_height() -> None:
    for height, packages in enumerate(floors()):
        for package in packages:
            if (PACKAGE / package).is_dir():
                text = (PACKAGE / package / "__init__.py").read_text("utf-8")
                assert text.startswith(f'"""Floor {height}: '), package


def test_it_names_every_question_of_the_core() -> None:
    paths = [path for path in (PACKAGE / "core").iterdir() if not path.name.startswith("__")]
    questions = {f"core/{path.name}" + ("/" if path.is_dir() else "") for path in paths}
    assert questions - NAMED == set(), "ARCHITECTURE.md has a row for each question"
