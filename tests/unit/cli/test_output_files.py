"""What a command writes is never what it reads."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import click
import pytest
from tests.support.all_commands import all_commands

from nodewright.cli import verify
from nodewright.cli.app import run
from nodewright.cli.options import OutputFile
from nodewright.documents.output.terminal import ERROR, INTERRUPTED, USAGE
from nodewright.fleet.report.fleet_report import write_parquet
from nodewright.predict.replay.scenario_journal import JournalFile
from tools.source import ROOT

POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: x}]}}\n"
NODES, USAGE_FILE = f"--nodes {ROOT}/examples/fleet/nodes.csv", f"{ROOT}/examples/eviction/summary.json"
PODS = f"--pods {ROOT}/examples/fleet/pods.csv"
OVERWRITING = (
    "explain --node vm-4 -f @pod.yaml --html @pod.yaml",
    "explain --node vm-4 -f @pod.yaml --html @link.yaml",
    "explain --node vm-4 -f @pod.yaml --html @hard.yaml",
    "explain --node vm-4 -f @. --html @pod.yaml",
    "explain --node vm-4 --pod @pod.yaml --html @pod.yaml",
    "explain --node @pod.yaml -f @link.yaml --html @./pod.yaml",
    "admit --node vm-4 -f @pod.yaml --journal @pod.yaml",
    "admit --node vm-4 -f @pod.yaml --journal @hard.yaml",
    "replay @pod.yaml --journal @pod.yaml",
    "evict --node vm-4 --usage @pod.yaml --timeline --html @pod.yaml",
    f"evict --node vm-4 --usage {USAGE_FILE} --timeline --growth @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} --pods @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} --pods @pod.yaml --parquet @pod.yaml",
    f"fleet run {NODES} {PODS} --parquet @pod.yaml --html @pod.yaml",
    f"fleet run {NODES} {PODS} --usage @pod.yaml --html @pod.yaml",
    "fleet generate --nodes-file @new.csv --pods-file @new.csv",
    "fleet generate --nodes-file @pod.yaml --pods-file @link.yaml",
    "verify --answers @pod.yaml @pod.yaml",
    "verify --machines @pod.yaml --answers @hard.yaml /dev/null",
)  # fmt: skip


@pytest.mark.parametrize("command", OVERWRITING)
def test_outputs_never_overwrite_inputs(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "link.yaml").symlink_to("pod.yaml")
    (tmp_path / "hard.yaml").hardlink_to(tmp_path / "pod.yaml")
    assert run(command.replace("@", f"{tmp_path}/").split()) == USAGE
    assert "is written to, but it is also a file of" in capsys.readouterr().err
    assert (tmp_path / "pod.yaml").read_text() == POD
    assert not (tmp_path / "new.csv").exists()


@pytest.mark.parametrize("pods", ["missing/pods.csv", "nodes.csv/pods.csv", "/dev/full"])
def test_of_two_files_none_is_written_unless_both_can_be(
    tmp_path: Path, pods: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = tmp_path / "nodes.csv"
    command = f"fleet generate --nodes 2 --pods 9 --nodes-file {nodes} --pods-file {tmp_path / pods}"
    assert run(command.split()) == ERROR
    assert f"error: write {tmp_path / pods}: " in capsys.readouterr().err
    assert not nodes.exists()


def test_a_page_that_is_not_a_manifest_may_lie_beside_them(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    command = f"explain --node vm-4 -f {tmp_path} --html {tmp_path}/page.html"
    for _ in range(2):
        assert run(command.split()) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_a_page_can_be_written_to_a_device() -> None:
    assert (
        run(["explain", "--node", "vm-4", "-f", f"{ROOT}/examples/agent/web.yaml", "--html", "/dev/null"])
        == 0
    )


WRITTEN = {
    f"{name} {parameter.opts[0]}": parameter
    for name, command in all_commands()
    for parameter in command.params
    if isinstance(parameter.type, OutputFile) and not parameter.type.allow_dash
}
"""The options of all commands whose file is written, and that do not take `-` for standard output."""


@pytest.mark.parametrize("name", WRITTEN)
def test_a_dash_is_no_file_to_write(name: str) -> None:
    parameter = WRITTEN[name]
    with pytest.raises(click.BadParameter, match="cannot be written to standard output: name a file"):
        parameter.type.convert("-", parameter, None)
    assert str(parameter.type.convert("./new", parameter, None)) in {"./new", "new"}


def test_a_dash_creates_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["fleet", "generate", "--nodes-file", "-", "--pods-file", "-"]) == 2
    assert not [*tmp_path.iterdir()]


VECTOR = '{"id":"a","family":"quantity","input":{"op":"parse","text":"1"}}\n'


def interrupt(*_arguments: object) -> None:
    raise KeyboardInterrupt


def interrupted_outcomes(*_arguments: object, **_options: object) -> Iterator[Any]:
    return map(interrupt, [None])


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_answers_of_an_interrupted_run_leave_the_old_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectors.jsonl").write_text(VECTOR)
    answers = tmp_path / name
    command = ["verify", str(tmp_path / "vectors.jsonl"), "--answers", str(answers)]
    assert run(command) == 0
    text = (gzip.decompress if name.endswith(".gz") else bytes)(answers.read_bytes())
    assert json.loads(text)["id"] == "a"
    content = answers.read_bytes()
    monkeypatch.setattr(verify, "run_vectors", interrupted_outcomes)
    assert run(command) == INTERRUPTED
    assert answers.read_bytes() == content
    assert {path.name for path in tmp_path.iterdir()} == {"vectors.jsonl", name}


def test_a_journal_of_an_interrupted_run_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.json"
    path.write_text("old")
    command = f"admit --node vm-4 -f {ROOT}/examples/agent/web.yaml --journal {path}".split()
    monkeypatch.setattr(JournalFile, "add_arrival", interrupt)
    assert run(command) == INTERRUPTED
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]
    monkeypatch.undo()
    assert run(command) == 0
    assert json.loads(path.read_text())["kind"] == "Scenario"


class Frame:
    """A frame of data whose file gets half of it, as on a full disk or after Ctrl-C."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def write_parquet(self, file: IO[bytes] | Path) -> None:
        if isinstance(file, Path):
            file.write_bytes(b"half")
        else:
            file.write(b"half")
        raise KeyboardInterrupt


def test_a_parquet_file_that_is_interrupted_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=Frame))
    path = tmp_path / "pods.parquet"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_parquet(path, {"a": [1]})
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    "command",
    [
        f"admit --node vm-4 -f {ROOT}/examples/agent/web.yaml --journal",
        "verify /dev/null --answers",
        f"explain --node vm-4 -f {ROOT}/examples/agent/web.yaml --html",
    ],
)
def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no" / "such"
    assert run([*command.split(), str(path)]) in (1, 2)
    assert str(path) in capsys.readouterr().err
