import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, INTERRUPTED, USAGE, YES

UNKNOWN = '{"id":"a","family":"astrology","input":{},"expect":1}\n'


@pytest.fixture
def unknown(tmp_path: Path) -> str:
    path = tmp_path / "unknown.jsonl"
    path.write_text(UNKNOWN)
    return str(path)


def test_an_unknown_family_has_failed(unknown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", unknown]) == ERROR
    out, err = capsys.readouterr()
    assert out == "astrology 0/1\n0 passed, 1 failed\n"
    assert err.startswith("astrology: a: unknown family 'astrology'")


@pytest.mark.parametrize(
    "content", ["", '{"id":"a","family":"quantity","input":{"op":"parse","text":"1"}}\n']
)
def test_no_recorded_decision_is_no_answer(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text(content)
    assert run(["verify", str(path)]) == ERROR
    assert capsys.readouterr().err.endswith("error: nothing here is judged: no recorded decision\n")


def test_a_line_that_is_no_vector_is_named_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("{\n" * 30)
    assert run(["verify", str(path)]) == ERROR
    out, err = capsys.readouterr()
    assert out == "0 passed, 30 failed\n"
    assert f"error: {path}:1: not JSON" in err
    assert err.endswith("error: and 10 more malformed lines\n")


def test_every_question_gets_a_line_in_the_file_of_answers(unknown: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    assert run(["verify", "--answers", str(answers), unknown]) == ERROR
    (line,) = answers.read_text().splitlines()
    assert json.loads(line)["id"] == "a"
    assert json.loads(line)["answer"].keys() == {"unanswered"}


def test_answers_on_standard_output_have_it_to_themselves(
    unknown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["verify", "--answers", "-", unknown])
    out, err = capsys.readouterr()
    assert out.startswith('{"id": "a", "answer": {')
    assert err.endswith("0 passed, 1 failed\n")


def test_vectors_are_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(UNKNOWN))
    run(["verify", "-o", "json", "--show", "1", "-"])
    document = json.loads(capsys.readouterr().out)
    assert document["families"] == {"astrology": {"passed": 0, "total": 1, "unjudged": 0}}
    assert [failure["id"] for failure in document["mismatches"]] == ["a"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-file.jsonl"],
        ["--jobs", "0", "FILE"],
        ["--show", "-1", "FILE"],
        ["--answers", "FILE", "FILE"],
    ],
)
def test_a_wrong_call_is_a_usage_error(unknown: str, arguments: list[str]) -> None:
    assert run(["verify", *(unknown if word == "FILE" else word for word in arguments)]) == USAGE
    assert Path(unknown).read_text() == UNKNOWN


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_it_ends_at_once_and_without_a_trace_when_interrupted(jobs: str) -> None:
    command = [sys.executable, "-m", "nodewright", "verify", "--jobs", jobs, "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as running:
        assert running.stdin
        assert running.stderr
        for number in range(100):
            running.stdin.write(UNKNOWN.replace('"a"', f'"{number}"'))
        running.stdin.flush()
        assert "unknown family" in running.stderr.readline()
        # Now it waits for more questions.
        running.send_signal(signal.SIGINT)
        _, messages = running.communicate(timeout=60)
    assert messages.split() == ["interrupted"]
    assert running.returncode == INTERRUPTED


@pytest.mark.slow
def test_without_files_the_sample_of_the_package_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify"]) == YES
    passed, failed = capsys.readouterr().out.splitlines()[-1].split(", ")
    assert int(passed.removesuffix(" passed")) > 1000
    assert failed == "0 failed"
