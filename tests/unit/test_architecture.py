"""ARCHITECTURE.md shows the tree as it is."""

import re
import tomllib
from collections import Counter

from tools.source import PACKAGE, ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
NAMED = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", TEXT))
FOLDERS = {"src", "tests", "docs", "benchmarks", "tools", "examples", "changes"}
ROWS = re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", TEXT, re.MULTILINE)


def layers() -> list[set[str]]:
    """The layers of the contract that is checked, lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    rows = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [set(re.findall(r"\w+", layer)) for layer in reversed(rows)]


def test_what_it_names_exists() -> None:
    roots = {name: ROOT if name.split("/")[0] in FOLDERS else PACKAGE for name in NAMED}
    assert len(NAMED) > 20
    assert not [name for name, root in roots.items() if not (root / name).exists()]


def test_it_names_every_package_once_at_its_layer() -> None:
    assert not [name for name, count in Counter(name for _, name in ROWS).items() if count > 1]
    shown: dict[int, set[str]] = {}
    for height, package in ROWS:
        shown.setdefault(int(height), set()).add(package)
    assert shown == dict(enumerate(layers(), 1))


def test_no_row_stands_twice() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "---" not in line]
    headings = {line for line in rows if line.startswith(("| Layer ", "| Package ", "| Where "))}
    assert not [line for line, count in Counter(rows).items() if count > 1 and line not in headings]


def test_it_names_every_question_of_the_core() -> None:
    paths = [path for path in (PACKAGE / "core").iterdir() if not path.name.startswith("__")]
    questions = {f"core/{path.name}" + ("/" if path.is_dir() else "") for path in paths}
    assert questions - NAMED == set(), "ARCHITECTURE.md has a row for each question"
