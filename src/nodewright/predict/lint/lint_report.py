"""Lint findings as text, JSON, SARIF and JUnit, and the documentation pages of the rules."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.output.ci_formats import (
    COMMAND_BY_LEVEL,
    JUnitCase,
    JUnitSuite,
    SARIFLevel,
    SARIFResult,
    SARIFRule,
    SourcePosition,
    WorkflowCommand,
    junit_text,
    sarif_document,
)
from nodewright.documents.output.json_yaml import Report, ReportDocument
from nodewright.documents.output.text_layout import table
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.printable import counted, printable, printable_lines
from nodewright.model.reasons.api_server import LimitReason
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.quota import MustSpecify, QuotaExceeded
from nodewright.model.reasons.reason import Reason, kubelet_text, sentence
from nodewright.predict.explain.suggestion_text import suggestion_text
from nodewright.predict.lint.lint_model import (
    SEVERITIES_BY_RANK,
    ConfigSubject,
    DeviceSubject,
    FieldViolation,
    LimitRangeSubject,
    LintRule,
    PodSubject,
    QuotaSubject,
    Severity,
    Subject,
    SuggestedEdit,
)
from nodewright.predict.reported import reported

_CONSEQUENCE_BY_KIND = {
    "DaemonSet": "the DaemonSet controller recreates it at once, without end",
    "Job": "each counts as a failure of the Job, until its backoffLimit",
    "CronJob": "each counts as a failure of the Job, until its backoffLimit",
    "Pod": "the pod fails for good",
    "PodTemplate": "pods created from it fail",
}
_DEFAULT_CONSEQUENCE = "its controller creates another one each time, without end (a replica storm)"
_REFUSAL_BY_KIND = {
    "Pod": "the API server rejects it",
    "PodTemplate": "the API server rejects pods created from it",
}
_DEFAULT_REFUSAL = "no pod is created, and its controller keeps retrying"


def finding_text(rule: LintRule, violation: FieldViolation) -> str:
    """The finding's message, a sentence without a full stop."""
    facts = {name: _words(value) for name, value in violation.facts.items()}
    kind = str(violation.facts.get("kind", ""))
    if "fault" in facts:
        facts["fault"] = sentence(violation.facts["fault"])
    facts["consequence"] = _CONSEQUENCE_BY_KIND.get(kind, _DEFAULT_CONSEQUENCE)
    facts["refusal"] = _REFUSAL_BY_KIND.get(kind, _DEFAULT_REFUSAL)
    facts["sent"] = "the scheduler may bind it there, and " if violation.facts.get("scheduled") else ""
    cpus = facts.get("cpus")
    facts["pinned"] = f": no exclusive CPUs for {cpus}" if cpus else ""
    if "changes" in facts:
        facts["changes"] = f"; possible changes: {facts['changes']}" if facts["changes"] else ""
    return rule.page.message.format_map(facts)


def edits_in_file(
    edits: Iterable[SuggestedEdit], location: ObjectLocation | None
) -> tuple[SuggestedEdit, ...]:
    """The edits with paths from the root of their document, also for items of a list and for nested pod templates."""
    if location is None or location.is_live or not location.prefix:
        return tuple(edits)
    return tuple(replace(edit, path=f"{location.prefix}.{edit.path}") for edit in edits)


def fix_text(edits: tuple[SuggestedEdit, ...]) -> str:
    """The suggested edits as text; empty if there are none."""
    return "; ".join(map(_edit_text, edits))


def _edit_text(edit: SuggestedEdit) -> str:
    if edit.needs_value:
        return f"set {edit.path}"
    if edit.value is None:
        return f"remove {edit.path}"
    is_plain = isinstance(edit.value, str) and not edit.value.isdecimal()
    value = edit.value if is_plain else json.dumps(edit.value)
    return f"{edit.path}: {value}"


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return "; ".join(map(_words, value))
    if isinstance(value, InsufficientResource):
        return sentence(value)
    if isinstance(value, Suggestion):
        return suggestion_text(value)
    if isinstance(value, MustSpecify | QuotaExceeded | LimitReason):
        return value.message()
    if isinstance(value, Reason):
        reason = kubelet_text(value).reason
        return f"{sentence(value)}{f' ({reason})' if reason else ''}"
    return str(value)


LEVEL_BY_SEVERITY = {
    Severity.ERROR: SARIFLevel.ERROR,
    Severity.WARNING: SARIFLevel.WARNING,
    Severity.INFO: SARIFLevel.NOTE,
}


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with its position and its text."""

    rule: LintRule
    position: SourcePosition
    subject: str
    """Kind, namespace and name."""
    path: str
    text: str
    fix: str = ""
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    edits: tuple[SuggestedEdit, ...] = ()
    namespace: str = ""
    """Empty: the object has none."""
    location: ObjectLocation | None = None
    """The object; None: a finding about a comment."""

    def __str__(self) -> str:
        return f"{self.position}: {self.rule.severity}: {self.text} [{self.rule.id}]"


def lint_report_text(
    findings: Sequence[LintFinding], *, objects: int, quiet: bool = False, summary: bool = False
) -> str:
    """One line a finding with the edit below it, then the counts, unless ``quiet``; ``summary``: by namespace."""
    lines = []
    for finding in findings:
        lines.append(str(finding))
        lines.append(
            f"    fix in {finding.subject}: {finding.fix}" if finding.fix else f"    in {finding.subject}"
        )
    counted = [] if quiet else [counts_text(findings, objects)]
    by_namespace = summary_table(findings) if summary else ""
    return printable_lines([*lines, *counted]) + (f"\n{by_namespace}" if by_namespace else "")


def counts_text(findings: Sequence[LintFinding], objects: int) -> str:
    """The number of findings by severity."""
    counts = Counter(finding.rule.severity for finding in findings)
    parts = [_counted(counts[severity], str(severity)) for severity in SEVERITIES_BY_RANK if counts[severity]]
    return f"{', '.join(parts) or 'no findings'} in {_counted(objects, 'object')}"


class ReportedEdit(Report, frozen=True, kw_only=True):
    """A change of a field: a value, its removal, or a value that the user has to choose."""

    path: str
    choose: Literal[True] | UnsetType = UNSET
    value: Any | UnsetType = UNSET
    remove: Literal[True] | UnsetType = UNSET


class ReportedFinding(Report, frozen=True, kw_only=True):
    """A problem that a rule finds."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int
    subject: str = field(name="object")
    path: str
    """The path of the field."""
    message: str
    facts: Mapping[str, Any]
    """The names and numbers of the message."""
    fix: tuple[ReportedEdit, ...]
    """The edits that together correct it."""


class LintReport(ReportDocument, frozen=True, kw_only=True):
    """Problems in manifests and configuration: `nodewright lint`."""

    kind: Literal["LintReport"] = "LintReport"
    findings: tuple[ReportedFinding, ...]
    counts: Mapping[Severity, int]
    objects: int
    rules: tuple[str, ...]
    """The rules that ran."""


def lint_report(findings: Sequence[LintFinding], *, objects: int, rules: Sequence[LintRule]) -> LintReport:
    """The report of the findings."""
    counts = Counter(finding.rule.severity for finding in findings)
    return LintReport(
        findings=tuple(map(_reported_finding, findings)),
        counts={severity: counts[severity] for severity in SEVERITIES_BY_RANK},
        objects=objects,
        rules=tuple(rule.id for rule in rules),
    )


def lint_report_sarif(
    findings: Sequence[LintFinding], rules: Sequence[LintRule], version: str
) -> dict[str, Any]:
    """The findings as SARIF, with the rules that ran."""
    results = [
        SARIFResult(
            rule=finding.rule.id,
            level=LEVEL_BY_SEVERITY[finding.rule.severity],
            message=f"{finding.text}{f'. Fix: {finding.fix}' if finding.fix else ''}",
            position=finding.position,
            subject=finding.subject,
        )
        for finding in findings
    ]
    return sarif_document(results, [_sarif_rule(rule) for rule in rules], version)


def lint_report_commands(findings: Iterable[LintFinding]) -> Iterator[WorkflowCommand]:
    """The findings as workflow commands of GitHub Actions."""
    for finding in findings:
        fix = f". Fix: {finding.fix}" if finding.fix else ""
        yield WorkflowCommand(
            command=COMMAND_BY_LEVEL[LEVEL_BY_SEVERITY[finding.rule.severity]],
            title=finding.rule.id,
            position=finding.position,
            text=f"{finding.subject}: {finding.text}{fix}",
        )


def summary_table(findings: Iterable[LintFinding]) -> str:
    """The number of findings by namespace and severity; `-`: objects without a namespace."""
    counts: dict[str, Counter[Severity]] = {}
    for finding in findings:
        counts.setdefault(finding.namespace or "-", Counter())[finding.rule.severity] += 1
    rows = [
        (namespace, *(str(counts[namespace][severity]) for severity in SEVERITIES_BY_RANK))
        for namespace in sorted(counts)
    ]
    return table(("NAMESPACE", "ERRORS", "WARNINGS", "INFO"), rows) if rows else ""


def lint_report_junit(findings: Sequence[LintFinding], subjects: Sequence[tuple[str, SourcePosition]]) -> str:
    """JUnit XML with one test case an object, which fails if the object has findings."""
    cases = []
    of_subject: dict[str, list[LintFinding]] = {}
    for finding in findings:
        of_subject.setdefault(f"{finding.position.file} {finding.subject}", []).append(finding)
    names = [(f"{position.file} {name}", name, position) for name, position in subjects]
    known = {key for key, _, _ in names}
    names += [
        (key, matching[0].subject, matching[0].position)
        for key, matching in of_subject.items()
        if key not in known
    ]
    for key, name, position in names:
        matching = of_subject.get(key, [])
        cases.append(
            JUnitCase(
                name=name,
                failure="; ".join(f"{finding.rule.id}: {finding.text}" for finding in matching[:1]),
                details="\n".join(printable(str(finding)) for finding in matching),
                file=position.file,
                line=matching[0].position.line if matching else position.line,
            )
        )
    return junit_text([JUnitSuite(name="nodewright lint", cases=tuple(cases))])


def _sarif_rule(rule: LintRule) -> SARIFRule:
    page = rule.page
    why = f"{page.rationale}\n\n{page.remedy}"
    return SARIFRule(
        id=rule.id, summary=f"{page.title}.", level=LEVEL_BY_SEVERITY[rule.severity], rationale=why
    )


def _reported_finding(finding: LintFinding) -> ReportedFinding:
    return reported(
        ReportedFinding,
        finding,
        **msgspec.structs.asdict(finding.position),
        rule=finding.rule.id,
        severity=finding.rule.severity,
        message=finding.text,
        fix=tuple(map(_reported_edit, edits_in_file(finding.edits, finding.location))),
    )


def _reported_edit(edit: SuggestedEdit) -> ReportedEdit:
    if edit.needs_value:
        return ReportedEdit(path=edit.path, choose=True)
    return reported(ReportedEdit, edit, remove=True if edit.value is None else UNSET)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if noun == "info" else counted(count, noun)


SUBJECT_NAMES: dict[type[Subject] | None, str] = {
    PodSubject: "pods and workloads",
    ConfigSubject: "KubeletConfigurations",
    LimitRangeSubject: "LimitRanges",
    QuotaSubject: "ResourceQuotas",
    DeviceSubject: "ResourceClaims, ResourceClaimTemplates and DeviceClasses",
    None: "all files",
}


_SUPPRESS = (
    "Write a comment `# nodewright: ignore {rule} REASON` beside or above the field, set the annotation "
    "`nodewright.dev/ignore: {rule}` on the object, or pass `--disable {rule}` for all files."
)


def rule_page(rule: LintRule) -> str:
    """The page of a rule as Markdown."""
    page = rule.page
    needs = " Needs nodes (`--node`)." if rule.needs_node else ""
    since = f" From Kubernetes {rule.since} on." if rule.since else ""
    parts = [
        f"# {rule.id}: {page.title}",
        f"Severity: **{rule.severity}**. Checks {SUBJECT_NAMES[rule.subject_type]}.{needs}{since}",
        "## Why",
        page.rationale,
        "## What to do",
        page.remedy,
        f"## Bad{_node_options(rule)}",
        f"```yaml\n{page.bad}```",
        "## Good",
        f"```yaml\n{page.good}```",
    ]
    if page.kubelet_config:
        parts += ["## The kubelet of the examples", f"```yaml\n{page.kubelet_config}```"]
    parts += ["## Suppress", _SUPPRESS.format(rule=rule.id)]
    return "\n\n".join(parts) + "\n"


def rules_page(rules: Iterable[LintRule]) -> str:
    """The list of all rules as Markdown."""
    lines = [
        "# Rules of nodewright lint",
        "",
        "Ids never change their meaning. NW1xx check pods, NW2xx pods on the given nodes, NW3xx the kubelet's",
        "configuration, NW4xx the limits of namespaces, NW5xx claims for devices; NW001 checks ignores. Generated from the",
        "code by `make docs`.",
        "[Traps](traps.md) lists the known traps of Kubernetes that they cover, and those that no file can show.",
        "",
        "| Rule | Severity | Finding | Needs nodes | Since |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {rule.page.title} | {'yes' if rule.needs_node else ''} | {rule.since} |"
        for rule in rules
    ]
    return "\n".join([*lines, ""])


def rules_table(rules: Iterable[LintRule]) -> str:
    """The list of all rules for a terminal."""
    rows = [
        (
            rule.id,
            str(rule.severity),
            "yes" if rule.needs_node else "-",
            rule.since or "-",
            rule.page.title,
        )
        for rule in rules
    ]
    return table(("RULE", "SEVERITY", "NEEDS NODES", "SINCE", "FINDING"), rows)


def _node_options(rule: LintRule) -> str:
    page = rule.page
    if not page.node:
        return ""
    nodes = " ".join(f"--node {name}" for name in page.node.split())
    return f" (with `{nodes}{' --kubelet-config kubelet.yaml' if page.kubelet_config else ''}`)"
