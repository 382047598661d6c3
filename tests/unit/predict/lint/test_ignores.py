"""Ignored findings, and only those, are dropped; unused ignores are reported."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.formats.inventory import load_inventory
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import annotated_rule_ids, comment_directives, lint_result
from nodewright.predict.lint.rules import ALL_RULES, RuleSelection

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


def lint_text(text: str, folder: Path, selection: RuleSelection = ALL_RULES) -> list[LintFinding]:
    path = folder / "pods.yaml"
    path.write_text(text)
    return list(lint_result(load_lint_input(load_inventory([str(path)])), selection).findings)


def ids(text: str, folder: Path, selection: RuleSelection = ALL_RULES) -> list[str]:
    return [lint_finding.rule.id for lint_finding in lint_text(text, folder, selection)]


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
def test_an_ignore_covers_its_field(where: str, tmp_path: Path) -> None:
    at, written, left = IGNORED[where]
    text = POD.replace(at, written.format(at), 1)
    assert sorted(ids(text, tmp_path)) == sorted(left)


def test_a_comment_covers_only_its_document(tmp_path: Path) -> None:
    text = f"# nodewright: ignore NW103\n{POD}---\n{POD.replace('name: web', 'name: other')}"
    assert [(lint_finding.rule.id, lint_finding.subject) for lint_finding in lint_text(text, tmp_path)] == [
        ("NW112", "Pod default/web"),
        ("NW103", "Pod default/other"),
        ("NW103", "Pod default/other"),
        ("NW112", "Pod default/other"),
    ]


def test_ignores_of_rules_that_did_not_run_are_not_reported(tmp_path: Path) -> None:
    text = POD.replace("- name: app", "- name: app  # nodewright: ignore NW103, NW201, NW110")
    assert ids(text, tmp_path, RuleSelection(disabled=frozenset({"NW103", "NW110"}))) == ["NW112"]
    assert ids(text, tmp_path, RuleSelection(only=frozenset({"NW112"}))) == ["NW112"]


def test_the_second_document_may_begin_with_a_comment() -> None:
    [one] = comment_directives("a: 1\n---\n# nodewright: ignore NW103\n\nb: 1\nc: 2\n---\nd: 1\n")
    assert (one.line, one.first_line, one.last_line) == (3, 5, 6)


def test_a_comment_above_the_document_marker_covers_the_document() -> None:
    [one] = comment_directives("# nodewright: ignore NW103\n---\nb: 1\nc: 2\n---\nd: 1\n")
    assert (one.first_line, one.last_line) == (2, 4)


def test_a_comment_at_the_end_covers_only_itself() -> None:
    [one] = comment_directives("a: 1\n# nodewright: ignore NW103\n")
    assert (one.first_line, one.last_line) == (2, 2)


def test_texts_without_the_word_are_not_searched() -> None:
    assert comment_directives("a: 1 # ignore NW103\n") == ()
    assert annotated_rule_ids({"other": "NW103"}) == ()


def test_an_unused_comment_in_a_file_without_objects_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = tmp_path / "service.yaml"
    service.write_text(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web # nodewright: ignore NW103\nspec: {}\n"
    )
    assert run(["lint", "-f", str(service), "--fail-on", "warning"]) == 3
    assert "service.yaml:4: warning: NW103 is ignored here" in capsys.readouterr().out
