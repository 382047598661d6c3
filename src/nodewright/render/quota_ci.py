"""What becomes of manifests under quotas, for CI: JUnit and SARIF."""

from typing import Any

from nodewright.model.quota_reasons import MustSpecify, QuotaExceeded
from nodewright.namespace.apply import Outcome
from nodewright.namespace.prices import LimitsBroken
from nodewright.render.findings import Finding, Level, Rule
from nodewright.render.junit import Case, Suite, junit_text
from nodewright.render.quota import QuotaReport, Subject, mending_lines, refusal_text
from nodewright.render.sarif import sarif_document

_EXCEEDED = Rule(
    id="quota-exceeded",
    summary="Every object has room in the quotas of its namespace.",
    why="The API server refuses what would take a quota beyond `spec.hard`. Raise it, or ask for less.",
)
_UNSPECIFIED = Rule(
    id="quota-must-specify",
    summary="Where a quota counts cpu or memory, every container says what it needs of them.",
    why="Give the container requests and limits, or the namespace a LimitRange with defaults.",
)
_BEYOND_LIMITS = Rule(
    id="limit-range",
    summary="Every object keeps within the limit ranges of its namespace.",
    why="The API server refuses requests and limits below `min`, above `max` or too far apart.",
)
_FORBIDDEN = Rule(
    id="quota-forbidden", summary="Quotas can be applied to every object.", why="See the message."
)
RULES = (_EXCEEDED, _UNSPECIFIED, _BEYOND_LIMITS, _FORBIDDEN)


def quota_junit(report: QuotaReport) -> str:
    """A suite a namespace, a case an object: it passes if all that it brings gets in."""
    suites: dict[str, list[Case]] = {}
    failed: dict[int, list[Outcome]] = {}
    for one in report.applied.refusals:
        failed.setdefault(one.manifest, []).append(one)
    for index in dict.fromkeys(one.manifest for one in report.applied.outcomes):
        subject = report.subjects[index]
        suites.setdefault(subject.namespace, []).append(_case(subject, failed.get(index, []), report))
    return junit_text([Suite(name=f"quota.{name}", cases=tuple(cases)) for name, cases in suites.items()])


def quota_sarif(report: QuotaReport, version: str) -> dict[str, Any]:
    """A result for each sort of objects that does not get in, at the object which brings them."""
    findings = [
        Finding(
            rule=_rule(one).id,
            level=Level.ERROR,
            message=_message(one),
            spot=report.subjects[one.manifest].spot,
            subject=str(report.subjects[one.manifest]),
        )
        for one in report.applied.refusals
        if one.refusal is not None
    ]
    return sarif_document(findings, RULES, version)


def _case(subject: Subject, failed: list[Outcome], report: QuotaReport) -> Case:
    texts = [_message(one) for one in failed if one.refusal is not None]
    return Case(
        name=f"{subject.kind}/{subject.name}",
        failure=texts[0] if texts else "not tried" if failed else "",
        details="\n".join([*texts, *mending_lines(report)]) if texts else "",
        file=subject.spot.file,
        line=subject.spot.line,
    )


def _message(one: Outcome) -> str:
    assert one.refusal is not None, "nothing to tell of what was never tried"
    text = refusal_text(one.resource, one.refusal)
    return text if one.wanted == 1 else f"{one.admitted} of {one.wanted} get in: {text}"


def _rule(one: Outcome) -> Rule:
    assert one.refusal is not None, "as above"
    match one.refusal.because:
        case QuotaExceeded():
            return _EXCEEDED
        case MustSpecify():
            return _UNSPECIFIED
        case LimitsBroken():
            return _BEYOND_LIMITS
        case _:
            return _FORBIDDEN
