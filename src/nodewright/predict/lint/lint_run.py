"""Runs the lint rules and drops findings that comments or annotations ignore.

Files of a cluster have thousands of workloads that differ in names, labels, images and variables only. A pod that is like one
without violations has none, so it is not checked again. A rule that reads one of these fields says so (`LintRule.reads`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nodewright.documents.formats.documents import decode_text
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.output.ci_formats import SourcePosition
from nodewright.engine.core.requests.resource_breakdown import OS_LABEL
from nodewright.model.errors import ENCODING_ERRORS
from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.predict.lint.lint_input import LintInput
from nodewright.predict.lint.lint_model import (
    ConfigSubject,
    FieldViolation,
    LintContext,
    LintRule,
    PodSubject,
    RuleViolation,
    Subject,
)
from nodewright.predict.lint.lint_report import LintFinding, edits_in_file, finding_text, fix_text
from nodewright.predict.lint.rules import ALL_RULES, RULES_BY_ID, RuleSelection, unused_ignore

ANNOTATION = "nodewright.dev/ignore"
_COMMENT = lazy_pattern(r"(?:^|\s)#\s*nodewright:\s*ignore\s+(NW\d+(?:\s*,\s*NW\d+)*)(.*)$", re.MULTILINE)
_RULE = lazy_pattern(r"NW\d+")
_DOCUMENT = lazy_pattern(r"---(\s|$)|\.\.\.(\s|$)|%")


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, and the objects and rules that were checked."""

    findings: tuple[LintFinding, ...]
    """In the order of the files and their lines."""
    subjects: tuple[tuple[str, ObjectLocation], ...]
    """The objects that were checked, with their locations."""
    rules: tuple[LintRule, ...]
    """The rules that ran."""


def lint_result(lint_input: LintInput, selection: RuleSelection) -> LintResult:
    """The findings of the selected rules without ignored ones, and with unused ignores."""
    rules = selection.rules(with_nodes=bool(lint_input.context.nodes))
    context = lint_input.context
    ignores = _IgnoreIndex.of(
        lint_input,
        (
            rule
            for rule in rules
            if not rule.since or any(applies(rule, each, context) for each in lint_input.subjects)
        ),
    )
    # A configuration that several nodes share is checked for each of them and reported once.
    findings = {
        _key(finding): finding
        for finding, subject in _all_findings(lint_input, selection)
        if not ignores.suppresses(finding, subject)
    }
    if selection.includes(unused_ignore):
        rules = (unused_ignore, *rules)
        findings |= {_key(finding): finding for finding in ignores.unused()}
    order = {source: number for number, source in enumerate(lint_input.files)}
    return LintResult(
        findings=tuple(
            sorted(
                findings.values(),
                key=lambda finding: (order.get(file := finding.position.file, 0), file, *_key(finding)),
            )
        ),
        subjects=tuple(
            (_label(subject), lint_input.places[subject.number]) for subject in lint_input.subjects
        ),
        rules=rules,
    )


class IgnoreDirective(msgspec.Struct, frozen=True):
    """A rule that is ignored in some lines of a file."""

    rule: str
    line: int
    """The line of the directive, from 1."""
    first_line: int
    """The first of the lines that it covers."""
    last_line: int
    reason: str = ""

    def covers(self, rule: str, line: int) -> bool:
        """Whether it covers a finding of the rule in this line."""
        return rule == self.rule and self.first_line <= line <= self.last_line


def comment_directives(text: str) -> tuple[IgnoreDirective, ...]:
    r"""The ignores in the comments of a YAML text.

    A comment beside a field covers the field and its content; one on a separate line covers what follows it; one
    above everything else in a document covers the whole document.

    >>> [directive] = comment_directives("a:\n  # nodewright: ignore NW103 as intended\n  b:\n    c: 1\n  d: 2\n")
    >>> directive.rule, directive.first_line, directive.last_line, directive.reason
    ('NW103', 3, 4, 'as intended')
    """
    if "nodewright:" not in text:
        return ()
    lines = text.splitlines()
    directives = []
    for match in _COMMENT.finditer(text):
        line = text.count("\n", 0, match.start(1)) + 1
        first, last = _covered_lines(lines, line)
        reason = match[2].strip().lstrip(":- ").strip()
        directives += [IgnoreDirective(rule, line, first, last, reason) for rule in _RULE.findall(match[1])]
    return tuple(directives)


def annotated_rule_ids(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The rules that an object's annotation names.

    >>> annotated_rule_ids({"nodewright.dev/ignore": "NW101, NW103"})
    ('NW101', 'NW103')
    """
    return tuple(_RULE.findall(annotations.get(ANNOTATION, "")))


def rule_ids(texts: Iterable[str]) -> frozenset[str]:
    """The ids in texts such as `NW101,NW102`."""
    return frozenset(name for text in texts for name in _RULE.findall(text))


def _covered_lines(lines: Sequence[str], number: int) -> tuple[int, int]:
    """The first and last line that a comment covers."""
    first = number
    if lines[number - 1].lstrip().startswith("#"):
        first = next((at for at in range(number + 1, len(lines) + 1) if _has_content(lines[at - 1])), number)
        if _begins_document(lines, number) or _DOCUMENT.match(lines[first - 1]):
            start = first if not _DOCUMENT.match(lines[first - 1]) else first + 1
            ends = (at for at in range(start, len(lines) + 1) if _DOCUMENT.match(lines[at - 1]))
            return first, next(ends, len(lines) + 1) - 1
    indent = _indent(lines[first - 1])
    last = first
    for at in range(first + 1, len(lines) + 1):
        line = lines[at - 1]
        if not _has_content(line):
            continue
        if _indent(line) < indent or (_indent(line) == indent and not _is_item_of(lines[first - 1], line)):
            break
        last = at
    return first, last


def _is_item_of(opening: str, line: str) -> bool:
    """Whether the line is an item of the opening line's list, which is not indented further."""
    key = opening.partition("#")[0].strip()
    return line.lstrip().startswith("- ") and key.endswith(":") and not key.startswith("- ")


def _has_content(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith("#")


def _begins_document(lines: Sequence[str], number: int) -> bool:
    """Whether the line is the first one of its document with content."""
    for at in range(number - 1, 0, -1):
        if _DOCUMENT.match(lines[at - 1]):
            return True
        if _has_content(lines[at - 1]):
            return False
    return True


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


DIRECTIVE_PREFIX = b"nodewright:"
_MAX_KEPT = 4096
"""Number of texts of pods without violations."""


def rule_violations(
    subjects: Iterable[Subject], context: LintContext, selection: RuleSelection = ALL_RULES
) -> Iterator[RuleViolation]:
    """The violations of the selected rules, object by object in the given order, rule by rule.

    The violations of an object do not depend on that order. A pod that is like one without violations has none.
    """
    rules = selection.rules(with_nodes=bool(context.nodes))
    reads = frozenset[str]().union(*(rule.reads for rule in rules))
    applied: dict[tuple[type[Subject], str], list[LintRule]] = {}
    sound_texts: set[bytes] = set()
    for subject in subjects:
        text = decisive_text(subject, reads) if isinstance(subject, PodSubject) else None
        if text in sound_texts:
            continue
        key = type(subject), subject.release if isinstance(subject, ConfigSubject) else ""
        if key not in applied:
            applied[key] = [
                rule
                for rule in rules
                if isinstance(subject, rule.subject_type or ()) and applies(rule, subject, context)
            ]
        is_sound = True
        for rule in applied[key]:
            for violation in rule.check(subject, context):
                is_sound = False
                yield RuleViolation(rule=rule, subject=subject, violation=violation)
        if is_sound and text is not None and len(sound_texts) < _MAX_KEPT:
            sound_texts.add(text)


def applies(rule: LintRule, subject: Subject, context: LintContext) -> bool:
    """Whether the rule is about the release of the subject: of its kubelet, or of any kubelet that a pod may run on."""
    if not rule.since:
        return True
    order = list(RELEASE_TABLES)
    releases = {subject.release} if isinstance(subject, ConfigSubject) else context.releases
    return any(order.index(release) >= order.index(rule.since) for release in releases)


_NAMES = frozenset({"name", "generateName", "labels", "uid"})
_PROGRAM = frozenset({"image", "env", "envFrom", "command", "args"})
"""Fields of a pod's metadata and of its containers in which alike pods differ, unless a rule reads them."""


def decisive_text(subject: PodSubject, reads: frozenset[str] = frozenset()) -> bytes | None:
    """A text that is equal for pods about which the rules find the same; None: the pod is checked alone.

    It has everything that is written in the pod, except names, labels other than the operating system's, and what the
    containers run; of these it has the fields that the rules read. What plugins and limit ranges add follows from that and from the namespace, unless the pod is refused.
    """
    template: Any = subject.document
    for step in subject.prefix.split(".")[:-1]:
        template = template.get(step) if isinstance(template, Mapping) else None
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return None
    meta = template.get("metadata") or {}
    spec = {name: _without(value, _PROGRAM - reads) for name, value in template["spec"].items()}
    own_meta = subject.document.get("metadata") or {}
    decisive = (
        subject.kind,
        subject.namespace,
        subject.prefix,
        subject.is_static,
        subject.pod is subject.as_submitted,
        subject.refusal is None,
        bool(own_meta.get("uid")),
        (meta.get("labels") or {}).get(OS_LABEL),
        {name: value for name, value in meta.items() if name not in _NAMES - reads},
        {**template, "apiVersion": None, "metadata": None, "spec": spec},
    )
    try:
        return msgspec.json.encode(decisive)
    except ENCODING_ERRORS:
        return None


def _without(value: Any, names: frozenset[str]) -> Any:
    """The field of a spec; of its list items, such as containers, all but these fields."""
    if not isinstance(value, list):
        return value
    return [
        {name: part for name, part in item.items() if name not in names} if isinstance(item, dict) else item
        for item in value
    ]


def _key(finding: LintFinding) -> tuple[int, int, str, str, str, str]:
    position = finding.position
    return position.line, position.column, finding.rule.id, finding.subject, finding.text, position.file


def _all_findings(lint_input: LintInput, selection: RuleSelection) -> Iterator[tuple[LintFinding, Subject]]:
    for rule_violation in rule_violations(lint_input.subjects, lint_input.context, selection):
        violation, subject = rule_violation.violation, rule_violation.subject
        finding = LintFinding(
            rule=rule_violation.rule,
            position=position_of(lint_input.places[subject.number], violation.path),
            subject=_label(subject),
            path=violation.path,
            text=finding_text(rule_violation.rule, violation),
            fix=fix_text(edits_in_file(violation.edits, lint_input.places[subject.number])),
            facts=violation.facts,
            edits=violation.edits,
            namespace=getattr(subject, "namespace", ""),
            location=lint_input.places[subject.number],
        )
        yield finding, subject


def _label(subject: Subject) -> str:
    return f"{subject.kind} {subject.full_name}"


def position_of(place: ObjectLocation, path: str = "") -> SourcePosition:
    """The position of an object's field, or of the object; of an object of a cluster its kind, namespace and name."""
    if place.is_live:
        return SourcePosition(file=place.label.replace(" ", "/", 1))
    line, column = place.position(path) or (0, 0)
    return SourcePosition(file=place.source, line=line, column=column)


@dataclass
class _IgnoreIndex:
    """All ignores of the files, and which of them were used."""

    lint_input: LintInput
    active_rule_ids: frozenset[str]
    """The rules that ran."""
    comments: Mapping[str, tuple[IgnoreDirective, ...]]
    used: set[tuple[str | int, IgnoreDirective | str]] = field(default_factory=set)

    @classmethod
    def of(cls, lint_input: LintInput, rules: Iterable[LintRule]) -> "_IgnoreIndex":
        """The ignores in the files."""
        comments = {
            source: comment_directives(decode_text(content, source))
            for source, content in lint_input.files.items()
            if DIRECTIVE_PREFIX in content or not content.isascii()
        }
        return cls(lint_input, frozenset(rule.id for rule in rules), comments)

    def suppresses(self, finding: LintFinding, subject: Subject) -> bool:
        """Whether an ignore covers the finding."""
        rule, position = finding.rule.id, finding.position
        hits: set[tuple[str | int, IgnoreDirective | str]] = {
            (position.file, directive)
            for directive in self.comments.get(position.file, ())
            if directive.covers(rule, position.line)
        }
        if rule in _annotations(subject):
            hits.add((subject.number, rule))
        self.used |= hits
        return bool(hits)

    def unused(self) -> Iterator[LintFinding]:
        """Findings for ignores that cover nothing, of rules that ran; and for unknown rules."""
        for source, ignores in self.comments.items():
            for ignore in ignores:
                if (source, ignore) not in self.used and self._counts(ignore.rule):
                    yield _unused(ignore.rule, SourcePosition(file=source, line=ignore.line), "comment")
        for subject in self.lint_input.subjects:
            for rule in _annotations(subject):
                if (subject.number, rule) not in self.used and self._counts(rule):
                    position = position_of(
                        self.lint_input.places[subject.number], f"metadata.annotations[{ANNOTATION}]"
                    )
                    yield _unused(rule, position, _label(subject))

    def _counts(self, rule: str) -> bool:
        return rule in self.active_rule_ids or rule not in RULES_BY_ID


def _unused(rule: str, position: SourcePosition, subject: str) -> LintFinding:
    what = "remove the ignore" if rule in RULES_BY_ID else "unknown rule"
    violation = FieldViolation(path="", facts={"rule": rule, "what": what})
    return LintFinding(
        rule=unused_ignore,
        position=position,
        subject=subject,
        path="",
        text=finding_text(unused_ignore, violation),
        facts=violation.facts,
    )


def _annotations(subject: Subject) -> tuple[str, ...]:
    """The rules that the annotations of the object or of its pod template name."""
    meta = subject.document.get("metadata")
    own = meta.get("annotations") if isinstance(meta, dict) else None
    named = annotated_rule_ids(own) if isinstance(own, dict) else ()
    if isinstance(subject, PodSubject):
        named += annotated_rule_ids(subject.as_written.metadata.annotations)
    return tuple(dict.fromkeys(named))
