"""Findings that a project accepts for now, kept in a file: only new ones are reported."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from nodewright.documents.formats.documents import read_file
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.predict.lint.lint_report import LintFinding


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A finding without its line, which other changes of the file move."""

    file: str
    """Relative to the baseline file."""
    object: str
    path: str
    rule: str
    message: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The accepted findings."""

    api_version: Literal["nodewright.dev/v1alpha1"] = "nodewright.dev/v1alpha1"
    kind: Literal["LintBaseline"] = "LintBaseline"
    findings: tuple[BaselineEntry, ...] = ()


def baseline_text(findings: Iterable[LintFinding], directory: Path) -> str:
    """The file that accepts these findings."""
    baseline = Baseline(findings=tuple(sorted(_entry(finding, directory) for finding in findings)))
    return msgspec.json.format(msgspec.json.encode(baseline), indent=2).decode() + "\n"


def read_baseline(path: Path) -> Baseline:
    """The accepted findings in a file.

    Errors: InputError.
    """
    try:
        return msgspec.json.decode(read_file(str(path)).content, type=Baseline)
    except JSON_ERRORS as error:
        rule = f"is not a baseline: {error}; `nodewright lint --write-baseline FILE` writes one"
        raise InputError([Fault(source=str(path), rule=rule)]) from None


def new_findings(
    findings: Sequence[LintFinding], baseline: Baseline, directory: Path
) -> tuple[tuple[LintFinding, ...], int]:
    """The findings that the baseline does not accept, and the number of its entries that match none."""
    accepted = Counter(baseline.findings)
    remaining = []
    for finding in findings:
        entry = _entry(finding, directory)
        if accepted[entry] > 0:
            accepted[entry] -= 1
        else:
            remaining.append(finding)
    return tuple(remaining), accepted.total()


def _entry(finding: LintFinding, directory: Path) -> BaselineEntry:
    return BaselineEntry(
        file=Path(os.path.relpath(finding.position.file, directory)).as_posix(),
        object=finding.subject,
        path=finding.path,
        rule=finding.rule.id,
        message=finding.text,
    )
