"""ARCHITECTURE.md shows the tree as it is."""

import re
import tomllib
from collections import Counter
from typing import Any

from tools.source import PACKAGE, ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
NAMED = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", TEXT))
FOLDERS = {"src", "tests", "docs", "benchmarks", "tools", "examples", "changes"}
ROWS = re.findall(r"^\| `([a-z_/]+(?:/|\.py))` \|", TEXT, re.MULTILINE)
MAX_LINES = 150


def contract(name: str) -> list[set[str]]:
    """The layers of a contract that is checked, lowest first."""
    settings: Any = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = {each["name"]: each for each in settings["tool"]["importlinter"]["contracts"]}
    return [set(re.findall(r"\w+", layer)) for layer in reversed(contracts[name]["layers"])]


def test_what_it_names_exists() -> None:
    roots = {name: ROOT if name.split("/")[0] in FOLDERS else PACKAGE for name in NAMED}
    assert len(NAMED) > 60
    assert not [name for name, root in roots.items() if not (root / name).exists()]


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(TEXT.splitlines()) <= MAX_LINES


def test_no_row_stands_twice() -> None:
    assert not [name for name, count in Counter(ROWS).items() if count > 1]


def test_wings_have_their_rows_in_the_order_that_is_checked() -> None:
    wings = [row.removesuffix("/") for row in ROWS if row.count("/") == 1 and row.endswith("/")]
    height = {
        wing: at
        for at, layer in enumerate(contract("a wing imports from lower wings only"))
        for wing in layer
    }
    assert sorted(wings) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert [height[wing] for wing in wings] == sorted(height[wing] for wing in wings)


def test_every_package_of_a_wing_has_a_row() -> None:
    packages = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.glob("*/*/__init__.py")}
    named = {row for row in ROWS if row.count("/") == 2 and row.endswith("/")}
    # The folders of the command line hold commands of one kind, and recorded decisions stand in the row of their wing.
    unnamed = {name for name in packages if name.startswith(("cli/", "testing/"))}
    assert named == packages - unnamed


def test_packages_of_a_wing_have_the_order_that_is_checked() -> None:
    for wing in ("model", "engine", "documents", "cluster", "predict", "scheduling", "agent"):
        height = {name: at for at, layer in enumerate(contract(f"inside {wing}")) for name in layer}
        rows = [re.sub(r"/$|\.py$", "", row.split("/", 1)[1]) for row in ROWS if row.startswith(f"{wing}/")]
        heights = [height[row] for row in rows if row in height]
        assert heights == sorted(heights), wing


def test_it_names_every_question_of_the_core() -> None:
    paths = [path for path in (PACKAGE / "engine" / "core").iterdir() if not path.name.startswith("__")]
    questions = {f"engine/core/{path.name}" + ("/" if path.is_dir() else "") for path in paths}
    assert questions - NAMED == set(), "ARCHITECTURE.md has a row for each question"
