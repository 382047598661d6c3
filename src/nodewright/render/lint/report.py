"""Findings for people, for scripts and for CI."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodewright.lint.findings import SEVERITIES, Edit, Rule, Severity
from nodewright.render.findings import Finding, Level, Spot
from nodewright.render.findings import Rule as ToldRule
from nodewright.render.junit import Case, Suite, junit_text
from nodewright.render.lint.words import PAGES
from nodewright.render.sarif import sarif_document

LEVELS = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING, Severity.INFO: Level.NOTE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding with its place and its text."""

    rule: Rule
    spot: Spot
    subject: str
    """Kind, namespace and name."""
    path: str
    text: str
    fix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()


def report_text(told: Sequence[Told], *, objects: int) -> str:
    """A line a finding, with the edit below it, then how many there are."""
    lines = []
    for one in told:
        lines.append(f"{one.spot}: {one.rule.severity}: {one.text} [{one.rule.id}]")
        lines.append(f"    fix in {one.subject}: {one.fix}" if one.fix else f"    in {one.subject}")
    return "\n".join([*lines, counts_text(told, objects), ""])


def counts_text(told: Sequence[Told], objects: int) -> str:
    """How many findings of each severity there are."""
    counts = Counter(one.rule.severity for one in told)
    parts = [_several(counts[severity], str(severity)) for severity in SEVERITIES if counts[severity]]
    return f"{', '.join(parts) or 'nothing found'} in {_several(objects, 'object')}"


def report_document(told: Sequence[Told], *, objects: int, rules: Sequence[Rule]) -> dict[str, Any]:
    """Everything about the findings, for scripts."""
    counts = Counter(one.rule.severity for one in told)
    return {
        "findings": [_document(one) for one in told],
        "counts": {str(severity): counts[severity] for severity in SEVERITIES},
        "objects": objects,
        "rules": [rule.id for rule in rules],
    }


def report_sarif(told: Sequence[Told], rules: Sequence[Rule], version: str) -> dict[str, Any]:
    """The findings as SARIF, with the rules that were looked for."""
    findings = [
        Finding(
            rule=one.rule.id,
            level=LEVELS[one.rule.severity],
            message=f"{one.text}{f'. Fix: {one.fix}' if one.fix else ''}",
            spot=one.spot,
            subject=one.subject,
        )
        for one in told
    ]
    return sarif_document(findings, [_told_rule(rule) for rule in rules], version)


def report_junit(told: Sequence[Told], subjects: Sequence[tuple[str, Spot]]) -> str:
    """A test for each object, which fails if anything is told of it, as JUnit XML."""
    cases = []
    of_subject: dict[str, list[Told]] = {}
    for one in told:
        of_subject.setdefault(f"{one.spot.file} {one.subject}", []).append(one)
    names = [(f"{spot.file} {name}", name, spot) for name, spot in subjects]
    known = {key for key, _, _ in names}
    names += [(key, found[0].subject, found[0].spot) for key, found in of_subject.items() if key not in known]
    for key, name, spot in names:
        found = of_subject.get(key, [])
        cases.append(
            Case(
                name=name,
                failure="; ".join(f"{one.rule.id}: {one.text}" for one in found[:1]),
                details="\n".join(
                    f"{one.spot}: {one.rule.severity}: {one.text} [{one.rule.id}]" for one in found
                ),
                file=spot.file,
                line=found[0].spot.line if found else spot.line,
            )
        )
    return junit_text([Suite(name="nodewright lint", cases=tuple(cases))])


def _told_rule(rule: Rule) -> ToldRule:
    page = PAGES[rule.id]
    why = f"{page.why}\n\n{page.mend}"
    return ToldRule(id=rule.id, summary=f"{page.title}.", level=LEVELS[rule.severity], why=why)


def _document(one: Told) -> dict[str, Any]:
    return {
        "rule": one.rule.id,
        "severity": str(one.rule.severity),
        "file": one.spot.file,
        "line": one.spot.line,
        "column": one.spot.column,
        "object": one.subject,
        "path": one.path,
        "message": one.text,
        "facts": one.facts,
        "fix": [_edit(edit) for edit in one.edits],
    }


def _edit(edit: Edit) -> dict[str, Any]:
    if edit.is_open:
        return {"path": edit.path, "choose": True}
    return (
        {"path": edit.path, "value": edit.value}
        if edit.value is not None
        else {"path": edit.path, "remove": True}
    )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 or noun == "info" else f"{count} {noun}s"
