"""What is ignored is not told, and nothing else; ignores without use are told."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.cli.linting import question
from nodewright.cli.telling import outcome
from nodewright.lint.ignores import annotated, commented
from nodewright.lint.rules import EVERYTHING, Selection
from nodewright.render.lint.report import Told
from nodewright.world.inventory import load_inventory

POD = """apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: example.com/app
    resources:
      limits: {cpu: 1, memory: 1Gi}
  - name: helper
    image: example.com/helper
    resources:
      limits: {cpu: 5m, memory: 64Mi}
"""


def told(text: str, folder: Path, selection: Selection = EVERYTHING) -> list[Told]:
    path = folder / "pods.yaml"
    path.write_text(text)
    return list(outcome(question(load_inventory([str(path)])), selection).told)


def ids(text: str, folder: Path, selection: Selection = EVERYTHING) -> list[str]:
    return [one.rule.id for one in told(text, folder, selection)]


# Where the comment is put, and what is still told.
IGNORED = {
    "beside the field": (
        "limits: {cpu: 1, memory: 1Gi}",
        "{}  # nodewright: ignore NW103 wanted",
        ["NW103", "NW112"],
    ),
    "above the field": ("      limits: {cpu: 1,", "      # nodewright: ignore NW103\n{}", ["NW103", "NW112"]),
    "beside the item of a list": ("- name: helper", "{}  # nodewright: ignore NW103, NW112", ["NW103"]),
    "above the list": ("  containers:", "  # nodewright: ignore NW103\n{}", ["NW112"]),
    "beside the list": ("  containers:", "{} # nodewright: ignore NW103", ["NW112"]),
    "above the document": ("apiVersion: v1", "# nodewright: ignore NW103: all of it\n{}", ["NW112"]),
    "in an annotation": ("  name: web", "{}\n  annotations: {{nodewright.dev/ignore: 'NW103,NW112'}}", []),
    "beside another field": (
        "    image: example.com/app",
        "{}  # nodewright: ignore NW103",
        ["NW001", "NW103", "NW103", "NW112"],
    ),
    "of another rule": (
        "limits: {cpu: 1, memory: 1Gi}",
        "{}  # nodewright: ignore NW110",
        ["NW103", "NW001", "NW103", "NW112"],
    ),
    "of no rule": (
        "limits: {cpu: 1, memory: 1Gi}",
        "{}  # nodewright: ignore NW999",
        ["NW103", "NW001", "NW103", "NW112"],
    ),
    "in an annotation without use": (
        "  name: web",
        "{}\n  annotations: {{nodewright.dev/ignore: NW110}}",
        ["NW001", "NW103", "NW103", "NW112"],
    ),
}


@pytest.mark.parametrize("where", IGNORED)
def test_an_ignore_is_for_what_it_stands_at(where: str, tmp_path: Path) -> None:
    at, written, left = IGNORED[where]
    text = POD.replace(at, written.format(at), 1)
    assert sorted(ids(text, tmp_path)) == sorted(left)


def test_a_comment_holds_for_its_document_alone(tmp_path: Path) -> None:
    text = f"# nodewright: ignore NW103\n{POD}---\n{POD.replace('name: web', 'name: other')}"
    assert [(one.rule.id, one.subject) for one in told(text, tmp_path)] == [
        ("NW112", "Pod default/web"),
        ("NW103", "Pod default/other"),
        ("NW103", "Pod default/other"),
        ("NW112", "Pod default/other"),
    ]


def test_ignores_of_rules_that_were_not_looked_for_are_left_alone(tmp_path: Path) -> None:
    text = POD.replace("- name: app", "- name: app  # nodewright: ignore NW103, NW201, NW110")
    assert ids(text, tmp_path, Selection(disabled=frozenset({"NW103", "NW110"}))) == ["NW112"]
    assert ids(text, tmp_path, Selection(only=frozenset({"NW112"}))) == ["NW112"]


def test_the_second_document_may_begin_with_a_comment() -> None:
    [one] = commented("a: 1\n---\n# nodewright: ignore NW103\n\nb: 1\nc: 2\n---\nd: 1\n")
    assert (one.line, one.first, one.last) == (3, 5, 6)


def test_a_comment_above_the_mark_of_a_document_is_for_the_document() -> None:
    [one] = commented("# nodewright: ignore NW103\n---\nb: 1\nc: 2\n---\nd: 1\n")
    assert (one.first, one.last) == (2, 4)


def test_a_comment_at_the_end_is_for_itself() -> None:
    [one] = commented("a: 1\n# nodewright: ignore NW103\n")
    assert (one.first, one.last) == (2, 2)


def test_texts_without_the_word_are_not_searched() -> None:
    assert commented("a: 1 # ignore NW103\n") == ()
    assert annotated({"other": "NW103"}) == ()


def test_a_comment_in_a_file_of_nothing_to_look_at_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = tmp_path / "service.yaml"
    service.write_text(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web # nodewright: ignore NW103\nspec: {}\n"
    )
    assert run(["lint", "-f", str(service), "--fail-on", "warning"]) == 3
    assert "service.yaml:4: warning: NW103 is ignored here" in capsys.readouterr().out
