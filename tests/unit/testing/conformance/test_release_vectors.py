"""Vectors of one release: which are taken, and whose answers are expected."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.model.errors import Fault, InputError
from nodewright.testing.conformance.vectors import NOT_RECORDED, Vector, vectors_of_release


def a_line(name: str, **more: Any) -> str:
    return json.dumps({"id": name, "family": "quota", "input": {}, **more})


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    folder = tmp_path / "releases" / "1.33"
    folder.mkdir(parents=True)
    (folder / "skipped.json").write_text('{"quota": ["c"]}')
    differing = json.dumps({"id": "b", "expect": "old"}).encode()
    (folder / "quota.jsonl.gz").write_bytes(gzip.compress(differing))
    (tmp_path / "vectors").mkdir()
    file = tmp_path / "vectors" / "quota.jsonl"
    lines = [a_line(name, expect="new") for name in "abc"]
    file.write_text(
        "\n".join([*lines, a_line("d", expect="own", release="1.33"), a_line("e", release="1.34")])
    )
    return str(file)


def taken(path: str, release: str) -> list[tuple[str, Any]]:
    vectors = list(vectors_of_release([path], release))
    assert all(isinstance(vector, Vector) and vector.release == release for vector in vectors)
    return [(vector.id, vector.expect) for vector in vectors if isinstance(vector, Vector)]


def test_the_newest_release_has_the_answers_in_the_file(vectors: str) -> None:
    assert taken(vectors, "1.36") == [("a", "new"), ("b", "new"), ("c", "new")]


def test_an_older_release_has_its_own_answers_and_no_questions_that_it_cannot_be_asked(vectors: str) -> None:
    assert taken(vectors, "1.33") == [("a", "new"), ("b", "old"), ("d", "own")]


def test_recorded_vectors_without_a_folder_of_the_release_are_an_error(vectors: str) -> None:
    with pytest.raises(InputError, match=r"no folder releases/1\.34 beside it"):
        list(vectors_of_release([vectors], "1.34"))


def test_questions_need_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(a_line("a"))
    assert taken(str(file), "1.34") == [("a", NOT_RECORDED)]


def test_the_same_question_may_be_asked_of_several_releases(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(
        "\n".join([a_line("a", release="1.32"), a_line("a", release="1.33"), a_line("a", release="1.32")])
    )
    vectors = list(vectors_of_release([str(file)], "1.32"))
    assert [type(vector) for vector in vectors] == [Vector, Fault]


def test_an_unknown_release_of_a_vector_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(a_line("a", release="1.31"))
    (fault,) = vectors_of_release([str(file)], "1.36")
    assert isinstance(fault, Fault)
    assert fault.rule == "must be one of 1.32, 1.33, 1.34, 1.35, 1.36, 1.37"
