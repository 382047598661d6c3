"""Text that is safe to print, and the only place that prints."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import nodewright
from nodewright.documents.output import terminal
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.text_layout import table
from nodewright.model.errors import Fault
from nodewright.model.printable import printable, printable_lines, printable_text

HOSTILE = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(
            "\x00\x07\x1b\x7f\x85\x9b\u061c\u200b\u2028\u202e\u2066\ufeff\U000e0041\udcff\n\r\t :#["
        ),
    )
)
STORED = HOSTILE.filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-0", "web-0"),
        ("┌ é …", "┌ é …"),
        ("\x1b[2J\x1b]0;t\x07", r"\x1b[2J\x1b]0;t\x07"),
        ("X\n::error::forged", r"X\n::error::forged"),
        ("a\r\tb", r"a\r\tb"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\U000e0041", r"\U000e0041"),
        ("\udcff.yaml", r"\xff.yaml"),
        (r"C:\n", r"C:\n"),
    ],
)
def test_what_is_not_printable_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "line",
    [
        "::error file=a.yaml,line=1::forged",
        "  ::set-output name=x::y",
        "\u3000::stop-commands::token",
        "skipped: 1 ##[error]forged",
        "##[group]",
        "a ##vso[task.setvariable variable=x]y",
        "##teamcity[buildStatus status='SUCCESS']",
    ],
)
def test_no_line_is_a_command_of_a_ci_runner(line: str) -> None:
    shown = printable_text(f"first\n{line}\n")
    assert not any(
        row.strip().startswith("::") or "##[" in row or "##vso[" in row for row in shown.split("\n")
    )
    assert "##teamcity[" not in shown
    assert shown.count("\n") == 2


@pytest.mark.parametrize("line", ["::1", "fe80::1 ::1", "## Why", "#", "a::b::c", "std::vector"])
def test_ordinary_text_with_colons_and_hashes_stays(line: str) -> None:
    assert printable_text(line) == line


@given(HOSTILE, HOSTILE)
def test_a_line_stays_one_line_and_escapes_stay(one: str, other: str) -> None:
    text = printable_lines([one, other])
    assert text.count("\n") == 2
    assert text.replace("\n", "").isprintable()
    assert printable_text(printable_text(text)) == printable_text(text)
    assert printable_text(text).replace("\n", "").isprintable()


@given(HOSTILE)
def test_cells_and_faults_add_no_lines(text: str) -> None:
    assert table(("A", "B"), [(text, "1"), ("x", text)]).count("\n") == 3
    fault = str(Fault(source=text, path=text, value=text, rule=f"must not be {text}"))
    assert fault.isprintable()


@given(STORED, STORED)
def test_json_and_yaml_keep_the_text_and_hold_nothing_raw(key: str, text: str) -> None:
    document = {key: [text, {"a": key}]}
    as_written = as_yaml(document)
    assert yaml.safe_load(as_written) == document
    assert printable_text(as_written) == as_written
    as_written = as_json(document)
    assert json.loads(as_written) == document
    assert printable_text(as_written) == as_written
    assert as_written.count("\n") == as_json({"k": ["t", {"a": "k"}]}).count("\n")


def test_file_names_that_are_no_utf8_are_json() -> None:
    assert json.loads(as_json(["\udcff.yaml"])) == ["\udcff.yaml"]
    assert as_json(["\udcff"]).isascii()


def test_what_the_encoding_lacks_is_an_escape(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as out:
        monkeypatch.setattr(sys, "stdout", out)
        terminal.print_line("é\udcff\x1b")
    assert (tmp_path / "out").read_text() == "\\xe9\\xff\\x1b\n"


def test_a_log_line_is_dropped_when_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stderr", log)
        for _ in range(200):
            terminal.print_log_line("a" * 10_000)
        data = os.read(reading, 4096)
    assert data.startswith(b"aaa")


def test_a_long_log_line_is_cut_to_what_a_pipe_takes_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w", encoding="utf-8") as log:
        monkeypatch.setattr(sys, "stderr", log)
        terminal.print_log_line("é" * 10_000)
    written = (tmp_path / "log").read_bytes()
    assert len(written) <= 4096
    assert written.decode().endswith("...\n")


def test_very_many_empty_lines_are_printed_in_linear_time() -> None:
    text = "\n" * 500_000 + "::"
    assert printable_text(text) == text


# Children that become another program, completion (read by a shell), raw logs, and answers that are JSON lines.
_WRITERS = {
    "documents/output/terminal.py",
    "cli/__init__.py",
    "cli/complete.py",
    "cli/agent/logs.py",
    "cli/output_files.py",
}


@pytest.mark.slow
def test_only_one_module_prints() -> None:
    root = Path(nodewright.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        # Few modules have such a name in their text, if only in an example; those are parsed.
        if name in _WRITERS or not re.search(r"\bprint\s*\(|\bclick\.s?echo|\bsys\.std", text):
            continue
        for node in ast.walk(ast.parse(text)):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert called not in ("print", "click.echo", "click.secho"), (
                f"{name} prints past documents/output/terminal.py"
            )
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
                assert _asks_only(path, node.lineno), f"{name} writes past documents/output/terminal.py"


def _asks_only(path: Path, number: int) -> bool:
    line = path.read_text().splitlines()[number - 1]
    return ".isatty()" in line or ".encoding" in line
