"""Verdicts kept by node, and the pods that need their own."""

import pytest

from nodewright.scheduling.verdicts import tracked_cluster as remembered_answers
from nodewright.scheduling.verdicts.tracked_cluster import PlacedPods, RememberedAnswers


def test_answers_are_kept_by_kind_of_pod_until_the_node_changes() -> None:
    answers = RememberedAnswers[str]()
    answers.table("small")["a"] = "fits"
    answers.table("large")["a"] = "does not"
    answers.table("small")["b"] = "fits"
    assert answers.read("small", ("b", "nowhere", "a")) == ["fits", None, "fits"]
    answers.forget_node("a")
    assert answers.read("small", ("a", "b")) == [None, "fits"]
    assert answers.read("large", ("a",)) == [None]


def test_the_longest_unused_kind_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_answers, "MAX_TABLES", 2)
    answers = RememberedAnswers[str]()
    for key in ("first", "second"):
        answers.table(key)["a"] = key
    answers.table("first")
    answers.table("third")["a"] = "third"
    assert [answers.read(key, ("a",)) for key in ("first", "third")] == [["first"], ["third"]]
    assert answers.read("second", ("a",)) == [None]


def test_placed_pods_are_never_forgotten_while_they_are_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_answers, "MIN_PLACED", 3)
    placed = PlacedPods()
    placed.add(["a", "b", "c"], iter(()))
    assert all(uid in placed for uid in "abc")
    placed.add(["d"], iter(["c", "d"]))
    assert [uid in placed for uid in "abcd"] == [False, False, True, True]
