from collections.abc import Mapping
from typing import Any

import pytest

from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vector_run import UNANSWERED, run_vector, run_vectors
from nodewright.testing.conformance.vectors import Vector

VECTOR = Vector("a", "quota", {"x": 1}, {"x": [1]})


def answering(given: Any) -> Any:
    def engine(
        family: str, question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable
    ) -> Any:
        return given

    return engine


def failing(family: str, question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    return machines[family]


def test_an_answer_is_judged_as_it_would_be_written() -> None:
    assert not run_vector(VECTOR, {}, engine=answering({"x": (1,)})).has_failed
    assert not run_vector(Vector("a", "quota", {}, {"1": 2}), {}, engine=answering({1: 2})).has_failed


def test_another_answer_has_failed() -> None:
    vector_outcome = run_vector(VECTOR, {}, engine=answering({"x": [2]}))
    assert (vector_outcome.has_failed, vector_outcome.is_judged, vector_outcome.error) == (True, True, "")


def test_without_a_recorded_answer_nothing_is_judged() -> None:
    vector_outcome = run_vector(Vector("a", "quota", {}), {}, engine=answering(1), keep_answer=True)
    assert (vector_outcome.has_failed, vector_outcome.is_judged, vector_outcome.answer_text) == (
        False,
        False,
        "1",
    )


def test_an_exception_is_a_failure_with_its_place() -> None:
    vector_outcome = run_vector(VECTOR, {}, engine=failing, keep_answer=True)
    assert vector_outcome.has_failed
    assert vector_outcome.error.startswith("KeyError: 'quota' (test_vector_run.py:")
    assert vector_outcome.answer_text.startswith(f'{{"{UNANSWERED}": "KeyError')


@pytest.mark.parametrize("given", [object(), float("nan"), {(): 1}, b"1", {1, 2}])
def test_an_answer_must_be_json(given: Any) -> None:
    assert run_vector(VECTOR, {}, engine=answering(given)).error


def test_an_unknown_family_is_a_reported_failure() -> None:
    assert run_vector(Vector("a", "astrology", {}), {}).error.startswith("unknown family 'astrology'")


@pytest.mark.slow
def test_several_processes_give_the_same_outcomes_in_the_same_order() -> None:
    vectors = [Vector(str(number), f"unknown-{number % 3}", {}, None) for number in range(50)]
    expected = list(run_vectors(vectors, {}, keep_answers=True))
    assert list(run_vectors(vectors, {}, jobs=2, keep_answers=True)) == expected
