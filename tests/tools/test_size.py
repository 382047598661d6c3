from pathlib import Path

import pytest

from tools.size import figures, table

FILES = {
    "__init__.py": "",
    "model/__init__.py": "",
    "model/values.py": '"""Values."""\n\nONE = 1\n',
    "engine/__init__.py": "",
    "engine/rules.py": "from nodewright.engine import more\nfrom nodewright.model.values import ONE\n\nTWO = ONE + 1\n",
    "engine/more.py": "def late() -> int:\n    from nodewright.engine.rules import TWO\n\n    return TWO\n",
    "cli/__init__.py": "def main() -> None:\n    from nodewright.engine import rules\n\n    print(rules.TWO)\n",
}


def test_figures_are_those_of_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("grimp")
    for name, text in FILES.items():
        path = tmp_path / "src" / "nodewright" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    result = figures(tmp_path, with_times=False)
    assert result["engine"] == "3 modules, 3 code, 0 docstrings, 3 imports"
    assert result["model"] == "2 modules, 1 code, 1 docstrings, 0 imports"
    assert {name: value for name, value in result.items() if name not in ("engine", "model", "all")} == {
        "packages": 4,
        "wings": 2,
        "arrows between wings": 1,
        "floors of wings": 2,
        "circles of modules": 1,  # rules and more
        "modules that admit loads": 7,
    }


def test_columns_stand_side_by_side() -> None:
    assert [line.split() for line in table([{"wings": 9}, {"wings": 10, "packages": 3}])] == [
        ["wings", "9", "|", "10"],
        ["packages", "-", "|", "3"],
    ]
