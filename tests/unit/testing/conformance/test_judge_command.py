"""`python -m nodewright.testing.conformance judge`: anyone's answers beside the recorded ones."""

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.testing.conformance.__main__ import main

VECTORS = [
    {"id": "q-1", "family": "oom-score", "input": {}, "expect": {"value": 1}},
    {"id": "q-2", "family": "oom-score", "input": {}, "expect": {"value": 2}},
    {"id": "q-3", "family": "oom-score", "input": {}},
]


def written(path: Path, documents: list[Any]) -> str:
    path.write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    return str(path)


def judge(folder: Path, answers: list[Any]) -> int:
    return main(
        ["judge", written(folder / "answers.jsonl", answers), written(folder / "vectors.jsonl", VECTORS)]
    )


RIGHT = [{"id": "q-1", "answer": {"value": 1}}, {"id": "q-2", "answer": {"value": 2}}]


def test_equal_answers_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(tmp_path, RIGHT) == 0
    assert capsys.readouterr().out == "oom-score 2/2\n2 passed, 0 failed\n"


def test_an_answer_that_differs_and_a_missing_one_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(tmp_path, [{"id": "q-1", "answer": {"value": 7}}]) == 1
    captured = capsys.readouterr()
    assert captured.out.endswith("oom-score 0/2\n0 passed, 2 failed\n")
    assert "--- q-1\n" in captured.out
    assert "q-2: there is no answer" in captured.err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"id": "q-9", "answer": 1}, "q-9"),
        ({"id": "q-1", "answer": 1}, "is answered twice"),
        ({"id": "q-3"}, "missing required field `answer`"),
        ({"id": "q-3", "answer": 1, "other": 2}, "unknown field `other`"),
        ([1], 'not {"id": ..., "answer": ...}'),
    ],
)
def test_a_line_that_is_no_answer_is_an_error(
    line: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(tmp_path, [*RIGHT, line]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert "passed" not in captured.out


def test_no_answers_to_no_questions_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = written(tmp_path / "empty.jsonl", [])
    assert main(["judge", empty, empty]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: nothing here is judged: no recorded decision\n")


def test_a_release_has_the_answers_in_which_it_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "releases/1.33").mkdir(parents=True)
    written(tmp_path / "releases/1.33/skipped.json", [{"oom-score": ["q-1"]}])
    differing = json.dumps({"id": "q-2", "expect": {"value": 7}}).encode()
    (tmp_path / "releases/1.33/oom-score.jsonl.gz").write_bytes(gzip.compress(differing))
    answers = written(tmp_path / "answers.jsonl", [{"id": "q-2", "answer": {"value": 7}}])
    assert main(["judge", "--release", "1.33", answers, written(tmp_path / "vectors.jsonl", VECTORS)]) == 0
    assert capsys.readouterr().out == "oom-score 1/1\n1 passed, 0 failed\n"


@pytest.mark.parametrize("arguments", [["--help"], ["judge", "-h"]])
def test_help_is_an_answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


@pytest.mark.parametrize(
    "arguments",
    [[], ["judge"], ["judges", "a", "b"], ["judge", "--release", "1.31", "a"], ["judge", "--releases", "a"]],
)
def test_a_wrong_command_line_names_the_right_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(
        "Usage: python -m nodewright.testing.conformance judge [--release R] ANSWERS"
    )


def test_the_judge_runs_by_its_path_until_0_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = written(tmp_path / "answers.jsonl", RIGHT), written(tmp_path / "vectors.jsonl", VECTORS)
    monkeypatch.setattr("sys.argv", ["conformance", "judge", *files])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("nodewright.conformance", run_name="__main__")
    assert ended.value.code == 0


def test_the_answers_that_verify_writes_are_judged_as_verify_judges_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = tmp_path / "answers.jsonl"
    vectors = Path(__file__).parents[3] / "conformance/vectors/quantity.jsonl.gz"
    assert run(["verify", str(vectors), "--answers", str(answers)]) == 0
    verified = capsys.readouterr().out
    assert main(["judge", str(answers), str(vectors)]) == 0
    assert capsys.readouterr().out == verified
