"""Edits of findings that are tried one after the other."""

from collections.abc import Mapping

import pytest

from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.output.ci_formats import SourcePosition
from nodewright.predict.lint.fixes import fixed_files
from nodewright.predict.lint.lint_model import SuggestedEdit
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import LintResult
from nodewright.predict.lint.rules import RULES

SOURCE, CONTENT = "pod.yaml", b"spec: {nodeName: wrong}\n"


def finding(number: int, value: str) -> LintFinding:
    return LintFinding(
        rule=RULES[number],
        position=SourcePosition(file=SOURCE),
        subject="Pod a",
        path="spec.nodeName",
        text="wrong",
        edits=(SuggestedEdit("spec.nodeName", value),),
        location=ObjectLocation(SOURCE, CONTENT, 1, 1),
    )


@pytest.mark.parametrize("useless", [0, 1, 4])
def test_after_an_edit_that_does_not_help_the_next_one_of_its_field_is_tried(useless: int) -> None:
    """``useless``: how many findings suggest an edit of the field after which they are still there."""
    findings = (*(finding(number, f"useless-{number}") for number in range(useless)), finding(9, "right"))

    def relint(contents: Mapping[str, bytes]) -> LintResult:
        left = findings[:-1] if b"right" in contents[SOURCE] else findings
        return LintResult(findings=left, subjects=(), rules=())

    fixes = fixed_files({SOURCE: CONTENT}, LintResult(findings=findings, subjects=(), rules=()), relint)
    assert fixes.after == {SOURCE: b"spec: {nodeName: right}\n"}
    assert fixes.fixed == findings[-1:]
