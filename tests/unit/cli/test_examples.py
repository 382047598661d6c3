import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.cli.examples import described_examples, examples_folder
from nodewright.documents.output.terminal import ERROR, YES
from tools.source import ROOT


def test_every_directory_of_the_examples_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    names = sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())
    assert [name for name, _ in described_examples()] == names
    assert run(["examples"]) == YES
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["DIRECTORY", *names]


def test_the_examples_are_copied_as_they_are(tmp_path: Path) -> None:
    copy = tmp_path / "examples"
    assert run(["examples", str(copy)]) == YES
    files = [path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert len(files) == sum(path.is_file() for path in copy.rglob("*"))
    assert all(
        copy.joinpath(path.relative_to(ROOT / "examples")).read_bytes() == path.read_bytes() for path in files
    )


@pytest.mark.parametrize("name", ["file", "full"])
def test_nothing_is_overwritten(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.joinpath("file").write_text("kept")
    tmp_path.joinpath("full").mkdir()
    tmp_path.joinpath("full", "pods.yaml").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    assert run(["examples", str(tmp_path / name)]) == ERROR
    assert "exists and is not an empty directory: name one that does not exist" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_wheel_contains_the_examples() -> None:
    """An installation in place reads those of the repository: there is one copy."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = described["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"examples": "nodewright/examples"}
    assert examples_folder() == ROOT / "examples"


SCHEMA_LINE = re.compile(r"# yaml-language-server: \$schema=(\S+)")
KIND_LINE = re.compile(r"^apiVersion: nodewright\.dev/v1alpha1\nkind: (NodeProfile|Scenario)$", re.MULTILINE)


def test_every_example_of_our_own_kinds_names_its_schema_for_editors() -> None:
    bad = []
    for path in sorted((ROOT / "examples").rglob("*.y*ml")):
        text = path.read_text("utf-8")
        if kind := KIND_LINE.search(text):
            line = SCHEMA_LINE.fullmatch(text.partition("\n")[0])
            place = path.parent / line[1] if line else None
            if place is None or not place.is_file() or place.stem != kind[1]:
                bad.append(path.relative_to(ROOT).as_posix())
    assert bad == []


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize(
    "failed",
    [
        (OSError(28, "No space left on device", "a", None, "b"), 1, "No space left on device\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_copy_that_fails_leaves_nothing_and_one_line(
    existed: bool,
    failed: tuple[BaseException, int, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copytree, (failure, code, message) = shutil.copytree, failed

    def failing(_source: str, target: str) -> None:
        Path(target).write_text("half")
        raise failure

    def copied(source: Path, target: Path, **_: Any) -> None:
        monkeypatch.undo()
        copytree(source, target, copy_function=failing, dirs_exist_ok=True)

    monkeypatch.setattr("nodewright.cli.examples.shutil.copytree", copied)
    target = tmp_path / "copy"
    if existed:
        target.mkdir()
    assert run(["examples", str(target)]) == code
    assert target.exists() is existed
    assert list(tmp_path.iterdir()) == ([target] if existed else [])
    assert capsys.readouterr().err.endswith(message)
